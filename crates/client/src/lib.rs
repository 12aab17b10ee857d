//! The way from a command to the owner of a volume: find its socket or spawn an owner, say hello,
//! send requests, read the parts of an answer. The cluster client will speak the same messages.

mod connection;
mod launch;
mod owner;
mod peer;
mod socket;

pub use connection::{Connection, Opened};
pub use launch::{Launch, LaunchReport};
pub use owner::connect_or_spawn;
pub use peer::{Peer, peer};
pub use socket::{Listening, SOCKET};

use wire::Failure;

/// A result that a command shows to the user when it fails.
pub type Result<T> = std::result::Result<T, Failure>;
