//! The transport: reads messages of `/dev/fuse`, answers and sends them itself.
//!
//! In the order of a request: `session` negotiates with the kernel, reads and sends. `request` has
//! the header and the arguments, and `serve` finds the adapter's call. `names` has requests on
//! directories, names and attributes, `contents` requests on bytes, and `reply` answers as bytes.
//! `numbers` has the constants of the protocol. Structures are those of
//! `include/uapi/linux/fuse.h`, in the byte order of the machine.

mod loopback;
mod session;
mod serve;
mod names;
mod shares;
mod slow;
mod contents;
mod clone_channel;
mod request;
mod reply;
mod numbers;

pub use loopback::Loopback;
pub(crate) use session::KernelTransport;
