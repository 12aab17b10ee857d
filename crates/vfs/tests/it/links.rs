//! Symbolic links on paths that are walked without a kernel: which are followed.

use inode::{Caller, FsError, NodeId};
use vfs::{FileSystem, Follow};

use crate::support::{rig, user};

/// A user's link in a directory like `/tmp` led root's commands elsewhere.
#[test]
fn a_link_of_another_user_in_a_sticky_directory_is_not_followed() {
    let rig = rig();
    let root = Caller::root();
    let make = |parent, name: &[u8], mode| rig.fs.mkdir(&root, parent, name, mode).unwrap().node;
    let secret = make(NodeId::ROOT, b"secret", 0o755);
    let open = make(NodeId::ROOT, b"tmp", 0o1777);
    let shared = make(NodeId::ROOT, b"shared", 0o777);
    for (directory, owner, name) in [
        (open, user(8), &b"trap"[..]),
        (open, root.clone(), b"of-root"),
        (shared, user(8), b"trap"),
    ] {
        let made = rig.fs.symlink(&owner, directory, name, b"/secret").unwrap();
        rig.fs.forget(made.node, 1);
    }
    let walked = |caller: &Caller, path: &[u8], follow| {
        let entry = rig.fs.resolve(caller, path, follow)?;
        rig.fs.forget(entry.node, 1);
        Ok::<_, FsError>(entry.node)
    };
    for path in [&b"/tmp/trap"[..], b"/tmp/trap/", b"/tmp/trap/."] {
        for caller in [&root, &user(9)] {
            let refused = walked(caller, path, Follow::Yes);
            assert!(matches!(refused, Err(FsError::AccessDenied)), "{path:?} {refused:?}");
        }
        assert_eq!(walked(&user(8), path, Follow::Yes).unwrap(), secret, "its owner");
    }
    assert_ne!(walked(&root, b"/tmp/trap", Follow::No).unwrap(), secret, "the link itself");
    assert_eq!(walked(&user(9), b"/tmp/of-root", Follow::Yes).unwrap(), secret);
    assert_eq!(walked(&root, b"/shared/trap", Follow::Yes).unwrap(), secret, "it is not sticky");
    for node in [secret, open, shared] {
        rig.fs.forget(node, 1);
    }
}
