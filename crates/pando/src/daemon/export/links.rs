//! Files with several names that an export has sent, until their last name. The caller gives the
//! bound of their memory. Exports of one user, and of all users, share it, except for those of root
//! and of the user of the volume.

use std::collections::BTreeMap;

use inode::NodeId;
use wire::remembered_bytes;

use crate::daemon::shares::Taken;

/// Bytes that an export takes of its user's share at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The files that one export remembers.
pub(super) struct Links<'a> {
    /// How many more names each has, and the bytes that it takes.
    seen: BTreeMap<NodeId, (u32, usize)>,
    bytes: usize,
    limit: usize,
    share: Option<Taken<'a>>,
}

impl<'a> Links<'a> {
    /// Within so many bytes, and the share of a user.
    pub(super) fn new(limit: usize, share: Option<Taken<'a>>) -> Links<'a> {
        Links { seen: BTreeMap::new(), bytes: 0, limit, share }
    }

    /// Whether a file was remembered that now has one more name; it is forgotten with its last.
    pub(super) fn count(&mut self, node: NodeId) -> bool {
        let Some((left, bytes)) = self.seen.get_mut(&node) else { return false };
        *left -= 1;
        if *left == 0 {
            self.bytes -= *bytes;
            self.seen.remove(&node);
        }
        true
    }

    /// Whether there is memory for a file whose path has so many bytes.
    pub(super) fn allows(&mut self, path_bytes: usize) -> bool {
        let wanted = self.bytes.saturating_add(remembered_bytes(path_bytes));
        if wanted > self.limit {
            return false;
        }
        match &mut self.share {
            Some(share) if wanted > share.amount() => {
                share.take((wanted - share.amount()).max(CHUNK_BYTES))
            }
            _ => true,
        }
    }

    /// Remembers a file for which there is memory, until `left` more names were sent.
    pub(super) fn remember(&mut self, node: NodeId, left: u32, path_bytes: usize) {
        let bytes = remembered_bytes(path_bytes);
        self.bytes += bytes;
        if let Some((_, before)) = self.seen.insert(node, (left, bytes)) {
            self.bytes -= before;
        }
    }
}

#[cfg(test)]
mod tests {
    use inode::{Ino, SubvolId};

    use super::*;
    use crate::daemon::shares::{Shares, Taker};

    fn node(number: u64) -> NodeId {
        NodeId::new(SubvolId(1), Ino(number))
    }

    #[test]
    fn exports_of_a_user_share_what_the_user_may_take() {
        let shares = Shares::of_exports();
        let of = |uid| Links::new(usize::MAX, Some(shares.of(Taker::User(uid))));
        let fill = |links: &mut Links<'_>, path_bytes: usize| {
            let mut files = 0;
            while links.allows(path_bytes) {
                files += 1;
                links.remember(node(files), 1, path_bytes);
            }
            files
        };
        let path = (1 << 20) - remembered_bytes(0);
        let mut first = of(1);
        assert_eq!(fill(&mut first, path), 256);
        assert_eq!(fill(&mut of(1), path), 0, "the share is taken");
        // What was sent leaves space for another file of this export.
        assert!(first.count(node(7)) && !first.count(node(7)) && first.allows(path));
        let mut others: Vec<_> = (2..6).map(of).collect();
        let taken: Vec<u64> = others.iter_mut().map(|links| fill(links, path)).collect();
        assert_eq!(taken, [256, 256, 256, 0], "all users share, too");
        drop(first);
        assert_eq!(fill(&mut of(1), path), 256);
        drop(others);
        assert!(shares.is_empty());
        assert_eq!(fill(&mut Links::new(2000, None), 900), 1);
    }
}
