//! Flipped bits, cut and missing segments: a typed error that names the file, or the right bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use data::FileRef;
use store::{Cursor, Error, KeyRange, Pinned, Read, Snapshot, TreeId};
use testing::run::for_seeds;

use crate::support::{Volume, pattern, verify};

/// Reads a file; the right bytes, or the file that an error names.
fn read(volume: &Volume, ino: u64) -> Result<(), String> {
    let bytes = volume.contents(32, ino);
    let mut buffer = vec![0; bytes.len()];
    let file = FileRef { tree: TreeId(32), ino };
    let size = bytes.len() as u64;
    match volume.data.read(&*volume.store, file, size, 0, &mut buffer) {
        Ok(_) => {
            assert!(buffer == bytes, "wrong bytes without an error");
            Ok(())
        }
        Err(Error::Corrupt(corruption)) => {
            assert!(!corruption.structure.is_empty());
            Err(corruption.file.clone())
        }
        Err(Error::Missing { file, .. }) => Err(file),
        Err(other) => panic!("{other}"),
    }
}

fn filled(seed: u64) -> Volume {
    let mut volume = Volume::new(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    for ino in 1..8 {
        volume.write(32, ino, 0, &pattern(ino, random.usize(5000..150_000))).unwrap();
    }
    volume.write(32, 3, 2000, &pattern(9, 3333)).unwrap();
    volume.sync().unwrap();
    volume.clean(true).unwrap();
    volume
}

#[test]
fn a_flipped_bit_is_harmless_or_a_typed_error_that_names_the_file() {
    for_seeds("bit flips", 4, 40, |seed| {
        let volume = filled(seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut seen = 0;
        for _ in 0..300 {
            let files = volume.sim.device.files();
            let (path, length) = random.choice(&files).unwrap().clone();
            let bit = random.u64(0..length * 8);
            volume.sim.device.flip_bit(&path, bit);
            for ino in 1..8 {
                if let Err(named) = read(&volume, ino) {
                    assert_eq!(named, path);
                    seen += 1;
                }
            }
            volume.sim.device.flip_bit(&path, bit);
        }
        assert!(seen > 100, "only {seen} flips showed");
        volume.verify();
    });
}

#[test]
fn cut_and_missing_segments_are_named_and_the_rest_stays_readable() {
    let mut volume = filled(1);
    volume.reopen().unwrap();
    let files = volume.sim.device.files();
    let (cut, length) = files.iter().find(|(path, _)| path.contains("sealed")).unwrap().clone();
    volume.sim.device.truncate(&cut, length / 2);
    let results: Vec<_> = (1..8).map(|ino| read(&volume, ino)).collect();
    assert!(results.contains(&Err(cut.clone())), "{results:?}");
    assert!(results.iter().any(Result::is_ok));
    volume.sim.device.delete(&cut);
    volume.reopen().unwrap();
    let results: Vec<_> = (1..8).map(|ino| read(&volume, ino)).collect();
    assert!(results.iter().any(Result::is_err), "{results:?}");
    assert!(results.iter().any(Result::is_ok));
    // A collection does not take the missing segment for an empty one.
    let error = volume.collect().unwrap_err().to_string();
    assert!(error.contains("0000000000000000.seg is missing"), "{error}");
}

#[test]
fn a_damaged_header_keeps_the_data_readable_and_accepts_no_writes() {
    let mut volume = filled(2);
    let files = volume.sim.device.files();
    let (open, length) = files.iter().find(|(path, _)| path.contains("open")).unwrap().clone();
    for bit in [0, 100, 300] {
        volume.sim.device.flip_bit(&open, bit);
        volume.reopen().unwrap();
        volume.verify();
        volume.sim.device.flip_bit(&open, bit);
    }
    volume.sim.device.flip_bit(&open, 0);
    volume.reopen().unwrap();
    volume.write(32, 1, 0, &pattern(5, 10_000)).unwrap();
    volume.verify();
    assert_eq!(volume.sim.device.read_file(&open).len() as u64, length);
}

#[test]
fn a_damaged_record_is_a_typed_error() {
    let volume = filled(3);
    let file = FileRef { tree: TreeId(32), ino: 1 };
    let mut batch = store::Batch::new();
    batch.put(file.tree, &format::key::extent(1, 0), b"\x01junk");
    store::Commit::commit(&*volume.store, &batch).unwrap();
    let mut buffer = [0; 100];
    let error = volume.data.read(&*volume.store, file, 100, 0, &mut buffer).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let before = volume.sim.device.files();
    let error = volume.collect().unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "an unread record is not an absent one: {error}");
    assert_eq!(volume.sim.device.files(), before);
}

/// Lays one file out so that a long extent of another one overlaps the shorter ones of its own,
/// and returns what either has.
fn overlapped(volume: &mut Volume) -> (FileRef, Vec<u8>, Vec<u8>) {
    let file = FileRef { tree: TreeId(32), ino: 20 };
    let long = pattern(21, 100_000);
    volume.write(32, 21, 0, &long).unwrap();
    let extents = format::key::extent_prefix(21);
    let all = volume.store.dump(file.tree).unwrap();
    assert_eq!(all.iter().filter(|(key, _)| key.starts_with(&extents)).count(), 1);
    // Holes between them, so that each is an extent of its own.
    let mut short = vec![0; 120_000];
    for (at, length) in [(10_000, 10_000), (20_000, 500), (40_000, 5_000), (90_000, 300)] {
        let bytes = pattern(at as u64, length);
        volume.write(32, 20, at as u64, &bytes).unwrap();
        short[at..at + length].copy_from_slice(&bytes);
    }
    volume.write(32, 20, 119_999, &[0]).unwrap();
    let other = Read::get(&*volume.store, file.tree, &format::key::extent(21, 0)).unwrap();
    let mut batch = store::Batch::new();
    batch.put(file.tree, &format::key::extent(20, 0), &other.expect("it has one"));
    store::Commit::commit(&*volume.store, &batch).unwrap();
    (file, long, short)
}

/// Whether a byte is of one of the short extents.
fn in_short(at: usize) -> bool {
    (10_000..20_500).contains(&at)
        || (40_000..45_000).contains(&at)
        || (90_000..90_300).contains(&at)
}

#[test]
fn ranges_covered_by_overlapping_extents_do_not_read_as_zeros() {
    let mut volume = Volume::new(11);
    let (file, long, short) = overlapped(&mut volume);
    let mut random = fastrand::Rng::with_seed(11);
    let (mut refused, mut read) = (0, 0);
    let mut ranges: Vec<(usize, usize)> =
        vec![(20_500, 30_000), (15_000, 30_000), (20_600, 20_601), (45_000, 99_999), (0, 120_000)];
    for _ in 0..2000 {
        let from = random.usize(0..110_000);
        ranges.push((from, (from + random.usize(1..20_000)).min(120_000)));
    }
    for (from, to) in ranges {
        let mut buffer = vec![0xee; to - from];
        match volume.data.read(&*volume.store, file, 120_000, from as u64, &mut buffer) {
            Ok(_) => read += 1,
            Err(Error::Corrupt(bad)) => {
                assert_eq!(bad.structure, "extent");
                refused += 1;
                continue;
            }
            Err(other) => panic!("{from} to {to}: {other}"),
        }
        for (at, &byte) in (from..to).zip(&buffer) {
            let one = long.get(at).copied().unwrap_or(0);
            let right = byte == one || (in_short(at) && byte == short[at]);
            assert!(right, "{from} to {to}: byte {at} is {byte}, of {one} and {}", short[at]);
        }
    }
    assert!(refused > 100 && read > 100, "{refused} refused, {read} read");
}

#[test]
fn overlapping_extents_report_no_hole_and_are_copied_whole() {
    let mut volume = Volume::new(12);
    let (file, long, _) = overlapped(&mut volume);
    for from in [0, 15_000, 20_400, 20_500, 30_000, 89_000, 95_000] {
        let mut extents =
            volume.data.extents_to_read(&*volume.store, file, (from, u64::MAX)).unwrap();
        let mut at = from;
        while let Some(extent) = extents.next().unwrap() {
            if extent.offset > at {
                break;
            }
            at = at.max(extent.offset + extent.length);
        }
        assert_eq!(at, 100_000, "from {from}");
    }
    let side = |ino, offset| data::Side { file: FileRef { tree: TreeId(32), ino }, offset };
    let share = |volume: &Volume, from: u64, length: u64| -> store::Result<()> {
        let (owner, mut batch) = (volume.owner(32), store::Batch::new());
        let sides = (side(20, from), side(22, 0));
        let owners = (Some(owner), owner);
        let step = volume.data.share(&*volume.store, sides, length, owners, &mut batch)?;
        let token = store::Commit::commit(&*volume.store, &batch)?;
        volume.data.reclaim_after(step.freed, token);
        Ok(())
    };
    for (from, length) in [(15_000, 10_000), (0, 120_000), (80_000, 20_000)] {
        let refused = share(&volume, from, length);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{from}: {refused:?}");
    }
    // A copy takes what one extent alone covers, also behind the shorter one.
    share(&volume, 25_000, 10_000).unwrap();
    let mut copy = vec![0xee; 10_000];
    let file = FileRef { tree: TreeId(32), ino: 22 };
    volume.data.read(&*volume.store, file, 10_000, 0, &mut copy).unwrap();
    assert!(copy == long[25_000..35_000]);
}

#[test]
fn a_change_of_overlapping_extents_loses_none() {
    let mut volume = Volume::new(13);
    let (file, long, _) = overlapped(&mut volume);
    let extents = |volume: &Volume| {
        let all = volume.store.dump(TreeId(32)).unwrap();
        let own = format::key::extent_prefix(20);
        all.into_iter().filter(|(key, _)| key.starts_with(&own)).collect::<Vec<_>>()
    };
    let before = extents(&volume);
    // What would be left of both begins at the same byte; or one begins where the other
    // continues.
    for (at, length) in [(12_000, 3_000), (5_000, 10_000), (9_000, 1_000)] {
        let refused = volume.write(32, 20, at, &pattern(3, length)).unwrap_err();
        assert!(matches!(refused, Error::Corrupt(_)), "{at}: {refused}");
        let refused = volume.punch(32, 20, (at, at + length as u64)).unwrap_err();
        assert!(matches!(refused, Error::Corrupt(_)), "{at}: {refused}");
        assert!(extents(&volume) == before, "{at}");
    }
    // Elsewhere it is written to, and the long one stays beside what was written.
    volume.write(32, 20, 50_000, &pattern(4, 5_000)).unwrap();
    let read = |from: u64, to: u64| {
        let mut buffer = vec![0xee; (to - from) as usize];
        volume.data.read(&*volume.store, file, 120_000, from, &mut buffer).map(|_| buffer)
    };
    assert!(read(50_000, 55_000).unwrap() == pattern(4, 5_000));
    assert!(read(56_000, 80_000).unwrap() == long[56_000..80_000]);
    // Cut short, nothing of either is behind the end; cut to nothing, nothing is left.
    volume.truncate(32, 20, 60_000).unwrap();
    volume.truncate(32, 20, 120_000).unwrap();
    let mut buffer = vec![0xee; 60_000];
    volume.data.read(&*volume.store, file, 120_000, 60_000, &mut buffer).unwrap();
    assert!(buffer == vec![0; 60_000]);
    volume.release(32, 20).unwrap();
    assert!(extents(&volume).is_empty());
}

/// A record with every checksum right may contain anything. This one starts beyond all that a file
/// can have, and ends beyond the greatest number.
#[test]
fn an_extent_at_an_impossible_offset_is_freed_with_its_file() {
    let mut volume = Volume::new(14);
    let file = FileRef { tree: TreeId(32), ino: 9 };
    let bytes = pattern(9, 50_000);
    volume.write(32, 9, 0, &bytes).unwrap();
    let extents = |volume: &Volume| {
        let all = volume.store.dump(TreeId(32)).unwrap();
        let own = format::key::extent_prefix(9);
        all.into_iter().filter(|(key, _)| key.starts_with(&own)).count()
    };
    let mut batch = store::Batch::new();
    let mut value = Vec::new();
    format::extent::encode_inline(&mut value, &[7; 4000]);
    for offset in [u64::MAX - 5000, u64::MAX - 100] {
        batch.put(file.tree, &format::key::extent(9, offset), &value);
    }
    store::Commit::commit(&*volume.store, &batch).unwrap();
    verify(&*volume.store, &volume.data, &volume.now);
    assert_eq!(volume.data.allocated_bytes(&*volume.store, file).unwrap(), 58_000);
    let mut all = volume.data.extents_to_read(&*volume.store, file, (1 << 62, u64::MAX)).unwrap();
    while let Some(extent) = all.next().unwrap() {
        assert!(extent.end() > extent.offset);
    }
    drop(all);
    volume.settle(32, 9).unwrap();
    verify(&*volume.store, &volume.data, &volume.now);
    volume.truncate(32, 9, 20_000).unwrap();
    verify(&*volume.store, &volume.data, &volume.now);
    assert_eq!(extents(&volume), 1, "what lay behind the end is gone");
    store::Commit::commit(&*volume.store, &batch).unwrap();
    volume.release(32, 9).unwrap();
    assert_eq!(extents(&volume), 0);
}

/// Two states of a store, of which each scan shows another.
struct Alternating {
    states: [Box<dyn Pinned>; 2],
    scans: AtomicUsize,
}

impl Read for Alternating {
    fn get_with(
        &self,
        tree: TreeId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8]),
    ) -> store::Result<bool> {
        self.states[0].get_with(tree, key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> store::Result<Box<dyn Cursor + '_>> {
        let scans = self.scans.fetch_add(1, Ordering::Relaxed);
        self.states[scans % 2].scan(tree, range)
    }
}

#[test]
fn damage_in_a_file_that_keeps_changing_is_an_error_in_the_end() {
    let mut volume = Volume::new(3);
    volume.write(32, 1, 0, &pattern(1, 100_000)).unwrap();
    volume.sync().unwrap();
    let before = volume.store.pin().unwrap();
    volume.write(32, 1, 50_000, &pattern(2, 10_000)).unwrap();
    volume.sync().unwrap();
    let after = volume.store.pin().unwrap();
    for (path, length) in volume.sim.device.files() {
        for at in (0..length).step_by(4096) {
            volume.sim.device.flip_bit(&path, at * 8);
        }
    }
    let store = Alternating { states: [before, after], scans: AtomicUsize::new(0) };
    let mut buffer = vec![0; 100_000];
    let file = FileRef { tree: TreeId(32), ino: 1 };
    let read = volume.data.read(&store, file, 100_000, 0, &mut buffer);
    assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
    assert!(store.scans.load(Ordering::Relaxed) > 10, "the records changed at each attempt");
}
