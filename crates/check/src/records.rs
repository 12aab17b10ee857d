//! Checks the volume's own records against each other, and against the trees that they name.

use format::candidate;
use format::detached_record::DetachedRecord;
use format::inode_record::LinkedRecord;
use format::key::{self, Part};
use store::TreeId;
use vfs::FsResult;
use volume::numbers::COUNT_MAX;
use volume::readable::Scan;
use volume::subvol::VOLUME;

use super::look::{self, Look, touches};
use super::{Checker, Edit, Fix, Problem, ProblemKind};

impl Checker<'_, '_> {
    /// Checks the records against each other.
    pub(super) fn check_table(&mut self) -> FsResult<()> {
        let ids: Vec<u64> = self.table.subvolumes.keys().copied().collect();
        for id in ids {
            self.check_subvolume_record(id)?;
        }
        self.check_inherited();
        self.check_shared_trees();
        self.check_circles()?;
        self.check_snapshot_names();
        self.check_orphans()?;
        self.check_detached()?;
        self.check_bases()?;
        self.check_counters();
        self.check_slots();
        self.check_epoch();
        self.check_gc_notes()?;
        self.check_trees()
    }

    /// What waits to be removed exists, and has no name.
    fn check_orphans(&mut self) -> FsResult<()> {
        for (subvol, ino) in std::mem::take(&mut self.table.orphans) {
            let problem = match self.table.subvolumes.get(&subvol) {
                None if touches(&self.table.lost, &key::subvolume(subvol)) => None,
                None => Some("of a subvolume that does not exist"),
                Some(record) => {
                    let key = key::linked(ino, Part::Attributes);
                    let tree = TreeId(record.tree);
                    match look::get(self.pin, tree, &key, LinkedRecord::decode)? {
                        Look::Absent => Some("that does not exist"),
                        Look::Found(record) if record.nlink > 0 => Some("that has names"),
                        Look::Unknown | Look::Found(_) => None,
                    }
                }
            };
            if let Some(problem) = problem {
                let what = format!("inode {ino} is to be removed, {problem}");
                let edits = vec![Edit::Delete(VOLUME, key::orphan(subvol, ino).to_vec())];
                let fix = Fix::Edits("forget that", edits);
                let problem = Problem::new(ProblemKind::Name, what).repaired_by(fix);
                self.found(Problem { subvolume: subvol, ino, ..problem });
            }
        }
        Ok(())
    }

    fn check_detached(&mut self) -> FsResult<()> {
        let mut wrong = Vec::new();
        for (&sequence, record) in &self.table.detached {
            if sequence >= COUNT_MAX {
                // The object that it refers to is then found not to wait.
                wrong.push((sequence, 0, "under a number that was never assigned"));
                continue;
            }
            let subvolume = match *record {
                DetachedRecord::Directory { subvolume, directory, .. } => {
                    if let Some(known) = self.table.subvolumes.get(&subvolume) {
                        let tree = TreeId(known.tree);
                        let found = look::directory(self.pin, tree, directory)?;
                        if matches!(found, Look::Found(record) if !record.detached) {
                            wrong.push((sequence, subvolume, "and is in use"));
                        }
                        continue;
                    }
                    subvolume
                }
                DetachedRecord::Subvolume { subvolume } => {
                    let kept = self.table.subvolumes.get(&subvolume);
                    if kept.is_some_and(|record| !record.detached) {
                        wrong.push((sequence, subvolume, "and is in use"));
                    }
                    continue;
                }
                DetachedRecord::Inodes { subvolume, .. } => subvolume,
                DetachedRecord::Tree { tree } => {
                    let user = self.table.subvolumes.iter().find(|(_, other)| other.tree == tree);
                    if let Some((&id, _)) = user {
                        wrong.push((sequence, id, "and its tree is in use"));
                    }
                    continue;
                }
            };
            let unsure = touches(&self.table.lost, &key::subvolume(subvolume));
            if !unsure && !self.table.subvolumes.contains_key(&subvolume) {
                wrong.push((sequence, subvolume, "and does not exist"));
            }
        }
        for (sequence, subvolume, how) in wrong {
            let what = format!("part of subvolume {subvolume} is queued for reclaim {how}");
            let edits = vec![Edit::Delete(VOLUME, key::detached(sequence).to_vec())];
            let fix = Fix::Edits("forget that", edits);
            let problem = Problem::new(ProblemKind::Subvolume, what).repaired_by(fix);
            self.found(Problem { subvolume, ..problem });
        }
        Ok(())
    }

    fn check_bases(&mut self) -> FsResult<()> {
        let bases: Vec<u64> = self.table.bases.keys().copied().collect();
        for base in bases {
            if self.tree_exists(base)? {
                continue;
            }
            let what = format!("tree {base} of a base of the index does not exist");
            let problem = Problem::new(ProblemKind::Index, what).repaired_by(Fix::DropIndex);
            self.found(problem);
        }
        Ok(())
    }

    /// The notes of `pando gc` can be read, or nothing is collected any more.
    fn check_gc_notes(&mut self) -> FsResult<()> {
        let mut scan = Scan::new(self.pin, VOLUME, &key::CANDIDATES_PREFIX)?;
        while scan.advance()? {
            let Err(malformed) = candidate::decode(&scan.value) else { continue };
            let what = format!("a record of garbage, {:02x?}: {malformed}", scan.key);
            let edits = vec![Edit::Delete(VOLUME, scan.key.clone())];
            let fix = Fix::Edits("remove the record: the next collection writes it again", edits);
            self.found(Problem::new(ProblemKind::Structure, what).repaired_by(fix));
        }
        Ok(())
    }
}
