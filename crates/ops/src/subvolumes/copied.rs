//! A copy of a directory that is planned, until its plan is executed.

use std::sync::Arc;

use format::inherited_record::Home;
use format::subvolume_record::SubvolumeRecord;
use inode::{Ino, NodeId, SubvolId};
use volume::subvol::Subvol;

/// A copy that a batch makes.
pub struct Copied {
    /// Its number.
    pub id: u64,
    /// Its record.
    pub record: SubvolumeRecord,
    /// What it inherits.
    pub(super) homes: Vec<Home>,
    /// The user with whose copies it counts, if it inherits: the maker of the heir that gets it,
    /// also where another user pays for it. Of a copy that no heir gets, its own maker.
    pub(super) counts_with: u32,
    /// What it was taken from, and the last epoch in which any of that may be shared.
    pub(super) source: Option<(Arc<Subvol>, u64)>,
    pub(super) ended: u64,
}

impl Copied {
    /// The node of its root.
    pub(crate) fn root_node(&self) -> NodeId {
        NodeId::new(SubvolId(self.id), Ino(self.record.root))
    }
}
