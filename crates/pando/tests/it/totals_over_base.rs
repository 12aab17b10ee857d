//! Compares totals with those of a walk of the mount, as root and as an ordinary user. Totals are
//! those of `pando du` and `pando summary`, and those that directories have as extended attributes.
//! `find_over_base` calls this, where an index has a base and the tree differs much from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};
use serde_json::Value;

use crate::other_users::Nobody;
use crate::totals_by_group::Names;
use crate::world::{Answer, NOBODY, World};

/// Directories that are compared each time, beside the first.
const DIRECTORIES: usize = 5;

/// The totals of a directory and everything below it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    files: u64,
    directories: u64,
    bytes: u64,
    allocated: u64,
    /// The last change, in seconds and nanoseconds.
    ctime: (i64, i64),
    /// Files and bytes of each owner.
    owners: BTreeMap<u32, (u64, u64)>,
}

/// The results of a walk: totals, the directories that it listed, and whether the first was one.
#[derive(Default)]
struct Walk {
    totals: Totals,
    listed: Vec<PathBuf>,
    inodes: BTreeSet<u64>,
    names: Names,
}

impl Walk {
    /// Walks with the rights of the thread.
    fn of(start: &Path) -> Walk {
        let mut walk = Walk::default();
        let own = start.symlink_metadata().unwrap();
        walk.totals.ctime = (own.ctime(), own.ctime_nsec());
        let mut waiting = vec![start.to_owned()];
        while let Some(directory) = waiting.pop() {
            let Some(rows) = rows(&directory) else { continue };
            for (path, row) in rows {
                if row.is_dir() {
                    waiting.push(path.clone());
                }
                walk.add(&row);
                if !row.is_dir() {
                    walk.names.add(path, row);
                }
            }
            walk.listed.push(directory);
        }
        walk
    }

    fn add(&mut self, row: &fs::Metadata) {
        let totals = &mut self.totals;
        totals.ctime = totals.ctime.max((row.ctime(), row.ctime_nsec()));
        if row.is_dir() {
            totals.directories += 1;
        } else if self.inodes.insert(row.ino()) {
            totals.files += 1;
            totals.bytes += row.len();
            totals.allocated += row.blocks() * 512;
            let owner = totals.owners.entry(row.uid()).or_default();
            *owner = (owner.0 + 1, owner.1 + row.len());
        }
    }
}

/// The contents of a directory; `None` if they are not visible: the directory must be readable and
/// searchable.
fn rows(directory: &Path) -> Option<Vec<(PathBuf, fs::Metadata)>> {
    let refused = |error: std::io::Error| {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{}", directory.display());
    };
    let searched = directory.join(".").symlink_metadata().map_err(refused);
    let listed = fs::read_dir(directory).map_err(refused);
    let (Ok(_), Ok(listed)) = (searched, listed) else { return None };
    let row = |path: PathBuf| path.symlink_metadata().map(|row| (path, row));
    Some(listed.map(|entry| row(entry.unwrap().path()).unwrap()).collect())
}

/// The caller: root, or an ordinary user.
struct Asker<'a> {
    world: &'a World,
    nobody: Option<&'a Nobody>,
}

impl Asker<'_> {
    /// Runs a function with the asker's rights.
    fn does<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        if self.nobody.is_none() {
            return body();
        }
        device::scope(|scope| {
            let thread = scope.spawn(move || {
                let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
                rustix::thread::set_thread_groups(&[]).unwrap();
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                body()
            });
            thread.join().unwrap()
        })
    }

    fn run(&self, words: &[&OsStr]) -> Answer {
        match self.nobody {
            None => self.world.run(words),
            Some(nobody) => nobody.run(words),
        }
    }

    /// A verb's answer for a directory, as JSON.
    fn reported(&self, words: &[&str], directory: &Path, place: &str) -> Value {
        let mut all: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        all.extend([directory.as_os_str(), OsStr::new("--json")]);
        let answer = self.run(&all);
        // For a user who may not look everywhere, du reports that the total is partial.
        let is_part = answer.err.contains("cannot be read, and");
        let code = i32::from(words[0] == "du" && self.nobody.is_some() && is_part);
        assert_eq!(answer.code, code, "{place}: {words:?}: {}", answer.err);
        serde_json::from_str(answer.out.trim_end()).unwrap()
    }

    /// Compares the totals of a directory; returns the results of the walk.
    fn compare(&self, start: &Path, place: &str) -> Walk {
        let walk = self.does(|| Walk::of(start));
        let (totals, who) = (&walk.totals, if self.nobody.is_some() { "nobody" } else { "root" });
        let place = format!("{place}, {}, as {who}", start.display());
        let numbers = ["files", "directories", "bytes", "allocated"];
        let wanted = [totals.files, totals.directories, totals.bytes, totals.allocated];
        let du = self.reported(&["du", "-s"], start, &place);
        let summary = self.reported(&["summary"], start, &place);
        for reported in [&du, &summary] {
            let given = numbers.map(|number| reported[number].as_u64().unwrap());
            assert_eq!(given, wanted, "{place}: {reported}");
        }
        let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
        let owners = summary["owners"].as_array().unwrap().iter().map(|one| {
            (number(one, "number") as u32, (number(one, "files"), number(one, "bytes")))
        });
        assert_eq!(owners.collect::<BTreeMap<_, _>>(), totals.owners, "{place}");
        let again = || self.reported(&["summary"], start, &place);
        walk.names.compare(start, &summary, &again, &place);
        // The kernel requires the right to read.
        if walk.listed.first().is_some_and(|first| first == start) {
            let (seconds, nanos) = totals.ctime;
            let wanted = [
                ("rfiles", totals.files.to_string()),
                ("rsubdirs", totals.directories.to_string()),
                ("rbytes", totals.bytes.to_string()),
                ("rctime", format!("{seconds}.{nanos:09}")),
            ];
            for (name, wanted) in wanted {
                let name = format!("user.pando.{name}");
                let value = self.does(|| {
                    let mut value = [0; 64];
                    let length = rustix::fs::getxattr(start, &name, &mut value).unwrap();
                    String::from_utf8(value[..length].to_vec()).unwrap()
                });
                assert_eq!(value, wanted, "{place}: {name}");
            }
        }
        walk
    }
}

/// Compares the totals of a tree and of some directories in it, as root and as an ordinary user.
pub(crate) fn compare(
    world: &World,
    nobody: Option<&Nobody>,
    root: &Path,
    random: &mut fastrand::Rng,
    place: &str,
) {
    for nobody in [None, nobody] {
        let asker = Asker { world, nobody };
        let walk = asker.compare(root, place);
        for _ in 0..DIRECTORIES.min(walk.listed.len()) {
            asker.compare(&walk.listed[random.usize(..walk.listed.len())], place);
        }
    }
}
