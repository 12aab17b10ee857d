//! Files with several names that an export has sent, until their last name. Their memory is bounded
//! by what the caller gives; exports of one user, and of all users, share it, but for those of root
//! and of the user of the volume.

use std::collections::BTreeMap;

use device::sync::Mutex;
use inode::NodeId;
use wire::remembered_bytes;

/// Bytes that an export takes of its user's share at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Most bytes of all exports of one user, as of a stream, and of all users.
const OF_USER_MAX: usize = 256 << 20;
const OF_USERS_MAX: usize = 4 * OF_USER_MAX;

/// What exports under way have taken, by user.
#[derive(Default)]
pub(crate) struct Shares(Mutex<BTreeMap<u32, usize>>);

impl Shares {
    fn take(&self, uid: u32, bytes: usize) -> bool {
        let mut taken = self.0.lock();
        let all: usize = taken.values().sum();
        let own = taken.get(&uid).copied().unwrap_or_default();
        let fits = own + bytes <= OF_USER_MAX && all + bytes <= OF_USERS_MAX;
        if fits {
            taken.insert(uid, own + bytes);
        }
        fits
    }

    fn give_back(&self, uid: u32, bytes: usize) {
        let mut taken = self.0.lock();
        let left = taken.get(&uid).copied().unwrap_or_default().saturating_sub(bytes);
        if left == 0 {
            taken.remove(&uid);
        } else {
            taken.insert(uid, left);
        }
    }
}

/// The files that one export remembers.
pub(super) struct Links<'a> {
    /// How many more names each has, and the bytes that it takes.
    seen: BTreeMap<NodeId, (u32, usize)>,
    bytes: usize,
    limit: usize,
    share: Option<(&'a Shares, u32)>,
    shared: usize,
}

impl<'a> Links<'a> {
    /// Within so many bytes, and the share of a user.
    pub(super) fn new(limit: usize, share: Option<(&'a Shares, u32)>) -> Links<'a> {
        Links { seen: BTreeMap::new(), bytes: 0, limit, share, shared: 0 }
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
        if let Some((shares, uid)) = self.share
            && wanted > self.shared
        {
            let chunk = (wanted - self.shared).max(CHUNK_BYTES);
            if !shares.take(uid, chunk) {
                return false;
            }
            self.shared += chunk;
        }
        true
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

impl Drop for Links<'_> {
    fn drop(&mut self) {
        if let Some((shares, uid)) = self.share {
            shares.give_back(uid, self.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use inode::{Ino, SubvolId};

    use super::*;

    fn node(number: u64) -> NodeId {
        NodeId::new(SubvolId(1), Ino(number))
    }

    #[test]
    fn exports_of_a_user_share_what_the_user_may_take() {
        let shares = Shares::default();
        let of = |uid| Links::new(usize::MAX, Some((&shares, uid)));
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
        assert!(shares.0.lock().is_empty());
        assert_eq!(fill(&mut Links::new(2000, None), 900), 1);
    }
}
