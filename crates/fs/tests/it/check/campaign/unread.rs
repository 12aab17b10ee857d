//! A read error of the disk (`Input/output error`) is a separate kind of finding, at any place of a
//! volume. It is reported with file and byte; the rest is checked. Nothing is removed or rebuilt
//! for it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use fs::{Fs, Gc, OpenOptions, Problem, ProblemKind, Repair, VolumeReport};
use testing::model::Dump;
use testing::{Fault, FaultOn, Op};

use super::anatomy::{DamageSite, places};
use super::asked::open;
use super::bad_sector::BadSector;
use super::made::made;
use super::media::Media;
use super::volume_records::{BASES, options};
use super::volume_records_later::zero;
use crate::check::reported;
use crate::check::volume::{Looked, ask};
use crate::script::{SNAPSHOTS, scale};

/// These have an equal copy, so that a read that fails is as good as damage, and what is
/// written again takes no other's place.
const TWICE: [&str; 5] = [
    "volume header",
    "copy of the volume header",
    "superblock",
    "manifest",
    "copy of the manifest",
];

fn check(media: &Media, place: &DamageSite) -> VolumeReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::check_offline(&BadSector::env(media, place), &mut proceed)
        .unwrap_or_else(|error| panic!("{place:?}: the check ended: {error}"))
}

fn is_of(problem: &Problem, place: &DamageSite) -> bool {
    problem.kind == ProblemKind::ReadError
        && problem.file == place.path
        && (place.offset..place.end()).contains(&problem.offset)
        && problem.what.contains("Input/output error")
        && problem.remedy().is_none()
}

/// The first and the last place of each structure.
fn of_each_structure(media: &Media) -> Vec<DamageSite> {
    let all = places(media);
    let structures: BTreeSet<&str> = all.iter().map(|place| place.structure).collect();
    let ends = |structure: &&str| {
        let mut of = all.iter().filter(|place| place.structure == *structure);
        let first = of.next().cloned();
        first.into_iter().chain(of.next_back().cloned()).collect::<Vec<_>>()
    };
    structures.iter().flat_map(ends).collect()
}

fn bytes(media: &Media) -> Vec<(String, Vec<u8>)> {
    media.files().into_iter().map(|(path, _)| (path.clone(), media.read(&path))).collect()
}

#[test]
fn read_errors_are_reported_and_the_rest_is_checked() {
    for (seed, base) in (140..).zip(&BASES) {
        let volume = made(seed, base, false);
        for media in [&volume.closed, &volume.crashed] {
            let (whole, mut seen) = (bytes(media), BTreeSet::new());
            for place in of_each_structure(media) {
                let what = format!("{base:?}: {place:?}");
                let report = check(media, &place);
                assert!(!report.is_clean(), "{what}: not reported");
                if TWICE.contains(&place.structure) {
                    continue;
                }
                if !report.unread {
                    // One of two copies of a node of the catalog.
                    assert!(place.structure.contains("catalog"), "{what}:\n{}", reported(&report));
                    continue;
                }
                seen.insert(place.structure);
                let is_reported = report.problems.iter().any(|problem| is_of(problem, &place));
                assert!(is_reported, "{what}:\n{}", reported(&report));
                // If the volume stays closed, at least the engine's own structures are checked.
                let rest = report.data_bytes + report.store.bytes;
                assert!(rest > 0, "{what}: nothing else is checked");
                let mut proceed = |_, _| ControlFlow::Continue(());
                let env = BadSector::env(media, &place);
                let repaired = Fs::repair(&env, Repair::DoAndCutLog, &mut proceed);
                let repaired = repaired.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(repaired.repaired.is_empty() && repaired.cut.is_none(), "{what}");
                assert!(!repaired.after.is_clean(), "{what}");
                assert!(bytes(media) == whole, "{what}: something was written");
            }
            assert!(seen.len() >= 5, "{base:?}: {seen:?}");
        }
    }
}

fn of<'a>(
    all: &'a [DamageSite],
    structure: &'static str,
) -> impl DoubleEndedIterator<Item = &'a DamageSite> {
    all.iter().filter(move |place| place.structure == structure)
}

#[test]
fn damage_beside_an_unreadable_sector_is_reported_and_not_repaired() {
    for (seed, base) in (143..).zip(&BASES) {
        let volume = made(seed, base, false);
        let media = volume.closed.copy();
        let all = places(&media);
        let unread = of(&all, "contents in a sealed segment").next().expect("there are contents");
        let damaged =
            of(&all, "contents in a sealed segment").next_back().expect("there are contents");
        let header = of(&all, "header of a segment").next_back().expect("there is a segment");
        assert_ne!(unread, damaged, "{base:?}");
        zero(&media, damaged);
        zero(&media, header);
        let (whole, what) = (bytes(&media), format!("{base:?}"));
        let report = check(&media, unread);
        let paths = |at: &DamageSite| {
            let of = |found: &&Problem| found.file == at.path && found.offset == at.offset;
            let found = report.problems.iter().filter(of).find(|found| !found.path.is_empty());
            found.map(|found| found.path.clone())
        };
        assert!(report.problems.iter().any(|found| is_of(found, unread)), "{}", reported(&report));
        assert!(paths(unread).is_some() && paths(damaged).is_some(), "{}", reported(&report));
        assert_ne!(paths(unread), paths(damaged), "{what}");
        assert!(report.problems.iter().any(|found| found.remedy().is_some()), "{what}");
        let mut proceed = |_, _| ControlFlow::Continue(());
        let env = BadSector::env(&media, unread);
        let repaired = Fs::repair(&env, Repair::Do, &mut proceed).expect("the report has why not");
        assert!(repaired.repaired.is_empty() && !repaired.failed.is_empty(), "{what}");
        let why = |why: &str| why.contains("copy the volume to another disk");
        assert!(repaired.failed.iter().all(|(_, words)| why(words)), "{what}");
        assert!(bytes(&media) == whole, "{what}: something was written");
    }
}

#[test]
fn a_volume_in_use_reports_read_errors() {
    for (seed, base) in (146..).zip(&BASES) {
        let volume = made(seed, base, false);
        let of_contents = |place: &DamageSite| place.structure == "contents in a sealed segment";
        let of_tree =
            |place: &DamageSite| place.structure == "leaf" || place.structure == "block of a run";
        for wanted in [&of_contents as &dyn Fn(&DamageSite) -> bool, &of_tree] {
            let media = volume.closed.copy();
            let place = places(&media).into_iter().rfind(|place| wanted(place));
            let place = place.expect("there is such a place");
            let options = OpenOptions { read_only: true, ..options() };
            let fs = match Fs::open(BadSector::env(&media, &place), &options) {
                Ok(fs) => fs,
                Err(error) => panic!("{base:?}: {place:?}: {error}"),
            };
            let mut proceed = |_, _| ControlFlow::Continue(());
            let report = fs.check_volume(&mut proceed).expect("the rest is checked");
            let is_reported = report.problems.iter().any(|problem| is_of(problem, &place));
            assert!(is_reported && report.unread, "{base:?}: {place:?}:\n{}", reported(&report));
        }
    }
}

/// All that there is to collect was written while everything could be read.
#[test]
fn a_volume_in_use_collects_nothing_after_a_read_error_in_ownership_records() {
    for (seed, base) in (149..).zip(&BASES) {
        let littered = made(seed, base, false).closed;
        crate::check::garbage::lose(&littered.volume);
        let right = Dump::collect(&mut open(&littered.copy()).expect("it opens"), SNAPSHOTS);
        let of_tree = |place: &&DamageSite| ["leaf", "block of a run"].contains(&place.structure);
        let all = places(&littered);
        let all: Vec<&DamageSite> = all.iter().filter(of_tree).collect();
        let (mut given_up, mut collected) = (0, 0);
        for place in all.iter().step_by(all.len().div_ceil(scale(16, 1000) as usize)) {
            let (what, media) = (format!("seed {seed}, {base:?}: {place:?}"), littered.copy());
            let Ok(fs) = Fs::open(BadSector::env(&media, place), &options()) else { continue };
            let before = bytes(&media);
            let mut proceed = |_, _| ControlFlow::Continue(());
            match fs.gc(Gc::Delete { grace: Duration::ZERO }, &mut proceed) {
                Err(error) => {
                    given_up += 1;
                    assert!(error.to_string().contains(&place.path), "{what}: {error}");
                    let contents = |files: &[(String, Vec<u8>)]| {
                        let of = |(path, _): &&(String, Vec<u8>)| path.starts_with("data/");
                        files.iter().filter(of).cloned().collect::<Vec<_>>()
                    };
                    let same = contents(&before) == contents(&bytes(&media));
                    assert!(same, "{what}: contents were given back");
                }
                Ok(report) => collected += report.garbage.iter().filter(|one| one.deleted).count(),
            }
            drop(fs);
            let mut subject = open(&media).unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut looked = Looked::default();
            ask(&mut subject, &right, &mut looked, &mut |_, _, _| {});
            assert!(looked.is_same(), "{what}: {looked:?}");
        }
        println!("{base:?}: {given_up} collections given up, {collected} things deleted");
        assert!(given_up > 0 && collected > 0, "{base:?}: {given_up}, {collected}");
    }
}

/// The report about a superblock does not depend on the reader: the other one points to the state,
/// and both are rewritten.
#[test]
fn an_unreadable_superblock_is_reported_alike_in_use_and_not() {
    for (seed, base) in (152..).zip(&BASES) {
        let volume = made(seed, base, false);
        let all = places(&volume.closed);
        for place in of(&all, "superblock") {
            let (what, media) = (format!("{base:?}: {place:?}"), volume.closed.copy());
            let offline = check(&media, place);
            let fs = Fs::open(media.env(), &options()).expect("it is whole");
            let fault = Fault::io(FaultOn::Only(Op::Read), 0).below(&place.path).forever();
            media.volume.inject(fault);
            let mut proceed = |_, _| ControlFlow::Continue(());
            let online = fs.check_volume(&mut proceed).expect("the rest is checked");
            media.volume.clear_faults();
            for report in [&offline, &online] {
                let found = report.problems.iter().find(|found| found.file == place.path);
                let found = found.unwrap_or_else(|| panic!("{what}:\n{}", reported(report)));
                assert!(found.what.contains("a superblock could not be read"), "{what}: {found:?}");
                assert_eq!(found.kind, ProblemKind::Unreadable, "{what}");
                assert!(found.remedy().is_some() && !report.unread, "{what}: {found:?}");
            }
        }
    }
}
