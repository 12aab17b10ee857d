//! Messages between a remote client and a server of volumes (`pando serve`).
//!
//! A message is one frame of the control socket: a `u32` length and that many bytes. The first
//! byte of a frame is its kind ([`FrameKind`]), the next eight are the request's number, or
//! as the kind defines. The rest is the body, encoded as every message of this crate.
//! `docs/protocol/remote.md` has all of it, byte by byte.

mod answer;
mod asked;
mod hello;
mod call;
mod head;

pub use answer::{Entry, FsAnswer, FsFailure, Listed, LockHeld, RemoteAttr, Space};
pub use asked::{AskedHead, is_looked_into, split_asked};
pub use call::{
    Asked, Asker, Changes, FsCall, LockKind, LockRange, MODES_OF_ALLOCATE, NewTime, Node,
    OPEN_EXEC, OPEN_READ, OPEN_WRITE, Renaming, WRITE_APPEND,
};
pub use head::{FrameKind, HEAD_BYTES, put_head, split_head};
pub use hello::{
    FEATURE_TAKEN_OVER, FEATURES, HeldNode, REMOTE_MAGIC, REMOTE_VERSION, REMOTE_VERSION_MIN,
    Reclaim, RemoteHello, RemoteWelcome, Resume, Use,
};
