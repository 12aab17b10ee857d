//! Connects a command to the daemon of a volume. It finds the socket or spawns a daemon, sends the
//! hello and requests, and reads the parts of an answer.
//!
//! Promises: any number of commands may connect at once, and one daemon answers them all. If the
//! daemon closes a connection before its welcome, it read no request, so the command connects
//! again. A request that was sent is never sent twice. The kernel reports who is at the other end
//! ([`peer()`]); what the peer sends does not count for that. A silent or slow peer delays a caller
//! only as long as it allows ([`Timed`]).
//!
//! Which module decides what:
//! * `daemon`: whether a daemon is started, and how long to try
//! * `connection`: hello, requests, and whom to believe
//! * `socket`, `peer`: the socket of a volume; who is at its other end
//! * `timed`: one limit for all that is read
//! * `launch`: what a starting daemon reports

mod daemon;
mod connection;
mod timed;
mod socket;
mod peer;
mod launch;

pub use connection::{Connection, Opened};
pub use daemon::connect_or_spawn;
pub use launch::{Launch, LaunchReport};
pub use peer::{Peer, peer, peer_process};
pub use socket::{Listening, SOCKET};
pub use timed::Timed;

use wire::Failure;

/// A result that a command shows to the user when it fails.
pub type Result<T> = std::result::Result<T, Failure>;
