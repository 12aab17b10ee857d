//! A scan from its beginning to its end.
//!
//! Crash argument: the clone's number is in the scan record in the commit that creates it. Every
//! commit of a scan changes only that clone and the record. The commit at the end names the clone
//! as the subvolume's tree and the old tree as detached, in one batch. So after a crash either the
//! old state is in force and the next scan finds the clone, or the new one is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use format::detached_record::DetachedRecord;
use format::key;
use format::scan_record::{SOURCE_BYTES_MAX, ScanRecord};
use format::subvolume_record::SubvolumeRecord;
use inode::FsError;
use ops::execute::execute_gathered;
use ops::plan::{Effect, Plan};
use ops::subvolumes::{Ledger, Member, Through, execute_through};
use policy::Governed;
use policy::charging::Charging;
use store::TreeId;
use vfs::FsResult;
use volume::error::inconsistent;
use volume::subvol::{Subvol, VOLUME};
use volume::view::View;

use super::links::Links;
use super::notify::Notify;
use super::{ScanInfo, ScanOptions};

/// A scan commits when its batch is this long, in bytes. It is large, so that a commit's own cost
/// vanishes. It is well below the greatest batch, which the names of one part of a directory may
/// fill.
const FLUSH_BYTES: usize = 512 << 10;

/// What a volume keeps between scans.
#[derive(Default)]
pub struct Slot {
    busy: AtomicBool,
    /// Links of a tree, and which one.
    links: Mutex<Option<(TreeId, Links)>>,
}

/// A scan in progress. If it is dropped without [`Scan::finish`], it is abandoned: the subvolume is
/// unchanged, and the next scan continues where this one stopped.
pub struct Scan<'a> {
    pub(super) fs: &'a Governed,
    slot: &'a Slot,
    pub(super) subvol: Arc<Subvol>,
    pub(super) tree: TreeId,
    /// What was gathered since the last commit.
    pub(super) plan: Plan,
    pub(super) links: Links,
    pub(super) record: ScanRecord,
    /// Directories that were begun and not closed.
    pub(super) open: u64,
    /// Whether the tree may hold data of an unfinished scan.
    pub(super) resumed: bool,
    changed: u64,
    started: i64,
}

/// The result of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanDone {
    /// Batches that it wrote; 0: nothing differed.
    pub batches: u64,
}

/// What the index in the volume's root records about its scans; `None` when it is no index.
pub(crate) fn info(fs: &Governed) -> FsResult<Option<ScanInfo>> {
    let root = fs.root_subvol()?;
    Ok(scan_record(fs, &root)?.as_ref().map(ScanInfo::from))
}

/// The scans of a subvolume. After a roll-back the time of its reading is not known.
fn scan_record(fs: &Governed, subvol: &Subvol) -> FsResult<Option<ScanRecord>> {
    let view = View::new(&*fs.store, VOLUME);
    let mut record = view.read(&key::scan(subvol.lineage), ScanRecord::decode)?;
    if let Some(record) = &mut record
        && record.subvolume != subvol.id.0
    {
        record.started = 0;
    }
    Ok(record)
}

impl Slot {
    /// Begins a scan into the volume's root, which must be empty or an index of the same source.
    /// One at a time.
    pub(crate) fn begin<'a>(
        &'a self,
        fs: &'a Governed,
        options: &ScanOptions,
    ) -> FsResult<Scan<'a>> {
        fs.may_change()?;
        if options.source.len() > SOURCE_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(FsError::Busy("another scan is under way; try again when it has ended"));
        }
        let begun = self.begin_alone(fs, options);
        if begun.is_err() {
            self.busy.store(false, Ordering::Release);
        }
        begun
    }

    fn begin_alone<'a>(&'a self, fs: &'a Governed, options: &ScanOptions) -> FsResult<Scan<'a>> {
        let mut ledger = fs.admin.lock();
        let Member { subvol, record } = Member::get(fs, fs.root_subvol()?.id.0)?;
        let quiet = [Arc::clone(&subvol)];
        let through = Through { quiet: &quiet, changed: None };
        let aim = |_: &mut Plan| Ok(());
        let (scan, fresh) = execute_through(fs, &mut ledger, through, aim, |ledger, plan| {
            plan_begin(fs, (ledger, plan), (&subvol, record), options)
        })?;
        drop(ledger);
        let tree = TreeId(scan.pending);
        let mut links = match self.links.lock().take() {
            Some((of, links)) if fresh && of == subvol.tree() => links,
            _ => Links::load(&*fs.store, tree)?,
        };
        links.begin();
        Ok(Scan {
            fs,
            slot: self,
            subvol,
            tree,
            plan: gathering(fs),
            links,
            record: scan,
            open: 0,
            resumed: !fresh,
            changed: 0,
            started: options.started,
        })
    }
}

/// Plans the clone that a scan writes, and its record. Returns that, and whether the clone is
/// new.
fn plan_begin(
    fs: &Governed,
    (ledger, plan): (&mut Ledger, &mut Plan),
    (subvol, mut record): (&Arc<Subvol>, SubvolumeRecord),
    options: &ScanOptions,
) -> FsResult<(ScanRecord, bool)> {
    let known = scan_record(fs, subvol)?;
    match &known {
        Some(known) if known.source != options.source => return Err(FsError::Exists),
        None if record.index => {
            return Err(inconsistent(VOLUME, "an index without its scan record", record.root));
        }
        None => check_vacant(fs, subvol)?,
        Some(_) => {}
    }
    let mut scan = known.unwrap_or_else(|| new_record(options));
    scan.crosses_mounts = options.crosses_mounts;
    scan.keeps_xattrs = options.keeps_xattrs;
    scan.hidden = options.hidden;
    if scan.pending != 0 && scan.subvolume != subvol.id.0 {
        ledger.detach(plan.batch(), DetachedRecord::Tree { tree: scan.pending });
        plan.effect(Effect::Detached);
        scan.pending = 0;
    }
    scan.subvolume = subvol.id.0;
    let fresh = scan.pending == 0;
    if fresh {
        let tree = ledger.new_tree();
        plan.batch().clone_tree(subvol.tree(), tree);
        scan.pending = tree.0;
        scan.files = 0;
    }
    record.index = true;
    Charging::of(fs, plan).drop_owner_charges(subvol.id.0)?;
    plan.batch().put(VOLUME, &key::subvolume(subvol.id.0), &record.encode());
    plan.batch().put(VOLUME, &key::scan(subvol.lineage), &scan.encode());
    plan.effect(Effect::BecameIndex(Arc::clone(subvol)));
    Ok((scan, fresh))
}

/// Refuses a root that contains anything of its own.
fn check_vacant(fs: &Governed, subvol: &Subvol) -> FsResult<()> {
    let view = View::new(&*fs.store, subvol.tree());
    let root = view.directory(subvol.root)?;
    let root = root.ok_or_else(|| inconsistent(subvol.tree(), "no root", subvol.root))?;
    if root.entries == 0 { Ok(()) } else { Err(FsError::NotEmpty) }
}

/// An empty plan that gathers rows, of the present time.
fn gathering(fs: &Governed) -> Plan {
    let mut plan = Plan::new();
    plan.set_time(fs.env.clock.now());
    plan
}

fn new_record(options: &ScanOptions) -> ScanRecord {
    ScanRecord {
        pending: 0,
        started: 0,
        ended: 0,
        unread: 0,
        files: 0,
        subvolume: 0,
        crosses_mounts: options.crosses_mounts,
        keeps_xattrs: options.keeps_xattrs,
        hidden: options.hidden,
        source: options.source.clone(),
    }
}

impl<'a> Scan<'a> {
    /// The tree that is being written.
    pub(super) fn view(&self) -> View<'a> {
        View::new(&*self.fs.store, self.tree)
    }

    /// What the index knew before this scan.
    pub fn info(&self) -> ScanInfo {
        ScanInfo::from(&self.record)
    }

    /// Commits what was gathered, when that is enough.
    pub(super) fn flush_if_large(&mut self) -> FsResult<()> {
        if self.plan.batch().as_bytes().len() >= FLUSH_BYTES { self.flush() } else { Ok(()) }
    }

    /// Commits what was gathered.
    pub(super) fn flush(&mut self) -> FsResult<()> {
        if self.plan.batch().is_empty() {
            return Ok(());
        }
        let record = self.record.encode();
        self.plan.batch().put(VOLUME, &key::scan(self.subvol.lineage), &record);
        execute_gathered(self.fs, &mut self.plan)?;
        self.changed += 1;
        Ok(())
    }

    /// Ends the scan: from now on all readers see what it wrote, durably. `unread` is how much of
    /// the source could not be read; `ended` the time, by the clock that gave `started`.
    pub fn finish(mut self, ended: i64, unread: u64) -> FsResult<ScanDone> {
        if self.open != 0 {
            return Err(FsError::InvalidArgument("unannounced directories"));
        }
        self.sweep_links()?;
        self.flush()?;
        // Only a scan changes an index, and there is no other.
        let notify = Notify::between(self.fs, self.subvol.tree(), self.tree)?;
        let mut ledger = self.fs.admin.lock();
        let Member { subvol, mut record } = Member::get(self.fs, self.subvol.id.0)?;
        let files = std::mem::take(&mut self.record.files);
        self.record =
            ScanRecord { pending: 0, started: self.started, ended, unread, ..self.record.clone() };
        let quiet = [Arc::clone(&subvol)];
        let through = Through { quiet: &quiet, changed: None };
        let aim = |_: &mut Plan| Ok(());
        execute_through(self.fs, &mut ledger, through, aim, |ledger, plan| {
            let old = std::mem::replace(&mut record.tree, self.tree.0);
            plan.batch().put(VOLUME, &key::subvolume(subvol.id.0), &record.encode());
            plan.batch().put(VOLUME, &key::scan(subvol.lineage), &self.record.encode());
            plan.count(subvol.id.0, files, 0);
            ledger.detach(plan.batch(), DetachedRecord::Tree { tree: old });
            plan.replaces_tree(Arc::clone(&subvol), TreeId(old), self.tree);
            plan.effect(Effect::Detached);
            plan.effect(Effect::ReplacedMuch);
            Ok(())
        })?;
        drop(ledger);
        notify.send(self.fs, &subvol);
        let links = std::mem::take(&mut self.links);
        *self.slot.links.lock() = Some((self.tree, links));
        self.fs.sync()?;
        Ok(ScanDone { batches: self.changed })
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        self.slot.busy.store(false, Ordering::Release);
    }
}
