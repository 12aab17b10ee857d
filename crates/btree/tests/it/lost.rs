//! What a replay passes over because a node is damaged, and nodes that lie twice, where the medium
//! fails in other ways than by rot: a sector that does not read, a byte that reads wrong once, room
//! of a lost node that is used again.

use std::sync::Arc;

use btree::{BtreeStore, inspect};
use device::{Device, Env, File, Lock, Metadata, Result, Space};
use store::{Read, Store, TreeId};
use testing::{CrashPolicy, SimEnv};

use crate::util::{TREE, commit, options, store};

const NODES: &str = "btree/nodes";
const CACHE_BYTES: usize = 8 << 20;
const OTHER: TreeId = TreeId(33);
const EIO: i32 = 5;

/// A medium of which one 4 KiB block of the nodes cannot be read.
struct Bad {
    inner: Arc<dyn Device>,
    at: u64,
}

struct BadFile {
    inner: Arc<dyn File>,
    at: u64,
}

impl Device for Bad {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path)?;
        Ok(if path == NODES { Arc::new(BadFile { inner, at: self.at }) } else { inner })
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        self.inner.create(path)
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        self.inner.metadata(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        self.inner.create_dir(directory)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, directory: &str) -> Result<()> {
        self.inner.sync_dir(directory)
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        self.inner.try_lock(path)
    }
}

impl File for BadFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if offset < self.at + 4096 && offset + buffer.len() as u64 > self.at {
            return Err(device::Error::new("read", NODES, std::io::Error::from_raw_os_error(EIO)));
        }
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.inner.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.inner.allocate(offset, length)
    }

    fn punch(&self, offset: u64, length: u64) -> Result<bool> {
        self.inner.punch(offset, length)
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.inner.disk_bytes()
    }
}

/// Both copies of a node are read at once.
#[test]
fn a_sector_that_does_not_read_in_either_copy_closes_nothing() {
    let left = crate::twice::made();
    for (places, _) in crate::twice::copies(&left) {
        for at in places {
            let env = SimEnv::on(left.copy(), 1).env();
            let device: Arc<dyn Device> = Arc::new(Bad { inner: Arc::clone(&env.device), at });
            let env = Env { device, ..env };
            let opened = BtreeStore::open(&env, &options(CACHE_BYTES));
            let value = opened.expect("the other copy is whole").get(TreeId(100), b"tree");
            assert!(value.expect("it reads").is_some(), "{at}");
            let mut go_on = |_, _| std::ops::ControlFlow::Continue(());
            let report = inspect(&env, &options(CACHE_BYTES), &mut go_on).expect("it is looked at");
            let is_named = report.findings.iter().any(|finding| finding.offset == at);
            assert!(is_named, "{at}: {:?}", report.findings);
        }
    }
}

/// Offsets of leaves.
fn leaves(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let starts = (0..bytes.len() / 1024).map(|unit| unit * 1024);
    starts.filter(|&at| bytes[at..at + 4] == format::node::MAGIC && bytes[at + 6] == 1)
}

/// What the log says of a leaf is passed over where that does not read; wherever in the leaf that
/// was, nobody is shown what was there before the log.
#[test]
fn what_reads_wrong_once_is_not_shown_without_the_log() {
    let (sim, whole) = store(1, CACHE_BYTES);
    let key = |n: u32| n.to_be_bytes();
    for n in 0..200 {
        commit(&whole, |batch| batch.put(TREE, &key(n), &[1; 300]));
    }
    assert!(whole.checkpoint().expect("there is room"));
    commit(&whole, |batch| batch.put(TREE, &key(7), &[2; 300]));
    whole.sync(whole.last_commit()).expect("it is written");
    let left = sim.device.after_crash(CrashPolicy::LoseAll, 1);
    drop(whole);
    let bytes = left.read_file(NODES);
    let mut passed_over = 0;
    for (leaf, byte) in leaves(&bytes).flat_map(|at| [0, 8, 31, 100].map(|byte| (at, byte))) {
        let device = left.copy();
        let bit = (leaf + byte) as u64 * 8 + 6;
        device.flip_bit(NODES, bit);
        let opened = BtreeStore::open(&SimEnv::on(device.clone(), 1).env(), &options(CACHE_BYTES));
        let opened = opened.expect("one leaf closes nothing");
        device.flip_bit(NODES, bit);
        if opened.read_only().is_some() {
            passed_over += 1;
            let found = opened.get(TREE, &key(7)).map(|value| value.map(|value| value[0]));
            assert!(!matches!(found, Ok(Some(1) | None)), "{leaf}, {byte}: {found:?}");
        }
    }
    assert!(passed_over >= 4, "{passed_over}");
}

/// A tree whose leaves are damaged under the log is dropped by the log, which goes on with so much
/// that checkpoints come in the same replay, and use the room of the leaves again.
#[test]
fn room_of_lost_nodes_is_used_again() {
    let value = |n: u32, round: u32| testing::noise(u64::from(n * 1000 + round), 300);
    let (sim, whole) = store(1, 256 << 20);
    commit(&whole, |batch| batch.create_tree(OTHER));
    for n in 0..20_000u32 {
        commit(&whole, |batch| {
            if n < 4000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 300]);
            }
            batch.put(OTHER, &n.to_be_bytes(), &value(n, 0));
        });
    }
    assert!(whole.checkpoint().expect("there is room"));
    for n in (0..4000u32).step_by(5) {
        commit(&whole, |batch| batch.put(TREE, &n.to_be_bytes(), &[2; 300]));
    }
    commit(&whole, |batch| batch.drop_tree(TREE));
    for (round, n) in (1..30).flat_map(|round| (0..20_000u32).map(move |n| (round, n))) {
        commit(&whole, |batch| batch.put(OTHER, &n.to_be_bytes(), &value(n, round)));
    }
    whole.sync(whole.last_commit()).expect("it is written");
    let left = sim.device.after_crash(CrashPolicy::LoseAll, 1);
    drop(whole);
    let bytes = left.read_file(NODES);
    let mut hurt = 0;
    for at in leaves(&bytes) {
        let end = bytes.len().min(at + 2000);
        if bytes[at..end].windows(200).any(|some| some == [1; 200]) {
            left.flip_bit(NODES, (at + 100) as u64 * 8);
            hurt += 1;
        }
    }
    assert!(hurt > 20, "{hurt}");
    let opened = BtreeStore::open(&SimEnv::on(left, 1).env(), &options(1 << 20)).expect("it opens");
    assert_eq!((opened.unknown(), opened.read_only()), (Vec::new(), None));
    for n in (0..20_000u32).step_by(7) {
        let found = opened.get(OTHER, &n.to_be_bytes()).expect("it reads");
        assert!(found.is_some_and(|found| found[..] == value(n, 29)[..]), "{n}");
    }
}
