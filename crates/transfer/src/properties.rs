//! Properties of directories in streams: limits of quotas, schedules, settings of trashes.
//!
//! They are the last records of a stream, and the receiver keeps them until the whole was
//! verified. What is set is found by three states: what the stream had of the base, what the
//! destination has, and what the stream has. What was changed at the destination stays, and is
//! reported. Everything takes effect when the destination is visible. A quota is set again after
//! each increment: snapshots that were received have no marks of quotas, so that a directory can
//! move in a stage from one quota to another.

use std::collections::{BTreeMap, BTreeSet};

use format::property::{self, Property};
use format::stream::{PROPERTIES_MAX, Record};
use fs::{Fs, FsResult, SnapshotInfo};
use inode::{Caller, FsError, Kind, NodeId};

use crate::error::{At, Error, Result};
use crate::job::Job;
use crate::out::Out;
use crate::walk::{Walk, join};

/// Most bytes of the paths of a stream's properties.
const PATHS_BYTES_MAX: usize = 16 << 20;
/// The directory of a trash.
const TRASH: &[u8] = b".trash";

/// What became of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PropertyChange {
    /// The directory, from the destination.
    pub path: Vec<u8>,
    /// `quota`, `schedule`, `trash`, or a kind that is not known here, with its number.
    pub kind: String,
    /// What was done.
    pub done: PropertyDone,
}

/// What was done with a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyDone {
    /// It has the value of the stream.
    Set,
    /// It was removed.
    Removed,
    /// Nothing, for this reason.
    LeftOut(String),
}

/// Directory, by its number, and kind.
type Key = (u64, u8);

/// Properties with the paths of their directories.
type Found = BTreeMap<Key, (Vec<u8>, Property)>;

/// Sends the properties of all directories of a snapshot.
pub(crate) fn send(job: &Job<'_>, root: NodeId, out: &mut Out<'_>) -> Result<()> {
    let found = below(job.fs, job.caller, root)?;
    if found.len() > PROPERTIES_MAX {
        return Err(FsError::LimitReached(
            "a stream has at most 10,000 properties: send it with --no-properties",
        ))
        .at(b"");
    }
    let mut sorted: Vec<_> = found.into_values().collect();
    sorted.sort_by(|a, b| (&a.0, a.1.kind()).cmp(&(&b.0, b.1.kind())));
    out.push(&Record::Properties { count: sorted.len() })?;
    for (path, property) in &sorted {
        let (kind, value) = (property.kind(), property.encode());
        out.push(&Record::Property { path, kind, value: &value })?;
    }
    Ok(())
}

/// The properties of a directory and of those below it that the caller reaches.
fn below(fs: &Fs, caller: &Caller, top: NodeId) -> Result<Found> {
    let mut walk = Walk::new(fs, caller, top);
    let mut found = Found::new();
    for one in fs.properties_below(top)? {
        // A path may be that of another state.
        let Ok(held) = walk.entry(&one.path) else { continue };
        let is_it = held.node().ino().0 == one.ino && held.entry.attr.kind == Kind::Directory;
        let is_trash = one.property.kind() == property::TRASH;
        // Setting a trash would make the directory.
        if is_it && (!is_trash || walk.entry(&join(&one.path, TRASH)).is_ok()) {
            found.insert((one.ino, one.property.kind()), (one.path, one.property));
        }
    }
    Ok(found)
}

/// The paths of the trashes of a directory, and of what is in them: their contents expire.
pub(crate) fn trashes(fs: &Fs, caller: &Caller, top: NodeId) -> Result<BTreeSet<Vec<u8>>> {
    let all = below(fs, caller, top)?.into_values();
    let of_trash = all.filter(|(_, property)| property.kind() == property::TRASH);
    Ok(of_trash.map(|(path, _)| join(&path, TRASH)).collect())
}

/// The properties that a stream has.
pub(crate) struct Carried {
    count: usize,
    bytes: usize,
    list: Vec<One>,
    known: BTreeSet<Key>,
}

struct One {
    path: Vec<u8>,
    ino: u64,
    kind: u8,
    /// `None`: the kind is not known.
    property: Option<Property>,
}

impl Carried {
    /// None of so many yet.
    pub(crate) fn new(count: usize) -> Carried {
        Carried { count, bytes: 0, list: Vec::new(), known: BTreeSet::new() }
    }

    /// Takes one of a directory with a number.
    pub(crate) fn take(
        &mut self,
        (path, ino): (&[u8], u64),
        (kind, value): (u8, &[u8]),
    ) -> Result<()> {
        self.bytes += path.len();
        if self.list.len() == self.count || self.bytes > PATHS_BYTES_MAX {
            return Err(Error::refused("the stream has more properties than it may", ""));
        }
        if !self.known.insert((ino, kind)) {
            return Err(Error::refused("the stream has a property twice", ""));
        }
        let property = Property::decode(kind, value)?;
        self.list.push(One { path: path.to_vec(), ino, kind, property });
        Ok(())
    }

    /// Whether all are there.
    pub(crate) fn is_whole(&self) -> bool {
        self.list.len() == self.count
    }
}

/// What a destination is to have.
pub(crate) struct Plan {
    /// Whether the stream changes anything.
    applies: bool,
    /// What the destination had, before it was replaced.
    before: Found,
    /// What it is to have.
    wanted: Found,
    /// What the stream has, for the next increment.
    noted: BTreeMap<Key, Property>,
    left_out: Vec<(Key, Vec<u8>, String)>,
    failed: BTreeSet<Key>,
}

/// How a property of a stream is judged.
pub(crate) struct Terms {
    /// Whether what was changed at the destination is given up.
    pub(crate) force: bool,
    /// Whether the time of a schedule can be read.
    pub(crate) check_cron: Option<fn(&str) -> bool>,
}

impl Plan {
    /// Decides what a destination is to have. `given`: what the stream has; `None`: it is not
    /// applied. `there`: the destination and the base, of an increment.
    pub(crate) fn new(
        (fs, caller): (&Fs, &Caller),
        given: Option<&Carried>,
        there: Option<(NodeId, &SnapshotInfo)>,
        terms: Option<&Terms>,
    ) -> Result<Plan> {
        let carried = terms.and(given).zip(terms);
        let (mut before, mut base) = (Found::new(), BTreeMap::new());
        if let Some((present, of)) = there {
            before = below(fs, caller, present)?;
            let noted = fs.received_properties(of.subvol)?;
            base.extend(noted.into_iter().map(|(ino, one)| ((ino, one.kind()), one)));
        }
        let mut plan = Plan {
            applies: carried.is_some(),
            wanted: before.clone(),
            before,
            noted: BTreeMap::new(),
            left_out: Vec::new(),
            failed: BTreeSet::new(),
        };
        let Some((given, terms)) = carried else { return Ok(plan) };
        let mut theirs = Found::new();
        for One { path, ino, kind, property } in &given.list {
            let why = match property {
                None => "this kind of property is not known here",
                Some(Property::Schedule(schedule))
                    if terms.check_cron.is_some_and(|is_one| !is_one(&schedule.cron)) =>
                {
                    "its time never comes, or cannot be read"
                }
                Some(property) => {
                    theirs.insert((*ino, *kind), (path.clone(), property.clone()));
                    continue;
                }
            };
            plan.left_out.push(((*ino, *kind), path.clone(), why.to_owned()));
        }
        let keys = base.keys().chain(theirs.keys()).copied();
        for key in keys.collect::<BTreeSet<_>>() {
            plan.decide(key, base.get(&key), theirs.get(&key), terms.force);
        }
        plan.noted = theirs.into_iter().map(|(key, (_, property))| (key, property)).collect();
        Ok(plan)
    }

    fn decide(
        &mut self,
        key: Key,
        base: Option<&Property>,
        theirs: Option<&(Vec<u8>, Property)>,
        force: bool,
    ) {
        let ours = self.before.get(&key);
        let (is, to) = (ours.map(|(_, one)| one), theirs.map(|(_, one)| one));
        if is == to {
            // The directory may have another path now.
            if let Some(theirs) = theirs {
                self.wanted.insert(key, theirs.clone());
            }
        } else if is == base || force {
            match theirs {
                Some(theirs) => self.wanted.insert(key, theirs.clone()),
                None => self.wanted.remove(&key),
            };
        } else {
            let path = theirs.or(ours).map(|(path, _)| path.clone()).unwrap_or_default();
            self.left_out.push((key, path, "it was changed here since the base".to_owned()));
        }
    }

    /// Gives what is visible now its properties, and notes them with the snapshot. What cannot be
    /// set is reported.
    pub(crate) fn apply(
        mut self,
        fs: &Fs,
        caller: &Caller,
        (destination, snapshot): (NodeId, &SnapshotInfo),
    ) -> Result<Vec<PropertyChange>> {
        let now = below(fs, caller, destination)?;
        let mut walk = Walk::new(fs, caller, destination);
        let keys: BTreeSet<Key> = now.keys().chain(self.wanted.keys()).copied().collect();
        let mut changes = Vec::new();
        for key in keys {
            let (is, to) = (now.get(&key), self.wanted.get(&key));
            let Some((path, property)) = to.or(is) else { continue };
            let path = match is {
                Some((path, _)) => path.clone(),
                None => fs.path_below(destination, key.0)?.unwrap_or_else(|| path.clone()),
            };
            let is_same = is.map(|(_, one)| one) == to.map(|(_, one)| one);
            let is_removed = to.is_none();
            if !is_same && !self.failed.contains(&key) {
                let done = walk.entry(&path).and_then(|held| {
                    if held.node().ino().0 != key.0 || held.entry.attr.kind != Kind::Directory {
                        return Err(FsError::NotFound).at(&path);
                    }
                    change(fs, caller, held.node(), (property, is_removed)).at(&path)
                });
                if let Err(error) = done {
                    // Where the destination had it, and the directory went, nobody misses it.
                    let is_gone = matches!(error, Error::At { error: FsError::NotFound, .. });
                    if !is_gone || self.noted.contains_key(&key) {
                        self.left_out.push((key, path, error.to_string()));
                        self.failed.insert(key);
                    }
                    continue;
                }
            }
            let before = self.before.get(&key).map(|(_, one)| one);
            if before != to.map(|(_, one)| one) && !self.failed.contains(&key) {
                let done = if is_removed { PropertyDone::Removed } else { PropertyDone::Set };
                changes.push(PropertyChange { path, kind: kind_name(key.1), done });
            }
        }
        if self.applies {
            let failed = &self.failed;
            let noted = self.noted.into_iter().filter(|(key, _)| !failed.contains(key));
            let noted: Vec<_> = noted.map(|((ino, _), one)| (ino, one)).collect();
            if !noted.is_empty() {
                fs.note_received_properties(caller, snapshot.subvol, &noted)?;
            }
        }
        changes.extend(self.left_out.into_iter().map(|((_, kind), path, why)| PropertyChange {
            path,
            kind: kind_name(kind),
            done: PropertyDone::LeftOut(why),
        }));
        Ok(changes)
    }
}

fn change(
    fs: &Fs,
    caller: &Caller,
    node: NodeId,
    (property, is_removed): (&Property, bool),
) -> FsResult<()> {
    if is_removed {
        fs.property_remove(caller, node, property)
    } else {
        fs.property_set(caller, node, property)
    }
}

fn kind_name(kind: u8) -> String {
    match kind {
        property::QUOTA => "quota".to_owned(),
        property::SCHEDULE => "schedule".to_owned(),
        property::TRASH => "trash".to_owned(),
        other => format!("property {other}"),
    }
}
