//! `fallocate`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock};
use fs::{Allocate, FileSystem};
use inode::{Caller, FsError, NodeId, SetAttr};

use crate::support::{ROOT, Volume, refused, user, volume};

#[test]
fn holes_and_zeros_keep_neighbouring_bytes() {
    for length in [100, 4096, 300_000] {
        let v = volume();
        let file = v.file(ROOT, "f");
        let mut model: Vec<u8> = (0..length).map(|at: u32| at as u8 | 1).collect();
        v.write(file.node, 0, &model);
        let (from, to) = (model.len() / 3 + 1, model.len() * 2 / 3);
        let range = (from as u64, (to - from) as u64);
        let now = v.tick();
        v.fs.fallocate(&Caller::root(), file.node, range, Allocate::Punch).expect("a hole");
        model[from..to].fill(0);
        let mut buffer = vec![9; model.len() + 1];
        let read = v.fs.read(&Caller::root(), file.node, 0, &mut buffer).expect("the file");
        assert!(buffer[..read] == model, "{length} bytes");
        let attr = v.fs.getattr(&Caller::root(), file.node).expect("the file");
        assert_eq!((attr.mtime.0, attr.ctime.0), (now, now));
        let end = model.len() as u64;
        for (mode, size) in [
            (Allocate::Keep, end),
            (Allocate::ZeroKeep, end),
            (Allocate::Zero, end + 50),
            (Allocate::Grow, end + 90),
        ] {
            let length = if mode == Allocate::Grow { 100 } else { 60 };
            v.fs.fallocate(&Caller::root(), file.node, (end - 10, length), mode).expect("space");
            let attr = v.fs.getattr(&Caller::root(), file.node).expect("the file");
            assert_eq!(attr.size, size, "{mode:?}");
        }
    }
}

#[test]
fn impossible_ranges_are_refused() {
    let v = volume();
    let file = v.file(ROOT, "f");
    let allocate = |caller: &Caller, range, mode| v.fs.fallocate(caller, file.node, range, mode);
    let root = Caller::root();
    refused(allocate(&root, (5, 0), Allocate::Grow), &FsError::InvalidArgument(""));
    refused(allocate(&root, (1 << 62, 1 << 62), Allocate::Grow), &FsError::FileTooLarge);
    refused(allocate(&root, (0, 1 << 60), Allocate::Grow), &FsError::NoSpace);
    refused(allocate(&user(9), (0, 1), Allocate::Punch), &FsError::AccessDenied);
    let dir = v.dir(ROOT, "d");
    refused(v.fs.fallocate(&root, dir.node, (0, 1), Allocate::Grow), &FsError::IsDirectory);
}

#[test]
fn allocation_clears_set_id_bits_except_for_root() {
    let v = volume();
    let file = v.file_as(&user(7), ROOT, "f", 0o755).expect("a file").node;
    let armed = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
    for mode in
        [Allocate::Grow, Allocate::Keep, Allocate::Punch, Allocate::Zero, Allocate::ZeroKeep]
    {
        for (caller, left) in [(user(7), 0o755), (Caller::root(), 0o6755)] {
            v.fs.setattr(&Caller::root(), file, &armed).expect("root may");
            v.fs.fallocate(&caller, file, (10, 50), mode).expect("space");
            let attr = v.fs.getattr(&Caller::root(), file).expect("the file");
            assert_eq!(attr.mode, left, "{mode:?} by {}", caller.uid);
        }
    }
}

/// Scans until an allocation of more than there is space for is refused: each but the last one is
/// made to fail.
fn scans_of(v: &Volume, node: NodeId) -> u64 {
    for scans in 0..100 {
        v.store.fail_scan_after(scans);
        match v.fs.fallocate(&Caller::root(), node, (0, 1 << 60), Allocate::Grow) {
            Err(FsError::NoSpace) => {
                v.store.fail_scan_after(u64::MAX);
                return scans;
            }
            Err(FsError::Io(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("it scans on");
}

/// The extents of a file are counted with the file locked, at most 4,096 at a time.
#[test]
fn extents_are_counted_in_steps() {
    let v = volume();
    let scans = [10, 2 * 4096 + 1].map(|extents: u64| {
        let file = v.file(ROOT, &format!("of {extents}")).node;
        v.write(file, 0, &[1; 5000]);
        for at in 1..extents {
            v.write(file, at << 16, b"x");
        }
        scans_of(&v, file)
    });
    assert_eq!(scans[1], scans[0] + 2, "{scans:?}");
}

/// Waits until something holds `times` times in a row, or for a minute; returns whether it did.
fn holds(times: usize, is: impl Fn() -> bool) -> bool {
    let clock = SystemClock::new();
    let mut seen = 0;
    while seen < times && clock.monotonic() < Duration::from_secs(60) {
        seen = if is() { seen + 1 } else { 0 };
        clock.sleep(Duration::from_millis(1));
    }
    seen == times
}

/// Between two steps of counting, others can lock the file. A write begins during the first step,
/// and waits for the file; it is done before the second step has read all that it reads.
#[test]
fn a_write_waits_for_one_step_of_counting() {
    const STEP: usize = 4096;
    let v = volume();
    let file = v.file(ROOT, "f").node;
    v.write(file, 0, &[1; 5000]);
    for at in 1..STEP as u64 + 100 {
        v.write(file, at << 16, b"x");
    }
    let (is_written, waited) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let (fs, result, counting) =
        (Arc::clone(&v.fs), Arc::clone(&waited), std::thread::current().id());
    let reads = AtomicUsize::new(0);
    v.store.set_on_read(move || {
        if std::thread::current().id() != counting {
            return;
        }
        match reads.fetch_add(1, Ordering::SeqCst) {
            50 => {
                let (fs, is_written) = (Arc::clone(&fs), Arc::clone(&is_written));
                let thread = Arc::new(Mutex::new(None));
                let started = Arc::clone(&thread);
                let write = move || {
                    *started.lock() = std::fs::read_link("/proc/thread-self").ok();
                    fs.write(&Caller::root(), file, 10, b"y").expect("space");
                    is_written.store(true, Ordering::SeqCst);
                };
                device::spawn("writer", write).expect("a thread");
                let sleeps = || {
                    let Some(thread) = thread.lock().clone() else { return false };
                    let stat = std::fs::read_to_string(format!("/proc/{}/stat", thread.display()));
                    stat.is_ok_and(|stat| stat.contains(") S "))
                };
                assert!(holds(5, sleeps), "the writer does not wait for the file");
            }
            // More than the first step reads, less than both.
            read if read == STEP + 70 => {
                *result.lock() = Some(holds(1, || is_written.load(Ordering::SeqCst)));
            }
            _ => {}
        }
    });
    let asked = v.fs.fallocate(&Caller::root(), file, (0, 1 << 60), Allocate::Grow);
    refused(asked, &FsError::NoSpace);
    assert_eq!(*waited.lock(), Some(true), "the file stays locked between two steps");
}
