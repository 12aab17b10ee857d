//! Converts kinds of nodes between the namespace and the bits of a mode.

use inode::Kind;

/// The kind in the file-type bits of a mode; `None` for a directory, a symbolic link and invalid
/// bits, which mknod(2) does not create.
pub(crate) fn kind_of_new(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(Kind::File),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}
