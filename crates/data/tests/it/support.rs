//! A volume of files without a namespace: a store, the data, and a model of what files hold.
//!
//! A file's size is stored beside its extents, under a key of its own, so that a crash takes both
//! back together. After every commit the model's state is kept under the commit's number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use data::{Data, ExtentOwner, FileRef, Freed, Options};
use device::sync::Mutex;
use device::{Blobs, LocalBlobs, OverBlobs};
use format::extent::{Extent, decode};
use format::{key, usage};
use store::{Batch, Commit, Durable, KeyRange, Lsn, Read, Snapshot, TreeId};
use testing::{FarBlobs, MemStore, SimEnv};

/// Contents of every file of every tree.
pub(crate) type Contents = BTreeMap<(u64, u64), Arc<Vec<u8>>>;

/// The model after each commit.
pub(crate) type History = Arc<Mutex<BTreeMap<Lsn, Contents>>>;

/// The record of a subvolume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subvolume {
    pub(crate) last_clone: u64,
}

/// A volume under test.
pub(crate) struct Volume {
    pub(crate) sim: SimEnv,
    pub(crate) store: Arc<MemStore>,
    pub(crate) data: Arc<Data>,
    pub(crate) trees: BTreeMap<u64, Subvolume>,
    pub(crate) epoch: u64,
    pub(crate) next_tree: u64,
    pub(crate) now: Contents,
    pub(crate) history: History,
    pub(crate) options: Options,
    pub(crate) punches: bool,
    /// The objects, where only objects are durable.
    pub(crate) objects: Option<Arc<FarBlobs>>,
}

/// Called when a blob is to be punched, or deleted; whether that is punched.
pub(crate) type Hook = Box<dyn Fn() -> bool + Send + Sync>;

/// Blobs that ask before they give space back; as an object store has them, they cannot be punched.
pub(crate) struct HookedBlobs(pub(crate) LocalBlobs, pub(crate) Hook);

impl OverBlobs for HookedBlobs {
    fn below(&self) -> &dyn Blobs {
        &self.0
    }

    fn delete(&self, name: &str) -> device::Result<()> {
        (self.1)();
        self.0.delete(name)
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> device::Result<bool> {
        if (self.1)() { self.0.punch(name, offset, length) } else { Ok(false) }
    }
}

/// Small segments and limits, so that every limit is met.
pub(crate) fn small_options() -> Options {
    Options {
        volume: [7; 16],
        segment_pages: 64,
        unsynced_bytes_max: 512 << 10,
        punch_bytes_min: 64 << 10,
        ..Options::default()
    }
}

pub(crate) fn open_data(
    sim: &SimEnv,
    store: &MemStore,
    options: &Options,
    punches: bool,
    objects: Option<&Arc<FarBlobs>>,
) -> store::Result<Arc<Data>> {
    if let Some(objects) = objects {
        let blobs = Arc::<FarBlobs>::clone(objects);
        return Data::open(&sim.env(), blobs, store, options.clone());
    }
    if punches {
        return Data::open_local(&sim.env(), store, options.clone());
    }
    open_hooked(sim, store, options, Box::new(|| false))
}

pub(crate) fn open_hooked(
    sim: &SimEnv,
    store: &MemStore,
    options: &Options,
    hook: Hook,
) -> store::Result<Arc<Data>> {
    let env = sim.env();
    env.device.create_dir("data")?;
    let blobs = LocalBlobs::open(Arc::clone(&env.device), "data/sealed")?;
    Data::open(&env, Arc::new(HookedBlobs(blobs, hook)), store, options.clone())
}

impl Volume {
    /// The volume as it is now, for a watcher of the device.
    pub(crate) fn seen_by_watcher(&self) -> Volume {
        Volume {
            sim: self.sim.clone(),
            store: Arc::clone(&self.store),
            data: Arc::clone(&self.data),
            trees: self.trees.clone(),
            epoch: self.epoch,
            next_tree: self.next_tree,
            now: self.now.clone(),
            history: Arc::clone(&self.history),
            options: self.options.clone(),
            punches: self.punches,
            objects: None,
        }
    }

    pub(crate) fn new(seed: u64) -> Volume {
        Volume::with(testing::sim_env(seed), small_options(), true)
    }

    /// A volume with one empty tree, number 32.
    pub(crate) fn with(sim: SimEnv, options: Options, punches: bool) -> Volume {
        Volume::over(sim, options, punches, None)
    }

    /// The same, with contents in objects.
    pub(crate) fn over(
        sim: SimEnv,
        options: Options,
        punches: bool,
        objects: Option<Arc<FarBlobs>>,
    ) -> Volume {
        let store = Arc::new(MemStore::new().keep_synced());
        let mut batch = Batch::new();
        batch.create_tree(TreeId(32));
        // Engines make the reserved trees; here the volume's own is made by hand.
        batch.create_tree(TreeId(key::VOLUME_TREE));
        let token = store.commit(&batch).unwrap();
        store.sync(token).unwrap();
        let data = open_data(&sim, &store, &options, punches, objects.as_ref()).unwrap();
        store.set_barrier(Arc::<Data>::clone(&data));
        let volume = Volume {
            sim,
            store,
            data,
            trees: BTreeMap::from([(32, Subvolume { last_clone: 0 })]),
            epoch: 1,
            next_tree: 33,
            now: Contents::new(),
            history: History::default(),
            options,
            punches,
            objects,
        };
        volume.history.lock().insert(token.0, Contents::new());
        volume
    }

    pub(crate) fn owner(&self, tree: u64) -> ExtentOwner {
        ExtentOwner { birth: self.epoch, last_clone: self.trees[&tree].last_clone }
    }

    /// Commits a batch after which the model is `next`.
    pub(crate) fn commit(
        &mut self,
        batch: &Batch,
        freed: Freed,
        next: Contents,
    ) -> store::Result<()> {
        // Known before the commit returns, as a crash may come in between.
        let lsn = Lsn(self.store.last_commit().0.0 + u64::from(!batch.is_empty()));
        self.history.lock().insert(lsn, next.clone());
        match self.store.commit(batch) {
            Ok(token) => {
                assert_eq!(token.0, lsn);
                self.data.reclaim_after(freed, token);
                self.now = next;
                Ok(())
            }
            Err(error) => {
                self.data.abandon(freed);
                Err(error)
            }
        }
    }

    pub(crate) fn contents(&self, tree: u64, ino: u64) -> Vec<u8> {
        self.now.get(&(tree, ino)).map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    pub(crate) fn write(
        &mut self,
        tree: u64,
        ino: u64,
        at: u64,
        bytes: &[u8],
    ) -> store::Result<()> {
        let file = FileRef { tree: TreeId(tree), ino };
        let mut batch = Batch::new();
        let owner = self.owner(tree);
        let freed = self.data.write(&*self.store, file, at, bytes, owner, &mut batch)?;
        let mut contents = self.contents(tree, ino);
        let end = at as usize + bytes.len();
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[at as usize..end].copy_from_slice(bytes);
        put_size(&mut batch, file, contents.len() as u64);
        let mut next = self.now.clone();
        next.insert((tree, ino), Arc::new(contents));
        self.commit(&batch, freed, next)
    }

    pub(crate) fn truncate(&mut self, tree: u64, ino: u64, size: u64) -> store::Result<()> {
        let file = FileRef { tree: TreeId(tree), ino };
        loop {
            let mut contents = self.contents(tree, ino);
            let mut batch = Batch::new();
            let sizes = (contents.len() as u64, size);
            let owner = self.owner(tree);
            let cut = self.data.truncate(&*self.store, file, sizes, owner, &mut batch)?;
            put_size(&mut batch, file, cut.size);
            contents.resize(cut.size as usize, 0);
            let mut next = self.now.clone();
            next.insert((tree, ino), Arc::new(contents));
            self.commit(&batch, cut.freed, next)?;
            if cut.size == size {
                return Ok(());
            }
        }
    }

    pub(crate) fn punch(&mut self, tree: u64, ino: u64, range: (u64, u64)) -> store::Result<()> {
        let file = FileRef { tree: TreeId(tree), ino };
        let (mut from, to) = range;
        while from < to {
            let mut contents = self.contents(tree, ino);
            let mut batch = Batch::new();
            let owner = self.owner(tree);
            let cut = self.data.punch(&*self.store, file, (from, to), owner, &mut batch)?;
            let size = contents.len() as u64;
            contents[from.min(size) as usize..cut.done_to.min(size) as usize].fill(0);
            let mut next = self.now.clone();
            next.insert((tree, ino), Arc::new(contents));
            put_size(&mut batch, file, size);
            self.commit(&batch, cut.freed, next)?;
            from = cut.done_to;
        }
        Ok(())
    }

    /// Reflinks `length` bytes from one (file, offset) to another; of a tree that a clone shares,
    /// or within one, alike.
    pub(crate) fn share(
        &mut self,
        from: (u64, u64, u64),
        to: (u64, u64, u64),
        length: u64,
    ) -> store::Result<()> {
        let side =
            |(tree, ino, offset)| data::Side { file: FileRef { tree: TreeId(tree), ino }, offset };
        let mut done = 0;
        while done < length {
            let source = self.contents(from.0, from.1);
            let mut contents = self.contents(to.0, to.1);
            let mut batch = Batch::new();
            let sides = (side((from.0, from.1, from.2 + done)), side((to.0, to.1, to.2 + done)));
            let owners = (Some(self.owner(from.0)), self.owner(to.0));
            let left = length - done;
            let step = self.data.share(&*self.store, sides, left, owners, &mut batch)?;
            let (start, end) = (sides.0.offset as usize, (sides.0.offset + step.length) as usize);
            let (at, stop) = (sides.1.offset as usize, (sides.1.offset + step.length) as usize);
            if contents.len() < stop {
                contents.resize(stop, 0);
            }
            contents[at..stop].copy_from_slice(&source[start..end]);
            put_size(&mut batch, sides.1.file, contents.len() as u64);
            let mut next = self.now.clone();
            next.insert((to.0, to.1), Arc::new(contents));
            self.commit(&batch, step.freed, next)?;
            done += step.length;
        }
        Ok(())
    }

    pub(crate) fn release(&mut self, tree: u64, ino: u64) -> store::Result<()> {
        let file = FileRef { tree: TreeId(tree), ino };
        self.truncate(tree, ino, 0)?;
        loop {
            let mut batch = Batch::new();
            let owner = self.owner(tree);
            let cut = self.data.release_all(&*self.store, file, owner, &mut batch)?;
            batch.delete(file.tree, &size_key(ino));
            let mut next = self.now.clone();
            next.remove(&(tree, ino));
            self.commit(&batch, cut.freed, next)?;
            if !cut.more {
                return Ok(());
            }
        }
    }

    pub(crate) fn settle(&mut self, tree: u64, ino: u64) -> store::Result<()> {
        let file = FileRef { tree: TreeId(tree), ino };
        let mut from = Some(0);
        while let Some(at) = from {
            let mut batch = Batch::new();
            let owner = self.owner(tree);
            let settled = self.data.settle(&*self.store, file, at, owner, &mut batch)?;
            self.commit(&batch, settled.freed, self.now.clone())?;
            from = settled.next;
        }
        Ok(())
    }

    /// Makes a clone of a tree; both sides share every extent from now on.
    pub(crate) fn clone_tree(&mut self, source: u64) -> store::Result<u64> {
        let target = self.next_tree;
        let mut batch = Batch::new();
        batch.clone_tree(TreeId(source), TreeId(target));
        let mut next = self.now.clone();
        for (&(_, ino), bytes) in self.now.range((source, 0)..(source + 1, 0)) {
            next.insert((target, ino), Arc::clone(bytes));
        }
        self.commit(&batch, Freed::default(), next)?;
        self.next_tree += 1;
        let cloned = Subvolume { last_clone: self.epoch };
        self.trees.insert(source, cloned);
        self.trees.insert(target, cloned);
        self.epoch += 1;
        Ok(target)
    }

    pub(crate) fn drop_tree(&mut self, tree: u64) -> store::Result<()> {
        let mut batch = Batch::new();
        batch.drop_tree(TreeId(tree));
        let mut next = self.now.clone();
        next.retain(|&(other, _), _| other != tree);
        self.commit(&batch, Freed::default(), next)?;
        self.trees.remove(&tree);
        Ok(())
    }

    pub(crate) fn sync(&self) -> store::Result<()> {
        self.store.sync(self.store.last_commit())
    }

    /// Cleaning commits too; the model stays as it is.
    pub(crate) fn note_commits(&self) {
        self.history.lock().insert(self.store.last_commit().0, self.now.clone());
    }

    pub(crate) fn clean(&self, all: bool) -> store::Result<()> {
        self.expect_cleaning();
        if all {
            self.data.clean_all(&*self.store)?;
        } else {
            while self.data.clean_step(&*self.store)? {
                self.expect_cleaning();
            }
        }
        self.note_commits();
        Ok(())
    }

    /// A crash may come right after any commit that cleaning makes.
    fn expect_cleaning(&self) {
        let last = self.store.last_commit().0.0;
        let mut history = self.history.lock();
        for lsn in last + 1..last + 100 {
            history.insert(Lsn(lsn), self.now.clone());
        }
    }

    pub(crate) fn collect(&self) -> store::Result<(data::Report, data::Swept)> {
        self.expect_cleaning();
        let horizon = self.data.horizon();
        let pinned = self.store.pin()?;
        let trees: Vec<TreeId> = self.trees.keys().map(|&tree| TreeId(tree)).collect();
        let marked = self.data.mark(horizon, &*pinned, &mut trees.into_iter())?;
        let swept = self.data.sweep(&*self.store, &marked)?;
        assert!(!swept.outdated, "nobody else collects");
        self.note_commits();
        Ok((marked.report().clone(), swept))
    }

    /// Closes and opens the data on the same disk.
    pub(crate) fn reopen(&mut self) -> store::Result<()> {
        self.sync()?;
        let objects = self.objects.as_ref();
        self.data = open_data(&self.sim, &self.store, &self.options, self.punches, objects)?;
        self.store.set_barrier(Arc::<Data>::clone(&self.data));
        Ok(())
    }

    pub(crate) fn verify(&self) {
        verify(&*self.store, &self.data, &self.now);
        check_records(&self.store);
    }
}

pub(crate) fn size_key(ino: u64) -> [u8; 9] {
    let mut key = [b'L'; 9];
    key[1..].copy_from_slice(&ino.to_le_bytes());
    key
}

pub(crate) fn put_size(batch: &mut Batch, file: FileRef, size: u64) {
    batch.put(file.tree, &size_key(file.ino), &size.to_le_bytes());
}

/// Reads every file and compares, the sizes included.
pub(crate) fn verify(store: &dyn Read, data: &Data, expected: &Contents) {
    for (&(tree, ino), bytes) in expected {
        let file = FileRef { tree: TreeId(tree), ino };
        let size = store.get(file.tree, &size_key(ino)).unwrap().expect("the file has a size");
        let size = u64::from_le_bytes(size.try_into().unwrap());
        assert_eq!(size, bytes.len() as u64, "size of {ino} in {tree}");
        let mut buffer = vec![0xee; bytes.len() + 10];
        let read = data.read(store, file, size, 0, &mut buffer).unwrap();
        assert_eq!(read, bytes.len());
        if let Some(at) = (0..read).find(|&at| buffer[at] != bytes[at]) {
            panic!("byte {at} of {ino} in {tree}: {} and not {}", buffer[at], bytes[at]);
        }
    }
}

/// Rules that records must keep. Extents of a file do not overlap, and one range names a page that
/// is not flagged as shared. Counters are no less than what is named. Returns whether counters and
/// named pages are equal.
pub(crate) fn check_records(store: &MemStore) -> bool {
    let mut pages: BTreeMap<(u64, u32), BTreeSet<(u64, u64)>> = BTreeMap::new();
    for tree in store.trees().into_iter().filter(|tree| tree.0 >= 32) {
        let mut end = (0, 0);
        for (key, value) in store.dump(tree).unwrap() {
            let Ok(key::Parsed::Extent { ino, offset }) = key::parse(&key) else { continue };
            if end.0 == ino {
                assert!(end.1 <= offset, "extents of {ino} in {tree:?} overlap at {offset}");
            }
            let length = match decode(&value).unwrap() {
                Extent::Inline(bytes) => bytes.len() as u64,
                Extent::Stored(stored) => {
                    let first = u32::from(stored.page) + stored.first_chunk();
                    for page in first..first + stored.chunk_count() {
                        let ranges = pages.entry((stored.segment, page)).or_default();
                        if !stored.reflinked {
                            ranges.insert((ino, offset.wrapping_sub(u64::from(stored.skip))));
                        }
                    }
                    u64::from(stored.length)
                }
            };
            end = (ino, offset + length);
        }
    }
    for (page, ranges) in &pages {
        assert!(ranges.len() <= 1, "page {page:?} is named by the ranges {ranges:?}");
    }
    let mut equal = true;
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    for (segment, _) in pages.keys() {
        *counted.entry(*segment).or_default() += 1;
    }
    let volume = TreeId(key::VOLUME_TREE);
    let mut cursor = store.scan(volume, KeyRange::prefix(&key::SEGMENTS_PREFIX)).unwrap();
    while let Some(item) = cursor.next().unwrap() {
        let segment = key::parse_number(item.key).unwrap();
        let live = usage::decode(item.value).unwrap() as u64;
        let named = counted.remove(&segment).unwrap_or(0);
        assert!(live >= named, "segment {segment} counts {live} of {named} pages");
        equal &= live == named;
    }
    assert!(counted.is_empty(), "segments without a count: {counted:?}");
    equal
}

/// Bytes that encode where they belong, so that a mix-up shows.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}
