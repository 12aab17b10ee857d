//! Checks a whole volume, and repairs it.
//!
//! 1. The store checks itself: nodes, reference counts, the log (`btree::check`). The header is
//!    compared with its copy (`header`).
//! 2. Contents are read, each stored range once (`data::check`), and pages are counted; files of
//!    segments belong to this volume (`segments`).
//! 3. The volume's own tree: subvolumes, names of snapshots, and what waits to be removed
//!    (`table`). Also trees that it does not name (`unnamed`), and the copies of its records
//!    (`copies`).
//! 4. Each subvolume's tree: directories and their entries (`tree`), inodes with several names and
//!    extents without an owner (`linked`), extents of files (`contents`). Of a snapshot only the
//!    differences from a verified tree are checked (`shared`).
//! 5. Files of the index (`index`).
//!
//! Steps 2 to 5 read one pinned state, while other operations run.
//!
//! Promises: a check changes nothing in the volume. What cannot be read is skipped and reported,
//! and nothing is concluded from it: unknown never counts as absent. A repair needs a volume that
//! no other process has open. It removes nothing because it could not be read. It repairs each
//! problem by one commit, and checks the volume again until nothing repairable is left. So after a
//! crash anywhere the next run continues. Memory is bounded by the volume's subvolumes, a bit or
//! two for each inode number of one tree, and a few bytes a node. It also takes 24 KiB for 64 MiB
//! of contents.
//!
//! Which module decides what:
//! * `offline`, `repair`, `collect`: a check without a daemon; the order of a repair; what is
//!   garbage, and when it is deleted
//! * `shared`, `tree`, `entries`, `linked`, `lists`, `small`: what holds of a subvolume's records
//! * `contents`, `segments`, `index`: what holds of extents and files
//! * `unnamed`: trees that no record names
//! * `records`, `table`, `mounts`, `missing`, `copies`, `counters`, `answers`, `quota`,
//!   `quota_place`: what holds of the volume's own records
//! * `problem`: kinds of findings, and the repair that each names
//! * `fix`, `join`, `keep`, `mounted`: what a repair writes
//! * `look`, `latest`, `unread`, `sets`, `whereabouts`: what is read of an entry, and kept of the
//!   one before. They also have what is unknown, sets of inodes, and paths in reports

// Checks of a volume, and the repairs.
mod collect;
mod repair;
mod offline;

// What is checked: trees, contents and files.
mod shared;
mod linked;
mod entries;
mod contents;
mod tree;
mod lists;
mod small;
mod segments;
mod index;
mod unnamed;

// What is checked: records of the volume itself.
mod records;
mod copies;
mod table;
mod missing;
mod counters;
mod answers;
mod mounts;
mod quota;
mod quota_place;

// How a problem is repaired.
mod fix;
mod join;
mod keep;
mod mounted;

// What a check finds, and how records are read.
mod whereabouts;
mod problem;
mod unread;
mod sets;
mod latest;
pub mod look;

use std::ops::Deref;
use std::sync::Arc;

use data::ContentCheck;
use device::Env;
use format::volume::VolumeHeader;
use inode::NameHash;
use opening::{engine, header};
use store::{CheckProgress, Pinned, Store, TreeId};
use upkeep::Upkeep;
use vfs::FsResult;
use volume::error::from_store;
use volume::{OpenError, OpenOptions, record_copies};

pub use collect::{Garbage, GarbageKind, Gc, GcReport};
pub use offline::{check_offline, observed, overlaid};
pub use problem::{Action, PROBLEMS_MAX, Problem, ProblemKind, VolumeReport};
pub use repair::{Repair, RepairReport, repair};

pub use problem::{Edit, Fix, Stray};
pub use unnamed::trees_without_records;

use table::Table;
use unread::PastUnread;

/// Nodes whose extents are read in one step.
const NODES_A_STEP: usize = 16;
/// What a record counts as in the progress, in bytes.
const RECORD_BYTES: u64 = 128;

/// Opens a volume by a header that was already read, with a layer before the store, and all that
/// upkeep needs of checks. Creates a missing copy of the header: the store has verified by now that
/// the header is its own. If another process takes the volume over meanwhile, it may delete what is
/// read here: that is no damage, and the error is [`store::Error::Replaced`].
pub fn open(
    env: Env,
    header: VolumeHeader,
    options: &OpenOptions,
    through: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
) -> Result<Upkeep, OpenError> {
    let engine = engine::open(&env, &header, options)?;
    let opened = record_copies::over(Arc::clone(&engine)).map_err(OpenError::from);
    let opened = opened.and_then(|(store, own)| {
        let (store, hash) = ((through(store), own), NameHash::new(header.hash_key));
        Upkeep::open(env, store, header, options, (hash, trees_without_records))
    });
    let upkeep = opened.map_err(|error| match engine.prove_not_replaced() {
        Err(replaced @ store::Error::Replaced(_)) if !options.read_only => {
            tracing::warn!(%error, "another process took the volume over while it was opened");
            OpenError::Store(replaced)
        }
        _ => error,
    })?;
    if !upkeep.options.read_only && upkeep.env.objects.is_none() {
        header::keep_copy(&*upkeep.env.device, &upkeep.header);
    }
    Ok(upkeep)
}

/// Returns the name that paths of problems have above the name of a snapshot, in a volume with a
/// header: front ends choose it.
pub type AboveSnapshots = fn(&VolumeHeader) -> &[u8];

/// Checks and repairs of an open volume.
#[derive(Clone, Copy)]
pub struct Checks<'a> {
    upkeep: &'a Upkeep,
    above_snapshots: AboveSnapshots,
}

impl<'a> Checks<'a> {
    /// Those of a volume.
    pub fn of(upkeep: &'a Upkeep, above_snapshots: AboveSnapshots) -> Checks<'a> {
        Checks { upkeep, above_snapshots }
    }
}

impl Deref for Checks<'_> {
    type Target = Upkeep;

    fn deref(&self) -> &Upkeep {
        self.upkeep
    }
}

/// A check under way.
pub(crate) struct Checker<'a, 'p> {
    pub(crate) fs: &'a Upkeep,
    above_snapshots: &'a [u8],
    pub(crate) pin: &'a dyn Pinned,
    pub(crate) report: VolumeReport,
    table: Table,
    pub(crate) contents: ContentCheck,
    /// Verified trees, with which snapshots are compared.
    clean: shared::CleanTrees,
    progress: CheckProgress<'p>,
    done: u64,
    total: u64,
    /// Whether the charges of quotas match the inodes, as far as they were compared.
    charges_are_right: bool,
    /// Whether counts were lost, so that each subvolume's counts are compared with its contents.
    recounts: bool,
    /// Whether the counts of all subvolumes were compared with their contents.
    counts_are_compared: bool,
    /// The greatest number of an inode of the volume's home that was met.
    pub(crate) greatest_ino: u64,
}

impl Checker<'_, '_> {
    /// Adds a problem.
    pub(crate) fn found(&mut self, problem: Problem) {
        self.report.add(problem);
    }

    /// Counts work; returns whether to continue.
    pub(crate) fn did(&mut self, bytes: u64) -> bool {
        self.done += bytes;
        let total = self.total.max(self.done);
        self.report.stopped |= (self.progress)(self.done, total).is_break();
        !self.report.stopped
    }

    /// As [`Checker::did`], for one record of many.
    pub(crate) fn did_record(&mut self) -> bool {
        self.report.records += 1;
        self.done += RECORD_BYTES;
        if self.done % (RECORD_BYTES * 1024) >= RECORD_BYTES {
            return !self.report.stopped;
        }
        self.did(0)
    }
}

impl Checks<'_> {
    /// Reads and verifies everything that the volume has on disk, while other operations run, and
    /// changes nothing. `progress` receives the bytes done and an estimate of their total, and may
    /// cancel the check. What the disk cannot read is reported, and the rest is checked.
    pub fn check_volume(&self, progress: CheckProgress<'_>) -> FsResult<VolumeReport> {
        let pin = self.store.pin().map_err(from_store)?;
        let pin = PastUnread::new(&*pin);
        let expected = self.expected_bytes(&pin)?;
        let mut store_done = 0;
        let mut beside = |done: u64, total: u64| {
            store_done = done.max(store_done);
            progress(done, total.saturating_add(expected))
        };
        let store = self.store.check(&mut beside).map_err(from_store)?;
        let done = store_done.max(store.bytes);
        self.check_state(&pin, store, (done, done.saturating_add(expected)), progress)
    }

    /// Steps 2 to 5.
    pub fn check_state(
        &self,
        pin: &PastUnread<'_>,
        store: store::CheckReport,
        (done, total): (u64, u64),
        progress: CheckProgress<'_>,
    ) -> FsResult<VolumeReport> {
        let mut report = VolumeReport { stopped: store.stopped, ..VolumeReport::default() };
        for finding in &store.findings {
            report.add(Problem::of_store(finding));
        }
        report.problems_count = report.problems_count.max(store.findings_count);
        report.unread |= store.unread;
        report.store = store;
        if report.stopped {
            return Ok(report);
        }
        match header::headers(&self.env) {
            Ok(headers) => {
                for fault in headers.faults(Some(&self.header)) {
                    report.add(Problem::of_header(fault));
                }
            }
            Err(error) => {
                let problem = Problem::new(ProblemKind::Unreadable, error.to_string());
                report.add(problem.in_file(format::volume::FILE, 0));
            }
        }
        let table = Table::read(self, pin, &mut report)?;
        let trees: Vec<TreeId> = table.trees().collect();
        let contents = ContentCheck::new(trees);
        let clean = shared::CleanTrees::default();
        let mut checker = Checker {
            fs: self,
            above_snapshots: (self.above_snapshots)(&self.header),
            pin,
            report,
            table,
            contents,
            clean,
            progress,
            done,
            total,
            charges_are_right: false,
            recounts: false,
            counts_are_compared: true,
            greatest_ino: 0,
        };
        checker.run()?;
        checker.report.unread |= pin.met();
        Ok(checker.report)
    }

    /// An estimate of the bytes to check, without the store's own.
    fn expected_bytes(self, pin: &dyn Pinned) -> FsResult<u64> {
        let mut ignored = VolumeReport::default();
        let table = Table::read(&self, pin, &mut ignored)?;
        let records = table.files().saturating_mul(2 * RECORD_BYTES);
        Ok(table.content_bytes().saturating_add(records))
    }
}

impl Checker<'_, '_> {
    fn run(&mut self) -> FsResult<()> {
        self.recounts = self.has_note()?;
        loop {
            let before = self.contents.bytes;
            let step = self.fs.data.check_step(&mut self.contents, self.pin, NODES_A_STEP);
            let more = step.map_err(from_store)?;
            if !self.did(self.contents.bytes - before) {
                return Ok(());
            }
            if !more {
                break;
            }
        }
        self.report.extents = self.contents.extents;
        self.report.data_bytes = self.contents.bytes;
        self.segments()?;
        self.check_table()?;
        self.check_copies()?;
        for id in self.table.alone() {
            self.subvolume(id)?;
            if self.report.stopped {
                return Ok(());
            }
        }
        self.check_next_ino();
        self.check_answers()?;
        self.check_quotas()?;
        self.check_index()?;
        self.check_note();
        Ok(())
    }
}
