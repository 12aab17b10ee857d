//! Flipped bits, cut and missing segments: a typed error that names the file, or the right bytes.

use data::FileRef;
use store::{Error, TreeId};
use testing::run::for_seeds;

use crate::support::{Volume, pattern};

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
        Err(Error::Missing { file }) => Err(file),
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
    assert!(volume.collect().is_err());
}

#[test]
fn a_damaged_header_keeps_the_data_readable_and_takes_no_more() {
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
    store::Store::commit(&*volume.store, &batch).unwrap();
    let mut buffer = [0; 100];
    let error = volume.data.read(&*volume.store, file, 100, 0, &mut buffer).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let before = volume.sim.device.files();
    assert!(volume.collect().is_err(), "an unread record is not an absent one");
    assert_eq!(volume.sim.device.files(), before);
}
