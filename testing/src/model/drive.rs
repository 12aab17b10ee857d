//! Runs the same operations on a file system and on the model, and compares every answer, and
//! periodically the whole state.

use device::Timestamp;
use inode::Caller;

use super::dump::{Dump, Subject};
use super::generate::Generator;
use super::op::{Op, OpPath, Target};
use super::state::FsModel;
use super::verdict::{Effect, ErrorKind, Stat, Verdict};

impl Subject for FsModel {
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Result<Effect, ErrorKind> {
        match self.apply(now, caller, op) {
            Verdict::Ok(effect) => Ok(effect),
            Verdict::Fail(kinds) | Verdict::Either(kinds) => Err(kinds[0]),
        }
    }

    fn identity(&mut self, path: &OpPath) -> u64 {
        self.walk(path).expect("invariant: paths that are dumped exist")
    }
}

/// When the whole state is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// After this many operations.
    pub every: usize,
}

/// Statistics of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations.
    pub ops: usize,
    /// Those that succeeded.
    pub succeeded: usize,
    /// Comparisons of the whole state.
    pub compared: usize,
}

/// A model beside a file system.
pub struct Driver<'a> {
    /// The file system.
    pub subject: &'a mut dyn Subject,
    /// The model.
    pub model: FsModel,
    seed: u64,
    now: i64,
    report: Report,
    /// The last operations, for the message of a failure.
    history: Vec<String>,
}

impl<'a> Driver<'a> {
    /// A driver over an empty volume.
    pub fn new(subject: &'a mut dyn Subject, snapshot_dir: &[u8], seed: u64) -> Driver<'a> {
        let root = Op::Stat { target: Target::Path(OpPath::new()) };
        let stat = match subject.run(Timestamp(0), &Caller::root(), &root) {
            Ok(Effect::Stat(stat)) => stat,
            other => panic!("stat of the root answers {other:?}"),
        };
        let now = stat.ctime;
        let mut model = FsModel::new(Timestamp(now), snapshot_dir);
        model.set_root(&Stat { nlink_slack: 0, ..stat });
        Driver { subject, model, seed, now, report: Report::default(), history: Vec::new() }
    }

    /// Runs one operation on both and compares the answers.
    pub fn step(&mut self, caller: &Caller, op: &Op) {
        // More time than background work takes.
        self.now += 10_000_000_007;
        let now = Timestamp(self.now);
        self.history.push(format!("{:>5} uid {} {op}", self.report.ops, caller.uid));
        let before = self.model.clone();
        let right = self.model.apply(now, caller, op);
        let seen = self.subject.run(now, caller, op);
        self.report.ops += 1;
        self.report.succeeded += usize::from(seen.is_ok());
        if let (Verdict::Either(_), Ok(_)) = (&right, &seen) {
            self.model = before;
        }
        if !right.admits(&seen) {
            self.fail(&format!("answered {seen:?}, should have been {right:?}"));
        }
    }

    /// Compares everything.
    pub fn compare(&mut self) {
        let snapshot_dir = self.model.snapshot_dir.clone();
        let right = Dump::collect(&mut self.model, &snapshot_dir);
        let seen = Dump::collect(self.subject, &snapshot_dir);
        let differences = right.differences(&seen);
        self.report.compared += 1;
        if !differences.is_empty() {
            self.fail(&differences.join("\n"));
        }
    }

    /// Runs `ops` random operations.
    pub fn run(mut self, generator: &mut Generator, ops: usize, when: Comparison) -> Report {
        for at in 1..=ops {
            let (caller, op) = generator.next(&self.model);
            self.step(&caller, &op);
            if at.is_multiple_of(when.every) || op == Op::Reopen {
                self.compare();
            }
        }
        self.compare();
        self.report
    }

    fn fail(&self, what: &str) -> ! {
        let shown = self.history.len().min(60);
        let last = &self.history[self.history.len() - shown..];
        panic!("seed {}: after\n{}\n{what}", self.seed, last.join("\n"));
    }
}
