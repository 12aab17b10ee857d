//! Locks that end with the last close of their file in a mount. The kernel reports no end of those
//! of open file descriptions (OFD): only that a file was closed.

use fs::Engine;
use inode::{Caller, NodeId};
use vfs::{FileLock, FileSystem, LockKind, Locked};

use crate::lasting::{ServedVolume, client};
use crate::rig::wait_until;

fn lock(far: &impl FileSystem, node: NodeId, (owner, start): (u64, u64)) -> Locked {
    let kind = LockKind::Exclusive;
    let lock = FileLock { owner, pid: 1, kind, start, end: start + 9, whole: false };
    far.lock(&Caller::root(), node, &lock, false).unwrap()
}

#[test]
fn locks_end_with_the_last_close_and_not_before() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let mut place = ServedVolume::new(engine);
        let ((one, far), (two, other)) = (client(&place), client(&place));
        let root = Caller::root();
        let node = far.create(&root, NodeId::ROOT, b"f", (0o644, 2)).unwrap().node;
        let seen = other.lookup(&root, NodeId::ROOT, b"f").unwrap().node;
        other.open(&root, seen, 2).unwrap();
        // Two descriptors, of which each has a lock.
        far.open(&root, node, 2).unwrap();
        assert_eq!(lock(&far, node, (7, 0)), Locked::Done);
        assert_eq!(lock(&far, node, (8, 100)), Locked::Done);
        far.released(&root, node);
        far.getattr(&root, node).unwrap();
        assert_eq!(lock(&other, seen, (9, 0)), Locked::Busy);
        far.released(&root, node);
        for start in [0, 100] {
            wait_until(|| lock(&other, seen, (9, start)) == Locked::Done);
        }
        // Nor does it claim them from a server that takes over.
        place.replace();
        assert_eq!(lock(&other, seen, (9, 0)), Locked::Done);
        far.open(&root, node, 2).unwrap();
        assert_eq!(lock(&far, node, (7, 0)), Locked::Busy);
        // A lock of a later open is another one.
        assert_eq!(lock(&far, node, (7, 200)), Locked::Done);
        assert_eq!(lock(&other, seen, (9, 200)), Locked::Busy);
        one.end();
        two.end();
    }
}
