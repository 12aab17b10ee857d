//! Converts kernel requests to file-system calls and back; the only crate that knows FUSE and
//! the errno of an answer.
//!
//! Promises: the kernel checks permissions, and the file system below checks the rest; no lock is
//! held here while a call is under way. What a write gave reached the file system before `write`
//! returns; what a map stored, before `msync`, `fsync` or `munmap` does. What changed without the
//! kernel's knowledge is invalidated before the answer to the command that changed it.

mod adapter;
mod attach;
mod attr;
mod capability;
mod detach;
mod errno;
mod error;
mod groups;
mod kernel;
mod mount;
mod mountinfo;
mod notify;
mod options;
mod place;
mod remount;
mod source;
mod transport;
mod turns;
mod write_back;

pub use detach::{InUse, Unmounted, unmount};
pub use error::MountError;
pub use kernel::Loopback;
pub use mount::{Mount, mount};
pub use mountinfo::{Copy, MountInfo, copies_of, find_mount, mounted_in, mounts_of, users_of};
pub use options::{Atime, MountOptions, OptionError, help as options_help, is_for_mount_program};
pub use remount::{asks_for_remount, remount};
pub use write_back::{WriteBack, write_back};
