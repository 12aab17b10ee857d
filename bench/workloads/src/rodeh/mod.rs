//! The experiments of Rodeh's paper (section 7), on the engine alone.
//!
//! A base tree of 8-byte keys and values is created by random insertions and removals, and kept if
//! a directory is given. A run clones it, warms the cache until it is full, ages the clone by
//! 1,000 operations, measures, and drops the clone. Nodes are read with `O_DIRECT`, so that a miss
//! of the engine's cache reads the disk and not the page cache. In the same run `ideal` measures
//! the speed of the disk and of an ordered map. From that follows the throughput of a structure
//! that needs no index and no processor time.

mod report;
mod ideal;
mod work;
mod base;

use device::{Clock, SystemClock};
use store::TreeId;
use wire::{Failure, FailureKind};

use super::Run;
use super::engine::checkpoint;
use crate::cli::{BenchArgs, Mix, Workload};
use base::Base;
use ideal::Ideal;
use program::failure::Result;
use program::output::Output;
use report::Report;
use work::{Measured, Work};

/// Operations by which a clone is aged before it is measured.
const AGE: u64 = 1000;

/// Threads that fill the cache.
const WARM_THREADS: u64 = 10;

/// Consecutive keys per run of operations with locality.
const LOCAL_KEYS: u64 = 100;

/// Clones of `rodeh-clones256`.
const CLONES: u64 = 256;

/// `rodeh-checkpoint` begins a checkpoint after the operations divided by this number.
const CHECKPOINT_AFTER: u64 = 5;

/// Whether a workload is one of these.
pub(super) fn is_rodeh(workload: Workload) -> bool {
    !matches!(mix_of(workload), Chosen::Foreign)
}

enum Chosen {
    /// The workload determines its mix.
    Fixed(Mix),
    /// `--mix` sets it.
    Free,
    Foreign,
}

fn mix_of(workload: Workload) -> Chosen {
    match workload {
        Workload::RodehSearch100 => Chosen::Fixed(Mix::Search100),
        Workload::RodehSearch80 | Workload::RodehClones256 => Chosen::Fixed(Mix::Search80),
        Workload::RodehModify => Chosen::Fixed(Mix::Modify),
        Workload::RodehInsert | Workload::RodehAppend => Chosen::Fixed(Mix::Insert),
        Workload::RodehRemove => Chosen::Fixed(Mix::Remove),
        Workload::RodehCheckpoint | Workload::RodehClones2 => Chosen::Free,
        _ => Chosen::Foreign,
    }
}

/// Refuses options that the workload would ignore.
pub(super) fn check(args: &BenchArgs) -> Result<()> {
    let rodeh = &args.rodeh;
    // Some others use the number of operations.
    let counted = matches!(args.workload, Workload::Lookup | Workload::Stat | Workload::TwoThreads);
    let given = rodeh.in_memory_percent.is_some()
        || rodeh.operations.is_some() && !counted
        || rodeh.seed.is_some()
        || rodeh.mix.is_some();
    let message = match mix_of(args.workload) {
        Chosen::Foreign if given => {
            "--in-memory-percent, --operations, --seed and --mix belong to the rodeh workloads"
        }
        Chosen::Fixed(_) | Chosen::Free if args.cache_size.is_some() => {
            "the cache of the rodeh workloads is set by --in-memory-percent"
        }
        Chosen::Fixed(_) if rodeh.mix.is_some() => {
            "--mix belongs to rodeh-checkpoint and rodeh-clones2; the others are a mix by name"
        }
        _ => return Ok(()),
    };
    Err(Failure::new(FailureKind::Invalid, message))
}

/// One run.
struct Rodeh<'a> {
    run: &'a Run<'a>,
    base: Base,
    clock: SystemClock,
    mix: Mix,
    work: Work,
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let args = run.args;
    let mix = match mix_of(args.workload) {
        Chosen::Fixed(mix) => mix,
        Chosen::Free | Chosen::Foreign => args.rodeh.mix.unwrap_or(Mix::Modify),
    };
    let percent = args.rodeh.in_memory_percent();
    let base = Base::open(run, percent)?;
    let work = Work {
        threads: args.threads(),
        operations: args.rodeh.operations(),
        seed: args.rodeh.seed(),
        keys: 2 * base.facts.entries,
        local: if args.workload == Workload::RodehClones256 { LOCAL_KEYS } else { 1 },
        append: args.workload == Workload::RodehAppend,
        mix,
    };
    let mut rodeh = Rodeh { run, base, clock: SystemClock::new(), mix, work };
    let measured = rodeh.measure();
    let closed = rodeh.base.close();
    run.bar.finish_and_clear();
    let report = measured?;
    closed?;
    output.object(&report.json())?;
    report.text().iter().try_for_each(|line| output.line(line))
}

impl Rodeh<'_> {
    fn measure(&mut self) -> Result<Report> {
        let args = self.run.args;
        // The speed of the disk and memory, before and after the run: it changes with the
        // machine's other load.
        let before = Ideal::measure(self.run, &self.base, &self.work, &self.clock)?;
        let (ours, beside) = match args.workload {
            Workload::RodehCheckpoint => {
                let beside = self.on_clones(1, None)?;
                let after = self.work.operations / CHECKPOINT_AFTER;
                (self.on_clones(1, Some(after))?, Some(beside))
            }
            Workload::RodehClones2 => {
                let beside = self.on_clones(1, None)?;
                (self.on_clones(2, None)?, Some(beside))
            }
            Workload::RodehClones256 => (self.on_clones(CLONES, None)?, None),
            _ => (self.on_clones(1, None)?, None),
        };
        let after = Ideal::measure(self.run, &self.base, &self.work, &self.clock)?;
        let ideal = before.mean(&after);
        let beside = beside.as_ref();
        Ok(Report::new(args, self.mix, &self.base, &self.work, ideal, &ours, beside))
    }

    /// Measures on a number of fresh clones of the base tree, and drops them.
    fn on_clones(&mut self, count: u64, checkpoint_after: Option<u64>) -> Result<Measured> {
        let clones = self.base.clone_base(count)?;
        // Table X is without warming up.
        if count < CLONES {
            self.warm(clones[0])?;
            self.age(&clones)?;
        }
        let store = self.base.store();
        let (reads, written) = (self.base.reads(), store.stats().written_bytes);
        let mut measured =
            self.work.run(self.run, store, &clones, &self.clock, checkpoint_after)?;
        measured.reads = self.base.reads() - reads;
        if self.mix != Mix::Search100 {
            // Changes that are in memory, or written and not synced, are not paid for until then.
            let begun = self.clock.monotonic();
            checkpoint(store, &self.clock)?;
            measured.settled = self.clock.monotonic().saturating_sub(begun);
        }
        measured.written_bytes = store.stats().written_bytes - written;
        self.base.drop_clones(&clones)?;
        Ok(measured)
    }

    fn warm(&self, clone: TreeId) -> Result<()> {
        let store = self.base.store();
        let percent = self.run.args.rodeh.in_memory_percent();
        self.run.bar.set_message("warming");
        if percent == 100 {
            self.base.load(clone)?;
        } else {
            // Twice as many lookups as there are leaves reach most of them.
            let leaves = self.base.facts.leaves * percent / 100;
            let operations = (2 * leaves).max(AGE);
            let warming = Work {
                threads: WARM_THREADS,
                operations,
                seed: self.work.seed + 1,
                mix: Mix::Search100,
                local: 1,
                append: false,
                ..self.work
            };
            warming.run(self.run, store, &[clone], &self.clock, None)?;
        }
        self.run.bar.set_message("");
        Ok(())
    }

    fn age(&self, clones: &[TreeId]) -> Result<()> {
        let mix = if self.mix == Mix::Search100 { Mix::Search100 } else { Mix::Age };
        let aging = Work {
            threads: 1,
            operations: AGE,
            seed: self.work.seed + 2,
            mix,
            local: 1,
            append: false,
            ..self.work
        };
        aging.run(self.run, self.base.store(), clones, &self.clock, None)?;
        Ok(())
    }
}
