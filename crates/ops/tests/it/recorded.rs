//! Records of a volume that are in no store: they are read from a map, and nothing is committed.
//! Everything that would change them, or would need a store, fails the test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use format::kept_twice::{Features, RootCounter};
use format::key;
use format::key::Counter;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use store::{
    Barrier, Batch, CheckProgress, CheckReport, Commit, CommitToken, Cursor, DiffCursor, Durable,
    Item, KeyRange, Lsn, Maintain, Pinned, Read, Result, Snapshot, SortedRun, Stats, TreeId,
};
use volume::subvol::VOLUME;

/// Records of all trees.
#[derive(Default)]
pub(crate) struct Recorded(BTreeMap<(TreeId, Vec<u8>), Vec<u8>>);

impl Recorded {
    /// The volume's own records, of a root that is this subvolume.
    pub(crate) fn of_root(root: u64) -> Recorded {
        let mut recorded = Recorded::default();
        for (counter, value) in [
            (Counter::NextIno, 1000),
            (Counter::NextSubvolume, 10),
            (Counter::NextTree, key::FIRST_TREE + 10),
            (Counter::NextDetached, 1),
            (Counter::Epoch, 5),
        ] {
            recorded.set(VOLUME, &key::counter(counter), &u64::to_le_bytes(value));
        }
        let root = RootCounter { subvolume: root, copies: true, features: Features::NONE };
        recorded.set(VOLUME, &key::counter(Counter::Root), &root.encode());
        recorded
    }

    /// Adds a record.
    pub(crate) fn set(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.0.insert((tree, key.to_vec()), value.to_vec());
    }

    /// Adds a subvolume, whose files were counted.
    pub(crate) fn add(&mut self, id: u64, record: &SubvolumeRecord) {
        self.set(VOLUME, &key::subvolume(id), &record.encode());
        let usage = UsageRecord { files: 1, bytes: 0, counted: true };
        self.set(VOLUME, &key::usage(id), &usage.encode());
    }
}

/// A subvolume that is mounted at a place: its tree, and the number of its root.
pub(crate) fn mounted_at(tree: TreeId, root: u64, parent: (u64, u64, u64)) -> SubvolumeRecord {
    SubvolumeRecord {
        tree: tree.0,
        root,
        lineage: 1,
        parent,
        source: (0, 0),
        created: 1,
        last_clone_epoch: 0,
        first_own_ino: root,
        read_only: false,
        snapshot: false,
        pruned: true,
        detached: false,
        index: false,
        inherits: false,
        name: Vec::new(),
        base: 0,
        maker: 0,
    }
}

impl Read for Recorded {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.0.get(&(tree, key.to_vec()));
        if let Some(value) = value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        let all = self.0.iter().filter(|((of, key), _)| *of == tree && range.contains(key));
        let items = all.map(|((_, key), value)| (&**key, &**value)).collect();
        Ok(Box::new(Items { items, next: 0 }))
    }
}

/// What a range has; `next` is the number of the item after the cursor.
struct Items<'a> {
    items: Vec<(&'a [u8], &'a [u8])>,
    next: usize,
}

impl Items<'_> {
    fn at(&self, at: usize) -> Option<Item<'_>> {
        self.items.get(at).map(|(key, value)| Item { key, value })
    }
}

impl Cursor for Items<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        self.next = (self.next + 1).min(self.items.len() + 1);
        Ok(self.at(self.next - 1))
    }

    fn prev(&mut self) -> Result<Option<Item<'_>>> {
        let Some(at) = self.next.min(self.items.len() + 1).checked_sub(2) else {
            self.next = 0;
            return Ok(None);
        };
        self.next = at + 1;
        Ok(self.at(at))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.next = self.items.partition_point(|(other, _)| *other < key);
        Ok(())
    }
}

impl Commit for Recorded {
    fn commit(&self, _: &Batch) -> Result<CommitToken> {
        panic!("a plan commits nothing")
    }

    fn ingest(&self, _: TreeId, _: &mut dyn SortedRun) -> Result<CommitToken> {
        panic!("a plan commits nothing")
    }

    fn ingest_new(&self, _: TreeId, _: &mut dyn SortedRun) -> Result<CommitToken> {
        panic!("a plan commits nothing")
    }
}

impl Snapshot for Recorded {
    fn pin(&self) -> Result<Box<dyn Pinned>> {
        panic!("a plan pins no state")
    }

    fn diff(&self, _: TreeId, _: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        panic!("a plan compares no trees")
    }

    fn tree_exists(&self, _: TreeId) -> Result<bool> {
        Ok(true)
    }
}

impl Durable for Recorded {
    fn sync(&self, _: CommitToken) -> Result<()> {
        panic!("a plan syncs nothing")
    }

    fn last_commit(&self) -> CommitToken {
        CommitToken(Lsn(0))
    }

    fn durable(&self) -> CommitToken {
        CommitToken(Lsn(0))
    }

    fn flush_if_due(&self) -> Result<Duration> {
        panic!("a plan flushes nothing")
    }

    fn set_barrier(&self, _: Arc<dyn Barrier>) {}

    fn close(&self) -> Result<()> {
        panic!("a plan closes nothing")
    }
}

impl Maintain for Recorded {
    fn checkpoint(&self) -> Result<bool> {
        panic!("a plan writes no checkpoint")
    }

    fn checkpoint_due(&self) -> bool {
        false
    }

    fn reclaim_step(&self, _: usize) -> Result<bool> {
        panic!("a plan reclaims nothing")
    }

    fn check(&self, _: CheckProgress<'_>) -> Result<CheckReport> {
        panic!("a plan checks no store")
    }

    fn stats(&self) -> Stats {
        panic!("a plan counts nothing of a store")
    }
}
