//! Power is cut at a write of a repair. The state then is as before it or repaired, in whole or in
//! part, never worse. Another repair reaches the result that the first would have.

use std::sync::Arc;

use device::sync::Mutex;
use fs::{Engine, Repair};
use testing::{CrashPolicy, SimDevice};

use super::anatomy::{DamageSite, places};
use super::asked::{Seen, look, open};
use super::damage::{Damage, Target};
use super::made::{Volume, dump, made};
use super::media::Media;
use super::run::{check, repair};
use super::volume_records::{is_of_copies, is_of_own};
use crate::check::reported;
use crate::script::scale;
use crate::subject::Base;

/// What is damaged: what a repair has something to do for.
const STRUCK: &[(&str, Damage)] = &[
    ("volume header", Damage::Zeros),
    ("copy of the volume header", Damage::Flip),
    ("superblock", Damage::Zeros),
    ("directory of counts", Damage::Flip),
    ("page of counts", Damage::Zeros),
    ("manifest", Damage::Flip),
    ("copy of the manifest", Damage::Cut),
    ("leaf", Damage::Flip),
    ("node of the volume's own tree", Damage::Zeros),
    ("node of the copies of its records", Damage::Flip),
    ("run of the volume's own tree", Damage::Flip),
    ("run of the copies of its records", Damage::Zeros),
    ("block of a run", Damage::Zeros),
    ("contents in a sealed segment", Damage::Flip),
    ("header of a segment", Damage::Flip),
    ("footer of a segment", Damage::Zeros),
    ("cluster of the index", Damage::Zeros),
    ("header of the log", Damage::Flip),
    ("record of the log", Damage::Flip),
];

/// The disk as a power cut may leave it before each change that a repair makes.
fn cuts(hurt: &Media, how: Repair) -> Vec<(u64, Media)> {
    let found: Arc<Mutex<Vec<(u64, SimDevice)>>> = Arc::default();
    let kept = Arc::clone(&found);
    hurt.volume.watch(move |device, op| kept.lock().push((op, device.copy())));
    repair(hurt, how);
    hurt.volume.unwatch();
    let found = std::mem::take(&mut *found.lock());
    found.into_iter().map(|(op, volume)| (op, Media { volume, log: None })).collect()
}

/// Whether what is found is no worse than before the repair.
fn assert_no_worse(volume: &Volume, media: &Media, before: &Seen, place: &str) {
    let seen = look(media, &volume.right);
    if before.is_nothing() {
        // Nothing answered. What answers now is a state that was.
        if seen.is_nothing() {
            return;
        }
        let mut subject = open(media).unwrap_or_else(|error| panic!("{place}: {error}"));
        let found = dump(&mut subject).expect("it answers");
        let is_one = volume.states.iter().any(|state| state.differences(&found).is_empty());
        assert!(is_one, "{place}: {:#?}", volume.right.dump.differences(&found));
        return;
    }
    assert!(seen.looked.wrong.is_empty(), "{place}: {:#?}", seen.looked.wrong);
    assert!(seen.looked.closed.is_none(), "{place}: {:?}", seen.looked.closed);
    for refused in &seen.refused {
        let is_old = before.refused.iter().any(|before| before.is(refused));
        assert!(is_old, "{place}: lost: {refused:#?}");
    }
}

/// One damage, repaired with the power going at each change.
fn interrupted(volume: &Volume, hurt: &Media, how: Repair, what: &str) -> u64 {
    let report = check(hurt);
    assert!(!report.is_clean(), "{what}: nothing is wrong");
    let before = look(hurt, &volume.right);
    let whole = hurt.copy();
    let cuts = cuts(&whole, how);
    let right = look(&whole, &volume.right);
    let left = check(&whole);
    assert!(left.problems_count <= report.problems_count, "{what}:\n{}", reported(&left));
    let most = scale(2, u64::MAX) as usize;
    let step = cuts.len().div_ceil(most).max(1);
    for (op, media) in cuts.iter().step_by(step) {
        for policy in CrashPolicy::ALL {
            if scale(0, 1) == 0 && op % 3 != policy as u64 % 3 {
                continue;
            }
            let place = format!("{what}, cut before change {op}, {policy:?}");
            let media = media.after_crash(policy, *op);
            assert_no_worse(volume, &media.copy(), &before, &place);
            let repaired = repair(&media, how);
            assert!(repaired.failed.is_empty(), "{place}: {:?}", repaired.failed);
            assert_eq!(
                repaired.after.problems_count,
                left.problems_count,
                "{place}:\n{}",
                reported(&repaired.after)
            );
            let seen = look(&media, &volume.right);
            let what = |seen: &Seen| -> Vec<String> {
                seen.refused.iter().map(|refused| refused.what.clone()).collect()
            };
            assert_eq!(what(&seen), what(&right), "{place}");
            assert_eq!(seen.looked.wrong, right.looked.wrong, "{place}");
            assert_eq!(seen.looked.closed, right.looked.closed, "{place}");
        }
    }
    cuts.len() as u64
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn at_each_change(engine: Engine, base: &Base) {
    let seed = 50;
    println!("seed {seed}");
    let volume = made(seed, base, false);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut struck = 0;
    for &(structure, damage) in STRUCK {
        let cuts_log = structure == "record of the log";
        let media =
            if structure.ends_with("of the log") { &volume.crashed } else { &volume.closed };
        let all = places(media);
        let these: Vec<&DamageSite> =
            all.iter().filter(|place| place.structure == structure).collect();
        let Some(place) = random.choice(&these) else { continue };
        let hurt = media.copy();
        let target = Target { all: &all, olds: &volume.olds, were: &[] };
        target.strike(&hurt, place, damage, &mut random).expect("it changes something");
        let how = if cuts_log { Repair::DoAndCutLog } else { Repair::Do };
        let what = format!("{engine:?}, {} at {structure}", damage.name());
        let changes = interrupted(&volume, &hurt, how, &what);
        println!("{what}: {changes} changes");
        assert!(changes > 0, "{what}: nothing was done");
        struck += 1;
    }
    assert!(struck >= 9, "{engine:?}: {struck} structures");
}

#[test]
fn an_interrupted_repair_of_a_b_tree_makes_nothing_worse() {
    at_each_change(Engine::Btree, &Base::Engine(Engine::Btree));
}

#[test]
fn an_interrupted_repair_of_the_log_structured_engine_makes_nothing_worse() {
    at_each_change(Engine::Lsm, &Base::Column);
}

/// One of the two trees of the volume's records is damaged where the log has changes of it.
#[test]
fn an_interrupted_repair_of_records_under_the_log_makes_nothing_worse() {
    for base in [Base::Engine(Engine::Btree), Base::Column] {
        let volume = made(51, &base, false);
        let all = places(&volume.crashed);
        for wanted in [is_of_own as fn(&DamageSite) -> bool, is_of_copies] {
            let is_under_the_log = |hurt: &Media| {
                let opened = open(&hurt.copy());
                opened.is_ok_and(|subject| {
                    subject.fs().status().is_ok_and(|status| status.read_only.is_some())
                })
            };
            let mut hurt = all.iter().filter(|place| wanted(place)).map(|place| {
                let hurt = volume.crashed.copy();
                hurt.volume.flip_bit(&place.path, (place.offset + place.length / 2) * 8);
                (place, hurt)
            });
            let Some((place, hurt)) = hurt.find(|(_, hurt)| is_under_the_log(hurt)) else {
                panic!("{base:?}: the log changes nothing there");
            };
            let what = format!("{base:?}, {} under the log", place.structure);
            let changes = interrupted(&volume, &hurt, Repair::Do, &what);
            assert!(changes > 0, "{what}: nothing was done");
        }
    }
}
