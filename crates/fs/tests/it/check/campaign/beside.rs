//! Only an opening reads superblocks, manifests, heads of blobs and the log; they are also checked
//! while a volume is in use. The daemon that has it open does not need them, but after a crash the
//! volume would not open. No problem is reported for concurrent writes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{FileSystem, Fs, OpenError, OpenOptions, VolumeReport};
use inode::{Caller, NodeId};
use store::Store;
use testing::SetAtEnd;

use super::anatomy::{DamageSite, places};
use super::made::made;
use super::media::Media;
use super::volume_records::{BASES, options};
use super::volume_records_later::zero;
use crate::check::reported;
use crate::script::scale;

/// What no reader of a volume in use needs.
const FOR_OPENING: [&str; 6] = [
    "superblock",
    "manifest",
    "copy of the manifest",
    "head of a blob",
    "header of the log",
    "record of the log",
];

fn opened(media: &Media) -> (Arc<Fs>, Arc<dyn Store>) {
    let mut captured: Option<Arc<dyn Store>> = None;
    // A segment of the log is full soon, and given up by the next checkpoint.
    let options = OpenOptions { log_segment_bytes: 32 << 10, ..options() };
    let fs = Fs::open_through(media.env(), &options, |store| {
        captured = Some(Arc::clone(&store));
        store
    });
    (fs.expect("it is whole"), captured.expect("it was opened"))
}

fn checked(fs: &Fs) -> VolumeReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    fs.check_volume(&mut proceed).expect("the disk answers")
}

/// A volume in use, opened after a crash, and places that only an opening reads. Its last changes
/// are in the log only.
fn in_use(crashed: &Media) -> (Media, Arc<Fs>, Vec<DamageSite>) {
    let media = crashed.copy();
    let (fs, store) = opened(&media);
    let root = Caller::root();
    fs.mkdir(&root, NodeId::ROOT, b"before", 0o755).expect("there is space");
    store.checkpoint().expect("there is space");
    for name in [b"a", b"b", b"c", b"d"] {
        fs.mkdir(&root, NodeId::ROOT, name, 0o755).expect("there is space");
        // Each record states that the one before was durable.
        fs.sync().expect("there is space");
    }
    let of_opening = |place: &DamageSite| FOR_OPENING.contains(&place.structure);
    let found = places(&media.copy()).into_iter().filter(of_opening).collect();
    (media, fs, found)
}

#[test]
fn files_read_only_at_opening_are_checked_in_use() {
    for (seed, base) in (150..).zip(&BASES) {
        let (media, fs, found) = in_use(&made(seed, base, false).crashed);
        let report = checked(&fs);
        assert!(report.is_clean(), "{base:?}:\n{}", reported(&report));
        assert!(found.iter().any(|place| place.structure == "record of the log"), "{base:?}");
        for place in found {
            let what = format!("{base:?}: {place:?}");
            let before =
                media.read(&place.path)[place.offset as usize..][..place.length as usize].to_vec();
            zero(&media, &place);
            let report = checked(&fs);
            let reported_there = report.problems.iter().any(|problem| {
                problem.file == place.path
                    && (place.reported..place.end()).contains(&problem.offset)
                    && problem.remedy().is_some()
            });
            assert!(reported_there, "{what}:\n{}", reported(&report));
            assert_eq!(report.problems_count, 1, "{what}:\n{}", reported(&report));
            media.volume.overwrite(&place.path, place.offset, &before);
        }
        assert!(checked(&fs).is_clean(), "{base:?}: it is as before");
    }
}

#[test]
fn an_unopenable_volume_is_not_clean_while_a_daemon_has_it_open() {
    for (seed, base) in (153..).zip(&BASES) {
        let (media, fs, found) = in_use(&made(seed, base, false).crashed);
        let twice = ["superblock", "manifest", "copy of the manifest"];
        let struck: Vec<_> =
            found.iter().filter(|place| twice.contains(&place.structure)).collect();
        assert_eq!(struck.len(), 2, "{base:?}: {struck:?}");
        for place in &struck {
            zero(&media, place);
        }
        let crashed = media.copy();
        let opened = Fs::open(crashed.env(), &options()).map(drop);
        let is_struck = |file: &str| struck.iter().any(|place| place.path == file);
        assert!(
            matches!(&opened, Err(OpenError::Damaged(of)) if is_struck(&of.file)),
            "{opened:?}"
        );
        let report = checked(&fs);
        for place in struck {
            let is_reported = report.problems.iter().any(|problem| problem.file == place.path);
            assert!(is_reported, "{base:?}: {place:?}:\n{}", reported(&report));
        }
        // What is in memory is written again.
        fs.mkdir(&Caller::root(), NodeId::ROOT, b"after", 0o755).expect("there is space");
        fs.close().expect("there is space");
        drop(fs);
        let fs = Fs::open(media.copy().env(), &options()).expect("it was rewritten");
        fs.lookup(&Caller::root(), NodeId::ROOT, b"after").expect("nothing is lost");
        let after = super::run::check(&media);
        assert!(after.is_clean(), "{base:?}:\n{}", reported(&after));
    }
}

/// The segments of the log. One that is given up is renamed, used again or removed.
fn segments(media: &Media) -> BTreeSet<String> {
    let paths = media.files().into_iter().map(|(path, _)| path);
    paths.filter(|path| path.starts_with("log/") && !path.contains("spare")).collect()
}

/// A user who followed the check's advice got a volume that did not open: nothing made the segment
/// unnecessary that the process had open.
#[test]
fn a_damaged_log_is_not_needed_after_a_change_and_a_close() {
    for (seed, base) in (159..).zip(&BASES) {
        let crashed = made(seed, base, false).crashed;
        for how in 0..5 {
            let (media, fs, found) = in_use(&crashed);
            let of_log = |place: &&DamageSite| place.structure.ends_with("of the log");
            let last = found.iter().rfind(of_log).expect("there is a log").path.clone();
            match how {
                0 => zero(&media, found.iter().rfind(of_log).expect("there is a log")),
                1 => media.volume.overwrite(&last, 0, &[0; 64]),
                2 => media.volume.overwrite(&last, 0, &[0; 12 << 10]),
                3 => media.volume.truncate(&last, 5000),
                _ => media.volume.delete(&last),
            }
            let what = format!("{base:?}, {last}, {how}");
            let report = checked(&fs);
            assert!(report.problems.iter().any(|problem| problem.file == last), "{what}");
            fs.mkdir(&Caller::root(), NodeId::ROOT, b"after", 0o755).expect("there is space");
            fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(fs);
            let after = super::run::check(&media);
            assert!(after.is_clean(), "{what}:\n{}", reported(&after));
            let fs = Fs::open(media.copy().env(), &options());
            let fs = fs.unwrap_or_else(|error| panic!("{what}: {error}"));
            for name in [&b"a"[..], b"d", b"after"] {
                fs.lookup(&Caller::root(), NodeId::ROOT, name).expect("nothing is lost");
            }
        }
    }
}

#[test]
fn a_check_beside_writes_and_checkpoints_reports_nothing() {
    for (seed, base) in (156..).zip(&BASES) {
        let media = made(seed, base, false).closed;
        let (fs, store) = opened(&media);
        let ended = AtomicBool::new(false);
        device::scope(|scope| {
            for writer in 0..2_u64 {
                let (fs, ended) = (&fs, &ended);
                scope.spawn(move || {
                    let root = Caller::root();
                    let mut n = 0_u64;
                    while !ended.load(Ordering::Relaxed) {
                        let name = format!("{writer}-{}", n % 50).into_bytes();
                        match fs.mkdir(&root, NodeId::ROOT, &name, 0o755) {
                            Ok(made) => fs.forget(made.node, 1),
                            Err(_) => fs.rmdir(&root, NodeId::ROOT, &name).expect("it is empty"),
                        }
                        if n.is_multiple_of(8) {
                            fs.sync().expect("there is space");
                        }
                        n += 1;
                    }
                });
            }
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    store.checkpoint().expect("there is space");
                }
            });
            let _end = SetAtEnd(&ended);
            let (mut given_up, enough) = (0, scale(7, 20) as usize);
            for round in 0..2000 {
                let before = segments(&media);
                let report = checked(&fs);
                let after = segments(&media);
                given_up += before.iter().filter(|path| !after.contains(*path)).count();
                assert!(report.is_clean(), "{base:?}, round {round}:\n{}", reported(&report));
                if round >= enough && given_up >= enough {
                    break;
                }
            }
            assert!(given_up >= enough, "{base:?}: {given_up} segments of the log were given up");
        });
    }
}
