//! A crash before each record of the log: the state that is found then existed before, in order,
//! and each state that existed is found. So the test knows what a user may find after a crash for
//! each record, not only for each call. `made` marks the calls of more than one record.

use std::collections::BTreeSet;

use fs::Engine;

use super::anatomy::places;
use super::asked::open;
use super::made::{dump, made};
use super::run::check;
use crate::check::reported;
use crate::script::scale;
use crate::subject::Base;

fn each_record(seed: u64, base: &Base) {
    println!("seed {seed}");
    let volume = made(seed, base, false);
    let records = places(&volume.crashed);
    let records = records.iter().filter(|place| place.structure == "record of the log");
    let (mut last, mut seen) = (0, BTreeSet::new());
    // In the short form after every third, so that not each state is seen.
    let step = scale(3, 1);
    for place in records.step_by(step as usize) {
        let what = format!("{base:?}: nothing from byte {} of {} on", place.offset, place.path);
        let cut = volume.crashed.copy();
        let rest = cut.read(&place.path).len() as u64 - place.offset;
        cut.of(&place.path).overwrite(&place.path, place.offset, &vec![0; rest as usize]);
        let later = cut.files().into_iter().map(|(path, _)| path);
        for path in later.filter(|path| path.starts_with("log/") && *path > place.path) {
            cut.of(&path).delete(&path);
        }
        let report = check(&cut);
        assert!(report.is_clean(), "{what}:\n{}", reported(&report));
        let mut subject = open(&cut).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = dump(&mut subject).expect("it answers");
        let here = |at: &usize| volume.states[*at].differences(&found).is_empty();
        let Some(at) = (last..volume.states.len()).find(here) else {
            let unlike = volume.states[last].differences(&found);
            panic!("{what}: neither state {last} nor a later one: {unlike:#?}");
        };
        last = at;
        seen.insert(at);
    }
    let all: BTreeSet<usize> = (0..volume.states.len() - 1).collect();
    assert!(seen.len() as u64 * step >= all.len() as u64 / 2, "{base:?}: {} states", seen.len());
    if step > 1 {
        return;
    }
    let missed: Vec<_> = all.difference(&seen).collect();
    assert!(missed.is_empty(), "{base:?}: states that no crash leaves: {missed:?}");
}

#[test]
fn a_crash_before_any_record_leaves_an_earlier_state() {
    let bases = [Base::Engine(Engine::Btree), Base::Column, Base::Engine(Engine::Lsm)];
    for (seed, base) in (140..).zip(&bases).take(scale(1, 3) as usize) {
        each_record(seed, base);
    }
}
