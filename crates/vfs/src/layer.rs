//! `Layer`: a file system that passes calls on to the one below it, except for those that it
//! defines itself.
//!
//! Invariants: a layer that defines nothing changes no argument and no result. Each call that can
//! fail or take time passes [`Layer::around`] once, unless the layer defines the call. A method
//! that is added to [`FileSystem`] is added here too, or does not reach what is below a layer. A
//! test compares the two lists.

use std::sync::Arc;

use device::Timestamp;
use inode::{Attr, Caller, NodeId, SetAttr};

use crate::{
    Allocate, DirEntry, Entry, FileLock, FileSystem, FsResult, Invalidate, Locked, NewNode,
    RenameMode, Seek, SetXattr, StatFs, SyncScope, Waits, WalkControl,
};

/// The kinds of calls, and their names in reports.
macro_rules! operations {
    ($($kind:ident $method:ident $name:literal,)*) => {
        /// The kinds of calls, as reports name them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Operation {
            $(
                #[doc = concat!("[`FileSystem::", stringify!($method), "`].")]
                $kind,
            )*
        }

        impl Operation {
            /// All kinds, in the order of their declaration: `ALL[operation as usize]` is
            /// `operation`.
            pub const ALL: [Operation; [$(Operation::$kind),*].len()] = [$(Operation::$kind),*];

            /// The name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Operation::$kind => $name,)*
                }
            }
        }
    };
}

operations! {
    Lookup lookup "lookup",
    Getattr getattr "getattr",
    Setattr setattr "setattr",
    Access access "access",
    Readlink readlink "readlink",
    Mknod mknod "mknod",
    Mkdir mkdir "mkdir",
    Symlink symlink "symlink",
    Link link "link",
    Unlink unlink "unlink",
    Rmdir rmdir "rmdir",
    Rename rename "rename",
    Read read "read",
    Write write "write",
    Tmpfile tmpfile "tmpfile",
    Seek seek "seek",
    Fallocate fallocate "fallocate",
    CopyRange copy_range "copy_range",
    Fsync fsync "fsync",
    Sync sync_all "sync",
    Readdir readdir "readdir",
    Readdirplus readdirplus "readdirplus",
    Statfs statfs "statfs",
    Getxattr getxattr "getxattr",
    Listxattr listxattr "listxattr",
    Setxattr setxattr "setxattr",
    Removexattr removexattr "removexattr",
}

/// Makes the trait, with a method for each of [`FileSystem`], and a file system of each layer.
macro_rules! layer {
    (
        reported { $($kind:ident $around:ident($($arg:ident: $type:ty),*) -> $result:ty;)* }
        passed { $($passed:ident($($field:ident: $of:ty),*) -> $returned:ty;)* }
    ) => {
        /// A file system over another one. Calls that a layer does not define are passed on.
        pub trait Layer: Send + Sync {
            /// The file system below.
            fn below(&self) -> &(dyn FileSystem + 'static);

            /// Makes a call of this kind.
            #[inline]
            fn around<T>(
                &self,
                _kind: Operation,
                call: impl FnOnce(&(dyn FileSystem + 'static)) -> FsResult<T>,
            ) -> FsResult<T> {
                call(self.below())
            }

            $(
                #[doc = concat!("As [`FileSystem::", stringify!($around), "`].")]
                #[inline]
                fn $around(&self, $($arg: $type),*) -> FsResult<$result> {
                    self.around(Operation::$kind, |below| below.$around($($arg),*))
                }
            )*

            $(
                #[doc = concat!("As [`FileSystem::", stringify!($passed), "`].")]
                #[inline]
                fn $passed(&self, $($field: $of),*) -> $returned {
                    self.below().$passed($($field),*)
                }
            )*
        }

        impl<L: Layer> FileSystem for L {
            $(
                #[inline]
                fn $around(&self, $($arg: $type),*) -> FsResult<$result> {
                    Layer::$around(self, $($arg),*)
                }
            )*

            $(
                #[inline]
                fn $passed(&self, $($field: $of),*) -> $returned {
                    Layer::$passed(self, $($field),*)
                }
            )*
        }
    };
}

layer! {
    reported {
        Lookup lookup(caller: &Caller, parent: NodeId, name: &[u8]) -> Entry;
        Lookup find_by_number(top: NodeId, node: NodeId) -> Entry;
        Getattr getattr(caller: &Caller, node: NodeId) -> Attr;
        Setattr setattr(caller: &Caller, node: NodeId, changes: &SetAttr) -> Attr;
        Access access(caller: &Caller, node: NodeId, mask: u32) -> ();
        Readlink readlink(caller: &Caller, node: NodeId) -> Vec<u8>;
        Readlink readlink_untimed(caller: &Caller, node: NodeId) -> Vec<u8>;
        Mknod mknod(caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode) -> Entry;
        Mknod create(caller: &Caller, parent: NodeId, name: &[u8], how: (u32, u32)) -> Entry;
        Mkdir mkdir(caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> Entry;
        Symlink symlink(caller: &Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Entry;
        Link link(caller: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> Entry;
        Unlink unlink(caller: &Caller, parent: NodeId, name: &[u8]) -> ();
        Rmdir rmdir(caller: &Caller, parent: NodeId, name: &[u8]) -> ();
        Rename rename(
            caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode: RenameMode
        ) -> ();
        Read read(caller: &Caller, node: NodeId, offset: u64, buffer: &mut [u8]) -> usize;
        Read read_untimed(caller: &Caller, node: NodeId, offset: u64, buffer: &mut [u8]) -> usize;
        Write write(caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> ();
        Write append(caller: &Caller, node: NodeId, bytes: &[u8]) -> ();
        Tmpfile tmpfile(caller: &Caller, parent: NodeId, mode: u32) -> Entry;
        Seek seek(caller: &Caller, node: NodeId, offset: u64, what: Seek) -> u64;
        Fallocate fallocate(
            caller: &Caller, node: NodeId, range: (u64, u64), mode: Allocate
        ) -> ();
        CopyRange copy_range(
            caller: &Caller, from: (NodeId, u64), to: (NodeId, u64), length: u64
        ) -> u64;
        Fsync fsync(node: NodeId, scope: SyncScope) -> ();
        Sync sync_all() -> ();
        Readdir readdir(
            caller: &Caller,
            directory: NodeId,
            cookie: u64,
            take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl
        ) -> ();
        Readdirplus readdirplus(
            caller: &Caller,
            directory: NodeId,
            cookie: u64,
            take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl
        ) -> ();
        Statfs statfs(node: NodeId) -> StatFs;
        Getxattr getxattr(caller: &Caller, node: NodeId, name: &[u8]) -> Vec<u8>;
        Listxattr listxattr(caller: &Caller, node: NodeId) -> Vec<u8>;
        Setxattr setxattr(
            caller: &Caller, node: NodeId, name: &[u8], value: &[u8], mode: SetXattr
        ) -> ();
        Removexattr removexattr(caller: &Caller, node: NodeId, name: &[u8]) -> ();
    }
    passed {
        generation(node: NodeId) -> u64;
        may_be_held(node: NodeId) -> bool;
        inode_uppers() -> Vec<u64>;
        forget(node: NodeId, lookups: u64) -> ();
        now() -> Timestamp;
        unsettled() -> Option<u64>;
        settle(position: u64) -> FsResult<()>;
        set_invalidate(invalidate: Arc<dyn Invalidate>) -> ();
        is_in_snapshot(node: NodeId) -> bool;
        holds_name(directory: NodeId, name: &[u8]) -> bool;
        opened(caller: &Caller, node: NodeId, flags: u32) -> FsResult<()>;
        open(caller: &Caller, node: NodeId, flags: u32) -> FsResult<bool>;
        released(caller: &Caller, node: NodeId) -> ();
        epoch() -> u64;
        keeps_locks() -> bool;
        lock(caller: &Caller, node: NodeId, lock: &FileLock, wait: bool) -> FsResult<Locked>;
        test_lock(caller: &Caller, node: NodeId, lock: &FileLock) -> FsResult<Option<FileLock>>;
        unlock(caller: &Caller, node: NodeId, owner: u64, whole: bool) -> FsResult<()>;
        set_shown_root(root: NodeId) -> ();
        is_volatile(node: NodeId) -> bool;
        waits() -> Waits;
        takes_snapshots(directory: NodeId) -> bool;
        copies_first(node: NodeId, changes: bool) -> bool;
        is_computed(xattr: &[u8]) -> bool;
    }
}
