//! Reads beside damage: everything outside the damage can be read, and the keys that it may hide
//! are reported.

use std::collections::BTreeMap;

use format::run_index::BLOB_HEAD_BYTES;
use lsm::{LsmStore, Options};
use store::{Durable, Error, KeyRange, LostRange, Maintain, Pinned, Read, Snapshot, TreeId};
use testing::{CrashPolicy, SimDevice, SimEnv, entries, noise};

use crate::util::{TREE, blobs, column, commit, options, settle, store_with};

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u32 = 600;
const OTHER: TreeId = TreeId(40);

/// A store of three overlapping runs, each with keys of its own and of the others, and its content.
fn closed(options: &Options) -> (SimDevice, Model) {
    let (sim, store) = store_with(1, options);
    for round in 0..3_u32 {
        commit(&store, |batch| {
            for n in (0..KEYS).filter(|n| n % 3 == round || n % 7 == round) {
                batch.put(TREE, &n.to_be_bytes(), &noise(u64::from(n + round), 60));
            }
            if round > 0 {
                let from = 100 * round;
                batch.delete_range(TREE, &from.to_be_bytes(), &(from + 20).to_be_bytes());
                batch.delete(TREE, &(from + 50).to_be_bytes());
            }
        });
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let model = entries(&*store, TREE);
    store.close().expect("close");
    (sim.device.after_crash(CrashPolicy::LoseAll, 1), model)
}

/// Walks a tree past what cannot be read, as a check does.
pub(crate) fn read_past(pin: &dyn Pinned) -> (Model, Vec<LostRange>) {
    let (mut found, mut lost, mut at) = (Model::new(), Vec::new(), Vec::new());
    let mut cursor = pin.scan(TREE, KeyRange::all()).expect("scan");
    loop {
        match cursor.next() {
            Ok(None) => break,
            Ok(Some(item)) => {
                at = [item.key, &[0]].concat();
                found.insert(item.key.to_vec(), item.value.to_vec());
            }
            Err(Error::Corrupt(_)) => {
                let range =
                    pin.lost_from(TREE, &at).expect("it can be determined").expect("there is one");
                lost.push(range.clone());
                let Some(to) = range.to else { break };
                assert!(at < to, "{at:?} {to:?}");
                cursor.seek(&to).expect("seek");
                at = to;
            }
            Err(error) => panic!("{error}"),
        }
    }
    (found, lost)
}

pub(crate) fn hides(lost: &LostRange, key: &[u8]) -> bool {
    lost.from.as_slice() <= key && lost.to.as_ref().is_none_or(|to| key < to.as_slice())
}

/// Every answer is right, and missing keys are reported as lost; returns how many are.
fn lives_with_it(device: SimDevice, options: &Options, model: &Model, place: &str) -> usize {
    let sim = SimEnv::on(device, 1);
    let store = LsmStore::open(&sim.env(), options);
    let store = store.unwrap_or_else(|error| panic!("{place}: {error}"));
    let (found, lost) = read_past(&*store.pin().expect("pin"));
    for (key, value) in &found {
        assert_eq!(model.get(key), Some(value), "{place}: {key:?}");
    }
    let unread: Vec<_> = model.keys().filter(|key| !found.contains_key(*key)).collect();
    for key in &unread {
        assert!(lost.iter().any(|lost| hides(lost, key)), "{place}: {key:?} is not there");
    }
    for (key, value) in model {
        match store.get(TREE, key) {
            Ok(read) => assert_eq!(read.as_ref(), Some(value), "{place}: {key:?}"),
            Err(Error::Corrupt(_)) => assert!(!found.contains_key(key), "{place}: {key:?}"),
            Err(error) => panic!("{place}: {error}"),
        }
    }
    // It takes changes, which are merged with what is readable.
    commit(&store, |batch| batch.put(TREE, &[0xff; 4], b"more"));
    assert!(store.checkpoint().expect("checkpoint"));
    merges_past(&store);
    assert_eq!(store.get(TREE, &[0xff; 4]).expect("read"), Some(b"more".to_vec()));
    store.close().expect("close");
    unread.len()
}

/// Merges and reclaims until nothing is left to do. Damage is reported, once each; returns how
/// often.
fn merges_past(store: &LsmStore) -> usize {
    let mut reported = Vec::new();
    loop {
        match store.reclaim_step(100) {
            Ok(true) => {}
            Ok(false) => return reported.len(),
            Err(Error::Corrupt(bad)) => {
                let place = (bad.file.clone(), bad.offset);
                assert!(!reported.contains(&place), "{bad} is reported again");
                reported.push(place);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Adds four runs to each of two trees, each run in a blob of its own.
fn four_more(store: &LsmStore, from: u32) {
    for n in from..from + 4 {
        for tree in [TREE, OTHER] {
            commit(store, |batch| {
                for key in (0..200_u32).filter(|key| key % 4 == n % 4) {
                    batch.put(tree, &key.to_be_bytes(), &noise(u64::from(key + n), 60));
                }
                if n > 0 {
                    batch.delete_range(tree, &(20 + n).to_be_bytes(), &(24 + n).to_be_bytes());
                }
            });
            assert!(store.checkpoint().expect("checkpoint"));
        }
    }
}

/// Otherwise a merge that fails would be the next merge after every manifest.
#[test]
fn a_damaged_run_does_not_block_other_merges() {
    for options in [options(), column()] {
        let (sim, store) = store_with(7, &options);
        commit(&store, |batch| batch.create_tree(OTHER));
        four_more(&store, 0);
        store.close().expect("close");
        drop(store);
        let files = blobs(&sim.device);
        let mut reported = 0;
        for file in &files {
            let length = sim.device.read_file(file).len();
            // In a block, and in the index.
            for byte in [BLOB_HEAD_BYTES + 9, length - 9] {
                let place = format!("{file}, byte {byte}");
                let hurt = sim.device.copy();
                hurt.flip_bit(file, byte as u64 * 8);
                let store = LsmStore::open(&SimEnv::on(hurt, 1).env(), &options).expect("open");
                let stats = || store.stats().merges.expect("it merges");
                reported += merges_past(&store);
                let ended = stats().ended;
                assert!(ended > 0, "{place}: the other tree is merged");
                four_more(&store, 4);
                reported += merges_past(&store);
                assert!(stats().ended > ended + 1, "{place}: what comes later is merged");
                assert!(stats().depth < 7, "{place}: {} runs deep", stats().depth);
            }
        }
        assert!(reported > files.len() / 2, "{reported} of {files:?}");
    }
}

#[test]
fn a_scan_continues_after_a_damaged_block() {
    for options in [options(), column()] {
        let (device, model) = closed(&options);
        let (mut lost, mut cases) = (Vec::new(), 0);
        for file in blobs(&device) {
            let length = device.read_file(&file).len();
            for byte in (BLOB_HEAD_BYTES..length).step_by(331) {
                let hurt = device.copy();
                hurt.flip_bit(&file, byte as u64 * 8 + 3);
                let place = format!("{file}, byte {byte}");
                lost.push(lives_with_it(hurt, &options, &model, &place));
                cases += 1;
            }
        }
        lost.sort_unstable();
        assert!(cases > 30, "{cases} cases");
        // Everything except an index: a block or a row.
        let most = lost[cases * 3 / 4];
        assert!(most < model.len() / 4 && lost[cases / 4] > 0, "{lost:?} of {}", model.len());
    }
}

#[test]
fn a_missing_or_short_blob_blocks_only_its_own_content() {
    for options in [options(), column()] {
        let (device, model) = closed(&options);
        let mut all = 0;
        for file in blobs(&device) {
            let length = device.read_file(&file).len() as u64;
            let gone = device.copy();
            gone.delete(&file);
            lives_with_it(gone, &options, &model, &format!("{file} is gone"));
            for short in [0, 20, length / 2, length - 1] {
                let hurt = device.copy();
                hurt.truncate(&file, short);
                let place = format!("{file} has {short} bytes");
                all += usize::from(lives_with_it(hurt, &options, &model, &place) > 0);
            }
            let head = device.copy();
            head.overwrite(&file, 0, &[0; BLOB_HEAD_BYTES]);
            let lost = lives_with_it(head, &options, &model, &format!("the head of {file}"));
            assert_eq!(lost, 0, "nothing is known by it");
        }
        assert!(all > 4, "{all} of them");
        settle(&LsmStore::open(&SimEnv::on(device, 1).env(), &options).expect("it is whole"));
    }
}
