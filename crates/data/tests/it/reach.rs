//! How far around its own range a call looks. A log-structured store still has a tombstone for what
//! was removed from a file; that must not make each later call slower.

use data::{FileRef, STORED_BYTES_MAX, Side};
use device::sync::Mutex;
use format::key::{self, Parsed};
use store::{Batch, Commit, Cursor, KeyRange, Read, Result, TreeId};
use testing::MemStore;

use crate::support::{Volume, pattern};

const FILE: FileRef = FileRef { tree: TreeId(32), ino: 1 };
const SIZE: u64 = 64 << 20;

/// A store that notes which offsets of the file are scanned.
struct Watched<'a> {
    store: &'a MemStore,
    scanned: Mutex<Vec<(u64, u64)>>,
}

impl Read for Watched<'_> {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.store.get_with(tree, key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        let offset = |key: &[u8]| match key::parse(key) {
            Ok(Parsed::Extent { offset, .. }) => offset,
            other => panic!("no key of an extent: {other:?}"),
        };
        let to = range.to.as_deref().map_or(u64::MAX, offset);
        self.scanned.lock().push((offset(&range.from), to));
        self.store.scan(tree, range)
    }
}

/// The offsets that a call scans.
fn scanned(volume: &Volume, call: impl FnOnce(&Watched<'_>, &mut Batch)) -> (u64, u64) {
    let watched = Watched { store: &volume.store, scanned: Mutex::default() };
    let mut batch = Batch::new();
    call(&watched, &mut batch);
    volume.store.commit(&batch).unwrap();
    let scanned = watched.scanned.into_inner();
    let from = scanned.iter().map(|scan| scan.0).min().expect("it scans something");
    (from, scanned.iter().map(|scan| scan.1).max().unwrap_or_default())
}

#[test]
fn no_call_looks_further_than_an_extent_reaches() {
    let mut volume = Volume::new(1);
    for at in (0..SIZE).step_by(1 << 20) {
        volume.write(32, 1, at, &pattern(at, 300)).unwrap();
    }
    let (owner, data) = (volume.owner(32), std::sync::Arc::clone(&volume.data));
    let (at, end) = (SIZE / 2, SIZE / 2 + 8192);
    let chunk = 4096;
    let near = |what: &str, (from, to): (u64, u64)| {
        let reach = 2 * u64::from(STORED_BYTES_MAX);
        assert!(from + reach >= at && to <= end + chunk, "{what} scans {from}..{to} for {at}");
    };
    let bytes = pattern(7, 8192);
    near(
        "a write",
        scanned(&volume, |store, batch| {
            let freed = data.write(store, FILE, at, &bytes, owner, batch).unwrap();
            drop(freed);
        }),
    );
    near(
        "a read",
        scanned(&volume, |store, _| {
            let mut buffer = [0; 8192];
            data.read(store, FILE, SIZE, at, &mut buffer).unwrap();
            assert_eq!(buffer[..], bytes);
        }),
    );
    near(
        "a look at extents",
        scanned(&volume, |store, _| {
            let mut extents = data.extents(store, FILE, (at, end)).unwrap();
            assert_eq!(extents.next().unwrap().expect("one extent").length, 8192);
            assert!(extents.next().unwrap().is_none());
        }),
    );
    near(
        "a copy of a range",
        scanned(&volume, |store, batch| {
            let to = FileRef { ino: 2, ..FILE };
            let sides = (Side { file: FILE, offset: at }, Side { file: to, offset: at });
            let owners = (Some(owner), owner);
            drop(data.share(store, sides, end - at, owners, batch).unwrap());
        }),
    );
    near(
        "a hole",
        scanned(&volume, |store, batch| {
            let punched = data.punch(store, FILE, (at, end), owner, batch).unwrap();
            assert_eq!((punched.done_to, punched.extents), (end, 1));
        }),
    );
    // The last step of a truncation looks behind the end; those before it do not.
    let mut batch = Batch::new();
    for page in 0..3000 {
        let at = page * 8192;
        drop(data.write(&*volume.store, FILE, at, &bytes[..300], owner, &mut batch).unwrap());
        volume.store.commit(&batch).unwrap();
        batch.clear();
    }
    let (from, to) = scanned(&volume, |store, batch| {
        let cut = data.truncate(store, FILE, (SIZE, 0), owner, batch).unwrap();
        assert!(cut.size > 0 && cut.end == SIZE);
    });
    assert!(from == 0 && to <= SIZE + chunk, "a step of a truncation scans {from}..{to}");
    volume.trees.clear();
}

/// A write reports what it replaced, so that its caller need not look at the extents again.
#[test]
fn a_write_reports_the_bytes_that_were_no_hole() {
    for seed in 0..20 {
        let mut volume = Volume::new(seed);
        volume.write(32, 1, 0, &pattern(seed, 100)).unwrap();
        let (owner, data) = (volume.owner(32), std::sync::Arc::clone(&volume.data));
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..100 {
            let from = random.u64(0..400 << 10);
            let longest = if random.bool() { 3000 } else { 200 << 10 };
            let length = random.u64(1..longest);
            let (store, mut batch) = (&*volume.store, Batch::new());
            if random.u8(0..4) == 0 {
                let range = (from, from + length);
                drop(data.punch(store, FILE, range, owner, &mut batch).unwrap());
            } else {
                let (mut extents, mut covered) =
                    (data.extents(store, FILE, (from, from + length)).unwrap(), 0);
                while let Some(extent) = extents.next().unwrap() {
                    covered += extent.end().min(from + length) - extent.offset.max(from);
                }
                drop(extents);
                let bytes = pattern(from, length as usize);
                let freed = data.write(store, FILE, from, &bytes, owner, &mut batch).unwrap();
                assert_eq!(freed.replaced_bytes, covered, "seed {seed}, {from}+{length}");
            }
            volume.store.commit(&batch).unwrap();
        }
        volume.trees.clear();
    }
}
