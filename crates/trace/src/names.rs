//! Which name points to which inode at a place of a trace: as the events before it show.

use std::collections::BTreeMap;

use format::trace::{Call, Ended, Event, Renaming};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameIn {
    /// The directory.
    pub parent: u64,
    /// The name.
    pub name: Box<[u8]>,
}

impl NameIn {
    /// A name in a directory.
    pub fn new(parent: u64, name: &[u8]) -> NameIn {
        NameIn { parent, name: name.into() }
    }
}

/// The names at a place of a trace. A trace that somebody made up may give a directory two names,
/// or put it below itself: walks over parents must be bounded.
#[derive(Debug, Default)]
pub struct Names {
    nodes: BTreeMap<NameIn, u64>,
    places: BTreeMap<u64, Vec<NameIn>>,
}

/// The inodes that an event takes a name from, or gives another one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Touched {
    /// The inode of the first name: removed or moved.
    pub from: Option<u64>,
    /// The inode of the second name: replaced or swapped.
    pub to: Option<u64>,
}

/// Whether a name is one that a directory can have: not `.` and `..`, which the system answers.
pub fn is_entry(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && name.len() <= 255 && !name.contains(&b'/')
}

impl Names {
    /// The inode of a name.
    pub fn node(&self, place: &NameIn) -> Option<u64> {
        self.nodes.get(place).copied()
    }

    /// The names of an inode, the oldest first.
    pub fn places(&self, node: u64) -> &[NameIn] {
        self.places.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Gives an inode a name, which it may have already.
    pub fn insert(&mut self, place: NameIn, node: u64) {
        let before = self.nodes.insert(place.clone(), node);
        if before == Some(node) {
            return;
        }
        if let Some(before) = before {
            self.forget(before, &place);
        }
        self.places.entry(node).or_default().push(place);
    }

    /// Removes a name, and returns the inode that it pointed to.
    pub fn remove(&mut self, place: &NameIn) -> Option<u64> {
        let node = self.nodes.remove(place)?;
        self.forget(node, place);
        Some(node)
    }

    fn forget(&mut self, node: u64, place: &NameIn) {
        let Some(places) = self.places.get_mut(&node) else { return };
        places.retain(|other| other != place);
        if places.is_empty() {
            self.places.remove(&node);
        }
    }

    /// The inodes whose names an event changes, before it is applied.
    pub fn touched(&self, event: &Event<'_>) -> Touched {
        let from = || self.node(&NameIn::new(event.node, event.name));
        let to = || self.node(&NameIn::new(event.other, event.other_name));
        match event.call {
            Call::Unlink | Call::Rmdir => Touched { from: from(), to: None },
            Call::Rename => Touched { from: from(), to: to() },
            _ => Touched::default(),
        }
    }

    /// Applies an event.
    pub fn apply(&mut self, event: &Event<'_>) {
        for entry in event.entries.iter().filter(|entry| is_entry(entry.name)) {
            self.insert(NameIn::new(event.node, entry.name), entry.shown.node);
        }
        let at = || NameIn::new(event.node, event.name);
        match (event.call, event.ended) {
            (Call::Lookup, Ended::NotFound) => drop(self.remove(&at())),
            (_, ended) if ended != Ended::Done => {}
            (Call::Lookup | Call::Mknod | Call::Mkdir | Call::Symlink | Call::Link, _)
                if is_entry(event.name) =>
            {
                self.insert(at(), event.found.node);
            }
            (Call::Unlink | Call::Rmdir, _) => drop(self.remove(&at())),
            (Call::Rename, _) => {
                let to = NameIn::new(event.other, event.other_name);
                let (moved, there) = (self.remove(&at()), self.remove(&to));
                if let Some(moved) = moved {
                    self.insert(to, moved);
                }
                if let (Renaming::EXCHANGE, Some(there)) = (event.how, there) {
                    self.insert(at(), there);
                }
            }
            _ => {}
        }
    }
}
