//! Repairs the set of subvolumes: each gets a tree of its own, and each tree a place.

use format::entry_record::Target;
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use inode::{FsError, SubvolId};
use ops::plan::{Effect, Plan};
use ops::subvolumes::{Ledger, execute_with};
use store::TreeId;
use vfs::FsResult;
use volume::error::malformed;
use volume::subvol::{VOLUME, read_record};
use volume::view::{NameBuf, View};

use super::Checks;

/// Deepest nesting of subvolumes that is followed.
const NESTED_MAX: usize = 1 << 20;

impl Checks<'_> {
    /// Makes a subvolume, in a directory, from a tree that no record names. Everything in it may be
    /// shared, and nothing in it is charged to a quota.
    pub(super) fn keep_tree(
        self,
        (ledger, plan): (&mut Ledger, &mut Plan),
        view: View<'_>,
        (above, kept): (u64, u64),
        (name, tree, root): (&str, u64, u64),
    ) -> FsResult<()> {
        let id = ledger.new_subvolume(&self)?;
        let ended = self.admin.end_epoch(ledger, plan.batch());
        let target = Target::Subvolume(id);
        let cookie = self.name(plan, view, kept, (name, root, target))?;
        let record = SubvolumeRecord {
            tree,
            root,
            lineage: id,
            parent: (above, kept, cookie),
            source: (0, 0),
            created: plan.now,
            last_clone_epoch: ended,
            first_own_ino: self.numbers.peek(),
            read_only: false,
            snapshot: false,
            pruned: true,
            detached: false,
            index: false,
            inherits: false,
            name: name.as_bytes().to_vec(),
            base: 0,
            maker: 0,
        };
        plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
        let usage = UsageRecord { files: 0, bytes: 0, counted: false };
        plan.batch().put(VOLUME, &key::usage(id), &usage.encode());
        plan.effect(Effect::EpochEnded(ended));
        plan.effect(Effect::Mounted(id, Some(record.parent)));
        self.queue.note_uncounted();
        Ok(())
    }

    /// Gives a subvolume its own copy of a tree that another subvolume also has.
    pub(super) fn own_tree(self, first: u64, id: u64) -> FsResult<()> {
        execute_with(&self, &mut self.admin.lock(), |ledger, plan| {
            let read = |id| read_record(&*self.store, SubvolId(id));
            let (Some(other), Some(own)) = (read(first)?, read(id)?) else { return Ok(()) };
            if other.tree != own.tree {
                return Ok(());
            }
            let ended = self.admin.end_epoch(ledger, plan.batch());
            let tree = ledger.new_tree();
            plan.batch().clone_tree(TreeId(own.tree), tree);
            for (id, record, tree) in [(first, &other, other.tree), (id, &own, tree.0)] {
                let last_clone_epoch = ended.max(record.last_clone_epoch);
                let record = SubvolumeRecord { tree, last_clone_epoch, ..record.clone() };
                plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
            }
            plan.effect(Effect::EpochEnded(ended));
            Ok(())
        })
    }

    /// Removes the entry of a subvolume at the place that its record names.
    pub(super) fn unmount(
        self,
        plan: &mut Plan,
        id: u64,
        record: &SubvolumeRecord,
    ) -> FsResult<()> {
        let (above, directory, cookie) = record.parent;
        let Some(above) = read_record(&*self.store, SubvolId(above))? else { return Ok(()) };
        let view = View::new(&*self.store, TreeId(above.tree));
        let found = view.entry_at(directory, cookie, &mut NameBuf::empty())?;
        let here = found.filter(|found| found.target == Target::Subvolume(id));
        if let Some(found) = here {
            plan.erase_entry(view, directory, &found, found.chained)?;
            plan.touch_directory(view.tree, directory, -1, -1);
        }
        Ok(())
    }

    /// Whether a subvolume is below itself.
    pub(super) fn is_in_itself(self, id: u64) -> FsResult<bool> {
        let mut at = id;
        for _ in 0..NESTED_MAX {
            let Some(record) = read_record(&*self.store, SubvolId(at))? else { return Ok(false) };
            at = record.parent.0;
            if at == 0 || at == id {
                return Ok(at == id);
            }
        }
        Err(FsError::LimitReached(
            "nested subvolumes have too many levels; move the deepest ones up",
        ))
    }

    /// Whether a tree belongs to a subvolume.
    pub(super) fn is_of_a_subvolume(self, tree: u64) -> FsResult<bool> {
        let mut is_one = false;
        self.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |_, value| {
            let record =
                SubvolumeRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
            is_one |= record.tree == tree;
            Ok(())
        })?;
        Ok(is_one)
    }
}
