//! The corruption campaign: one thing of a volume is damaged at a time, and each time the volume is
//! checked, looked at, mended, and looked at again.
//!
//! For each damage: nothing panics; what answers is right or an I/O error, never wrong; where
//! something is refused the check has found it and says where; after the repair the volume is clean
//! and answers everything as before, or it says what is lost, and the rest is as before.
//!
//! In a short run a few places of each structure are damaged; with `PANDO_SLOW`, all of them. The
//! table that it prints is in `docs/fsck.md`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use format::node::{MAGIC, UNIT_BYTES};
use fs::{Fs, Repair, VolumeReport};
use testing::SimDevice;

use super::volume::{Looked, Made, look, made};
use super::{check, env_of, repair, told};
use crate::script::scale;

/// Bytes that a medium loses at once.
const BLOCK: u64 = 4096;

/// What is done to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    Zeros,
    Flip,
    Swap,
    Old,
    Cut,
    Gone,
}

const EACH_PLACE: [Damage; 4] = [Damage::Zeros, Damage::Flip, Damage::Swap, Damage::Old];

impl Damage {
    fn name(self) -> &'static str {
        match self {
            Damage::Zeros => "zeros",
            Damage::Flip => "flipped bit",
            Damage::Swap => "swapped blocks",
            Damage::Old => "old block",
            Damage::Cut => "cut off",
            Damage::Gone => "file gone",
        }
    }
}

/// What a damage came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Nothing that anybody could ask for was there.
    Harmless,
    /// Found, and mended with nothing else changed.
    Mended,
    /// Found, and what is lost is named; the rest is as it was.
    Lost,
    /// Found, and the volume opens when the log is cut off, without its last changes.
    LogCut,
    /// Found, and nothing of the volume answers.
    Closed,
}

type Table = BTreeMap<(&'static str, Damage), BTreeMap<Outcome, u64>>;

/// A place to damage.
#[derive(Debug, Clone)]
struct Place {
    structure: &'static str,
    path: String,
    offset: u64,
    length: u64,
}

fn structure(path: &str) -> Option<&'static str> {
    Some(match path {
        "volume.pando" => "volume header",
        "volume.copy" => "copy of the volume header",
        "btree/super-0" | "btree/super-1" => "superblock",
        path if path.starts_with("log/") && !path.contains("spare") => "log",
        path if path.starts_with("data/open/") => "open segment",
        path if path.starts_with("data/sealed/") => "sealed segment",
        path if path.starts_with("index/manifest") => "manifest of the index",
        path if path.starts_with("index/cluster") => "cluster of the index",
        _ => return None,
    })
}

/// The places of a volume at which there is something.
fn places(device: &SimDevice) -> Vec<Place> {
    let mut found = Vec::new();
    for (path, length) in device.files() {
        let bytes = device.read_file(&path);
        if path == "btree/nodes" {
            for at in (0..bytes.len()).step_by(UNIT_BYTES) {
                let node = &bytes[at..];
                if !node.starts_with(&MAGIC) {
                    continue;
                }
                let structure = match node[6] {
                    1 => "leaf",
                    2 => "interior node",
                    3 => "long value",
                    4 => "directory of counts",
                    _ => "page of counts",
                };
                let length = BLOCK.min((bytes.len() - at) as u64);
                found.push(Place { structure, path: path.clone(), offset: at as u64, length });
            }
            continue;
        }
        let Some(structure) = structure(&path) else { continue };
        for (at, block) in (0..length).step_by(BLOCK as usize).zip(bytes.chunks(BLOCK as usize)) {
            if block.iter().any(|byte| *byte != 0) {
                let length = block.len() as u64;
                found.push(Place { structure, path: path.clone(), offset: at, length });
            }
        }
    }
    found
}

/// Damages a place; `false` when that would change nothing.
fn strike(
    device: &SimDevice,
    old: &SimDevice,
    place: &Place,
    damage: Damage,
    random: &mut fastrand::Rng,
) -> bool {
    let before = device.read_file(&place.path);
    let Place { path, offset, length, .. } = place;
    let here = before[*offset as usize..(offset + length) as usize].to_vec();
    match damage {
        Damage::Zeros => device.overwrite(path, *offset, &vec![0; *length as usize]),
        Damage::Flip => device.flip_bit(path, offset * 8 + random.u64(..*length * 8)),
        Damage::Swap => {
            let blocks = before.len() as u64 / length;
            let other = random.u64(..blocks.max(1)) * length;
            let there = before[other as usize..(other + length) as usize].to_vec();
            if other.abs_diff(*offset) < *length {
                return false;
            }
            device.overwrite(path, *offset, &there);
            device.overwrite(path, other, &here);
        }
        Damage::Old => {
            if !old.files().iter().any(|(other, _)| other == path) {
                return false;
            }
            let past = old.read_file(path);
            let Some(past) = past.get(*offset as usize..(offset + length) as usize) else {
                return false;
            };
            device.overwrite(path, *offset, past);
        }
        Damage::Cut => device.truncate(path, *offset + random.u64(..*length)),
        Damage::Gone => device.delete(path),
    }
    !device.files().iter().any(|(other, _)| other == path) || device.read_file(path) != before
}

/// Whether a report says where something is wrong.
fn is_located(report: &VolumeReport) -> bool {
    report.problems.iter().all(|problem| {
        !problem.file.is_empty()
            || !problem.path.is_empty()
            || problem.subvolume != 0
            || problem.ino != 0
            || problem.what.contains(char::is_numeric)
    })
}

/// One damage, from the blow to what is left.
fn run(device: &SimDevice, made: &Made, place: &str) -> Outcome {
    let report = check(device);
    let looked = look(&device.copy(), &made.right);
    let right = |looked: &Looked, when: &str| {
        assert!(
            looked.wrong.is_empty(),
            "{place}: wrong answers {when}: {:#?}\n{}",
            &looked.wrong[..looked.wrong.len().min(3)],
            told(&report)
        );
    };
    right(&looked, "before the repair");
    assert!(looked.is_same() || !report.is_clean(), "{place}: not found: {looked:?}");
    assert!(is_located(&report), "{place}: where?\n{}", told(&report));
    if report.is_clean() {
        return Outcome::Harmless;
    }
    let mended = repair(device);
    let after = look(&device.copy(), &made.right);
    right(&after, "after the repair");
    assert!(mended.failed.is_empty(), "{place}: {:?}", mended.failed);
    if mended.after.is_clean() {
        assert!(after.is_same(), "{place}: clean, and {after:?}\n{}", told(&report));
        return Outcome::Mended;
    }
    assert!(is_located(&mended.after), "{place}: where?\n{}", told(&mended.after));
    if after.closed.is_some() || after.right == 0 {
        return cut_log(device, made, place);
    }
    assert!(
        after.refused <= looked.refused || looked.closed.is_some(),
        "{place}: the repair lost something: {looked:?} then {after:?}"
    );
    Outcome::Lost
}

/// What keeps the volume closed may be its log: it is cut off, and its last changes are lost.
fn cut_log(device: &SimDevice, made: &Made, place: &str) -> Outcome {
    let mut go_on = |_, _| ControlFlow::Continue(());
    let mended = Fs::repair(&env_of(device), Repair::DoAndCutLog, &mut go_on).expect("it is there");
    let looked = look(&device.copy(), &made.right);
    if looked.closed.is_some() || looked.right == 0 {
        return Outcome::Closed;
    }
    // It is a state that was: what could be changed back by so few records.
    assert!(looked.wrong.len() < 60, "{place}: {:#?}", &looked.wrong);
    assert!(looked.refused == 0 || !mended.after.is_clean(), "{place}: {looked:?}");
    Outcome::LogCut
}

fn shown(table: &Table) -> String {
    let mut text = String::from(
        "| structure | damage | harmless | mended | lost in part | last changes lost | all lost |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    for ((structure, damage), outcomes) in table {
        let count = |outcome| outcomes.get(&outcome).copied().unwrap_or(0);
        let row = format!(
            "| {structure} | {} | {} | {} | {} | {} | {} |\n",
            damage.name(),
            count(Outcome::Harmless),
            count(Outcome::Mended),
            count(Outcome::Lost),
            count(Outcome::LogCut),
            count(Outcome::Closed)
        );
        text.push_str(&row);
    }
    text
}

/// The header is in two files. A copy that is gone is made when the volume is opened.
fn assert_headers_are_mended(table: &Table) {
    for (structure, gone) in
        [("volume header", Outcome::Mended), ("copy of the volume header", Outcome::Harmless)]
    {
        for damage in [Damage::Zeros, Damage::Flip, Damage::Cut, Damage::Gone] {
            let found: Vec<_> = table[&(structure, damage)].keys().copied().collect();
            let want = if damage == Damage::Gone { gone } else { Outcome::Mended };
            assert_eq!(found, [want], "{structure}, {}", damage.name());
        }
    }
}

#[test]
fn every_kind_of_damage_is_found_and_mended_or_told() {
    let most = scale(2, u64::MAX);
    let mut table = Table::new();
    for seed in 0..scale(1, 3) {
        println!("seed {seed}");
        let made = made(seed + 10);
        for (device, state) in [(&made.device, "closed"), (&made.crashed, "crashed")] {
            super::assert_clean(device, state);
            let mut random = fastrand::Rng::with_seed(seed);
            let mut all = places(device);
            random.shuffle(&mut all);
            let mut struck: BTreeMap<(&str, Damage), u64> = BTreeMap::new();
            for place in &all {
                if state == "crashed" && place.structure != "log" && most < u64::MAX {
                    continue;
                }
                for damage in EACH_PLACE.into_iter().chain([Damage::Cut, Damage::Gone]) {
                    let count = struck.entry((place.structure, damage)).or_default();
                    if *count >= most {
                        continue;
                    }
                    // A whole file is lost from one of its places.
                    if damage == Damage::Gone && place.offset > 0 && place.structure != "leaf" {
                        continue;
                    }
                    let hurt = device.copy();
                    if !strike(&hurt, &made.old, place, damage, &mut random) {
                        continue;
                    }
                    *count += 1;
                    let Place { structure, path, offset, .. } = place;
                    let what = format!(
                        "seed {seed}, {state}: {} at {path}, byte {offset} ({structure})",
                        damage.name()
                    );
                    let outcome = run(&hurt, &made, &what);
                    let row = table.entry((structure, damage)).or_default();
                    *row.entry(outcome).or_default() += 1;
                }
            }
        }
    }
    println!("{}", shown(&table));
    let count = |outcome| table.values().filter_map(|row| row.get(&outcome)).sum::<u64>();
    assert!(count(Outcome::Mended) > 0 && count(Outcome::Lost) > 0);
    // There are two of them, and either is enough.
    for ((structure, damage), outcomes) in &table {
        let mended = |outcome| matches!(outcome, &Outcome::Harmless | &Outcome::Mended);
        let lost = *structure == "superblock" && !outcomes.keys().all(mended);
        assert!(!lost, "{}: {outcomes:?}", damage.name());
    }
    assert_headers_are_mended(&table);
}
