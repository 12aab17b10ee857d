//! Attributes, extended attributes, permissions, space.

use inode::{Attr, Ends, Enforce, FsError, SetAttr};
use vfs::{SetXattr, StatFs};

use super::{Adapter, Answer, Named, ROOT, Who, failed};
use crate::capability;
use crate::errno::Errno;

/// Longest value and longest list of names that the kernel's system calls take.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Where SELinux keeps the label of a file.
const LABEL: &[u8] = b"security.selinux";

/// Whether the kernel has SELinux; if that cannot be found out, it may have.
pub(super) fn kernel_has_labels() -> bool {
    std::fs::read_to_string("/proc/filesystems")
        .map_or(true, |kinds| kinds.split_ascii_whitespace().any(|kind| kind == "selinuxfs"))
}

/// Requested changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttrChanges {
    /// The changes.
    pub(crate) changes: SetAttr,
    /// Whether the kernel found that the change ends set-id bits, for any caller.
    pub(crate) ends_bits: bool,
}

/// How an extended attribute is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// Those of setxattr(2).
    pub(crate) flags: i32,
    /// Whether the caller is in the group of the file, or may act as if. The kernel passes this for
    /// a caller that sets an access control list.
    pub(crate) in_group: bool,
}

impl Adapter {
    /// The attributes of a node.
    pub(crate) fn getattr(&self, who: Who, number: u64) -> Answer<Named> {
        let attr = self
            .fs
            .getattr(&self.caller(who), self.node(number))
            .map_err(failed("getattr", number))?;
        Ok(self.shown(number, attr))
    }

    /// Changes attributes.
    pub(crate) fn setattr(&self, who: Who, number: u64, wanted: &AttrChanges) -> Answer<Named> {
        let changes = wanted.changes;
        let node = self.node(number);
        let mut caller = self.caller(who);
        let capabilities = changes.uid.is_some() || changes.gid.is_some() || changes.size.is_some();
        caller.ends = Ends { set_id: wanted.ends_bits, capabilities };
        self.fs
            .setattr(&caller, node, &changes)
            .map(|attr| self.shown(number, attr))
            .map_err(failed("setattr", number))
    }

    fn shown(&self, number: u64, attr: Attr) -> Named {
        if number == ROOT {
            self.root_shown.store(attr.node);
        }
        Named { node: number, generation: 0, shown: self.number_to_show(attr.node), attr }
    }

    /// Space and limits.
    pub(crate) fn statfs(&self, number: u64) -> Answer<StatFs> {
        self.fs.statfs(self.node(number)).map_err(failed("statfs", number))
    }

    /// An extended attribute. `size` is the caller's buffer; 0 asks for the length.
    ///
    /// A file without a label, in a kernel without SELinux, has no support for one. `ls -l`
    /// requests the label of each file, until a file system reports that. The kernel caches no
    /// answer to that question, so each would be a message.
    pub(crate) fn getxattr(
        &self,
        who: Who,
        number: u64,
        name: &[u8],
        size: u32,
    ) -> Answer<Vec<u8>> {
        let total = self.is_computed(name);
        let caller = if total { self.searcher(who) } else { self.caller(who) };
        let value =
            self.fs.getxattr(&caller, self.node(number), name).map_err(|error| match error {
                FsError::NoAttribute if name == LABEL && !self.has_labels => Errno::NOT_SUPPORTED,
                error => failed("getxattr", number)(error),
            })?;
        fitting(value, size)
    }

    /// The names of all extended attributes. `size` as for `getxattr`.
    pub(crate) fn listxattr(&self, who: Who, number: u64, size: u32) -> Answer<Vec<u8>> {
        let names = self
            .fs
            .listxattr(&self.caller(who), self.node(number))
            .map_err(failed("listxattr", number))?;
        if names.len() > XATTR_BYTES_MAX {
            return Err(Errno::TOO_BIG);
        }
        fitting(names, size)
    }

    /// Sets an extended attribute.
    pub(crate) fn setxattr(
        &self,
        who: Who,
        number: u64,
        name: &[u8],
        value: &[u8],
        setting: Setting,
    ) -> Answer<()> {
        let mode = match setting.flags {
            0 => SetXattr::Any,
            libc::XATTR_CREATE => SetXattr::Create,
            libc::XATTR_REPLACE => SetXattr::Replace,
            _ => return Err(Errno::INVALID),
        };
        let mut caller = self.caller(who);
        if !setting.in_group {
            // Then the kernel has nothing left to check: owners set lists.
            caller.enforce = Enforce::Here;
        }
        self.fs
            .setxattr(&caller, self.node(number), name, value, mode)
            .map_err(failed("setxattr", number))
    }

    /// Removes an extended attribute.
    pub(crate) fn removexattr(&self, who: Who, number: u64, name: &[u8]) -> Answer<()> {
        let caller = if capability::are_in(name) { capability::taker() } else { self.caller(who) };
        self.fs.removexattr(&caller, self.node(number), name).map_err(failed("removexattr", number))
    }
}

fn fitting(bytes: Vec<u8>, size: u32) -> Answer<Vec<u8>> {
    if size != 0 && bytes.len() > size as usize { Err(Errno::RANGE) } else { Ok(bytes) }
}
