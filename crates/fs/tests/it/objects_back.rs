//! Objects that come back: a store with versioning, or an administrator, restores what a volume
//! deleted. Manifests, logs, runs and segments of contents that were superseded change nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use fs::{FileSystem, Fs};
use inode::Caller;
use testing::{FarBlobs, noise, sim_env};

use crate::objects::{ROOT, check_whole, formatted, make, open, read, try_open};

/// Files that are left at the end, and their seeds and lengths.
type Left = Vec<(String, u64, usize)>;

fn check_contents(fs: &Fs, left: &Left, place: &str) {
    for (name, seed, bytes) in left {
        let found = read(fs, name).unwrap_or_else(|error| panic!("{place}: {name}: {error}"));
        assert!(found == noise(*seed, *bytes), "{place}: {name} has other bytes");
    }
    let mut names = 0;
    fs.readdir(&Caller::root(), ROOT, 0, &mut |entry| {
        names += usize::from(![&b"."[..], b".."].contains(&entry.name));
        fs::WalkControl::Continue
    })
    .expect("read");
    assert_eq!(names, left.len(), "{place}: files that were removed are back");
}

/// Works for some openings, and collects every object that ever was there.
fn worked(far: &Arc<FarBlobs>) -> (Left, BTreeMap<String, Arc<Vec<u8>>>) {
    let seen = Arc::new(Mutex::new(BTreeMap::new()));
    let of_watcher = Arc::clone(&seen);
    far.watch(move |far, _| of_watcher.lock().extend(far.objects()));
    let mut left = Left::new();
    for opening in 0..4_u64 {
        let sim = sim_env(20 + opening);
        let fs = try_open(&sim, far).expect("a volume");
        for file in 0..12_u64 {
            let (name, seed) = (format!("{opening}-{file}"), opening * 100 + file);
            let bytes = if file % 2 == 0 { 3_000 } else { 150_000 };
            make(&fs, &name, &noise(seed, bytes));
            left.push((name, seed, bytes));
            if file % 3 == 0 {
                fs.sync().expect("synced");
            }
        }
        let removed: Left = left.iter().step_by(2).cloned().collect();
        for (name, ..) in &removed {
            fs.unlink(&Caller::root(), ROOT, name.as_bytes()).expect("removed");
        }
        left.retain(|file| !removed.contains(file));
        fs.sync().expect("synced");
        for _ in 0..100 {
            sim.clock.advance(Duration::from_secs(10));
            fs.background_step(1000).expect("a step");
        }
        fs.close().expect("closed");
    }
    far.unwatch();
    let seen = std::mem::take(&mut *seen.lock());
    (left, seen)
}

#[test]
fn objects_that_come_back_change_nothing() {
    let far = formatted();
    let (left, seen) = worked(&far);
    check_contents(&open(&far.copy()), &left, "as it was left");
    let now = far.objects();
    let gone: Vec<_> = seen.into_iter().filter(|(name, _)| !now.contains_key(name)).collect();
    for kind in ["lsm/manifest/", "lsm/log/", "lsm/run/", "data/sealed/"] {
        let names: Vec<&String> = gone.iter().map(|(name, _)| name).collect();
        let deleted = names.iter().any(|name| name.starts_with(kind));
        assert!(deleted, "nothing of {kind} was deleted: {names:?}");
    }
    let check = |back: &[(String, Arc<Vec<u8>>)], place: &str| {
        let far = far.copy();
        for (name, bytes) in back {
            far.put(name, bytes);
        }
        let fs = open(&far);
        check_contents(&fs, &left, place);
        make(&fs, "new", &noise(7, 100_000));
        fs.close().unwrap_or_else(|error| panic!("{place}: {error}"));
        drop(fs);
        check_whole(&far, place);
        let fs = open(&far);
        assert!(read(&fs, "new").expect("closed") == noise(7, 100_000), "{place}");
    };
    check(&gone, "all of them");
    for (name, bytes) in &gone {
        check(&[(name.clone(), Arc::clone(bytes))], name);
    }
}
