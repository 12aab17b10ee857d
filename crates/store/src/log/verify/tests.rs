//! Headers that are damaged where nothing else is, and files under another segment's name.

use format::log_record;
use format::log_segment::{self, RECORDS_START, SegmentHeader};
use testing::{CrashPolicy, SimDevice};

use super::super::salvage::tests::*;
use super::*;
use crate::Error;

pub(in crate::log) fn looked(device: &SimDevice, from: u64) -> Verified {
    let device = Arc::clone(&env(device).device);
    let files = Files::new(device, "log", VOLUME, options().key);
    verified(&files, &options(), Lsn(from), &mut |_: Lsn, _: &[u8]| Ok(()))
}

fn repair(device: &SimDevice) -> Result<()> {
    Log::write_headers(&env(device), "log", VOLUME, &options(), Lsn(0))
}

/// That an error is of a file, which it names: damage, or a newer format.
#[track_caller]
pub(in crate::log) fn assert_damage<T: std::fmt::Debug>(path: &str, end: &Result<T>, what: &str) {
    match end {
        Err(Error::Corrupt(corruption)) => assert_eq!(corruption.file, path, "{what}"),
        Err(Error::NewerFormat { file, .. }) => assert_eq!(file, path, "{what}"),
        other => panic!("{what}: {other:?}"),
    }
}

/// Damages a header in one of several ways.
fn strike(device: &SimDevice, path: &str, how: u64) {
    match how {
        0 => device.overwrite(path, 0, &[0; 64]),
        1 => device.overwrite(path, 0, &[0xff; 4096]),
        // Not one bit is left out.
        bit => device.flip_bit(path, (bit * 97) % (8 * log_segment::HEADER_BYTES as u64)),
    }
}

/// One flipped bit in it lost all records in the segment, and all after it.
#[test]
fn a_damaged_header_costs_no_record() {
    let (whole, segments) = made(21);
    for (first, path) in &segments {
        for how in 0..40 {
            let device = whole.copy();
            strike(&device, path, how);
            let what = format!("{path}, {how}");
            assert_damage(path, &replayed(&device), &what);
            let before = files(&device);
            let found = looked(&device, 0);
            assert_eq!(found.end.unwrap().replayed, COUNT, "{what}");
            assert_eq!(found.findings.len(), 1, "{what}");
            let finding = &found.findings[0];
            assert!(
                finding.file == *path && finding.remedy == Remedy::RewriteLogHeader,
                "{finding:?}"
            );
            assert!(files(&device) == before, "{what}: a look changed something");
            // Truncating it loses nothing either.
            let other = device.copy();
            let cut = cut(&other, 0).unwrap();
            assert_eq!((cut.last, cut.bytes, cut.missing), (Lsn(COUNT), 0, 0), "{what}");
            assert_eq!(replayed(&other).unwrap(), COUNT, "{what}, {first}");
            repair(&device).unwrap();
            let head = &device.read_file(path)[..64];
            assert_eq!(head, &whole.read_file(path)[..64], "{what}");
            assert!(looked(&device, 0).findings.is_empty(), "{what}");
            assert_eq!(replayed(&device).unwrap(), COUNT, "{what}");
        }
    }
    // All of them at once.
    for (_, path) in &segments {
        strike(&whole, path, 5);
    }
    assert_eq!(looked(&whole, 0).findings.len(), segments.len());
    repair(&whole).unwrap();
    assert_eq!(replayed(&whole).unwrap(), COUNT);
}

/// An intact header is trusted, and without the first record nothing shows that the file is what
/// its name gives.
#[test]
fn a_header_is_rewritten_only_if_all_its_fields_are_known() {
    let (whole, segments) = made(22);
    let (first, path) = segments[1].clone();
    let refused = |hurt: &dyn Fn(&SimDevice), what: &str| {
        let device = whole.copy();
        hurt(&device);
        let before = files(&device);
        let found = looked(&device, 0);
        let is_of_segment = matches!(
            &found.end,
            Err(Error::Corrupt(of)) if segments.iter().any(|(_, path)| *path == of.file)
        );
        assert!(is_of_segment, "{what}: {found:?}");
        assert!(found.findings.iter().all(|one| one.remedy == Remedy::ByHand), "{what}");
        repair(&device).ok();
        assert!(files(&device) == before, "{what}: something was written");
    };
    let head = |change: &dyn Fn(&mut SegmentHeader)| {
        let mut header = SegmentHeader { volume: VOLUME, first, bytes: 64 << 10 };
        change(&mut header);
        header.encode()
    };
    let other = head(&|header| header.volume = [6; 16]);
    refused(&|device| device.overwrite(&path, 0, &other), "of another volume");
    let short = head(&|header| header.bytes = 32 << 10);
    refused(&|device| device.overwrite(&path, 0, &short), "of another length");
    let unlike = |device: &SimDevice| {
        strike(device, &path, 7);
        device.flip_bit(&path, 8 * (RECORDS_START + 30));
    };
    refused(&unlike, "the first record is damaged, too");
    // Records of an earlier use of the file, under a reused name.
    let old = whole.read_file(&segments[0].1);
    let reused = |device: &SimDevice| {
        device.overwrite(&path, 0, &old);
        strike(device, &path, 7);
    };
    refused(&reused, "records of another segment");
    // A last segment that lost its end, which only the header shows.
    let (_, last) = segments.last().unwrap();
    let at = ends(segments.last().unwrap().0, COUNT + 1)[5].0;
    let cut_short = |device: &SimDevice| {
        device.truncate(last, at + 10);
        strike(device, last, 7);
    };
    refused(&cut_short, "the end is missing");
}

/// A header of a newer version may contain what this program does not know.
#[test]
fn a_newer_header_stays_refused() {
    let (device, segments) = made(23);
    let path = &segments[0].1;
    let mut head = device.read_file(path)[..64].to_vec();
    head[8] += 1;
    let sum = log_record::sum_payload(log_record::sum_payload(0, &head[..12]), &head[16..]);
    head[12..16].copy_from_slice(&sum.to_le_bytes());
    device.overwrite(path, 0, &head);
    assert!(matches!(looked(&device, 0).end, Err(Error::NewerFormat { .. })));
    assert!(matches!(repair(&device), Err(Error::NewerFormat { .. })));
    assert!(matches!(cut(&device, 0), Err(Error::NewerFormat { .. })));
    assert_eq!(device.read_file(path)[..64], head);
}

#[test]
fn headers_are_rewritten_despite_any_power_cut() {
    let (whole, segments) = made(24);
    // The numbers of what it does begin again.
    let hurt = whole.copy();
    for (_, path) in &segments {
        strike(&hurt, path, 9);
    }
    let right = hurt.copy();
    repair(&right).unwrap();
    assert!(right.ops() >= hurt.ops() + 2 * segments.len() as u64);
    for op in hurt.ops()..right.ops() {
        for policy in CrashPolicy::ALL {
            let device = hurt.copy();
            device.crash_at(op);
            repair(&device).ok();
            let device = device.after_crash(policy, op);
            let found = looked(&device, 0);
            assert_eq!(found.end.unwrap().replayed, COUNT, "{op}, {policy:?}");
            repair(&device).unwrap();
            assert_eq!(replayed(&device).unwrap(), COUNT, "{op}, {policy:?}");
        }
    }
}

/// With both, a cut keeps what is before the damaged record.
#[test]
fn truncation_behind_a_damaged_header_keeps_whole_records() {
    let (whole, segments) = made(25);
    let (first, path) = &segments[1];
    // The numbers of what it does begin again.
    let whole = whole.copy();
    strike(&whole, path, 11);
    let ends = ends(*first, next_of(&segments, 1));
    whole.flip_bit(path, 8 * (ends[40].0 + 20));
    let right = whole.copy();
    let last = Lsn(ends[40].1);
    assert_eq!(cut(&right, 0).unwrap().last, last);
    assert_eq!(replayed(&right).unwrap(), last.0);
    for op in whole.ops()..right.ops() {
        for policy in CrashPolicy::ALL {
            let device = whole.copy();
            device.crash_at(op);
            cut(&device, 0).ok();
            let device = device.after_crash(policy, op);
            assert_eq!(cut(&device, 0).unwrap().last, last, "{op}, {policy:?}");
            assert_eq!(replayed(&device).unwrap(), last.0, "{op}, {policy:?}");
        }
    }
}

fn copy(device: &SimDevice, from: &str, to: u64) -> String {
    let path = format!("log/{to:016x}.log");
    let file = env(device).device.create(&path).unwrap();
    file.write_at(&device.read_file(from), 0).unwrap();
    path
}

/// A copy beside the log kept it from being opened, and a cut discarded intact records.
#[test]
fn a_misnamed_copy_is_ignored() {
    let (whole, segments) = made(26);
    let of_none = [5, segments[1].0 + 3, COUNT + 2, COUNT + 700];
    for (_, path) in &segments {
        for (to, from) in of_none.iter().flat_map(|&to| [(to, 0), (to, 10), (to, COUNT)]) {
            let device = whole.copy();
            let stray = copy(&device, path, to);
            let bytes = device.read_file(&stray);
            let found = looked(&device, from);
            assert_eq!(found.end.unwrap().replayed, COUNT - from, "{stray}");
            assert_eq!(found.findings.len(), 1, "{stray}");
            let finding = &found.findings[0];
            assert!(finding.file == stray && finding.remedy == Remedy::MoveAway, "{finding:?}");
            assert!(matches!(cut(&device, from), Err(Error::Corrupt(_))), "{stray}");
            assert!(device.read_file(path) == whole.read_file(path), "{stray}");
            if from == 0 {
                assert_eq!(replayed(&device).unwrap(), COUNT, "{stray}");
            }
            assert!(device.read_file(&stray) == bytes, "{stray}: not left as it is");
        }
    }
}

/// What can be reported of it, and what cannot (`docs/format/log.md`).
#[test]
fn an_old_copy_of_a_segment_is_reported_if_another_file_or_the_state_has_more() {
    let sim = testing::sim_env(29);
    let log = Log::create(&sim.env(), "log", VOLUME, &options()).unwrap();
    let append = |upto: u64| {
        for lsn in log.last().0 + 1..=upto {
            log.append(&payload(lsn), crate::LogSpace::Normal).unwrap();
        }
        log.sync(log.last()).unwrap();
        let writer = log.writer.lock();
        writer.segments.back().unwrap().path.clone()
    };
    let put_back = |path: &str, old: &SimDevice, from: u64| {
        let device = sim.device.copy();
        device.overwrite(path, 0, &old.read_file(path));
        looked(&device, from).end
    };
    let middle = append(500);
    let old = sim.device.copy();
    let last = append(COUNT - 10);
    assert!(middle != last);
    let older = sim.device.copy();
    assert_eq!(append(COUNT), last, "the seed makes it the same segment");
    assert_damage(&middle, &put_back(&middle, &old, 0), "an old state of one in the middle");
    assert_damage(&last, &put_back(&last, &older, COUNT), "an old state of the last one");
    assert_eq!(put_back(&last, &older, 0).unwrap().replayed, COUNT - 10);
}

/// A renamed segment is not discarded, and not taken for the segment of its name.
#[test]
fn a_misnamed_segment_is_reported() {
    let (whole, segments) = made(27);
    for (first, path) in &segments {
        let device = whole.copy();
        copy(&device, path, COUNT + 50);
        device.delete(path);
        let found = looked(&device, 0);
        // If the last one is missing, the misnamed file is the only evidence.
        let is_missing = |end: &Error| match end {
            Error::Missing { record, .. } => *record == Some(*first),
            Error::Corrupt(of) => {
                let rest = of.expected.strip_prefix(&format!("record {first}"));
                rest.is_some_and(|rest| rest.starts_with([',', ' ']))
            }
            _ => false,
        };
        assert!(found.end.as_ref().is_err_and(is_missing), "{path}: {found:?}");
        let opened = replayed(&device);
        assert!(opened.as_ref().is_err_and(is_missing), "{path}: {opened:?}");
        let name = format!("give it its own name: {first:016x}.log");
        assert!(found.findings[0].what.ends_with(&name), "{:?}", found.findings);
        let before = files(&device);
        assert!(matches!(cut(&device, 0), Err(Error::Corrupt(_))), "{path}");
        assert!(files(&device) == before, "{path}: something was changed");
        // Nor where records before it are damaged, if that is to be truncated.
        let hurt = device.copy();
        if first != &segments[0].0 {
            hurt.flip_bit(&segments[0].1, 8 * (ends(1, 5)[3].0 + 20 - payload(4).len() as u64));
            assert!(matches!(cut(&hurt, 0), Err(Error::Corrupt(_))), "{path}");
        }
    }
}

/// If the file of its name is damaged, a copy may be all that is left. The report advised removing
/// it, and truncating the log removed it.
#[test]
fn a_copy_beside_a_damaged_segment_is_kept_for_the_administrator() {
    let (whole, segments) = made(28);
    for (first, path) in &segments {
        let device = whole.copy();
        let stray = copy(&device, path, COUNT + 50);
        device.flip_bit(path, 8 * (device.read_file(path).len() as u64 / 4));
        let found = looked(&device, 0);
        assert_damage(path, &found.end, path);
        let reported = found.findings.iter().find(|finding| finding.file == stray).unwrap();
        let name = format!("give it its own name: {first:016x}.log if it is whole");
        assert!(reported.what.contains(&name) && reported.remedy == Remedy::ByHand, "{reported:?}");
        let before = files(&device);
        assert!(matches!(cut(&device, 0), Err(Error::Corrupt(_))), "{path}");
        assert!(files(&device) == before, "{path}: something was changed");
        // Renamed correctly, it is a segment again.
        device.delete(path);
        copy(&device, &stray, *first);
        device.delete(&stray);
        assert_eq!(replayed(&device).unwrap(), COUNT, "{path}");
    }
}
