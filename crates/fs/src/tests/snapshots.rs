//! Numbers of snapshots, and names that look like them.

use testing::sim_env;

use crate::Fs;
use inode::{Caller, FsError, NodeId};
use opening::create::FormatOptions;
use vfs::{FileSystem, Follow};
use volume::OpenOptions;

/// A number points to the snapshot that has it, whatever another one was called before such
/// names were refused.
#[test]
fn no_name_hides_the_number_of_another_snapshot() {
    let env = sim_env(1).env();
    Fs::format(&env, &FormatOptions::default()).expect("an empty disk");
    let fs = Fs::open(env, &OpenOptions::default()).expect("it was made just now");
    let fs = fs.with_virtual_dirs();
    let (root, dir) = (Caller::root(), NodeId::ROOT);
    let plain = fs.snapshot_create(&root, dir, b"plain").expect("there is space");
    let other = fs.snapshot_create(&root, dir, b"other").expect("there is space");
    let name = vfs::name_of_number(other.subvol);
    fs.rename_unchecked(&root, dir, b"plain", &name).expect("nothing is called so");
    for meant in [plain.subvol, other.subvol] {
        let path = [b"/.snapshots/", &vfs::name_of_number(meant)[..]].concat();
        let found = fs.resolve(&root, &path, Follow::Yes).expect("it is there");
        assert_eq!(found.node.slot(), meant.slot());
        fs.forget(found.node, 1);
    }
    for name in [&b"#1"[..], b"#18446744073709551615"] {
        let refused = fs.snapshot_create(&root, dir, name);
        assert!(matches!(refused, Err(FsError::InvalidArgument(_))), "{refused:?}");
        let refused = fs.snapshot_rename(&root, dir, b"other", name);
        assert!(matches!(refused, Err(FsError::InvalidArgument(_))), "{refused:?}");
    }
    for name in [&b"#"[..], b"#01", b"#1a", b"1", b"a#1"] {
        fs.snapshot_create(&root, dir, name).expect("a name like others");
    }
    // The one that has such a name is deleted by it.
    fs.snapshot_delete(&root, dir, &name).expect("it is there");
    let path = [b"/.snapshots/", &name[..]].concat();
    let found = fs.resolve(&root, &path, Follow::Yes).expect("the other one is there");
    assert_eq!(found.node.slot(), other.subvol.slot());
}
