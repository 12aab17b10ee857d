//! The permitted effects of damage of each structure.

use super::anatomy::DamageSite;
use super::damage::Damage;

/// The outcome of a damage, from the least to the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// Not found, and everything answers as before.
    Harmless,
    /// Found, and repaired with nothing else changed.
    Repaired,
    /// Found, not repaired, and everything answers as before.
    Reported,
    /// Found, and what is lost is named; the rest is as it was.
    Lost,
    /// Found, and the volume opens when the log is truncated, without its last changes.
    LogCut,
    /// Found, and nothing of the volume answers.
    Closed,
}

impl Outcome {
    pub(super) const ALL: [Outcome; 6] = [
        Outcome::Harmless,
        Outcome::Repaired,
        Outcome::Reported,
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
    "node of the copies of its records",
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
    "run of the copies of its records",
    "run of the volume's own tree",
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
    use Outcome::{Closed, Harmless, LogCut, Lost, Repaired, Reported};
    match (structure, damage) {
        // Opening creates the missing one, and there is nothing to report.
        ("copy of the volume header" | "manifest" | "copy of the manifest", Damage::Gone) => {
            (Harmless, Harmless)
        }
        // An earlier one that is whole: the other is newer, and opening writes it again.
        ("superblock", Damage::Old) => (Harmless, Repaired),
        // Its readers have another source.
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
            | "cluster of the index"
            // There are two of each, but those that only count, which are counted again.
            | "node of the volume's own tree"
            | "node of the copies of its records"
            | "run of the volume's own tree"
            | "run of the copies of its records"
            | "value log of the volume's own tree"
            | "value log of the copies of its records",
            _,
        ) => match damage {
            // They are rebuilt in another file; that this one is short is reported as long as
            // anything else in it is used.
            Damage::Cut => (Repaired, Reported),
            _ => (Repaired, Repaired),
        },
        // Each is stored twice.
        ("node of the catalog", _) if !matches!(damage, Damage::Cut | Damage::Gone) => {
            (Repaired, Repaired)
        }
        // Its content is known without it, but where the records are cut off with it.
        ("header of the log", Damage::Zeros | Damage::Flip) => (Repaired, Repaired),
        ("header of the log" | "record of the log", _) => (LogCut, LogCut),
        // Only searches are answered from it; and from one of the leaves nothing is.
        (OF_NONE | "leaf", _) => (Reported, Lost),
        // What was written later may hide what was in it.
        ("block of a run" | "index of a run" | "filters of a run" | "block of a value log", _) => {
            (Reported, Lost)
        }
        ("interior node" | "long value", _) => (Lost, Lost),
        (structure, _) if structure.starts_with("contents") => (Lost, Lost),
        // Others: the one way to everything.
        _ => (Lost, Closed),
    }
}

/// The outcomes that a damage may have, by all that it struck. The least bad one is the worst of
/// the structures' least bad ones; the worst is the worst of any.
pub(super) fn permitted(struck: &[&DamageSite], damage: Damage) -> (Outcome, Outcome) {
    let each = || struck.iter().map(|place| of_one(place.structure, damage));
    let least = each().map(|(least, _)| least).max();
    let worst = each().map(|(_, worst)| worst).max();
    let (least, worst) = (least.expect("something is struck"), worst.expect("something is struck"));
    // With the file both of the volume's own records may go.
    let is_struck = |of: &str| struck.iter().any(|place| place.structure.ends_with(of));
    let are_both = is_struck("the volume's own tree") && is_struck("the copies of its records");
    // The log is truncated, and what it adds to does not read either.
    let are_log_and_more = damage == Damage::Other
        && struck.iter().any(|place| place.path.starts_with("log/"))
        && struck.iter().any(|place| !place.path.starts_with("log/"));
    (least, if are_both || are_log_and_more { Outcome::Closed } else { worst })
}
