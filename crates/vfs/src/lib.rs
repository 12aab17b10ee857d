//! The calls between front ends and file systems, and wrappers of any file system that need only
//! these calls.
//!
//! A request of a front end reaches [`VirtualDirs`], which adds `.snapshots` and `.search` to the
//! file system below it. [`resolve()`] walks a path for callers without a kernel.
//! [`Observed`] reports each call and its duration. [`with_cancellation`] ends searches that no
//! caller waits for.
//!
//! Promises: a file system below implements the calls of [`FileSystem`] and knows of no virtual
//! directory. Nothing in a virtual directory changes through it, except that names in `.snapshots`
//! make, rename and remove snapshots. A path is resolved with the caller's permissions, through at
//! most 40 symbolic links, and through none that the kernel would refuse to follow.
//!
//! Which module decides what:
//! * `api`: the trait, and notices to front ends
//! * `virtual_dirs`: `.snapshots` and `.search`
//! * `resolve`: paths without a kernel: links, `..`, permissions
//! * `cancellation`: whether the caller still waits
//! * `observed`: calls as metrics see them
//! * `layer`: a file system that changes some calls of another one
//! * `request`, `lasting`: the number of a change that is executed once; what survives a new server

mod virtual_dirs;
mod resolve;
mod cancellation;
mod observed;
mod layer;
mod lasting;
mod api;
mod request;

pub use api::{
    Allocate, DirEntry, Entry, FileLock, FileSystem, Follow, FsResult, Invalidate, LockKind,
    Locked, NewNode, RenameMode, Seek, SetXattr, StatFs, SyncScope, Waits, WalkControl,
};
pub use cancellation::{cancel, is_cancelled, with_cancellation};
pub use lasting::{Executed, Lasting, SessionId};
pub use layer::{Layer, Operation};
pub use observed::{Observed, Observer, Outcome};
pub use request::{Request, TakenRequest, note_number, noted_number, take_request, with_request};
pub use resolve::resolve;
pub use virtual_dirs::{
    ListedSnapshot, Query, Search, Snapshots, VirtualDirs, name_of_number, number_in_name,
};
