//! The campaign itself.
//!
//! For each damage nothing panics, and every answer is right or an I/O error, never wrong. If a
//! call is refused, the error and the check name the place of the damage. After the repair the
//! volume is clean and answers everything as before. Otherwise the check names what is lost, and
//! the rest is as before. The possible effects of damage of each structure are in `permitted`. Only
//! what the state points to is damaged (`anatomy`), so nothing except what is listed there may go
//! unnoticed.
//!
//! A short run damages one place of each structure in each way; with `PANDO_SLOW`, all of them, or
//! a part (`part`). The table that it prints is in `docs/fsck.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fs::{Engine, Fs, Problem, ProblemKind, Repair, RepairReport, VolumeReport};
use testing::model::Dump;

use super::anatomy::{DamageSite, places};
use super::asked::{Refused, Seen, look, open};
use super::damage::{Damage, Target};
use super::made::{Volume, dump, made, made_index};
use super::media::Media;
use super::permitted::{OF_NONE, Outcome, permitted, structures};
use super::selection::Selection;
use crate::check::reported;
use crate::check::volume::{Looked, ask};
use crate::script::scale;
use crate::subject::Base;

/// By structure and damage: what came of it, and what else was struck with it.
pub(super) type Table =
    BTreeMap<(&'static str, Damage), (BTreeMap<Outcome, u64>, BTreeSet<&'static str>)>;

/// What has to be swapped with what is of another kind, or in another file.
const OTHER_BTREE: &[&str] = &["interior node", "leaf", "page of counts", "superblock"];
const OTHER_LSM: &[&str] = &["block of a run", "block of a value log", "index of a run"];
const OTHER_ANY: &[&str] = &[
    "cluster of the index",
    "contents in a sealed segment",
    "contents in an open segment",
    "record of the log",
];

/// Why a volume opens for reading only.
const READ_ONLY: [&str; 2] =
    ["what the log adds to cannot be read", "cannot read a node that the log changes"];

pub(super) fn check(media: &Media) -> VolumeReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::check_offline(&media.env(), &mut proceed).expect("the disk answers")
}

pub(super) fn repair(media: &Media, how: Repair) -> RepairReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::repair(&media.env(), how, &mut proceed).expect("the disk answers")
}

/// Whether words name a file, or the segment of contents that it is, which opening seals.
fn names(words: &str, path: &str) -> bool {
    words.contains(path) || words.contains(&path.replace("data/open/", "data/sealed/"))
}

fn is_log(path: &str) -> bool {
    path.starts_with("log/")
}

/// One damage.
struct Case<'a> {
    volume: &'a Volume,
    /// As it was before the blow.
    whole: &'a Media,
    damage: Damage,
    place: &'a DamageSite,
    /// All places of which bytes are not what they were.
    struck: Vec<&'a DamageSite>,
    /// For messages.
    what: String,
}

impl Case<'_> {
    /// From the blow to what is left.
    fn run(&self, media: &Media) -> Outcome {
        let Case { what, volume, .. } = self;
        let report = check(media);
        let seen = look(media, &volume.right);
        self.assert_right(&seen, &report, "before the repair");
        if report.is_clean() {
            assert!(seen.is_same(), "{what}: not found: {seen:#?}");
            return Outcome::Harmless;
        }
        let (mut unnamed, files) = (self.unnamed(&report), self.files());
        if files.iter().any(|path| is_log(path)) {
            // What is beside the log is looked at when that can be read.
            unnamed.retain(|path| is_log(path));
        }
        let of_index = |path: &&&str| path.starts_with("index/");
        if unnamed.iter().filter(of_index).count() < files.iter().filter(of_index).count() {
            // It goes as a whole: what else of it is damaged is not looked for.
            unnamed.retain(|path| !path.starts_with("index/"));
        }
        let is_reported = unnamed.is_empty() || self.is_hidden(media, &unnamed);
        assert!(is_reported, "{what}: not in {unnamed:?}?\n{}", reported(&report));
        let repaired = repair(media, Repair::Do);
        let after = look(media, &volume.right);
        self.assert_right(&after, &repaired.after, "after the repair");
        let failed = repaired.failed.iter().find(|(_, why)| !self.is_reason(why));
        assert!(failed.is_none(), "{what}: {failed:?}");
        if repaired.after.is_clean() {
            assert!(after.is_same(), "{what}: clean, and {after:#?}\n{}", reported(&report));
            return Outcome::Repaired;
        }
        // One of two that are swapped may be repaired.
        let unnamed = self.unnamed(&repaired.after);
        assert!(
            unnamed.len() < files.len(),
            "{what}: in which file?\n{}",
            reported(&repaired.after)
        );
        if after.is_nothing() {
            return self.cut_log(media);
        }
        if after.is_same() {
            return Outcome::Reported;
        }
        let before: BTreeSet<&str> = seen.refused.iter().map(|it| it.what.as_str()).collect();
        let is_more = |refused: &&Refused| !before.contains(refused.what.as_str());
        let more: Vec<_> = after.refused.iter().filter(is_more).collect();
        assert!(seen.looked.closed.is_some() || more.is_empty(), "{what}: lost by it: {more:#?}");
        self.assert_named(&after, &repaired.after);
        Outcome::Lost
    }

    /// Whether it is a reason not to repair something: both of what there is twice are struck, or
    /// the log has changes of what is. It is the place of the damage, and not that a repair repairs
    /// it.
    fn is_reason(&self, why: &str) -> bool {
        let both = self.damage == Damage::Other && why.contains("their copy neither");
        let under_log = READ_ONLY.iter().any(|words| why.contains(words));
        let struck = self.struck.iter().any(|place| names(why, &place.path));
        (both || under_log) && struck && why.contains("byte ") && !why.contains("fsck --repair")
    }

    /// What keeps the volume closed may be its log: it is truncated, and its last changes are lost.
    fn cut_log(&self, media: &Media) -> Outcome {
        let Case { what, volume, .. } = self;
        let repaired = repair(media, Repair::DoAndCutLog);
        let seen = look(media, &volume.right);
        if seen.is_nothing() {
            return Outcome::Closed;
        }
        let is_beside = self.files().iter().any(|path| !is_log(path));
        if is_beside && !repaired.after.is_clean() {
            let unnamed = self.unnamed(&repaired.after);
            assert!(
                unnamed.iter().all(|path| is_log(path)),
                "{what}:\n{}",
                reported(&repaired.after)
            );
            let is_right = |state: &Dump| {
                let mut looked = Looked::default();
                let mut subject = open(&media.copy()).expect("it opened just now");
                ask(&mut subject, state, &mut looked, &mut |_, _, _| {});
                looked.wrong.is_empty()
            };
            assert!(volume.states.iter().any(is_right), "{what}: no state that ever was");
            return Outcome::LogCut;
        }
        assert!(repaired.after.is_clean(), "{what}:\n{}", reported(&repaired.after));
        let mut subject = open(&media.copy()).expect("it opened just now");
        let found = dump(&mut subject).expect("it answers");
        assert!(
            volume.states.iter().any(|state| state.differences(&found).is_empty()),
            "{what}: no state that ever was: {:#?}",
            volume.right.dump.differences(&found)
        );
        Outcome::LogCut
    }

    /// No answer is wrong, and each refusal names the place of the damage.
    fn assert_right(&self, seen: &Seen, report: &VolumeReport, when: &str) {
        let Case { what, place, .. } = self;
        let wrong = &seen.looked.wrong;
        assert!(
            wrong.is_empty(),
            "{what}: wrong answers {when}: {:#?}\n{}",
            &wrong[..wrong.len().min(3)],
            reported(report)
        );
        for Refused { what: of, why, .. } in &seen.refused {
            let is_named = self.struck.iter().any(|place| names(why, &place.path));
            let is_located = match self.damage {
                // What the log's file was called is not known, but which record is missing.
                Damage::Gone if place.path.starts_with("log/") => why.contains("log/"),
                Damage::Gone => is_named,
                // The segment has no byte.
                Damage::Cut if why.ends_with("is missing") => is_named,
                _ => is_named && why.contains("byte "),
            };
            assert!(is_located, "{what}: {of}: refused {when}, where? {why}");
        }
    }

    /// The files that are damaged.
    fn files(&self) -> BTreeSet<&str> {
        self.struck.iter().map(|at| at.path.as_str()).collect()
    }

    /// Whether all that points to the damage in files that are not named is itself damaged, and
    /// named. With those pointers as they were, the files are named.
    fn is_hidden(&self, media: &Media, unnamed: &BTreeSet<&str>) -> bool {
        if self.damage != Damage::Other || unnamed.len() == self.files().len() {
            return false;
        }
        let healed = media.copy();
        for DamageSite { path, offset, length, .. } in &self.struck {
            if !unnamed.contains(path.as_str()) {
                let bytes = &self.whole.read(path)[*offset as usize..][..*length as usize];
                healed.of(path).overwrite(path, *offset, bytes);
            }
        }
        self.unnamed(&check(&healed)).is_disjoint(unnamed)
    }

    /// The files that are damaged and not named. No other file is, and of each the place is.
    fn unnamed(&self, report: &VolumeReport) -> BTreeSet<&str> {
        let Case { what, place, struck, .. } = self;
        let mut unnamed = self.files();
        for problem in &report.problems {
            if problem.file.is_empty() {
                let somewhere = !problem.path.is_empty()
                    || problem.subvolume != 0
                    || problem.ino != 0
                    || problem.what.contains(char::is_numeric);
                assert!(somewhere, "{what}: where? {problem:#?}");
                continue;
            }
            let in_log =
                self.damage == Damage::Gone && is_log(&problem.file) && is_log(&place.path);
            let of_file = struck.iter().filter(|at| names(&problem.file, &at.path));
            let of_file: Vec<&&DamageSite> = of_file.collect();
            assert!(!of_file.is_empty() || in_log, "{what}: not there: {problem:#?}");
            let unreadable = [ProblemKind::Unreadable, ProblemKind::Contents];
            let offset = problem.offset;
            let is_whole = of_file.iter().all(|at| offset < at.reported || at.end() < offset);
            let elsewhere = unreadable.contains(&problem.kind) && is_whole;
            let in_part = !matches!(self.damage, Damage::Cut | Damage::Gone);
            assert!(!(elsewhere && in_part), "{what}: not there: {problem:#?}\n{struck:#?}");
            unnamed.retain(|path| !names(&problem.file, path) && !in_log);
        }
        unnamed
    }

    /// Each path that is refused is named, or a directory above it, or another name of the same
    /// inode. Or the check names that many unreadable records of a subvolume, which is why the path
    /// is refused. Of contents that are lost the names can be listed.
    fn assert_named(&self, seen: &Seen, report: &VolumeReport) {
        let Case { what, volume, .. } = self;
        let named: BTreeSet<&[u8]> =
            report.problems.iter().map(|problem| problem.path.as_slice()).collect();
        let nodes = &volume.right.dump.nodes;
        let mut alike: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (path, node) in nodes {
            alike.entry(&node.first_path).or_default().push(path);
        }
        let mut unnamed = BTreeSet::new();
        for refused in &seen.refused {
            let Some(path) = &refused.path else { continue };
            let is_named = alike[&nodes[path].first_path].iter().any(|path| {
                let mut text = Vec::new();
                let above = path.iter().any(|name| {
                    text.push(b'/');
                    text.extend_from_slice(name);
                    named.contains(text.as_slice())
                });
                above || named.contains(&b"/"[..])
            });
            let reported_with_others = report.problems.iter().any(|problem| {
                let place = format!("{} is damaged at byte {}:", problem.file, problem.offset);
                let above = (0..=path.len()).map(|length| &path[..length]);
                let mut subvolumes = above.filter_map(|at| volume.right.subvolumes.get(at));
                !problem.file.is_empty()
                    && refused.why.contains(&place)
                    && problem.what.starts_with("keys from")
                    && subvolumes.any(|subvolume| *subvolume == problem.subvolume)
            });
            // The place alone is reported for contents, if the names to them do not read either.
            let reported_without_names = self.damage == Damage::Other
                && report.problems.iter().any(|problem| {
                    let place = format!("{} is damaged at byte {}:", problem.file, problem.offset);
                    !problem.file.is_empty() && refused.why.contains(&place)
                })
                && report.problems.iter().any(|problem| problem.what.starts_with("keys from"));
            if !is_named && !reported_with_others && !reported_without_names {
                unnamed.insert(format!("{}: {}", refused.what, refused.why));
            }
        }
        if self.struck.iter().all(|place| place.structure == OF_NONE) {
            let path = seen.refused.iter().find(|refused| refused.what != "a search");
            assert!(path.is_none(), "{what}: {path:?}");
        }
        let contents = ["long value", "block of a value log"];
        let only_contents = |place: &&DamageSite| {
            contents.contains(&place.structure) || place.structure.contains("segment")
        };
        if self.struck.iter().all(only_contents) {
            let listing = seen.refused.iter().find(|refused| refused.what.starts_with("names of"));
            assert!(listing.is_none(), "{what}: {listing:?}");
        }
        assert!(unnamed.is_empty(), "{what}: not named: {unnamed:#?}\n{}", reported(report));
    }
}

/// Strikes places of a state, each structure so often at most.
#[expect(clippy::print_stdout, reason = "prints how much was done")]
pub(super) fn campaign(
    (volume, media, state): (&Volume, &Media, &str),
    (seed, damages, were): (u64, &[Damage], &[Vec<DamageSite>]),
    wanted: &dyn Fn(&DamageSite) -> bool,
    table: &mut Table,
) {
    let report = check(media);
    assert!(report.is_clean(), "seed {seed}, {state}:\n{}", reported(&report));
    let mut random = fastrand::Rng::with_seed(seed);
    let all = places(media);
    let target = Target { all: &all, olds: &volume.olds, were };
    let mut order: Vec<&DamageSite> = all.iter().filter(|place| wanted(place)).collect();
    random.shuffle(&mut order);
    let part = Selection::asked();
    let mut count: BTreeMap<(&str, Damage), u64> = BTreeMap::new();
    let (mut number, mut cases, mut failed) = (0, 0, Vec::new());
    for place in order {
        for &damage in damages {
            // Each case is the same whichever others are run.
            let mut random = fastrand::Rng::with_seed(random.u64(..));
            let DamageSite { structure, path, offset, .. } = place;
            let damaged = damage.name();
            let what =
                format!("seed {seed}, {state}: {damaged} at {path}, byte {offset} ({structure})");
            number += 1;
            if !part.has(number, &what) {
                continue;
            }
            let count = count.entry((place.structure, damage)).or_default();
            if *count >= scale(1, u64::MAX) {
                continue;
            }
            let hurt = media.copy();
            let Some(struck) = target.strike(&hurt, place, damage, &mut random) else { continue };
            *count += 1;
            let (least, worst) = permitted(&struck, damage);
            let with = struck.iter().map(|other| other.structure);
            let with = with.filter(|other| other != structure).collect::<BTreeSet<_>>();
            let case = Case { volume, whole: media, damage, place, struck, what };
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let outcome = case.run(&hurt);
                assert!(
                    (least..=worst).contains(&outcome),
                    "{}: {outcome:?}, not {least:?} to {worst:?}; also struck: {with:?}",
                    case.what
                );
                outcome
            }));
            cases += 1;
            let Ok(outcome) = ended else {
                // The others are tried nevertheless: there are hours of them.
                failed.push(case.what);
                continue;
            };
            let row = table.entry((structure, damage)).or_default();
            *row.0.entry(outcome).or_default() += 1;
            row.1.extend(with);
        }
    }
    println!("seed {seed}, {state}: {cases} cases of {} places", all.len());
    assert!(failed.is_empty(), "{} of {cases} cases: {failed:#?}", failed.len());
}

/// The rows of the table in the documentation.
pub(super) fn shown(of: &str, table: &Table) -> String {
    let mut text = String::new();
    for ((structure, damage), (outcomes, with)) in table {
        let counts: Vec<String> = Outcome::ALL
            .iter()
            .map(|outcome| outcomes.get(outcome).map_or("0".to_owned(), u64::to_string))
            .collect();
        let mut with: Vec<&str> = with.iter().copied().collect();
        if *damage == Damage::Gone && !with.is_empty() {
            with = vec!["all else in the file"];
        }
        let row = format!(
            "| {of} | {structure} | {} | {} | {} |\n",
            damage.name(),
            counts.join(" | "),
            with.join(", ")
        );
        text.push_str(&row);
    }
    text
}

pub(super) fn name(engine: Engine) -> &'static str {
    match engine {
        Engine::Btree => "btree",
        Engine::Lsm => "lsm",
    }
}

/// That each of these structures was damaged so.
pub(super) fn assert_struck(table: &Table, damage: Damage, wanted: &[&[&str]], of: &str) {
    if !Selection::asked().is_all() {
        return;
    }
    let struck = table.keys().filter(|(_, by)| *by == damage);
    let struck: BTreeSet<&str> = struck.map(|(structure, _)| *structure).collect();
    let missing: Vec<_> =
        wanted.iter().copied().flatten().filter(|wanted| !struck.contains(*wanted)).collect();
    assert!(missing.is_empty(), "{of}, {}: not struck: {missing:?}", damage.name());
}

/// Strikes all of a volume.
#[expect(clippy::print_stdout, reason = "the seed comes first, and the table is documented")]
fn every_structure(engine: Engine, base: &Base) {
    let mut table = Table::new();
    for seed in 0..scale(1, 3) {
        println!("seed {seed}");
        let volume = made(seed + 10, base, false);
        let slow = scale(0, 1) == 1;
        campaign(
            (&volume, &volume.closed, "closed"),
            (seed, &Damage::ALL, &[]),
            &|_| true,
            &mut table,
        );
        // What the closed volume has not.
        let here = |place: &DamageSite| {
            slow || place.structure.contains("log") && place.path.starts_with("log/")
                || place.structure == "contents in an open segment"
        };
        campaign(
            (&volume, &volume.crashed, "crashed"),
            (seed, &Damage::ALL, &[]),
            &here,
            &mut table,
        );
    }
    print!("{}", shown(name(engine), &table));
    if !Selection::asked().is_all() {
        return;
    }
    for structure in structures(engine) {
        for damage in [Damage::Zeros, Damage::Flip, Damage::Cut, Damage::Gone] {
            let row = table.get(&(structure, damage));
            assert!(row.is_some(), "{structure} was not struck: {}", damage.name());
        }
    }
    let own = match engine {
        Engine::Btree => OTHER_BTREE,
        Engine::Lsm => OTHER_LSM,
    };
    assert_struck(&table, Damage::Other, &[own, OTHER_ANY], name(engine));
    for (damage, least) in [(Damage::Swap, 4), (Damage::Old, 2)] {
        let rows = table.keys().filter(|(_, of)| *of == damage).count();
        assert!(rows >= least, "{}: {rows} structures", damage.name());
    }
}

#[test]
fn every_kind_of_damage_of_a_b_tree_has_a_permitted_outcome() {
    every_structure(Engine::Btree, &Base::Engine(Engine::Btree));
}

#[test]
fn every_kind_of_damage_of_the_log_structured_engine_has_a_permitted_outcome() {
    every_structure(Engine::Lsm, &Base::Column);
}

/// A repair of a volume that opens read-only, because the log adds to what cannot be read, ended in
/// an error about the volume's records.
#[test]
fn a_volume_that_opens_read_only_is_reported_and_not_changed() {
    read_only(34, Engine::Lsm, "block of a run");
}

#[test]
fn a_b_tree_that_opens_read_only_is_reported_and_kept() {
    read_only(35, Engine::Btree, "leaf");
}

/// Damage of structures that are not the volume's own, where the log changes what is in them.
#[expect(clippy::print_stdout, reason = "the seed comes first")]
fn read_only(seed: u64, engine: Engine, structure: &str) {
    println!("seed {seed}");
    let volume = made(seed, &Base::Engine(engine), false);
    let files = |media: &Media| -> BTreeMap<String, Vec<u8>> {
        let names = media.files().into_iter().map(|(path, _)| path);
        // What a segment holds that waits for a name means nothing.
        let names = names.filter(|path| !path.starts_with("log/spare-"));
        names.map(|path| (path.clone(), media.read(&path))).collect()
    };
    let mut read_only = 0;
    for place in places(&volume.crashed) {
        if !place.structure.starts_with(structure) {
            continue;
        }
        let hurt = volume.crashed.copy();
        hurt.volume.flip_bit(&place.path, place.offset * 8 + 100);
        let opened = open(&hurt.copy()).ok().and_then(|opened| opened.fs().status().ok());
        let why = opened.and_then(|status| status.read_only);
        if !why.is_some_and(|why| READ_ONLY.iter().any(|words| why.contains(words))) {
            continue;
        }
        read_only += 1;
        let before = files(&hurt);
        let repaired = repair(&hurt, Repair::Do);
        assert!(!repaired.after.is_clean(), "{place:?}");
        assert!(repaired.after.problems.iter().any(|found| found.file == place.path), "{place:?}");
        if engine == Engine::Lsm {
            assert!(repaired.repaired.is_empty(), "{place:?}");
            let after = files(&hurt);
            let names = before.keys().chain(after.keys());
            let changed: BTreeSet<_> =
                names.filter(|name| before.get(*name) != after.get(*name)).collect();
            assert!(changed.is_empty(), "{place:?}: written: {changed:?}");
        } else {
            // Its counts are rebuilt, beside everything.
            let is_count =
                |found: &Problem| matches!(found.kind, ProblemKind::Count | ProblemKind::Lost);
            assert!(repaired.repaired.iter().all(is_count), "{place:?}: {:#?}", repaired.repaired);
        }
        // The disk gives again what it had.
        hurt.volume.flip_bit(&place.path, place.offset * 8 + 100);
        let seen = look(&hurt, &volume.right);
        assert!(seen.is_same(), "{place:?}: {seen:#?}");
    }
    assert!(read_only > 0, "none opens for reading only");
}

/// Records of scans, and the tree of one that was given up.
#[test]
fn damage_of_an_index_of_another_file_system_has_a_permitted_outcome() {
    for (engine, base) in
        [(Engine::Btree, Base::Engine(Engine::Btree)), (Engine::Lsm, Base::Column)]
    {
        let mut table = Table::new();
        let volume = made_index(60, &base);
        campaign(
            (&volume, &volume.closed, "an index"),
            (60, &Damage::ALL, &[]),
            &|_| true,
            &mut table,
        );
        print!("{}", shown(&format!("{}, an index", name(engine)), &table));
        assert!(
            table.len() > 30 || !Selection::asked().is_all(),
            "{engine:?}: {} kinds",
            table.len()
        );
    }
}

/// The log on a disk of its own, which is damaged, or gone as a whole.
#[test]
fn damage_of_a_log_elsewhere_costs_its_last_changes_at_most() {
    for (engine, base) in
        [(Engine::Btree, Base::Engine(Engine::Btree)), (Engine::Lsm, Base::Engine(Engine::Lsm))]
    {
        let mut table = Table::new();
        let volume = made(30, &base, true);
        let logs = |place: &DamageSite| place.path.starts_with("log/");
        for (media, state) in [(&volume.closed, "closed"), (&volume.crashed, "crashed")] {
            campaign((&volume, media, state), (30, &Damage::ALL, &[]), &logs, &mut table);
        }
        print!("{}", shown(&format!("{}, log elsewhere", name(engine)), &table));
        let struck = table.keys().filter(|(structure, _)| *structure == "record of the log");
        assert!(struck.count() >= 5 || !Selection::asked().is_all(), "{engine:?}");
        for (media, state) in [(&volume.closed, "closed"), (&volume.crashed, "crashed")] {
            let what = format!("{engine:?}, {state}: the disk of the log is empty");
            let hurt = media.copy();
            let log = hurt.log.as_ref().expect("it has one of its own");
            for (path, _) in log.files() {
                log.delete(&path);
            }
            let report = check(&hurt);
            let is_reported = |file: &str| file.starts_with("log");
            assert!(report.problems.iter().any(|found| is_reported(&found.file)), "{what}");
            let seen = look(&hurt, &volume.right);
            assert!(seen.looked.closed.is_some() && seen.looked.wrong.is_empty(), "{what}");
            assert!(seen.refused.iter().all(|refused| refused.why.contains("log")), "{what}");
            let repaired = repair(&hurt, Repair::DoAndCutLog);
            assert!(repaired.after.is_clean(), "{what}:\n{}", reported(&repaired.after));
            let mut subject = open(&hurt).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = dump(&mut subject).expect("it answers");
            let there = volume.states.iter().position(|state| state.differences(&found).is_empty());
            let last = volume.states.len() - 1;
            let wanted = if state == "closed" { last } else { 0 };
            assert_eq!(there, Some(wanted), "{what}");
        }
    }
}
