//! Makes drafts visible: see the steps in [`super`].

use std::sync::Arc;

use format::detached_record::DetachedRecord;
use format::inode_record::FileKind;
use format::kept_twice::Features;
use format::key;
use inode::FsError;
use inode::permissions::{EXECUTE, WRITE};
use store::{Batch, CommitToken, SortedRun, TreeId};
use vfs::FsResult;
use volume::error::from_store;
use volume::locks::Mode;
use volume::nodes::Location;
use volume::permit;
use volume::subvol::VOLUME;
use volume::view::{Search, Vacancy};

use super::draft::{Chunk, DirId, Draft, Intent};
use super::run::Records;
use super::state::{Bulk, Maker};
use crate::Ops;
use crate::execute::{Context, apply, commit, execute_alone, notify};
use crate::plan::{Effect, Plan};
use crate::subvolumes::execute_with;
use crate::unfinished::plan_removal;

/// How often a flush begins again because quotas change.
const ATTEMPTS_MAX: usize = 16;

impl Bulk {
    /// Makes all drafts visible, in one commit. After an error nothing is visible, and the same may
    /// be tried again, or the drafts be dropped ([`Bulk::abandon`]).
    pub fn flush(&mut self, maker: &Maker<'_>) -> FsResult<()> {
        let Some(first) = self.chunk.first else {
            // Bases may be known, and change later.
            self.chunk = Chunk::default();
            return Ok(());
        };
        let token = self.flush_from(maker, first)?;
        let (freed, emptied) = std::mem::take(&mut self.chunk).emptied();
        self.chunk = emptied;
        maker.fs.settle_freed(Some(freed), Ok(token));
        Ok(())
    }

    fn flush_from(&mut self, maker: &Maker<'_>, first: u64) -> FsResult<CommitToken> {
        let end = self.free.start;
        let large = self.chunk.weight > self.small();
        // Before anything names it.
        let written = maker.fs.data.write_gathered(&mut self.chunk.gathered);
        self.chunk.freed.merge(written.map_err(from_store)?);
        self.chunk.place_names()?;
        for _ in 0..ATTEMPTS_MAX {
            self.withdraw_left(maker.fs)?;
            // The ledger is locked before any gate.
            let intent = if large { Some(self.intend(maker.fs, (first, end))?) } else { None };
            let subvol = Arc::clone(&self.subvol);
            let entered = maker.fs.enter(&subvol);
            let tree = entered.as_ref().map_or(subvol.tree(), |entered| entered.tree);
            let flushed = entered.as_ref().map_err(FsError::clone).and_then(|_| {
                let at = Context::new(maker.fs, maker.policy, &subvol, tree);
                self.keep_charges(maker, &at)?;
                if large {
                    let ingested = self.ingest(&at);
                    self.chunk.in_doubt |= ingested.as_ref().is_err_and(is_in_doubt);
                    ingested?;
                }
                self.attach(maker, &at, intent)
            });
            if let Ok(Some(token)) = flushed {
                // Front ends may wait for calls that wait for the gate.
                drop(entered);
                self.chunk.plan.notify(|notice| notify(maker.fs, notice));
                return Ok(token);
            }
            // With the gate held, so that no copy has what was ingested.
            if let Some(intent) = intent {
                let tree = entered.is_ok().then_some(tree);
                self.withdraw(maker.fs, tree, intent);
            }
            flushed?;
        }
        Err(FsError::LimitReached(
            "quotas around the directory keep changing; try again when they are set",
        ))
    }

    /// Records that nothing reaches these inodes.
    fn intend(&self, fs: &Ops, (first, end): (u64, u64)) -> FsResult<Intent> {
        let record = DetachedRecord::Inodes { subvolume: self.subvol.id.0, first, end };
        let sequence = execute_with(fs, &mut fs.admin.lock(), |ledger, plan| {
            ledger.require(fs, Features { unreached: true, ..Features::NONE })?;
            Ok(ledger.put_detached(plan.batch(), record))
        })?;
        Ok(Intent { sequence, first, end })
    }

    /// Removes what a flush that failed wrote; `tree`: where, if it came so far. Where that is not
    /// possible, the next flush does it, or the next opening.
    fn withdraw(&mut self, fs: &Ops, tree: Option<TreeId>, intent: Intent) {
        if let Err(error) = withdraw(fs, tree, intent) {
            tracing::warn!(%error, "records of an import that failed are not removed yet");
            // Extents name what was written, so it must not be punched.
            self.chunk.in_doubt = true;
            self.left = Some(intent);
        }
    }

    /// Removes what an earlier flush left.
    fn withdraw_left(&mut self, fs: &Ops) -> FsResult<()> {
        let Some(intent) = self.left else { return Ok(()) };
        let subvol = Arc::clone(&self.subvol);
        match fs.enter(&subvol) {
            Ok(entered) => withdraw(fs, Some(entered.tree), intent)?,
            // The subvolume was removed, with all that it held.
            Err(FsError::Stale) => withdraw(fs, None, intent)?,
            Err(error) => return Err(error),
        }
        self.left = None;
        Ok(())
    }

    /// Charges the drafts as quotas are now: they may have been set or removed since.
    fn keep_charges(&mut self, maker: &Maker<'_>, at: &Context<'_>) -> FsResult<()> {
        let owners = maker.policy.charges_owners();
        let mut changed = owners != self.chunk.owners;
        for base in bases(&self.chunk) {
            let dir = self.chunk.dir_mut(base);
            let Some(record) = at.view.directory(dir.ino)? else { return Err(FsError::NotFound) };
            changed |= record.charge != dir.record.charge;
            dir.record.charge = record.charge;
        }
        self.chunk.owners = owners;
        if changed { self.charge_again(maker) } else { Ok(()) }
    }

    fn charge_again(&mut self, maker: &Maker<'_>) -> FsResult<()> {
        let subvol = self.subvol.id.0;
        let (chunk, charging) = (&mut self.chunk, (maker.fs, maker.caller));
        chunk.plan.restart(&maker.fs.data);
        chunk.charges.clear();
        for n in 0..chunk.dirs.len() {
            let dir = &chunk.dirs[n];
            if dir.is_base(n as u32) {
                continue;
            }
            let above = chunk.dirs[dir.parent as usize].record;
            let share = ((dir.record.uid, dir.record.gid), 0);
            let charge =
                chunk.charge(charging, |plan| maker.policy.creates(plan, subvol, &above, share))?;
            chunk.dirs[n].record.charge = charge;
        }
        for n in 0..chunk.files.len() {
            let file = &chunk.files[n];
            let above = chunk.dirs[file.dir as usize].record;
            let share = ((file.inode.uid, file.inode.gid), file.inode.charged_bytes());
            let charge =
                chunk.charge(charging, |plan| maker.policy.creates(plan, subvol, &above, share))?;
            chunk.files[n].inode.charge = charge;
        }
        Ok(())
    }

    /// Writes the runs; nothing reaches them yet.
    fn ingest(&mut self, at: &Context<'_>) -> FsResult<()> {
        let (store, tree) = (&*at.fs.store, at.view.tree);
        // The place of the topmost is corrected when they get their names.
        for run in [
            &mut self.chunk.directories(true) as &mut dyn SortedRun,
            &mut self.chunk.extents() as &mut dyn SortedRun,
        ] {
            store.ingest(tree, run).map_err(from_store)?;
        }
        Ok(())
    }

    /// Gives the drafts their names in the bases. `None`: quotas have changed.
    fn attach(
        &mut self,
        maker: &Maker<'_>,
        at: &Context<'_>,
        intent: Option<Intent>,
    ) -> FsResult<Option<CommitToken>> {
        let mut plan = std::mem::take(&mut self.chunk.plan);
        let done = self.attach_by(maker, at, intent, &mut plan);
        self.chunk.plan = plan;
        done
    }

    fn attach_by(
        &mut self,
        maker: &Maker<'_>,
        at: &Context<'_>,
        intent: Option<Intent>,
        plan: &mut Plan,
    ) -> FsResult<Option<CommitToken>> {
        let (fs, bases) = (maker.fs, bases(&self.chunk));
        for base in &bases {
            let dir = self.chunk.dir(*base);
            for (_, child) in &dir.children {
                at.policy.makes_name(at, dir.ino, self.chunk.name_of(*child))?;
            }
        }
        let mut behind = Vec::new();
        let (vacancies, locks) = loop {
            plan.plan_again();
            // Exclusively: no name of a base comes or goes.
            for base in &bases {
                plan.lock(at.object(self.chunk.dir(*base).ino), Mode::Exclusive);
            }
            for ino in &behind {
                plan.lock(at.object(*ino), Mode::Exclusive);
            }
            let locks = fs.locks.lock(plan.locks());
            let Some(vacancies) = self.look(maker, at, &bases)? else { return Ok(None) };
            // A name that has the hash of another one rewrites that one's entry.
            let inodes = vacancies.iter().filter_map(|(_, vacancy)| vacancy.predecessor);
            let inodes: Vec<u64> = inodes.map(|(_, ino)| ino).filter(|ino| *ino != 0).collect();
            if inodes.iter().all(|ino| behind.contains(ino)) {
                break (vacancies, locks);
            }
            behind = inodes;
        };
        plan.set_time(fs.env.clock.now());
        self.plan_names(at, plan, &vacancies, intent.is_some())?;
        if let Some(intent) = intent {
            plan.batch().delete(VOLUME, &key::detached(intent.sequence));
        }
        let too_much = |_| {
            FsError::LimitReached("the changes of one commit exceed 16 MiB; make fewer at a time")
        };
        plan.batch().check().map_err(too_much)?;
        let committed = commit(fs, plan);
        self.chunk.in_doubt |= committed.as_ref().is_err_and(is_in_doubt);
        let token = committed?;
        plan.apply(|effect| apply(fs, effect));
        drop(locks);
        Ok(Some(token))
    }

    /// Verifies under the locks that all names in bases may be made, and returns their places.
    /// `None`: quotas have changed.
    fn look(
        &self,
        maker: &Maker<'_>,
        at: &Context<'_>,
        bases: &[DirId],
    ) -> FsResult<Option<Vec<(Draft, Vacancy)>>> {
        let mut vacancies = Vec::new();
        for base in bases {
            let dir = self.chunk.dir(*base);
            let record = at.view.directory(dir.ino)?.filter(|record| !record.detached);
            let record = record.ok_or(FsError::NotFound)?;
            permit::directory(at.view, dir.ino, &record, maker.caller, EXECUTE | WRITE)?;
            if record.charge != dir.record.charge {
                return Ok(None);
            }
            for &(hash, child) in &dir.children {
                let name = self.chunk.name_of(child);
                match at.view.find(dir.ino, hash, name)? {
                    Search::Found(_) => return Err(FsError::Exists),
                    Search::Vacant(vacancy) => vacancies.push((child, vacancy)),
                }
            }
        }
        Ok(Some(vacancies))
    }

    fn plan_names(
        &mut self,
        at: &Context<'_>,
        plan: &mut Plan,
        vacancies: &[(Draft, Vacancy)],
        ingested: bool,
    ) -> FsResult<()> {
        let tree = at.view.tree;
        let mut records = Records::default();
        for &(child, vacancy) in vacancies {
            self.chunk.set_cookie(child, vacancy.cookie);
            let base = self.chunk.dir(self.chunk.base_of(child)).ino;
            self.chunk.encode_child(child, (base, vacancy.chained), &mut records);
            if let Some((cookie, ino)) = vacancy.predecessor {
                plan.flag_chained(at.view, base, cookie, ino)?;
            }
        }
        put_all(plan.batch(), tree, records.iter());
        let chunk = &self.chunk;
        for (n, dir) in chunk.dirs.iter().enumerate() {
            if dir.is_base(n as u32) {
                continue;
            }
            if !ingested {
                let mut records = Records::default();
                chunk.encode_dir(n, false, &mut records);
                put_all(plan.batch(), tree, records.iter());
                plan.written(tree, dir.ino, dir.record.uid);
            } else if chunk.is_top(n) {
                plan.put_directory(tree, dir.ino, &dir.stored(false));
            } else {
                plan.written(tree, dir.ino, dir.record.uid);
            }
        }
        if !ingested {
            let mut extents = chunk.extents();
            while let Some(item) = extents.next_entry().map_err(from_store)? {
                plan.batch().put(tree, item.key, item.value);
            }
        }
        self.plan_counts(at, plan);
        Ok(())
    }

    /// Counts of bases, of the subvolume, of segments, of quotas; and who holds what.
    fn plan_counts(&self, at: &Context<'_>, plan: &mut Plan) {
        let (chunk, tree) = (&self.chunk, at.view.tree);
        let mut made = chunk.files.len() as i64;
        for (n, dir) in chunk.dirs.iter().enumerate() {
            if !dir.is_base(n as u32) {
                made += 1;
                if dir.keep {
                    let node = at.subvol.node(dir.ino);
                    plan.effect(Effect::LookUp(node, Location::Directory));
                }
            } else if !dir.children.is_empty() {
                let is_dir = |child: &&(u64, Draft)| matches!(child.1, Draft::Directory(_));
                let below = dir.children.iter().filter(is_dir).count() as i64;
                plan.touch_directory(tree, dir.ino, dir.children.len() as i64, below);
                plan.makes_in((at.id(), dir.ino));
                if at.fs.has_front_end() {
                    self.notify_of(at, plan, n);
                }
            }
        }
        // As the counter itself, it wraps: a hole costs nothing, so that two files may have more.
        let mut bytes = 0_i64;
        for file in &chunk.files {
            // The length of a target is not counted.
            if file.inode.kind == FileKind::File {
                bytes = bytes.wrapping_add(file.inode.size as i64);
            }
            if file.keep {
                let dir = chunk.dirs[file.dir as usize].ino;
                let location = Location::Entry { dir, cookie: file.cookie };
                plan.effect(Effect::LookUp(at.subvol.node(file.ino), location));
            }
        }
        plan.count(at.id(), made, bytes);
        for (key, lanes) in chunk.segments.iter().chain(&chunk.charges) {
            for lanes in lanes.chunks(format::batch::LANES_MAX) {
                plan.batch().merge(VOLUME, key, lanes);
            }
        }
    }

    /// Front ends that know a base are notified of its new names.
    fn notify_of(&self, at: &Context<'_>, plan: &mut Plan, base: usize) {
        let dir = &self.chunk.dirs[base];
        let node = at.subvol.node(dir.ino);
        for (_, child) in &dir.children {
            let name = self.chunk.name_of(*child);
            plan.effect(Effect::HeldNameChanged(node, name.into()));
        }
    }
}

/// The bases in which there are drafts.
fn bases(chunk: &Chunk) -> Vec<DirId> {
    let all = chunk.dirs.iter().enumerate();
    let bases = all.filter(|(n, dir)| dir.is_base(*n as u32) && !dir.children.is_empty());
    bases.map(|(n, _)| DirId(n as u32)).collect()
}

fn put_all<'a>(
    batch: &mut Batch,
    tree: TreeId,
    records: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    records.for_each(|(key, value)| batch.put(tree, key, value));
}

/// Whether what failed may be there after the next opening. Nothing was written without space, nor
/// where a base is gone.
fn is_in_doubt(error: &FsError) -> bool {
    !matches!(error, FsError::NoSpace | FsError::NotFound)
}

/// Nothing reaches the inodes, and no other flush has the record: nothing is locked.
fn withdraw(fs: &Ops, tree: Option<TreeId>, intent: Intent) -> FsResult<()> {
    execute_alone(fs, |plan| {
        if let Some(tree) = tree {
            plan_removal(plan.batch(), tree, (intent.first, intent.end));
        }
        plan.batch().delete(VOLUME, &key::detached(intent.sequence));
        Ok(())
    })
}
