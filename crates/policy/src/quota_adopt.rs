//! Charges what was in a directory before it became a quota directory.
//!
//! 1. The domain is in the store before anything is charged to it, with the note that it is still
//!    adopting. After a crash this continues when the volume is opened again.
//! 2. One directory at a time, with the gate of the subvolume held, after all copies that inherit
//!    the subvolume were given theirs (`enter_alone`). Everything in it that is not a directory
//!    comes first, in batches that mark and charge together. Then comes the directory itself. So in
//!    a marked directory only directories are unmarked, and what is created there is charged.
//! 3. A directory without the mark does not leave one that has it (`check_adopted`), so none is
//!    missed. Directories that move elsewhere meanwhile are found by another pass over all of them.
//!    A pass that finds nothing to do is the last one.
//!
//! What a clone inherited is marked and charged to no one, as in any quota. Another quota further
//! down, and subvolumes mounted below, are not changed.

use std::time::Duration;

use device::Set;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Parsed, Part};
use format::quota::{Charge, QuotaRecord};
use inode::{Caller, FsError, NodeId, SubvolId};
use ops::execute::execute_alone;
use ops::plan::Plan;
use store::{CheckProgress, KeyRange};
use vfs::FsResult;
use volume::account::signed;
use volume::error::{from_store, malformed};
use volume::subvol::{Subvol, VOLUME};
use volume::view::View;
use volume::{QuotaChange, QuotaLimits};

use crate::Governed;
use crate::charging::Charging;
use crate::quota::{Adopting, Domain, Pass, domain_of};
use crate::quota_check::Counting;
use crate::settings::Setting;

/// Entries after which a batch is committed.
const CHUNK: usize = 1024;
/// Directories of a foreground step.
const DIRECTORIES: usize = 256;
/// How long a domain rests after its contents could not be charged.
const REST: Duration = Duration::from_secs(60);
/// Deepest directory whose ancestors are followed, in case records form a loop.
const DEPTH_MAX: usize = 1 << 20;
/// Most directories that are remembered to be below.
const BELOW_MAX: usize = 1 << 20;

/// The work on the entries of a directory.
struct Entries {
    /// Keys and values of those that get the mark.
    marked: Vec<(Vec<u8>, Vec<u8>)>,
    /// Directories.
    below: Vec<u64>,
    /// Where to continue; `None`: that was all.
    next: Option<Vec<u8>>,
}

impl Charging<'_> {
    /// Brings an inode into a domain, regardless of the limits, and returns its mark: it is charged
    /// there, and no longer where it was. What is inherited is charged to no one.
    pub fn mark(
        &mut self,
        domain: u64,
        (subvolume, ino): (u64, u64),
        old: Option<Charge>,
        bytes: u64,
    ) -> FsResult<Charge> {
        let own = self.is_own(subvolume, ino, old);
        if let Some(old) = old {
            self.credit(subvolume, old, bytes);
        }
        if !own {
            return Ok(Charge { domain, subvolume: old.map_or(0, |old| old.subvolume) });
        }
        self.charge_domain((domain, subvolume), (1, signed(bytes)), true)?;
        Ok(Charge { domain, subvolume })
    }
}

impl Governed {
    /// Sets the limits of a quota directory, or makes a directory one: its contents are then
    /// charged in steps, while other operations run. Only root may.
    pub fn quota_set(&self, caller: &Caller, dir: NodeId, limits: QuotaLimits) -> FsResult<()> {
        self.set_quota(caller, (dir, limits.into()), &mut Counting::silent()).map(drop)
    }

    /// Like `quota_set`, for some limits only; returns those in force. `progress` receives
    /// how many inodes were charged; their total is not known. It may cancel: then the background
    /// continues.
    pub fn quota_set_with_progress(
        &self,
        caller: &Caller,
        dir: NodeId,
        change: QuotaChange,
        progress: CheckProgress<'_>,
    ) -> FsResult<QuotaLimits> {
        self.set_quota(caller, (dir, change), &mut Counting::reporting(progress))
    }

    fn set_quota(
        &self,
        caller: &Caller,
        (dir, change): (NodeId, QuotaChange),
        counting: &mut Counting<'_>,
    ) -> FsResult<QuotaLimits> {
        if !caller.is_root() {
            return Err(FsError::RootOnly("only root sets quotas"));
        }
        let setting = self.quotas.setting();
        let domain = self.set_limits(dir, change)?;
        let limits = crate::quota_limits::info(&domain).limits;
        drop(setting);
        self.adopt_all(&domain, counting)?;
        Ok(limits)
    }

    /// Charges everything that was in a directory before it got its quota.
    pub(crate) fn adopt_all(&self, domain: &Domain, counting: &mut Counting<'_>) -> FsResult<()> {
        let charged = || crate::quota_limits::info(domain).inodes;
        let mut before = charged();
        while domain.adopting_from().is_some() {
            let mut adopting = self.quotas.adopting.lock();
            self.adopt(&mut adopting, DIRECTORIES)?;
            drop(adopting);
            let now = charged();
            counting.did(now.saturating_sub(before))?;
            before = now;
        }
        Ok(())
    }

    /// A background step of that, after a crash interrupted it.
    pub fn adopt_step(&self, budget: usize) -> FsResult<u64> {
        if self.options.read_only || self.quotas.is_empty() {
            return Ok(0);
        }
        let Some(mut adopting) = self.quotas.adopting.try_lock() else { return Ok(0) };
        if self.env.clock.monotonic() < adopting.rests_until {
            return Ok(0);
        }
        self.adopt(&mut adopting, budget.min(DIRECTORIES)).inspect_err(|_| {
            adopting.rests_until = self.env.clock.monotonic() + REST;
        })
    }

    /// Processes some directories; returns how many. After an error the pass begins again.
    fn adopt(&self, adopting: &mut Adopting, budget: usize) -> FsResult<u64> {
        let Some(mut pass) = adopting.pass.take().or_else(|| self.next_pass()) else {
            return Ok(0);
        };
        let mut done = 0;
        while done < budget as u64 {
            let Some(directory) = pass.left.pop() else {
                if pass.clean {
                    return self.adopted(&pass.domain).map(|()| done + 1);
                }
                (pass.left, pass.clean) = (vec![pass.domain.directory], true);
                continue;
            };
            let subvol = self.subvol(SubvolId(pass.domain.subvolume));
            match subvol.and_then(|subvol| pass.directory(self, &subvol, directory)) {
                Ok(()) => {}
                // The subvolume is gone.
                Err(FsError::Stale) => pass.left.clear(),
                Err(error) => return Err(error),
            }
            done += 1;
        }
        adopting.pass = Some(pass);
        Ok(done)
    }

    fn next_pass(&self) -> Option<Pass> {
        let mut all = self.quotas.all().into_iter();
        let domain = all.find(|domain| domain.adopting_from().is_some())?;
        Some(Pass {
            left: vec![domain.directory],
            domain,
            clean: true,
            below: Set::default(),
            moves: 0,
        })
    }

    /// Notes that everything is charged.
    fn adopted(&self, domain: &Domain) -> FsResult<()> {
        let _setting = self.quotas.setting();
        execute_alone(self, |plan| {
            let record = QuotaRecord { adopting_from: None, ..domain.record() };
            plan.batch().put(VOLUME, &key::quota(domain.id), &record.encode());
            plan.effect(self.setting(Setting::Adopted(domain.id)));
            Ok(())
        })
    }
}

impl Pass {
    /// Marks what is in a directory, and then the directory, if it is still below the first.
    fn directory(&mut self, fs: &Governed, subvol: &Subvol, directory: u64) -> FsResult<()> {
        let _gate = fs.enter_alone(subvol)?;
        let view = View::new(&*fs.store, subvol.tree());
        let Some(record) = view.directory(directory)?.filter(|record| !record.detached) else {
            return Ok(());
        };
        if !self.is_below(fs, view, directory)? {
            return Ok(());
        }
        let is_marked = domain_of(&record) == self.domain.id;
        if !is_marked && !self.takes(record.charge) {
            return Ok(());
        }
        let mut from = key::entry(directory, 1, Part::Attributes).to_vec();
        loop {
            let entries = execute_alone(fs, |plan| {
                let entries = self.entries((fs, plan), view, subvol.id.0, (directory, from))?;
                for (key, value) in &entries.marked {
                    plan.batch().put(view.tree, key, value);
                }
                Ok(entries)
            })?;
            self.left.extend(entries.below);
            self.clean &= entries.marked.is_empty();
            match entries.next {
                Some(next) => from = next,
                None => break,
            }
        }
        if !is_marked {
            self.clean = false;
            execute_alone(fs, |plan| {
                let (domain, place) = (self.domain.id, (subvol.id.0, directory));
                let mark = Charging::of(fs, plan).mark(domain, place, record.charge, 0)?;
                let marked = DirectoryRecord { charge: Some(mark), ..record };
                plan.put_directory(view.tree, directory, &marked);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Whether an inode with this mark is to be brought into the domain.
    fn takes(&self, charge: Option<Charge>) -> bool {
        let domain = charge.map_or(Charge::NO_DOMAIN, |charge| charge.domain);
        domain == Charge::NO_DOMAIN || Some(domain) == self.domain.adopting_from()
    }

    /// Whether a directory is below the first one. The gate is held, so that none moves meanwhile;
    /// until one moves, no path is climbed twice.
    fn is_below(&mut self, fs: &Governed, view: View<'_>, directory: u64) -> FsResult<bool> {
        let moves = fs.moves();
        if self.moves != moves || self.below.len() > BELOW_MAX {
            (self.moves, self.below) = (moves, Set::default());
        }
        let first = self.domain.directory;
        let (mut at, mut climbed) = (directory, Vec::new());
        while at != first && !self.below.contains(&at) {
            climbed.push(at);
            match view.directory(at)? {
                Some(record) if record.parent != at && climbed.len() < DEPTH_MAX => {
                    at = record.parent;
                }
                _ => return Ok(false),
            }
        }
        self.below.extend(climbed);
        Ok(true)
    }

    /// Reads some entries of a directory, and charges in the batch those that need the mark.
    fn entries(
        &self,
        (fs, plan): (&Governed, &mut Plan),
        view: View<'_>,
        subvolume: u64,
        (directory, from): (u64, Vec<u8>),
    ) -> FsResult<Entries> {
        let malformed = |error| malformed(view.tree, &error);
        let mut entries = Entries { marked: Vec::new(), below: Vec::new(), next: None };
        let mut linked: Set<u64> = Set::default();
        let range = KeyRange { from, to: store::prefix_end(&key::directory_prefix(directory)) };
        let mut cursor = view.store.scan(view.tree, range).map_err(from_store)?;
        let mut looked = 0;
        while let Some(item) = cursor.next().map_err(from_store)? {
            if looked == CHUNK {
                entries.next = Some(item.key.to_vec());
                break;
            }
            looked += 1;
            let parsed = key::parse(item.key).map_err(malformed)?;
            let Parsed::Entry { cookie: 1.., part: Part::Attributes, .. } = parsed else {
                continue;
            };
            let entry = EntryRecord::decode(item.value).map_err(malformed)?;
            let place = (subvolume, entry.ino);
            match entry.target {
                Target::Directory => entries.below.push(entry.ino),
                Target::Embedded(inode) if self.takes(inode.charge) => {
                    let target = Target::Embedded(self.marked((fs, plan), place, inode)?);
                    let mut value = Vec::new();
                    EntryRecord { target, ..entry }.encode(&mut value);
                    entries.marked.push((item.key.to_vec(), value));
                }
                Target::Linked(_) if linked.insert(entry.ino) => {
                    let Some(record) = view.linked(entry.ino)? else { continue };
                    if self.takes(record.inode.charge) {
                        let inode = self.marked((fs, plan), place, record.inode)?;
                        let mut value = Vec::new();
                        LinkedRecord { inode, ..record }.encode(&mut value);
                        let key = key::linked(entry.ino, Part::Attributes).to_vec();
                        entries.marked.push((key, value));
                    }
                }
                _ => {}
            }
        }
        Ok(entries)
    }

    fn marked(
        &self,
        (fs, plan): (&Governed, &mut Plan),
        place: (u64, u64),
        inode: InodeRecord,
    ) -> FsResult<InodeRecord> {
        let charge = Some(Charging::of(fs, plan).mark(
            self.domain.id,
            place,
            inode.charge,
            inode.charged_bytes(),
        )?);
        Ok(InodeRecord { charge, ..inode })
    }
}
