//! The tree that a trace expects: what was there when it began, as far as its events show.
//!
//! A name was there if an event finds, lists or removes it before any event creates it. Attributes,
//! targets and extended attributes are those of the first event that shows them, unless an event
//! changed them before. Memory is in proportion to the names and inodes of the trace.

use std::collections::{BTreeMap, BTreeSet};

use format::trace::{Call, Ended, Event, Renaming, Setting, Shown};

use crate::names::{NameIn, Names, is_entry};

/// Numbers of inodes that the trace does not show begin here.
const UNSEEN: u64 = 1 << 63;
/// Longest file that reads alone ask for: a made-up trace may read anywhere.
const READ_TO_MAX: u64 = 1 << 40;

/// An inode that was there when the trace began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placed {
    /// Its attributes; some are defaults if `is_shown` is false.
    pub shown: Shown,
    /// Whether the trace shows its attributes.
    pub is_shown: bool,
    /// Its names.
    pub names: Vec<NameIn>,
    /// The target, of a symbolic link that was read.
    pub target: Option<Box<[u8]>>,
    /// Names and lengths of extended attributes that were read.
    pub xattrs: Vec<(Box<[u8]>, u64)>,
}

/// How often a replay has a name: met, by place, by inode, expected, again in the second pass, and
/// with the directory that it is.
const COPIES: usize = 7;
/// What a name takes beside its bytes.
const NAME_BYTES: usize = 64;
/// What an inode takes, with the directory or file that is kept open for it.
const INODE_BYTES: usize = 256;

/// What a trace found, and what a replay must know before it begins.
#[derive(Debug, Default)]
pub struct Expected {
    nodes: BTreeMap<u64, Placed>,
    /// Inodes that are used after their last name is gone: a replay must have them open by then.
    held: BTreeSet<u64>,
    names: Names,
    /// Names that some event found, created, removed, or did not find.
    met: BTreeSet<NameIn>,
    created: BTreeSet<u64>,
    /// Inodes without a name.
    nameless: BTreeSet<u64>,
    /// Inodes whose attributes or length an event changed.
    changed: BTreeSet<u64>,
    xattrs_met: BTreeSet<(u64, Box<[u8]>)>,
    /// Bytes of the names in `met` and `xattrs_met`.
    name_bytes: usize,
    unseen: u64,
}

impl Expected {
    /// The inodes that were there, by number.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, &Placed)> {
        self.nodes.iter().map(|(number, placed)| (*number, placed))
    }

    /// Whether an inode is used after its last name is gone.
    pub fn is_held(&self, node: u64) -> bool {
        self.held.contains(&node)
    }

    /// An upper estimate of what a replay keeps in memory for the events so far, from the names and
    /// inodes in them.
    pub fn memory_bytes(&self) -> usize {
        let sets = [&self.created, &self.nameless, &self.held, &self.changed];
        let inodes = self.nodes.len() + sets.iter().map(|set| set.len()).sum::<usize>();
        let names = self.met.len() + self.xattrs_met.len();
        COPIES * (self.name_bytes + names * NAME_BYTES) + inodes * INODE_BYTES
    }

    /// Takes the next event.
    pub fn add(&mut self, event: &Event<'_>) {
        for node in [event.node, event.other] {
            if self.nameless.contains(&node) {
                self.held.insert(node);
            }
        }
        self.meet(event);
        self.learn(event);
        let touched = self.names.touched(event);
        self.names.apply(event);
        if event.ended == Ended::Done {
            for node in [touched.from, touched.to].into_iter().flatten() {
                if self.names.places(node).is_empty() {
                    self.nameless.insert(node);
                }
            }
        }
    }

    /// Whether no event met a name before.
    fn note(&mut self, place: NameIn) -> bool {
        let bytes = place.name.len();
        let is_first = self.met.insert(place);
        self.name_bytes += if is_first { bytes } else { 0 };
        is_first
    }

    /// Learns which names were there.
    fn meet(&mut self, event: &Event<'_>) {
        for entry in event.entries.iter().filter(|entry| is_entry(entry.name)) {
            self.meet_name(NameIn::new(event.node, entry.name), Some(&entry.shown));
            if entry.with_attributes {
                self.attributes(&entry.shown);
            }
        }
        let place = || NameIn::new(event.node, event.name);
        match (event.call, event.ended) {
            (Call::Lookup, Ended::Done) if is_entry(event.name) => {
                self.meet_name(place(), Some(&event.found));
                self.attributes(&event.found);
            }
            (Call::Lookup | Call::Unlink | Call::Rmdir, Ended::NotFound) => {
                self.note(place());
            }
            (Call::Mknod | Call::Mkdir | Call::Symlink, Ended::Done) => {
                self.note(place());
                self.created.insert(event.found.node);
            }
            (Call::Tmpfile, Ended::Done) => {
                self.created.insert(event.found.node);
                self.nameless.insert(event.found.node);
            }
            (Call::Link, Ended::Done) => {
                self.note(place());
                self.nameless.remove(&event.other);
            }
            (Call::Mknod | Call::Mkdir | Call::Symlink | Call::Link, Ended::Exists)
            | (Call::Unlink, Ended::Done) => self.meet_name(place(), None),
            (Call::Rmdir, Ended::Done) => {
                let directory = Shown { kind: 1, mode: 0o755, ..Shown::default() };
                self.meet_name(place(), Some(&directory));
            }
            (Call::Rename, Ended::Done) => {
                self.meet_name(place(), None);
                let to = NameIn::new(event.other, event.other_name);
                if event.how == Renaming::EXCHANGE {
                    self.meet_name(to, None);
                } else {
                    self.note(to);
                }
            }
            _ => {}
        }
    }

    /// A name points to an inode. If no event met it before, it was there when the trace began.
    fn meet_name(&mut self, place: NameIn, shown: Option<&Shown>) {
        if !self.note(place.clone()) || !is_entry(&place.name) {
            return;
        }
        let mut shown = shown.copied().unwrap_or_default();
        if shown.node == 0 {
            shown.node = UNSEEN + self.unseen;
            self.unseen += 1;
        }
        if self.created.contains(&shown.node) {
            return;
        }
        let bare = || Placed {
            shown: Shown { node: shown.node, kind: shown.kind, ..Shown::default() },
            ..Placed::default()
        };
        let placed = self.nodes.entry(shown.node).or_insert_with(bare);
        placed.names.push(place.clone());
        self.names.insert(place, shown.node);
    }

    fn attributes(&mut self, shown: &Shown) {
        if self.changed.contains(&shown.node) {
            return;
        }
        if let Some(placed) = self.nodes.get_mut(&shown.node).filter(|placed| !placed.is_shown) {
            (placed.shown, placed.is_shown) = (*shown, true);
        }
    }

    /// Learns attributes, lengths, targets and extended attributes.
    fn learn(&mut self, event: &Event<'_>) {
        let done = event.ended == Ended::Done;
        match event.call {
            Call::Getattr if done => self.attributes(&event.found),
            Call::Setattr | Call::Write | Call::Fallocate => {
                if done && event.call == Call::Setattr {
                    // What it does not set shows how it was.
                    let settings = Setting::MODE | Setting::UID | Setting::GID | Setting::SIZE;
                    if event.how & settings == 0 {
                        self.attributes(&event.found);
                    }
                }
                self.changed.insert(event.node);
            }
            Call::CopyRange => drop(self.changed.insert(event.other)),
            Call::Read if done && !self.changed.contains(&event.node) => {
                let end = event.offset.saturating_add(event.returned).min(READ_TO_MAX);
                if let Some(placed) = self.nodes.get_mut(&event.node)
                    && !placed.is_shown
                {
                    placed.shown.size = placed.shown.size.max(end);
                }
            }
            Call::Readlink if done => {
                if let Some(placed) = self.nodes.get_mut(&event.node) {
                    placed.target.get_or_insert_with(|| event.other_name.into());
                }
            }
            Call::Getxattr | Call::Setxattr | Call::Removexattr => {
                let is_first = self.xattrs_met.insert((event.node, event.name.into()));
                self.name_bytes += if is_first { event.name.len() } else { 0 };
                if is_first
                    && done
                    && event.call != Call::Setxattr
                    && let Some(placed) = self.nodes.get_mut(&event.node)
                {
                    placed.xattrs.push((event.name.into(), event.returned));
                }
            }
            _ => {}
        }
    }
}
