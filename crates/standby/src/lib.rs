//! Decides when a standby server serves which volume: the threads beside its campaign
//! ([`Standby`]), and its right to answer for a volume ([`Owned`]).
//!
//! Nothing here opens a volume: the caller, `pando serve --etcd` or a simulation, passes a function
//! for that. Threads and clocks are those of `device`, so a seed may decide their order.
//!
//! Promises: etcd decides which server tries, and when a server stops sooner than it must. Only
//! grants of the volume's log decide whether it may answer.
//!
//! Which module decides what:
//! * `servers`: which volume a server tries to serve, and until when
//! * `warrant`: whether it may still answer, and when it stops
//! * `written`: how long a log has written nothing

mod servers;
mod warrant;
mod written;

pub use servers::{Standby, Threads, Volume};
pub use warrant::{End, Mandate, Owned, Watched};
