//! POSIX semantics: one file per operation; inodes, subvolumes, snapshots, clones.

mod api;

pub use api::{
    DirEntry, Entry, FileSystem, FsResult, Invalidate, NewNode, RenameMode, SetXattr, StatFs,
    SyncScope, WalkControl,
};
