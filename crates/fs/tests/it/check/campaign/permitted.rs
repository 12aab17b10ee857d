//! What damage of each structure may come to.

use super::anatomy::Place;
use super::damage::Damage;

/// What a damage came to, from the least to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// Not found, and everything answers as before.
    Harmless,
    /// Found, and mended with nothing else changed.
    Mended,
    /// Found, not mended, and everything answers as before.
    Told,
    /// Found, and what is lost is named; the rest is as it was.
    Lost,
    /// Found, and the volume opens when the log is cut off, without its last changes.
    LogCut,
    /// Found, and nothing of the volume answers.
    Closed,
}

impl Outcome {
    pub(super) const ALL: [Outcome; 6] = [
        Outcome::Harmless,
        Outcome::Mended,
        Outcome::Told,
        Outcome::Lost,
        Outcome::LogCut,
        Outcome::Closed,
    ];
}

/// What all volumes have.
const ANY: &[&str] = &[
    "cluster of the index",
    "contents in a sealed segment",
    "contents in an open segment",
    "copy of the volume header",
    "footer of a segment",
    "header of a segment",
    "header of the log",
    "manifest of the index",
    "record of the log",
    "volume header",
];

/// What those of the B-tree have.
const BTREE: &[&str] = &[
    "directory of counts",
    "interior node",
    "leaf",
    "long value",
    "node above the top directory",
    "node of the catalog",
    "node of the volume's own tree",
    "page of counts",
    "superblock",
];

/// A base of the index, what a scan has written that did not end, what was removed.
pub(super) const OF_NONE: &str = "node of a tree that no subvolume has";

/// What those of the log-structured engine have.
const LSM: &[&str] = &[
    "block of a run",
    "block of a run above the top",
    "block of a value log",
    "copy of the manifest",
    "filters of a run",
    "filters of a run above the top",
    "head of a blob",
    "index of a run",
    "index of a run above the top",
    "manifest",
];

/// The structures that a campaign has to strike.
pub(super) fn structures(engine: fs::Engine) -> impl Iterator<Item = &'static str> {
    let own = match engine {
        fs::Engine::Btree => BTREE,
        fs::Engine::Lsm => LSM,
    };
    ANY.iter().chain(own).copied()
}

/// The least and the worst that may come of the damage of one structure.
fn of_one(structure: &str, damage: Damage) -> (Outcome, Outcome) {
    use Outcome::{Closed, Harmless, LogCut, Lost, Mended, Told};
    match (structure, damage) {
        // Opening makes the one that is not there, and there is nothing to tell.
        ("copy of the volume header" | "manifest" | "copy of the manifest", Damage::Gone) => {
            (Harmless, Harmless)
        }
        // An earlier one that is whole: the other is newer, and opening writes it anew.
        ("superblock", Damage::Old) => (Harmless, Mended),
        // Whoever reads it has another way to know.
        ("kept segment of the log", _) => (Harmless, Harmless),
        (
            "volume header"
            | "copy of the volume header"
            | "superblock"
            | "directory of counts"
            | "page of counts"
            | "manifest"
            | "copy of the manifest"
            | "head of a blob"
            | "header of a segment"
            | "footer of a segment"
            | "manifest of the index"
            | "cluster of the index",
            _,
        ) => (Mended, Mended),
        ("header of the log" | "record of the log", _) => (LogCut, LogCut),
        // Nobody is answered from it but searches.
        (OF_NONE, _) => (Told, Lost),
        // What was written later may hide what was in it.
        ("block of a run" | "index of a run" | "filters of a run" | "block of a value log", _) => {
            (Told, Lost)
        }
        ("leaf" | "interior node" | "long value", _) => (Lost, Lost),
        (structure, _) if structure.starts_with("contents") => (Lost, Lost),
        // Others: the one way to everything.
        _ => (Lost, Closed),
    }
}

/// What may come of a damage, by all that it struck: the least of it is as bad as the least that
/// comes of any, the worst as bad as the worst.
pub(super) fn permitted(struck: &[&Place], damage: Damage) -> (Outcome, Outcome) {
    let each = || struck.iter().map(|place| of_one(place.structure, damage));
    let least = each().map(|(least, _)| least).max();
    let worst = each().map(|(_, worst)| worst).max();
    (least.expect("something is struck"), worst.expect("something is struck"))
}
