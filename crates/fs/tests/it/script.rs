//! Shared code of the crash, damage and full-disk tests. A random script runs on a volume and on
//! the model, and yields the list of states in which the volume may be found.

use std::sync::Arc;
use std::time::Duration;

use device::Timestamp;
use device::sync::Mutex;
use fs::{FileSystem, OpenOptions};
use inode::Caller;
use search::index::{ClusterLimits, IndexOptions};
use store::Durability;
use testing::SimDevice;
use testing::model::{
    Dump, Effect, ErrorKind, FsModel, Generator, Op, Stat, Subject, Target, Verdict, blame,
};

use crate::small_index::small_index;
use crate::subject::{Base, FsSubject};

/// Name of the virtual directory of snapshots.
pub(crate) const SNAPSHOTS: &[u8] = b".snapshots";

/// The first time of a script.
const START: i64 = 1_700_000_000_000_000_000;

/// A count for `make test`, or the one for `make soak-crash`.
pub(crate) fn scale(quick: u64, slow: u64) -> u64 {
    if testing::run::slow() { slow } else { quick }
}

/// The states that a volume went through, and the oldest that a crash may bring back.
#[derive(Default)]
pub(crate) struct States {
    /// After each operation that changed something, the one in flight included.
    pub(crate) dumps: Vec<Arc<Dump>>,
    /// The last state that was acknowledged as durable.
    pub(crate) durable: usize,
    /// What is being done, for messages.
    pub(crate) doing: String,
}

/// A volume with its model and its states.
pub(crate) struct Script {
    pub(crate) subject: FsSubject,
    pub(crate) model: FsModel,
    pub(crate) states: Arc<Mutex<States>>,
    generator: Generator,
    options: OpenOptions,
    now: i64,
    steps: u64,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// As in the model.
    Done,
    /// For lack of space; the model was reset.
    NoSpace,
    /// The volume takes no more changes; the model was put back.
    ReadOnly,
    /// With an I/O error. Whether it happened is open: it stays among the states.
    Failed,
}

impl Script {
    /// A script on a fresh volume.
    pub(crate) fn new(
        device: &SimDevice,
        seed: u64,
        durability: Durability,
        base: &Base,
    ) -> Script {
        let options = options(durability);
        let mut subject = FsSubject::format(device, &options, base);
        let mut model = FsModel::new(Timestamp(START), SNAPSHOTS);
        let root = Op::Stat { target: Target::Path(Vec::new()) };
        match subject.run(Timestamp(START), &Caller::root(), &root) {
            Ok(Effect::Stat(stat)) => model.set_root(&Stat { nlink_slack: 0, ..stat }),
            other => panic!("stat of the root answers {other:?}"),
        }
        let mut script = Script {
            subject,
            model,
            states: Arc::default(),
            generator: Generator::new(seed),
            options,
            now: START,
            steps: 0,
        };
        script.subject.fs().sync_all().expect("a fresh volume syncs");
        script.remember(String::from("nothing"));
        script
    }

    fn remember(&mut self, doing: String) {
        let dump = Arc::new(Dump::collect(&mut self.model, SNAPSHOTS));
        let mut states = self.states.lock();
        states.dumps.push(dump);
        states.doing = doing;
    }

    /// Runs the next operation. Every fifth is a sync.
    pub(crate) fn step(&mut self) -> Step {
        self.steps += 1;
        if self.steps.is_multiple_of(4) {
            match self.subject.background(6).map_err(|error| blame(&error)) {
                Ok(()) | Err(ErrorKind::NoSpace | ErrorKind::ReadOnly) => {}
                Err(ErrorKind::Io) => return Step::Failed,
                Err(error) => panic!("step {}: background: {error:?}", self.steps),
            }
        }
        self.now += 1_000_000_007;
        let (caller, op) = if self.steps.is_multiple_of(5) {
            (Caller::root(), Op::Fsync { target: Target::Path(Vec::new()) })
        } else {
            self.generator.next(&self.model)
        };
        let before = self.model.clone();
        let right = self.model.apply(Timestamp(self.now), &caller, &op);
        if let Verdict::Either(_) = right {
            self.model = before;
            return Step::Done;
        }
        self.remember(format!("step {}: {op:?}", self.steps));
        let seen = self.subject.run(Timestamp(self.now), &caller, &op);
        if seen == Err(ErrorKind::Io) {
            return Step::Failed;
        }
        if seen.is_err() && !right.is_ok() {
            // Perhaps for a reason other than the model's, which the model's own test looks at.
            return Step::Done;
        }
        let starved = match seen {
            Err(ErrorKind::NoSpace) => Some(Step::NoSpace),
            Err(ErrorKind::NotSupported | ErrorKind::CrossSubvolume) => Some(Step::Done),
            Err(ErrorKind::ReadOnly) if right.is_ok() => Some(Step::ReadOnly),
            _ => None,
        };
        if let Some(step) = starved {
            self.model = before;
            self.states.lock().dumps.pop();
            return step;
        }
        assert!(right.admits(&seen), "step {}: {op:?}: {seen:?} not {right:?}", self.steps);
        let syncs = matches!(op, Op::Fsync { .. } | Op::Reopen);
        if seen.is_ok() && (syncs || self.options.durability == Durability::Sync) {
            let mut states = self.states.lock();
            states.durable = states.dumps.len() - 1;
        }
        Step::Done
    }

    /// Compares everything with the model.
    pub(crate) fn compare(&mut self) {
        let right = Dump::collect(&mut self.model, SNAPSHOTS);
        let seen = Dump::collect(&mut self.subject, SNAPSHOTS);
        let differences = right.differences(&seen);
        assert!(differences.is_empty(), "step {}:\n{}", self.steps, differences.join("\n"));
    }
}

/// How the volumes of these tests are opened: with a short log, and checkpoints every few steps.
pub(crate) fn options(durability: Durability) -> OpenOptions {
    OpenOptions {
        cache_bytes: 4 << 20,
        durability,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 24 << 10,
        prune_records: 4,
        index: Some(index_options()),
        ..OpenOptions::default()
    }
}

/// Queries use several threads at once, and read the log however long it is.
fn index_options() -> IndexOptions {
    IndexOptions {
        alone: Duration::ZERO,
        fold_alone: 3,
        logged_row_bytes: u64::MAX,
        ..small_index()
    }
}

/// The same for larger volumes, with bases that come when they are requested.
pub(crate) fn options_without_due_bases(index_cache_bytes: usize) -> OpenOptions {
    let mut options = options(Durability::Async);
    (options.cache_bytes, options.checkpoint_bytes) = (8 << 20, 4 << 20);
    let index = options.index.as_mut().expect("an index");
    index.cache_bytes = index_cache_bytes;
    index.limits = ClusterLimits { directories: 8, rows: 250 };
    index.flush.rows_min = 1 << 30;
    index.flush.age = Duration::from_secs(1 << 30);
    options
}

/// Checks that a volume is in one of the states that it may be in, and returns which.
pub(crate) fn check_state(subject: &mut FsSubject, states: &States, place: &str) -> usize {
    let seen = Dump::collect(subject, SNAPSHOTS);
    let mut nearest: Option<(usize, Vec<String>)> = None;
    for at in (states.durable..states.dumps.len()).rev() {
        let differences = states.dumps[at].differences(&seen);
        if differences.is_empty() {
            return at;
        }
        if nearest.as_ref().is_none_or(|(_, fewest)| differences.len() < fewest.len()) {
            nearest = Some((at, differences));
        }
    }
    let (at, differences) = nearest.expect("there is a state");
    panic!(
        "{place}, in {}: the volume is in none of the states {} to {}; nearest is {at}:\n{}",
        states.doing,
        states.durable,
        states.dumps.len() - 1,
        differences.join("\n")
    );
}
