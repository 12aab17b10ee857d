//! `access`: checked here, even if the kernel checks otherwise.

use fs::FileSystem;
use inode::{Caller, Enforce, FsError};

use crate::support::{ROOT, refused, user, volume};

#[test]
fn access_follows_the_mode_even_if_the_kernel_enforces_it() {
    let v = volume();
    let file = v.file_as(&user(7), ROOT, "f", 0o640).expect("a file");
    let member = Caller { groups: vec![7], ..user(8) };
    let trusted = Caller { enforce: Enforce::Kernel, ..user(9) };
    v.fs.access(&user(7), file.node, 6).expect("the owner reads and writes");
    refused(v.fs.access(&user(7), file.node, 1), &FsError::AccessDenied);
    v.fs.access(&member, file.node, 4).expect("the group reads");
    refused(v.fs.access(&member, file.node, 2), &FsError::AccessDenied);
    refused(v.fs.access(&trusted, file.node, 4), &FsError::AccessDenied);
    v.fs.access(&trusted, file.node, 0).expect("it exists");
    refused(v.fs.access(&Caller::root(), file.node, 1), &FsError::AccessDenied);
}
