//! Compares `pando summary` by extension, size, age and directory with the counts of a walk of the
//! mount (called by `totals_over_base`). An inode with several names counts once, under any of
//! them: such numbers have a minimum and a maximum.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

const DAY: i64 = 86_400;
/// Default number of directories in a summary.
const TOP: usize = 10;

/// Files and bytes.
type Sums = (u64, u64);

/// One name of an inode that is not a directory.
struct Name {
    path: PathBuf,
    row: fs::Metadata,
}

/// Names found.
#[derive(Default)]
pub(crate) struct Names {
    /// By inode.
    names: BTreeMap<u64, Vec<Name>>,
}

/// The bounds of the sums of a group.
#[derive(Debug, Default, Clone, Copy)]
struct Bounds {
    least: Sums,
    most: Sums,
}

/// The day of UTC.
#[expect(clippy::disallowed_methods, reason = "the time that the owner sees")]
/// Seconds since 1970.
fn seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn today() -> i64 {
    seconds() / DAY
}

fn size_class(size: u64) -> &'static str {
    match size {
        0 => "empty",
        1..4096 => "below 4 KiB",
        4096..65_536 => "4 KiB to 64 KiB",
        65_536..1_048_576 => "64 KiB to 1 MiB",
        1_048_576..16_777_216 => "1 MiB to 16 MiB",
        16_777_216..268_435_456 => "16 MiB to 256 MiB",
        268_435_456..4_294_967_296 => "256 MiB to 4 GiB",
        _ => "4 GiB and more",
    }
}

fn age_class(days: i64) -> &'static str {
    match days {
        ..0 => "in the future",
        0 => "today (UTC)",
        1..=7 => "1 to 7 days",
        8..=30 => "8 to 30 days",
        31..=90 => "31 to 90 days",
        91..=365 => "91 to 365 days",
        366..=1095 => "1 to 3 years",
        _ => "more than 3 years",
    }
}

/// What people regard as the extension of a name.
fn extension(path: &Path) -> String {
    let name = path.file_name().unwrap().as_bytes();
    let Some(dot) = (1..name.len()).rev().find(|at| name[*at] == b'.') else {
        return String::new();
    };
    let rest = &name[dot + 1..];
    let is_plain =
        |byte: &u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'+');
    if rest.len() > 12 || !rest.iter().all(is_plain) {
        return String::new();
    }
    String::from_utf8(rest.to_ascii_lowercase()).unwrap()
}

fn sums(value: &Value) -> Sums {
    (value["files"].as_u64().unwrap(), value["bytes"].as_u64().unwrap())
}

/// The sums of a list by names, without empty ones.
fn by_name(list: &Value) -> BTreeMap<String, Sums> {
    let named = |one: &Value| (one["name"].as_str().unwrap().to_owned(), sums(one));
    let all = list.as_array().unwrap().iter().map(named);
    all.filter(|(_, (files, _))| *files > 0).collect()
}

impl Names {
    pub(crate) fn add(&mut self, path: PathBuf, row: fs::Metadata) {
        self.names.entry(row.ino()).or_default().push(Name { path, row });
    }

    /// Sums by a class that all names of an inode share.
    fn by_class(&self, class: impl Fn(&fs::Metadata) -> &'static str) -> BTreeMap<String, Sums> {
        let mut all: BTreeMap<String, Sums> = BTreeMap::new();
        for names in self.names.values() {
            let row = &names[0].row;
            let (files, bytes) = all.entry(class(row).to_owned()).or_default();
            (*files, *bytes) = (*files + 1, *bytes + row.len());
        }
        all
    }

    /// The same by a key that differs from name to name.
    fn by<K: Ord>(&self, key: impl Fn(&Path) -> K) -> BTreeMap<K, Bounds> {
        let mut all: BTreeMap<K, Bounds> = BTreeMap::new();
        for names in self.names.values() {
            let bytes = names[0].row.len();
            let mut keys: Vec<K> = names.iter().map(|name| key(&name.path)).collect();
            keys.sort_unstable();
            keys.dedup();
            let is_sure = keys.len() == 1;
            for key in keys {
                let Bounds { least, most } = all.entry(key).or_default();
                *most = (most.0 + 1, most.1 + bytes);
                if is_sure {
                    *least = (least.0 + 1, least.1 + bytes);
                }
            }
        }
        all
    }

    /// Compares a summary of a directory, as JSON; `again` requests it once more.
    pub(crate) fn compare(
        &self,
        start: &Path,
        reported: &Value,
        again: &dyn Fn() -> Value,
        place: &str,
    ) {
        assert_eq!(
            by_name(&reported["sizes"]),
            self.by_class(|row| size_class(row.len())),
            "{place}"
        );
        let mut reported = reported.clone();
        let wanted = |day: i64| self.by_class(|row| age_class(day - row.mtime().div_euclid(DAY)));
        let mut ages = (by_name(&reported["ages"]), wanted(today()));
        // A day may have ended since the summary was made, or while it is made again.
        while ages.0 != ages.1 && seconds() % DAY < 600 {
            let day = today();
            reported = again();
            ages = (by_name(&reported["ages"]), wanted(day));
            if today() == day {
                break;
            }
        }
        assert_eq!(ages.0, ages.1, "{place}: {reported}");
        self.extensions(&reported, place);
        self.largest(start, &reported, place);
    }

    fn extensions(&self, reported: &Value, place: &str) {
        let given = by_name(&reported["extensions"]);
        let wanted = self.by(extension);
        let mut shown = (0, 0);
        for (name, sums) in &given {
            let Bounds { least, most } = wanted.get(name).copied().unwrap_or_default();
            let is_within =
                (least.0..=most.0).contains(&sums.0) && (least.1..=most.1).contains(&sums.1);
            assert!(is_within, "{place}: .{name}: {sums:?} of {least:?} to {most:?}");
            shown = (shown.0 + sums.0, shown.1 + sums.1);
        }
        let in_all = reported["extensions_in_all"].as_u64().unwrap() as usize;
        assert_eq!(given.len(), in_all.min(TOP), "{place}: {reported}");
        assert!(
            (wanted.values().filter(|of| of.least.0 > 0).count()..=wanted.len()).contains(&in_all)
        );
        if in_all <= TOP {
            assert_eq!(shown, sums(reported), "{place}: {reported}");
        }
        let order: Vec<u64> =
            reported["extensions"].as_array().unwrap().iter().map(|one| sums(one).1).collect();
        assert!(order.is_sorted_by(|one, next| one >= next), "{place}: {reported}");
        let last = order.last().copied().unwrap_or_default();
        for (name, of) in wanted.iter().filter(|(name, _)| !given.contains_key(*name)) {
            assert!(
                of.least.1 <= last && in_all >= TOP || of.least.0 == 0,
                "{place}: .{name}: {reported}"
            );
        }
    }

    fn largest(&self, start: &Path, reported: &Value, place: &str) {
        let below = |path: &Path| path.parent().unwrap().strip_prefix(start).unwrap().to_owned();
        let wanted = self.by(below);
        let list = reported["largest_directories"].as_array().unwrap();
        let mut given = Vec::new();
        for one in list {
            let path = match one["name_hex"].as_str() {
                Some(hex) => {
                    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
                    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
                }
                None => PathBuf::from(one["name"].as_str().unwrap()),
            };
            let path = if path == Path::new(".") { PathBuf::new() } else { path };
            let Bounds { least, most } = wanted.get(&path).copied().unwrap_or_default();
            let (files, bytes) = sums(one);
            let is_within =
                (least.0..=most.0).contains(&files) && (least.1..=most.1).contains(&bytes);
            assert!(is_within, "{place}: {}: {one} of {least:?} to {most:?}", path.display());
            given.push((path, bytes));
        }
        assert!(given.is_sorted_by(|one, next| one.1 >= next.1), "{place}: {reported}");
        assert!(given.len() <= TOP, "{place}: {reported}");
        let last = given.last().map_or(0, |(_, bytes)| *bytes);
        for (path, of) in &wanted {
            let is_reported = given.iter().any(|(one, _)| one == path);
            let is_less = given.len() == TOP && of.least.1 <= last || of.least.0 == 0;
            assert!(is_reported || is_less, "{place}: {}: {of:?}: {reported}", path.display());
        }
    }
}
