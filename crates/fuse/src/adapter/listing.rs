//! Directory listings, with `.` and `..`, which the namespace omits.
//!
//! If the kernel asks for attributes, it also accepts entries without them.
//!
//! Positions: 1 is after `.`, 2 after `..`, those above are the namespace's own cookies.

use inode::{Caller, Kind, NodeId};
use vfs::{DirEntry, WalkControl};

use super::{Adapter, Answer, ROOT, Who, advice, failed};
use crate::errno::Errno;

const AFTER_DOT: u64 = 1;
const AFTER_DOT_DOT: u64 = 2;

/// One line of a listing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed<'a> {
    /// The name.
    pub(crate) name: &'a [u8],
    /// The kernel's number of the node, if it has attributes.
    pub(crate) node: u64,
    /// Its generation, then.
    pub(crate) generation: u64,
    /// The inode number to show.
    pub(crate) shown: u64,
    /// Its kind.
    pub(crate) kind: Kind,
    /// Position after it.
    pub(crate) offset: u64,
    /// Its attributes, if the kernel asks for them. Not for `.` and `..`, entries of a large
    /// directory and unreadable entries.
    pub(crate) attr: Option<&'a inode::Attr>,
}

impl Adapter {
    /// Lists from `offset` until `take` stops. Every line taken with attributes is a look-up.
    pub(crate) fn list(
        &self,
        who: Who,
        number: u64,
        offset: u64,
        with_attributes: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> WalkControl,
    ) -> Answer<()> {
        let caller = self.caller(who);
        let node = self.node(number);
        if offset < AFTER_DOT_DOT && !self.list_dots(who, number, offset, take)? {
            return Ok(());
        }
        let cookie = if offset <= AFTER_DOT_DOT { 0 } else { offset };
        let mut taken = false;
        let mut forward = |entry: &DirEntry<'_>| {
            let (node, generation) = entry.attr.map_or((0, 0), |_| self.hold(entry.node));
            let control = take(&Listed {
                name: entry.name,
                node,
                generation,
                shown: self.number_to_show(entry.node),
                kind: entry.kind,
                offset: entry.cookie,
                attr: entry.attr,
            });
            taken |= control == WalkControl::Continue;
            if control == WalkControl::Stop && entry.attr.is_some() {
                self.numbers.forget(node, 1);
            }
            control
        };
        let done = if with_attributes && self.gives_attributes(node, number) {
            self.fs.readdirplus(&caller, node, cookie, &mut forward)
        } else {
            self.fs.readdir(&caller, node, cookie, &mut forward)
        };
        match done {
            // The kernel must learn of what was taken, or it never forgets it: the next call from
            // there returns the error.
            Err(_) if taken => Ok(()),
            done => done.map_err(failed("readdir", number)),
        }
    }

    fn gives_attributes(&self, node: NodeId, number: u64) -> bool {
        // The size of a directory is the number of its entries. If it cannot be read, the listing
        // itself shows that.
        let large = |attr: inode::Attr| attr.size >= advice::LARGE;
        let large = self.fs.getattr(&Caller::root(), node).is_ok_and(large);
        !large || self.advice.wants_attributes(number)
    }

    /// Lists `.` and `..`; returns whether there is space for more.
    fn list_dots(
        &self,
        who: Who,
        number: u64,
        offset: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> WalkControl,
    ) -> Answer<bool> {
        let own = self.shown_node(who, number)?;
        if offset < AFTER_DOT {
            let dot = Listed {
                name: b".",
                node: 0,
                generation: 0,
                shown: self.number_to_show(own),
                kind: Kind::Directory,
                offset: AFTER_DOT,
                attr: None,
            };
            if take(&dot) == WalkControl::Stop {
                return Ok(false);
            }
        }
        let above = self.shown_parent(who, number, own);
        let dot_dot = Listed {
            name: b"..",
            node: 0,
            generation: 0,
            shown: self.number_to_show(above),
            kind: Kind::Directory,
            offset: AFTER_DOT_DOT,
            attr: None,
        };
        Ok(take(&dot_dot) == WalkControl::Continue)
    }

    fn shown_node(&self, who: Who, number: u64) -> Result<NodeId, Errno> {
        if number == ROOT { Ok(self.getattr(who, ROOT)?.attr.node) } else { Ok(self.node(number)) }
    }

    /// The node that `..` shows. The root shows its own: the directory above belongs to the file
    /// system below the mount point, and the kernel fills that in itself.
    fn shown_parent(&self, who: Who, number: u64, own: NodeId) -> NodeId {
        if number == ROOT {
            return own;
        }
        match self.fs.lookup(&self.caller(who), self.node(number), b"..") {
            Ok(entry) => {
                if entry.node != NodeId::ROOT {
                    self.fs.forget(entry.node, 1);
                }
                entry.attr.node
            }
            // A directory that was removed while it is being listed has no parent any more.
            Err(_) => own,
        }
    }
}
