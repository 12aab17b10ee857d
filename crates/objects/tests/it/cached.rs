//! A cache of objects on a disk that is full, read-only, filled with rubbish, or another volume's:
//! never wrong bytes.

use std::sync::Arc;

use device::{Blobs, Device, LocalDevice};
use objects::{CachedBlobs, Location, Opened, Seams, Settings};
use testing::blobs_conformance::{CASES, Subject};
use testing::{FarBlobs, Fault, FaultOn, Op, SimDevice};

const CHUNK: usize = 128 << 10;
const VOLUME: [u8; 16] = [1; 16];

fn cached(blobs: Arc<dyn Blobs>, device: &SimDevice, bytes_max: u64) -> CachedBlobs {
    CachedBlobs::new(blobs, Arc::new(device.clone()), "cache", VOLUME, bytes_max)
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

fn read(blobs: &dyn Blobs, name: &str, offset: usize, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    let read = blobs.read_at(name, &mut buffer, offset as u64).expect("readable");
    buffer.truncate(read);
    buffer
}

fn part(bytes: &[u8], offset: usize, length: usize) -> &[u8] {
    let from = offset.min(bytes.len());
    &bytes[from..(offset + length).min(bytes.len())]
}

#[test]
fn a_cache_meets_all_requirements() {
    for bytes_max in [0, 300_000, 1 << 30] {
        for (name, case) in CASES {
            println!("{name}, cache of {bytes_max}");
            let (far, disk, device) = (FarBlobs::new(), SimDevice::new(1), SimDevice::new(2));
            let blobs = cached(far.clone(), &disk, bytes_max);
            case(Subject { blobs: &blobs, other: &*far, device: &device });
            assert!(blobs.stats().bytes <= bytes_max);
            // Another host's cache.
            let (far, one, two) = (FarBlobs::new(), SimDevice::new(3), SimDevice::new(4));
            let (blobs, other) =
                (cached(far.clone(), &one, bytes_max), cached(far, &two, bytes_max));
            case(Subject { blobs: &blobs, other: &other, device: &SimDevice::new(5) });
        }
    }
}

#[test]
fn what_was_read_is_not_requested_again_also_after_a_restart() {
    let (shared, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", shared.path().display());
    let settings = Settings { any_file_system: true, ..Settings::default() };
    let opened = Location::parse(&url).unwrap().open(&settings, &Seams::system());
    let Opened { blobs, traffic, .. } = opened.unwrap();
    let bytes = pattern(1, 5 * CHUNK + 100);
    assert!(blobs.create("run/1", &bytes).unwrap());
    let device = Arc::new(LocalDevice::open(host.path()).unwrap());
    let open = || CachedBlobs::new(blobs.clone(), device.clone(), "cache", VOLUME, 1 << 30);
    let cache = open();
    let requests = || traffic.counts().read;
    assert_eq!(read(&cache, "run/1", 10, 3 * CHUNK), part(&bytes, 10, 3 * CHUNK));
    assert_eq!(requests(), 1, "one request for four chunks");
    assert_eq!(read(&cache, "run/1", CHUNK - 1, 2), part(&bytes, CHUNK - 1, 2));
    assert_eq!(requests(), 1);
    assert_eq!(read(&cache, "run/1", 0, 10 * CHUNK), bytes);
    assert_eq!(requests(), 2, "for the two that were not there");
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (2 + 4, 6), "{stats:?}");
    let cache = open();
    assert_eq!(read(&cache, "run/1", 0, 10 * CHUNK), bytes);
    assert_eq!(requests(), 2, "after a restart");
    assert_eq!(cache.stats().bytes, stats.bytes);

    // What is created here is there.
    assert!(cache.create("run/2", &bytes).unwrap());
    device.create("file").unwrap().write_at(&bytes, 0).unwrap();
    assert!(cache.adopt("run/3", &*device, "file").unwrap());
    assert_eq!(read(&cache, "run/2", 5, 3 * CHUNK), part(&bytes, 5, 3 * CHUNK));
    assert_eq!(read(&cache, "run/3", 5, 3 * CHUNK), part(&bytes, 5, 3 * CHUNK));
    assert_eq!(requests(), 2);
    cache.clear();
    assert_eq!(cache.stats().bytes, 0);
    assert_eq!(read(&cache, "run/3", 5, 3 * CHUNK), part(&bytes, 5, 3 * CHUNK));
    assert_eq!(requests(), 3);
    cache.delete("run/1").unwrap();
    assert!(cache.read_at("run/1", &mut [0], 0).is_err_and(|error| error.is_not_found()));
    assert!(requests() > 3);
}

#[test]
fn the_cache_stays_within_its_bytes() {
    let (far, disk) = (FarBlobs::new(), SimDevice::new(1));
    let bytes = pattern(1, 20 * CHUNK);
    far.put("run/1", &bytes);
    let most = 6 * CHUNK as u64;
    let cache = cached(far.clone(), &disk, most);
    for chunk in 0..20 {
        assert_eq!(read(&cache, "run/1", 0, 1), bytes[..1]);
        let at = chunk * CHUNK;
        assert_eq!(read(&cache, "run/1", at, 100), part(&bytes, at, 100));
        assert!(cache.stats().bytes <= most);
        assert!(disk.files().iter().map(|(_, length)| length).sum::<u64>() <= most);
    }
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.hits), (20, 20), "the first chunk, used each time, stays");
    let cache = cached(far, &disk, 2 * CHUNK as u64);
    assert!(cache.stats().bytes <= 2 * CHUNK as u64, "also where it was larger before");
}

/// Every bit of a small chunk's file is flipped, and it is cut at every length.
#[test]
fn damaged_chunks_are_read_from_the_store() {
    let (far, disk) = (FarBlobs::new(), SimDevice::new(1));
    let bytes = pattern(1, 60);
    far.put("run/1", &bytes);
    assert_eq!(read(&cached(far.clone(), &disk, 1 << 20), "run/1", 0, 60), bytes);
    let files = disk.files();
    let [(path, length)] = files.as_slice() else { panic!("one chunk: {files:?}") };
    for bit in 0..length * 8 {
        let damaged = disk.copy();
        damaged.flip_bit(path, bit);
        let cache = cached(far.clone(), &damaged, 1 << 20);
        assert_eq!(read(&cache, "run/1", 0, 60), bytes, "bit {bit}");
        assert_eq!(cache.stats().refused, 1, "bit {bit}");
        // It was replaced.
        assert_eq!(read(&cache, "run/1", 0, 60), bytes);
        assert_eq!(cache.stats().hits, 1);
    }
    for length in 0..*length {
        let damaged = disk.copy();
        damaged.truncate(path, length);
        assert_eq!(read(&cached(far.clone(), &damaged, 1 << 20), "run/1", 0, 60), bytes);
    }
}

/// Files of other chunks, objects and volumes under each other's names, and files of no chunk.
#[test]
fn chunks_under_wrong_names_and_rubbish_are_read_from_the_store() {
    let (far, disk) = (FarBlobs::new(), SimDevice::new(1));
    let all: Vec<Vec<u8>> = (0..3).map(|seed| pattern(seed, 2 * CHUNK)).collect();
    for (number, bytes) in all.iter().enumerate() {
        far.put(&format!("run/{number}"), bytes);
    }
    let check = |disk: &SimDevice, volume: [u8; 16]| {
        let device = Arc::new(disk.clone());
        let cache = CachedBlobs::new(far.clone(), device, "cache", volume, 1 << 30);
        for (number, bytes) in all.iter().enumerate() {
            assert_eq!(&read(&cache, &format!("run/{number}"), 0, 3 * CHUNK), bytes);
        }
        cache.stats()
    };
    assert_eq!(check(&disk, VOLUME).misses, 6);
    assert_eq!(check(&disk, VOLUME).hits, 6);
    assert_eq!(check(&disk.copy(), [2; 16]).hits, 0, "a cache of another volume");
    // Each file gets the next one's bytes.
    let mixed = disk.copy();
    let files: Vec<(String, Vec<u8>)> =
        disk.files().into_iter().map(|(path, _)| (path.clone(), disk.read_file(&path))).collect();
    for (at, (path, _)) in files.iter().enumerate() {
        mixed.truncate(path, 0);
        mixed.overwrite(path, 0, &files[(at + 1) % files.len()].1);
    }
    let stats = check(&mixed, VOLUME);
    assert_eq!((stats.hits, stats.refused), (0, 6));
    let filled = disk.copy();
    filled.create("cache/rubbish").unwrap();
    filled.create_dir("cache/00").unwrap();
    filled.create("cache/00/rubbish").unwrap().write_at(b"rubbish", 0).unwrap();
    filled.create_dir("cache/00/0000000000000000-0").unwrap();
    filled.create("cache/ff").ok();
    assert_eq!(check(&filled, VOLUME).hits, 6);
    assert!(filled.files().iter().any(|(path, _)| path == "cache/00/rubbish"), "not the cache's");
    for (path, _) in &files {
        filled.delete(path);
    }
    assert_eq!(check(&filled, VOLUME).misses, 6, "an emptied cache");
}

/// A cache whose directory is removed, and each call of whose disk fails, serves the right bytes.
#[test]
fn failures_of_the_caches_disk_are_no_failures_of_reads() {
    let far = FarBlobs::new();
    let bytes = pattern(1, 3 * CHUNK);
    far.put("run/1", &bytes);
    for error in [Fault::io, Fault::no_space] {
        for after in 0..12 {
            let disk = SimDevice::new(1);
            disk.inject(error(FaultOn::Any, after).forever().below("cache"));
            let cache = cached(far.clone(), &disk, 1 << 30);
            for _ in 0..3 {
                assert_eq!(read(&cache, "run/1", 0, 4 * CHUNK), bytes, "after {after}");
                assert!(cache.create(&format!("new/{after}"), b"bytes").is_ok());
            }
        }
    }
    // Read-only: chunks that are there are used, and few writes are tried.
    let disk = SimDevice::new(1);
    // One so small reads nothing unasked.
    let small = 8 * CHUNK as u64;
    assert_eq!(read(&cached(far.clone(), &disk, small), "run/1", 0, 10), bytes[..10]);
    disk.inject(Fault::io(FaultOn::AnyChange, 0).forever());
    let cache = cached(far.clone(), &disk, 1 << 30);
    for _ in 0..50 {
        assert_eq!(read(&cache, "run/1", 0, 4 * CHUNK), bytes);
    }
    let stats = cache.stats();
    assert_eq!(stats.hits, 50, "{stats:?}");
    assert!(stats.unwritten < 5, "{stats:?}");
    assert!(disk.counts().of(Op::Create) < 10);
}

/// Random reads of objects of all lengths equal reads without a cache, while threads share it and
/// it evicts.
#[test]
fn threads_read_the_right_bytes_from_a_small_cache() {
    let (far, disk) = (FarBlobs::new(), SimDevice::new(1));
    let lengths = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 5 * CHUNK + 77];
    let all: Vec<Vec<u8>> =
        lengths.iter().enumerate().map(|(seed, length)| pattern(seed as u64, *length)).collect();
    for (number, bytes) in all.iter().enumerate() {
        far.put(&format!("run/{number}"), bytes);
    }
    let cache = cached(far, &disk, 4 * CHUNK as u64);
    device::scope(|scope| {
        for seed in 0..3 {
            let (all, cache) = (&all, &cache);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..300 {
                    let object = random.usize(..all.len());
                    let (offset, length) = (random.usize(..6 * CHUNK), random.usize(..2 * CHUNK));
                    let found = read(cache, &format!("run/{object}"), offset, length);
                    assert!(found == part(&all[object], offset, length), "{object} {offset}");
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.evicted > 0 && stats.hits > 0 && stats.bytes <= stats.bytes_max, "{stats:?}");
}

/// A walk over an object takes few requests, and threads that miss one chunk send one.
#[test]
fn a_walk_takes_few_requests_and_reads_nothing_twice() {
    let (shared, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", shared.path().display());
    let settings = Settings { any_file_system: true, ..Settings::default() };
    let opened = Location::parse(&url).unwrap().open(&settings, &Seams::system()).unwrap();
    let bytes = pattern(1, 100 * CHUNK + 100);
    assert!(opened.blobs.create("run/1", &bytes).unwrap());
    let device = Arc::new(LocalDevice::open(host.path()).unwrap());
    let requests = || opened.traffic.counts().read;
    for (directory, threads) in [("one", 1), ("several", 8)] {
        let before = opened.traffic.counts();
        let blobs = Arc::clone(&opened.blobs);
        let cache = CachedBlobs::new(blobs, device.clone(), directory, VOLUME, 1 << 30);
        device::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for at in (0..bytes.len()).step_by(16 << 10) {
                        assert_eq!(read(&cache, "run/1", at, 16 << 10), part(&bytes, at, 16 << 10));
                    }
                });
            }
        });
        let sent = requests() - before.read;
        assert!(sent <= 10, "{sent} requests of {threads} threads");
        let read = opened.traffic.counts().bytes_in - before.bytes_in;
        assert_eq!(read, bytes.len() as u64, "{threads} threads");
    }
}

/// What a disk does not take is not requested ahead of a reader either.
#[test]
fn a_cache_that_keeps_nothing_costs_little_more_than_none() {
    let (shared, disk) = (tempfile::tempdir().unwrap(), SimDevice::new(1));
    let url = format!("file://{}", shared.path().display());
    let settings = Settings { any_file_system: true, ..Settings::default() };
    let opened = Location::parse(&url).unwrap().open(&settings, &Seams::system()).unwrap();
    let bytes = pattern(1, 100 * CHUNK);
    assert!(opened.blobs.create("run/1", &bytes).unwrap());
    disk.set_capacity(Some(0));
    let cache = cached(Arc::clone(&opened.blobs), &disk, 1 << 30);
    for at in (0..bytes.len()).step_by(CHUNK) {
        assert_eq!(read(&cache, "run/1", at, CHUNK), part(&bytes, at, CHUNK));
    }
    assert_eq!(cache.stats().hits, 0);
    let read = opened.traffic.counts().bytes_in;
    assert!(read < 2 * bytes.len() as u64, "{read} bytes");
}
