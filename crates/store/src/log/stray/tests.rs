//! Files beside an intact log, under names that segments could have, and logs whose missing part
//! looks like one of them.

use format::log_record;
use testing::SimDevice;

use super::super::Log;
use super::super::salvage::tests::*;
use super::super::verify::tests::{assert_damage, looked};
use super::*;

/// What the tests place there: nothing, text, a segment of another volume, one of a newer version.
fn contents(segments: &[(u64, String)]) -> Vec<(&'static str, Vec<u8>)> {
    let mut foreign = made(90).0.read_file(&segments[1].1);
    let header = SegmentHeader { volume: [6; 16], first: segments[1].0, bytes: 64 << 10 };
    foreign[..HEADER_BYTES].copy_from_slice(&header.encode());
    let mut newer = foreign.clone();
    newer[8] += 1;
    let head = log_record::sum_payload(0, &newer[..12]);
    let sum = log_record::sum_payload(head, &newer[16..HEADER_BYTES]);
    newer[12..16].copy_from_slice(&sum.to_le_bytes());
    vec![
        ("empty", Vec::new()),
        ("text", b"a list of things to do\n".repeat(500)),
        ("zeros", vec![0; 64 << 10]),
        ("foreign", foreign),
        ("newer", newer),
    ]
}

fn put(device: &SimDevice, name: u64, bytes: &[u8]) -> String {
    let path = format!("log/{name:016x}.log");
    let file = env(device).device.create(&path).unwrap();
    if !bytes.is_empty() {
        file.write_at(bytes, 0).unwrap();
    }
    path
}

fn opened(device: &SimDevice, from: u64) -> Result<u64> {
    let mut last = from;
    let mut replay = |lsn: Lsn, bytes: &[u8]| {
        last += 1;
        assert!(lsn == Lsn(last) && bytes == payload(last));
        Ok(())
    };
    Log::open(&env(device), "log", VOLUME, &options(), Lsn(from), &mut replay)?;
    Ok(last)
}

/// An empty file with a valid name kept the volume from being opened, and the recommended cut
/// discarded the whole log, unread.
#[test]
fn files_that_are_no_segments_do_not_harm_a_whole_log() {
    let (whole, segments) = made(71);
    for (what, bytes) in contents(&segments) {
        for (at, &(first, _)) in segments.iter().enumerate() {
            let next = next_of(&segments, at);
            for name in [first + 1, first.midpoint(next), next - 1] {
                for from in [0, 1, first, name - 1, name, COUNT] {
                    let device = whole.copy();
                    let path = put(&device, name, &bytes);
                    let what = format!("{what} as {path}, from {from}");
                    let before = files(&device);
                    let found = looked(&device, from);
                    assert_eq!(found.end.unwrap().replayed, COUNT - from, "{what}");
                    let [finding] = &found.findings[..] else { panic!("{what}") };
                    assert!(
                        finding.file == path && finding.remedy == Remedy::MoveAway,
                        "{finding:?}"
                    );
                    match cut(&device, from) {
                        Ok(cut) => assert_eq!((cut.last, cut.known), (Lsn(COUNT), Lsn(COUNT))),
                        Err(_) => assert!(files(&device) == before, "{what}: cut"),
                    }
                    assert!(device.read_file(&path) == bytes, "{what}: cut");
                    assert_eq!(opened(&device, from).unwrap(), COUNT, "{what}");
                    assert!(device.read_file(&path) == bytes, "{what}");
                    // What it is below of goes without it.
                    assert_eq!(opened(&device, from).unwrap(), COUNT, "{what}");
                }
            }
        }
    }
}

/// A destroyed segment is not such a file: the one before it ends where it began.
#[test]
fn a_destroyed_segment_is_reported_missing() {
    let (whole, segments) = made(72);
    for (what, bytes) in contents(&segments) {
        for (at, (first, path)) in segments.iter().enumerate() {
            for from in [first - 1, first / 2, 0] {
                let device = whole.copy();
                device.delete(path);
                put(&device, *first, &bytes);
                let what = format!("{what} as {path}, from {from}");
                let found = looked(&device, from);
                assert_damage(path, &found.end, &what);
                assert!(found.findings.iter().all(|one| one.remedy != Remedy::MoveAway), "{what}");
                assert_damage(path, &opened(&device, from), &what);
                let before = files(&device);
                match cut(&device, from) {
                    Ok(cut) => {
                        assert_eq!(cut.last, Lsn(from.max(first - 1)), "{what}");
                        let known = if at + 1 < segments.len() { COUNT } else { cut.last.0 };
                        assert_eq!(cut.known, Lsn(known), "{what}");
                        assert!(!what.starts_with("foreign") && !what.starts_with("newer"));
                    }
                    Err(error) => {
                        assert!(files(&device) == before, "{what}: {error}");
                        let kept = what.starts_with("foreign") || what.starts_with("newer");
                        assert!(kept, "{what}: {error}");
                    }
                }
            }
        }
    }
}

/// A file whose contents confirm its name is trusted; but what was before it is not discarded
/// unread.
#[test]
fn truncation_drops_nothing_that_exists_nowhere_else() {
    let (whole, segments) = made(73);
    let next = segments[1].0;
    for (name, from) in [(2, 1), (20, 19), (20, 40), (next - 1, next - 2)] {
        let device = whole.copy();
        let header = SegmentHeader { volume: VOLUME, first: name, bytes: 64 << 10 };
        let mut bytes = header.encode();
        bytes.resize(64 << 10, 0);
        put(&device, name, &bytes);
        let before = files(&device);
        let error = cut(&device, from).unwrap_err().to_string();
        assert!(files(&device) == before, "{error}");
        assert!(error.contains(&segments[0].1), "{error}");
        assert!(error.contains(&format!("records up to {}", next - 1)), "{error}");
    }
    // Nor where the name is that of a kept segment.
    let device = whole.copy();
    for (_, path) in &segments {
        let kept = path.replace(".log", ".kept");
        env(&device).device.rename(path, &kept).unwrap();
    }
    let before = files(&device);
    let error = cut(&device, 20).unwrap_err().to_string();
    assert!(error.contains(".kept") && files(&device) == before, "{error}");
}

/// The last segment, overwritten with a copy of another one, was skipped with all its records.
#[test]
fn an_old_copy_of_the_last_segment_is_reported() {
    let (whole, segments) = made(74);
    let (last, path) = segments.last().unwrap();
    for (_, other) in &segments[..segments.len() - 1] {
        let device = whole.copy();
        device.overwrite(path, 0, &whole.read_file(other));
        let found = looked(&device, 0);
        let error = found.end.unwrap_err().to_string();
        assert!(error.contains(&format!("record {last}")), "{error}");
        assert!(found.findings.iter().all(|one| one.remedy != Remedy::MoveAway));
        assert_damage(path, &opened(&device, 0), "an old copy of the last segment");
        let before = files(&device);
        assert_damage(path, &cut(&device, 0), "an old copy of the last segment");
        assert!(files(&device) == before);
    }
}
