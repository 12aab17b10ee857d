//! The records of subvolumes: each has its tree, and its place or its name, which point to it.

use std::collections::{BTreeMap, BTreeSet};

use format::detached_record::DetachedRecord;
use format::entry_record::Target;
use format::inherited_record::Home;
use format::key::{self, Part};
use format::subvolume_record::SubvolumeRecord;
use store::{Error, KeyRange, TreeId};
use vfs::FsResult;
use volume::error::from_store;
use volume::subvol::VOLUME;

use super::look::{self, Look, Named, touches};
use super::tree::{Reach, Tree};
use super::{Checker, Edit, Fix, Problem, ProblemKind, Stray};

impl Checker<'_, '_> {
    pub(super) fn about_subvolume(&mut self, id: u64, problem: Problem) -> FsResult<()> {
        let root = self.table.subvolumes.get(&id).map_or(0, |record| record.root);
        let problem = self.at(problem, (id, root), b"")?;
        self.found(problem);
        Ok(())
    }

    /// Whether a tree exists; unknown counts as yes.
    pub(super) fn tree_exists(&self, tree: u64) -> FsResult<bool> {
        let range = KeyRange { from: vec![0], to: Some(vec![0, 0]) };
        match self.pin.scan(TreeId(tree), range) {
            Err(Error::NoTree(_)) => Ok(false),
            Err(Error::Corrupt(_)) | Ok(_) => Ok(true),
            Err(error) => Err(from_store(error)),
        }
    }

    pub(super) fn check_subvolume_record(&mut self, id: u64) -> FsResult<()> {
        let Some(record) = self.table.subvolumes.get(&id).cloned() else { return Ok(()) };
        if !self.tree_exists(record.tree)? {
            let what = format!("tree {} of subvolume {id} does not exist", record.tree);
            let mut edits = vec![
                Edit::Delete(VOLUME, key::subvolume(id).to_vec()),
                Edit::Delete(VOLUME, key::usage(id).to_vec()),
            ];
            for (lineage, directory, name, named) in &self.table.names {
                if *named == id {
                    let key = key::snapshot_name(*lineage, *directory, name);
                    edits.push(Edit::Delete(VOLUME, key));
                }
            }
            let problem = Problem::new(ProblemKind::Subvolume, what);
            let problem = if id == self.table.root {
                problem
            } else {
                problem.repaired_by(Fix::Edits("forget the subvolume", edits))
            };
            self.table.subvolumes.remove(&id);
            self.found(Problem { subvolume: id, ..problem });
            return Ok(());
        }
        if record.detached {
            return self.check_removed(id, &record);
        }
        if record.base != 0 {
            let base = self.table.bases.get(&record.base);
            let unsure = touches(&self.table.lost, &key::base(record.base));
            if !base.is_some_and(|base| base.complete) && !unsure {
                let what = format!("base {} of its index does not exist", record.base);
                let value = SubvolumeRecord { base: 0, ..record.clone() }.encode();
                let edits = vec![Edit::Put(VOLUME, key::subvolume(id).to_vec(), value)];
                let fix = Fix::Edits("have its index rebuilt", edits);
                let problem = Problem::new(ProblemKind::Index, what).repaired_by(fix);
                self.about_subvolume(id, problem)?;
            }
        }
        if record.snapshot {
            return self.check_snapshot(id, &record);
        }
        if record.parent.0 == 0 {
            return if id == self.table.root { Ok(()) } else { self.homeless(id, "has no place") };
        }
        let (above, directory, cookie) = record.parent;
        let Some(other) = self.table.subvolumes.get(&above) else {
            if touches(&self.table.lost, &key::subvolume(above)) {
                return Ok(());
            }
            return self.homeless(id, "is in a subvolume that does not exist");
        };
        match look::entry(self.pin, TreeId(other.tree), directory, cookie)? {
            Look::Unknown => Ok(()),
            Look::Found(entry) if entry.target == Target::Subvolume(id) => Ok(()),
            Look::Found(entry) if self.is_copy_for(&entry, &record) => {
                let what = format!("the name of subvolume {id} points to the original");
                let key = key::entry(directory, cookie, Part::Attributes).to_vec();
                let entry = Named { target: Target::Subvolume(id), ..entry };
                let edits = vec![Edit::Put(TreeId(other.tree), key, entry.encode())];
                let fix = Fix::Edits("point it to the copy", edits);
                let problem = Problem::new(ProblemKind::Subvolume, what).repaired_by(fix);
                self.about_subvolume(id, problem)
            }
            Look::Found(_) | Look::Absent => {
                if self.table.subvolumes.get(&above).is_some_and(|above| above.detached) {
                    return Ok(());
                }
                self.homeless(id, "is not where its record names it")
            }
        }
    }

    /// Whether an entry of a copy that inherits, at the place of a subvolume, points to what the
    /// subvolume was copied from, directly or not. The subvolume was copied while the tree of the
    /// entry was damaged.
    fn is_copy_for(&self, entry: &Named, record: &SubvolumeRecord) -> bool {
        let above = self.table.subvolumes.get(&record.parent.0);
        let mut source = Some(record.source.0);
        let is_copy = loop {
            let Some(id) = source else { break false };
            if entry.target == Target::Subvolume(id) {
                break true;
            }
            // A copy is made after what it was copied from.
            let of = self.table.subvolumes.get(&id).map(|record| record.source.0);
            source = of.filter(|of| *of < id);
        };
        is_copy && above.is_some_and(|above| above.inherits)
    }

    /// A removed subvolume waits to be reclaimed. If nothing waits and it is still in its place, it
    /// was not removed.
    fn check_removed(&mut self, id: u64, record: &SubvolumeRecord) -> FsResult<()> {
        if self.table.subvolume_waits(id) {
            return Ok(());
        }
        let (what, fix) = match self.points_to(id, record)? {
            Look::Unknown => return Ok(()),
            Look::Found(()) => {
                let value = SubvolumeRecord { detached: false, ..record.clone() }.encode();
                let edits = vec![Edit::Put(VOLUME, key::subvolume(id).to_vec(), value)];
                let fix = Fix::Edits("record that it was not removed", edits);
                (format!("subvolume {id} is marked as removed, but has its name"), fix)
            }
            Look::Absent => {
                let fix = DetachedRecord::Subvolume { subvolume: id };
                let fix = self.table.wait("have it reclaimed", fix);
                (format!("subvolume {id} was removed, but is not queued for reclaim"), fix)
            }
        };
        self.about_subvolume(id, Problem::new(ProblemKind::Subvolume, what).repaired_by(fix))
    }

    /// Whether a name points to a subvolume where its record places it, and is itself reachable.
    /// What is above it may be repaired first.
    fn points_to(&mut self, id: u64, record: &SubvolumeRecord) -> FsResult<Look<()>> {
        let if_so = |is: bool| if is { Look::Found(()) } else { Look::Absent };
        if record.snapshot {
            let named = |name: &(u64, u64, Vec<u8>, u64)| (name.0, name.3) == (record.lineage, id);
            let unsure = touches(&self.table.lost, &key::SNAPSHOT_NAMES_PREFIX);
            let is_named = self.table.names.iter().any(named);
            return Ok(if unsure { Look::Unknown } else { if_so(is_named) });
        }
        let (above, directory, cookie) = record.parent;
        if above == 0 {
            return Ok(if_so(id == self.table.root));
        }
        let Some(other) = self.table.subvolumes.get(&above).cloned() else {
            let unsure = touches(&self.table.lost, &key::subvolume(above));
            return Ok(if unsure { Look::Unknown } else { Look::Absent });
        };
        match look::entry(self.pin, TreeId(other.tree), directory, cookie)? {
            Look::Unknown => return Ok(Look::Unknown),
            Look::Found(entry) if entry.target == Target::Subvolume(id) => {}
            Look::Found(_) | Look::Absent => return Ok(Look::Absent),
        }
        if other.detached {
            let waits = self.table.subvolume_waits(above);
            return Ok(if waits { Look::Absent } else { Look::Unknown });
        }
        let mut tree = Tree::new(above, &other);
        Ok(match self.reach(&mut tree, directory)? {
            Reach::Root => Look::Found(()),
            Reach::Detached => Look::Absent,
            Reach::Nowhere | Reach::Unknown => Look::Unknown,
        })
    }

    /// Whether an entry of a copy represents a subvolume that is mounted in one of its homes; homes
    /// that cannot be read count as yes.
    pub(super) fn inherits(&self, place: (u64, u64, u64), record: &SubvolumeRecord) -> bool {
        let (above, directory, cookie) = place;
        let homes = self.table.inherited.get(&above);
        let is_home = |home: &Home| (home.subvolume, directory, cookie) == record.parent;
        homes.is_some_and(|inherited| inherited.homes.iter().any(is_home))
            || homes.is_none()
                && touches(&self.table.lost, &format::inherited_record::inherited(above))
    }

    /// Records of inheritance belong to copies whose records have the flag.
    pub(super) fn check_inherited(&mut self) {
        let mut wrong = Vec::new();
        for (&id, record) in &self.table.subvolumes {
            let unsure = touches(&self.table.lost, &format::inherited_record::inherited(id));
            if record.inherits && !self.table.inherited.contains_key(&id) && !unsure {
                let what = format!("subvolume {id} inherits, but no record names its source");
                let value = SubvolumeRecord { inherits: false, ..record.clone() }.encode();
                wrong.push((id, what, Edit::Put(VOLUME, key::subvolume(id).to_vec(), value)));
            }
        }
        for &id in self.table.inherited.keys() {
            let known = self.table.subvolumes.get(&id);
            let unsure = known.is_none() && touches(&self.table.lost, &key::subvolume(id));
            if !unsure && known.is_none_or(|record| !record.inherits) {
                let what = format!("subvolume {id} is marked as inheriting nothing, but has homes");
                wrong.push((
                    id,
                    what,
                    Edit::Delete(VOLUME, format::inherited_record::inherited(id).to_vec()),
                ));
            }
        }
        for (id, what, edit) in wrong {
            let fix = Fix::Edits("record that it inherits nothing", vec![edit]);
            let problem = Problem::new(ProblemKind::Subvolume, what).repaired_by(fix);
            self.found(Problem { subvolume: id, ..problem });
        }
    }

    /// No two subvolumes have one tree: removing either would remove the contents of the other.
    pub(super) fn check_shared_trees(&mut self) {
        let mut of: BTreeMap<u64, u64> = BTreeMap::new();
        let mut wrong = Vec::new();
        for (&id, record) in &self.table.subvolumes {
            let first = *of.entry(record.tree).or_insert(id);
            if first != id {
                wrong.push((id, first, record.tree));
            }
        }
        for (id, first, tree) in wrong {
            self.table.sharing.insert(id);
            let what = format!("tree {tree} of subvolume {id} is that of subvolume {first}, too");
            let problem = Problem::new(ProblemKind::Subvolume, what);
            let problem = problem.repaired_by(Fix::OwnTree(first, id));
            self.found(Problem { subvolume: id, ..problem });
        }
    }

    /// Subvolumes are inside others, and none is inside itself.
    pub(super) fn check_circles(&mut self) -> FsResult<()> {
        let mut seen: BTreeSet<u64> = BTreeSet::new();
        let mut circles = Vec::new();
        for &id in self.table.subvolumes.keys() {
            let (mut chain, mut at) = (Vec::new(), id);
            while let Some(record) = self.table.subvolumes.get(&at)
                && record.parent.0 != 0
                && !record.snapshot
            {
                if !seen.insert(at) {
                    if let Some(start) = chain.iter().position(|&other| other == at) {
                        circles.push(chain[start..].to_vec());
                    }
                    break;
                }
                chain.push(at);
                at = record.parent.0;
            }
        }
        let root = self.table.subvolumes.get(&self.table.root);
        let Some(above) = root.map(|record| TreeId(record.tree)) else { return Ok(()) };
        for circle in circles {
            let least = circle.iter().copied().min().unwrap_or(0);
            let count = circle.len();
            let what = format!("{count} subvolumes contain each other, and not below the root");
            let fix = Fix::Keep(self.table.root, above, Stray::Subvolume(least));
            let problem = Problem::new(ProblemKind::Subvolume, what).repaired_by(fix);
            self.about_subvolume(least, problem)?;
        }
        Ok(())
    }

    /// A subvolume that nothing points to, as far as its own record shows.
    fn homeless(&mut self, id: u64, how: &str) -> FsResult<()> {
        let what = format!("subvolume {id} {how}");
        let (root, tree) = match self.table.subvolumes.get(&self.table.root) {
            Some(record) => (self.table.root, TreeId(record.tree)),
            None => return Ok(()),
        };
        let fix = Fix::Keep(root, tree, Stray::Subvolume(id));
        self.about_subvolume(id, Problem::new(ProblemKind::Subvolume, what).repaired_by(fix))
    }

    /// A snapshot has its name.
    fn check_snapshot(&mut self, id: u64, record: &SubvolumeRecord) -> FsResult<()> {
        let unsure = touches(&self.table.lost, &key::SNAPSHOT_NAMES_PREFIX);
        if unsure || self.table.names.iter().any(|(.., named)| *named == id) {
            return Ok(());
        }
        let what = format!("snapshot {id} has no name");
        let mut name = record.name.clone();
        let taken = |name: &[u8]| {
            self.table.names.iter().any(|(lineage, directory, other, _)| {
                (*lineage, *directory) == (record.lineage, record.root) && other == name
            })
        };
        if name.is_empty() || taken(&name) {
            name = format!("found-{id}").into_bytes();
        }
        let renamed = SubvolumeRecord { name: name.clone(), ..record.clone() };
        let key = key::snapshot_name(record.lineage, record.root, &name);
        let edits = vec![
            Edit::Put(VOLUME, key, id.to_le_bytes().to_vec()),
            Edit::Put(VOLUME, key::subvolume(id).to_vec(), renamed.encode()),
        ];
        let fix = Fix::Edits("name it as it was", edits);
        self.about_subvolume(id, Problem::new(ProblemKind::Subvolume, what).repaired_by(fix))
    }

    pub(super) fn check_snapshot_names(&mut self) {
        let names = std::mem::take(&mut self.table.names);
        for (lineage, directory, name, id) in &names {
            if touches(&self.table.lost, &key::subvolume(*id)) {
                continue;
            }
            let right = self.table.subvolumes.get(id).is_some_and(|record| {
                let is_there = !record.detached || !self.table.subvolume_waits(*id);
                record.snapshot && is_there && record.lineage == *lineage
            });
            if right {
                continue;
            }
            let shown = String::from_utf8_lossy(name);
            let what = format!("{shown:?} is the name of snapshot {id}, which does not exist");
            let edits = vec![Edit::Delete(VOLUME, key::snapshot_name(*lineage, *directory, name))];
            let fix = Fix::Edits("remove the name", edits);
            let problem = Problem::new(ProblemKind::Subvolume, what).repaired_by(fix);
            self.found(Problem { subvolume: *id, ..problem });
        }
        self.table.names = names;
    }
}
