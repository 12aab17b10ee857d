//! Converts kernel requests to file-system calls and back; the only crate that knows FUSE and
//! the errno of an answer.
//!
//! Promises: the kernel checks permissions, and the file system below checks the rest; no lock is
//! held here while a call is under way. What a write gave reached the file system before `write`
//! returns; what a map stored, before `msync`, `fsync` or `munmap` does. What changed without the
//! kernel's knowledge is invalidated before the answer to the command that changed it. A kernel
//! that takes too long is not waited for, and the log has a warning.
//!
//! Which module decides what:
//! * `options`: mount options
//! * `mount`, `attach`, `place`, `detach`, `remount`, `again`: how a mount begins, changes and ends
//! * `mountinfo`, `source`: which mounts there are, and of which volume
//! * `kernel`: requests as bytes; which thread serves which
//! * `adapter`, `transport`: requests as calls; the interface between the two
//! * `groups`, `capability`: what the kernel does not pass on of a caller
//! * `turns`, `write_back`: waiting for requests under way, and for maps
//! * `notify`: what the kernel drops, and when
//! * `errno`, `attr`, `error`: numbers of errors; kinds; failures of mounts

// A mount begins, and ends.
mod mount;
mod again;
mod place;
mod remount;
mod detach;
mod attach;
mod mountinfo;
mod source;

// Requests of the kernel become calls.
mod kernel;
mod transport;
mod adapter;
mod groups;
mod capability;
mod turns;
mod write_back;

// The way back.
mod notify;
mod attr;
mod errno;
mod error;
mod options;

pub use capability::mounts_as_we_do;
pub use detach::{InUse, Unmounted, unmount};
pub use error::MountError;
pub use kernel::Loopback;
pub use mount::{Mount, mount};
pub use mountinfo::{
    Copy, MountInfo, copies_of, copies_on, find_mount, mount_at, mounted_in, mounts_of, users_of,
};
pub use options::{
    Atime, MountOptions, OptionError, help as options_help, is_for_mount_program, is_for_served,
    names_for_served,
};
pub use remount::{asks_for_remount, remount};
pub use write_back::{WriteBack, write_back};
