//! Blocks of runs whose keys contradict their order, with every checksum right: each once had a
//! cursor return the same keys again and again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use format::run_block::{Block, BlockBuilder, Stored, unpack};
use format::run_index::{BlockPlace, RunIndex, checksum};
use format::run_manifest::RunManifest;
use store::{Durable, Error, KeyRange, Read, Snapshot};
use testing::SimEnv;

use crate::damaged::{hides, read_past};
use crate::util::{TREE, checked, commit, falsify, open, store};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A closed store with one run of a thousand entries.
fn closed() -> SimEnv {
    let (sim, store) = store(1);
    commit(&store, |batch| {
        for n in 0..1000_u32 {
            batch.put(TREE, &n.to_be_bytes(), &[7; 100]);
        }
    });
    checked(&store);
    store.close().expect("close");
    sim
}

fn entries(blob: &[u8], place: &BlockPlace) -> Entries {
    let start = place.offset as usize;
    let stored = blob[start..start + place.stored as usize].to_vec();
    let packed = place.stored != place.raw;
    let raw = if packed { unpack(&stored, place.raw as usize).expect("packed") } else { stored };
    let block = Block::decode(raw).expect("a block");
    let entry = |at| {
        let mut key = Vec::new();
        block.key_to(at, &mut key);
        let Stored::Value(value) = block.stored(at) else { panic!("no value") };
        (key, value.to_vec())
    };
    (0..block.len()).map(entry).collect()
}

/// Gives all blocks of the greatest run other entries, behind what is in its blob.
fn falsify_blocks(sim: &SimEnv, change: impl Fn(usize, &mut Entries)) {
    falsify(sim, |manifest: &mut RunManifest| {
        let volume = manifest.volume;
        let run = manifest.runs.iter_mut().max_by_key(|run| run.entries).expect("a run");
        let path = format!("lsm/run-{:016x}", run.blob);
        let mut blob = sim.device.read_file(&path);
        let (start, length) = (run.index as usize, run.index_bytes as usize);
        let index = RunIndex::decode(&blob[start..start + length]).expect("an index");
        let mut copy = RunIndex::default();
        let first = blob.len() as u64;
        for (at, place) in index.blocks().iter().enumerate() {
            let mut entries = entries(&blob, place);
            change(at, &mut entries);
            let mut builder = BlockBuilder::default();
            for (key, value) in &entries {
                builder.push(key, Stored::Value(value));
            }
            let (bytes, offset) = (builder.finish(), blob.len() as u64);
            let sum = checksum(&volume, run.blob, offset, &bytes);
            let stored = bytes.len() as u32;
            blob.extend(bytes);
            let place = BlockPlace { offset, stored, raw: stored, checksum: sum };
            copy.push(index.first_key(at), index.last_key(), place);
        }
        let (encoded, offset) = (copy.encode(), blob.len() as u64);
        blob.extend(&encoded);
        (run.start, run.index, run.index_bytes) = (first, offset, encoded.len() as u32);
        run.checksum = checksum(&volume, run.blob, offset, &encoded);
        let number = run.blob;
        sim.device.overwrite(&path, 0, &blob);
        for entry in manifest.blobs.iter_mut().filter(|entry| entry.number == number) {
            entry.length = blob.len() as u64;
        }
    });
}

/// Reads all entries; fails where there are more than were written.
fn read_all(sim: &SimEnv) -> Result<usize, Error> {
    let store = open(sim);
    let mut cursor = store.scan(TREE, KeyRange::all())?;
    let mut count = 0;
    while cursor.next()?.is_some() {
        count += 1;
        assert!(count <= 1000, "the cursor does not end");
    }
    Ok(count)
}

#[test]
fn a_block_whose_keys_do_not_ascend_is_damage() {
    type Change = fn(usize, &mut Entries);
    let changes: [(&str, Change); 4] = [
        ("reversed", |_, entries| entries.reverse()),
        ("one of another block", |at, entries| {
            if at > 0 {
                entries[0].0 = vec![0];
            }
        }),
        ("a last key behind the next block", |at, entries| {
            if at == 0
                && let Some(last) = entries.last_mut()
            {
                last.0 = vec![0xff];
            }
        }),
        ("twice the same", |_, entries| {
            if let [first, second, ..] = &mut entries[..] {
                second.0.clone_from(&first.0);
            }
        }),
    ];
    let whole = closed();
    falsify_blocks(&whole, |_, _| {});
    assert_eq!(read_all(&whole).expect("nothing was changed"), 1000);
    for (what, change) in changes {
        let sim = closed();
        falsify_blocks(&sim, change);
        match read_all(&sim) {
            Err(Error::Corrupt(bad)) => {
                assert!(bad.to_string().contains("keys that ascend"), "{what}: {bad}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// One falsified block hides its own keys, and no others: from a walk, from a check, from a
/// look-up.
#[test]
fn a_block_that_contradicts_its_index_hides_its_own_keys_alone() {
    type Change = fn(&mut Entries);
    let changes: [(&str, Change); 3] = [
        ("another first key", |entries| entries[0].0 = 0_u32.to_be_bytes().to_vec()),
        ("a last key behind the next block", |entries| {
            entries.last_mut().expect("an entry").0 = vec![0xff];
        }),
        ("no first key", |entries| drop(entries.remove(0))),
    ];
    for (what, change) in changes {
        for block in [0, 1] {
            let sim = closed();
            let own = RefCell::default();
            let blocks = Cell::new(0);
            falsify_blocks(&sim, |at, entries| {
                blocks.set(at + 1);
                if at == block {
                    own.replace(entries.iter().map(|(key, _)| key.clone()).collect());
                    change(entries);
                }
            });
            let own: BTreeSet<Vec<u8>> = own.into_inner();
            if block == 0 && what == "another first key" {
                continue; // Its first key is that one.
            }
            assert!(blocks.get() > 2 && own.len() > 2, "{} blocks", blocks.get());
            let store = open(&sim);
            let (found, lost) = read_past(&*store.pin().expect("pin"));
            assert_eq!(lost.len(), 1, "{what} of block {block}: {lost:?}");
            for key in (0..1000_u32).map(|n| n.to_be_bytes().to_vec()) {
                let is_own = own.contains(&key);
                assert_eq!(hides(&lost[0], &key), is_own, "{what} of block {block}: {key:?}");
                assert_eq!(found.contains_key(&key), !is_own, "{what} of block {block}: {key:?}");
                match store.get(TREE, &key) {
                    Ok(value) => assert_eq!((value, is_own), (Some(vec![7; 100]), false), "{what}"),
                    Err(Error::Corrupt(_)) => assert!(is_own, "{what} of block {block}: {key:?}"),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}
