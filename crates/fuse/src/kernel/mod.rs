//! The transport: reads messages of `/dev/fuse`, answers and sends them itself.
//!
//! In the order of a request: `session` (negotiates with the kernel, reads, sends), `request` (the
//! header and the arguments), `serve` (which call of the adapter it is), `names` (requests on
//! directories, names and attributes), `contents` (requests on bytes), `reply` (answers as bytes);
//! `numbers` has the constants of the protocol. Structures are those of
//! `include/uapi/linux/fuse.h`, in the byte order of the machine.

mod loopback;
mod session;
mod serve;
mod names;
mod slow;
mod shares;
mod contents;
mod clone_channel;
mod request;
mod reply;
mod numbers;

pub use loopback::Loopback;
pub(crate) use session::KernelTransport;
