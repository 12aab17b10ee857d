//! What is recorded of a file system in memory, and what damage, a full disk and a full buffer do
//! to it.

use format::trace::{Call, Ended, Event, UNKNOWN_CALLER};
use inode::{Caller, Enforce, FsError, Kind, NodeId, SetAttr};
use trace::{End, Limits, TraceError};
use vfs::{FileSystem, NewNode, RenameMode, SyncScope, WalkControl};

use crate::support::{Tape, read, traced, written};

const ROOT: NodeId = NodeId::ROOT;

fn caller() -> Caller {
    Caller { uid: 0, gid: 7, pid: 4711, enforce: Enforce::Kernel, ..Caller::root() }
}

/// Makes some calls, and returns how many.
fn work(fs: &impl FileSystem) -> u64 {
    let caller = caller();
    let new = NewNode { kind: Kind::File, mode: 0o640, rdev: 0 };
    let file = fs.mknod(&caller, ROOT, b"file", &new).unwrap().node;
    fs.write(&caller, file, 10, b"contents that no trace may have").unwrap();
    let mut buffer = [0; 100];
    fs.read(&caller, file, 0, &mut buffer).unwrap();
    let size = SetAttr { size: Some(3), mode: Some(0o600), ..SetAttr::default() };
    fs.setattr(&caller, file, &size).unwrap();
    fs.rename(&caller, (ROOT, b"file"), (ROOT, b"other"), RenameMode::Replace).unwrap();
    assert!(matches!(fs.lookup(&caller, ROOT, b"file"), Err(FsError::NotFound)));
    fs.fsync(file, SyncScope::Data).unwrap();
    fs.readdir(&caller, ROOT, 0, &mut |_| WalkControl::Continue).unwrap();
    8
}

#[test]
fn each_call_is_recorded_with_arguments_and_result() {
    let tape = Tape::default();
    let (fs, recorder) = traced(&tape, Limits::default());
    let calls = work(&fs);
    recorder.end();
    let mut seen = Vec::new();
    let bytes = tape.bytes();
    let (end, events, dropped) = read(&bytes, |event| {
        let names = [event.name.to_vec(), event.other_name.to_vec()];
        let listed: Vec<_> = event.entries.iter().map(|entry| entry.name.to_vec()).collect();
        let numbers = (event.offset, event.length, event.how, event.returned);
        seen.push((event.call, event.ended, names, numbers, (event.uid, event.gid, event.pid)));
        match event.call {
            Call::Mknod => {
                assert_eq!((event.node, event.found.kind, event.found.mode), (1, 0, 0o640));
            }
            Call::Readdir => assert_eq!(listed, [b"other".to_vec()]),
            Call::Setattr => assert_eq!((event.mode, event.found.size), (0o600, 3)),
            _ => {}
        }
    })
    .unwrap();
    assert_eq!((end, events, dropped), (End::Whole, calls, 0));
    let name = |name: &[u8]| [name.to_vec(), Vec::new()];
    let who = (0, 7, 4711);
    assert_eq!(seen[0], (Call::Mknod, Ended::Done, name(b"file"), (0, 0, 0, 0), who));
    assert_eq!(seen[1], (Call::Write, Ended::Done, name(b""), (10, 31, 0, 0), who));
    assert_eq!(seen[2], (Call::Read, Ended::Done, name(b""), (0, 100, 0, 41), who));
    assert_eq!(seen[3], (Call::Setattr, Ended::Done, name(b""), (0, 3, 1 | 8, 0), who));
    let names = [b"file".to_vec(), b"other".to_vec()];
    assert_eq!(seen[4], (Call::Rename, Ended::Done, names, (0, 0, 0, 0), who));
    assert_eq!(seen[5], (Call::Lookup, Ended::NotFound, name(b"file"), (0, 0, 0, 0), who));
    let nobody = (UNKNOWN_CALLER, UNKNOWN_CALLER, 0);
    assert_eq!(seen[6], (Call::Fsync, Ended::Done, name(b""), (0, 0, 1, 0), nobody));
    let contents = b"contents that no trace may have";
    assert!(!bytes.windows(contents.len()).any(|window| window == contents));
}

/// A trace of several blocks.
fn long() -> Vec<u8> {
    let name = [b'n'; 200];
    let event = |node| Event { node, name: &name, ..Event::new(Call::Lookup) };
    written(&(0..1500).map(event).collect::<Vec<_>>())
}

#[test]
fn a_cut_trace_is_a_shorter_one() {
    let whole = long();
    let (end, all, _) = read(&whole, |_| {}).unwrap();
    assert_eq!((end, all), (End::Whole, 1500));
    let mut before = 0;
    for length in 0..whole.len() {
        match read(&whole[..length], |_| {}) {
            Err(TraceError::NotATrace(_)) => assert!(length < 64),
            cut => {
                let (end, events, _) = cut.unwrap();
                assert_eq!(end, End::Cut);
                assert!(length >= 64 && events >= before, "{length}");
                before = events;
            }
        }
    }
    assert_eq!(before, 1500, "all but the mark of the end");
}

#[test]
fn every_flipped_bit_is_an_error_or_a_shorter_trace() {
    let whole = long();
    for bit in 0..whole.len() * 8 {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        match read(&bad, |_| {}) {
            Ok((End::Cut, ..)) | Err(_) => {}
            Ok(found) => panic!("bit {bit} is not noticed: {found:?}"),
        }
    }
}

#[test]
fn a_block_that_is_missing_or_repeated_is_an_error() {
    let whole = long();
    let stored = |at: usize| {
        let bytes = whole[at + 4..at + 8].try_into().unwrap();
        at + 36 + u32::from_le_bytes(bytes) as usize
    };
    let second = stored(64);
    let missing = [&whole[..64], &whole[second..]].concat();
    let repeated = [&whole[..second], &whole[64..]].concat();
    let longer = [&whole[..], &[0]].concat();
    for bad in [missing, repeated, longer] {
        let error = read(&bad, |_| {}).unwrap_err();
        assert!(matches!(error, TraceError::OutOfOrder { .. }), "{error}");
    }
}

#[test]
fn a_full_disk_ends_the_trace_and_no_call() {
    for full_at in [64, 65, 100, 101, 160, 300] {
        let tape = Tape { full_at: Some(full_at), ..Tape::default() };
        let (fs, recorder) = traced(&tape, Limits::default());
        work(&fs);
        recorder.end();
        work_again(&fs);
        let (end, events, dropped) = read(&tape.bytes(), |_| {}).unwrap();
        if full_at >= 300 {
            continue;
        }
        assert_eq!(events, 0, "full at {full_at}");
        let is_marked = full_at >= 64 + 36;
        assert_eq!(end, if is_marked { End::DiskFull } else { End::Cut }, "full at {full_at}");
        assert_eq!(dropped, if is_marked { 8 } else { 0 });
    }
}

fn work_again(fs: &impl FileSystem) {
    fs.mkdir(&caller(), ROOT, b"later", 0o755).unwrap();
}

#[test]
fn a_limit_of_bytes_ends_the_trace() {
    let tape = Tape::default();
    let limits = Limits { file_bytes: 70, ..Limits::default() };
    let (fs, recorder) = traced(&tape, limits);
    work(&fs);
    recorder.end();
    assert_eq!(read(&tape.bytes(), |_| {}).unwrap(), (End::DiskFull, 0, 8));
}

#[test]
fn a_full_buffer_drops_events_and_counts_them() {
    let tape = Tape::default();
    let limits = Limits { buffer_bytes: 100 << 10, ..Limits::default() };
    let (fs, recorder) = traced(&tape, limits);
    let name = [b'a'; 250];
    let calls: u64 = 2000;
    {
        let _shut = tape.gate.lock();
        for _ in 0..calls {
            // It does not wait for the disk, which answers nothing.
            assert!(matches!(fs.lookup(&caller(), ROOT, &name), Err(FsError::NotFound)));
        }
    }
    recorder.end();
    let (end, events, dropped) = read(&tape.bytes(), |_| {}).unwrap();
    assert_eq!(end, End::Whole);
    assert_eq!(events + dropped, calls);
    assert!(events > 100 && dropped > 500, "{events} {dropped}");
}

#[test]
fn a_recorder_that_died_leaves_its_events_up_to_the_last_second() {
    let tape = Tape::default();
    let (fs, recorder) = traced(&tape, Limits::default());
    let calls = work(&fs);
    let clock = device::SystemClock::new();
    // Without an end: what is in the file by then is what a crash would leave.
    let mut found = 0;
    for _ in 0..200 {
        device::Clock::sleep(&clock, std::time::Duration::from_millis(50));
        let (end, events, _) = read(&tape.bytes(), |_| {}).unwrap();
        assert_eq!(end, End::Cut);
        found = events;
        if found == calls {
            break;
        }
    }
    assert_eq!(found, calls);
    recorder.end();
}

#[test]
fn json_holds_all_of_a_trace() {
    let tape = Tape::default();
    let (fs, recorder) = traced(&tape, Limits::default());
    work(&fs);
    let odd = b"not UTF-8 \xff \" \n";
    fs.mkdir(&caller(), ROOT, odd, 0o755).unwrap();
    recorder.end();
    read(&tape.bytes(), |event| {
        let text = trace::json::of_event(event).to_string();
        let line = trace::json::Line::parse(1, &text).unwrap();
        assert_eq!(line.event().unwrap(), *event);
    })
    .unwrap();
    for (line, wrong) in [
        (r#"{"call":"lookup"}"#, "ended"),
        (r#"{"call":"fly","ended":"done"}"#, "call"),
        (r#"{"call":"lookup","ended":"done","node":-1}"#, "node"),
        (r#"{"call":"lookup","ended":"done","name_hex":"0"}"#, "name_hex"),
        (r#"{"call":"lookup","ended":"done","mode":4294967296}"#, "mode"),
        ("[]", "map"),
    ] {
        let parsed = trace::json::Line::parse(9, line);
        let error = parsed.and_then(|line| line.event().map(drop)).unwrap_err().to_string();
        assert!(error.starts_with("line 9: ") && error.contains(wrong), "{error}");
    }
}
