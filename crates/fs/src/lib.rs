//! POSIX semantics: one file per operation; inodes, subvolumes, snapshots, clones.

mod api;
mod filesystem;
mod info;
mod open_error;
mod volume;

pub use api::{
    DirEntry, Entry, FileSystem, FsResult, Invalidate, NewNode, RenameMode, SetXattr, StatFs,
    SyncScope, WalkControl,
};
pub use info::{
    Atime, CloneInfo, Engine, Follow, FormatOptions, OpenOptions, Progress, RmrInfo, SnapshotInfo,
    VolumeId, VolumeStatus,
};
pub use open_error::OpenError;
pub use volume::Fs;
