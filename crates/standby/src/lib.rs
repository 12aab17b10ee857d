//! When a server that may take volumes over serves which: the threads beside its campaign
//! ([`Standby`]), and its right to answer for a volume ([`Owned`]).
//!
//! Nothing here opens a volume: who does that, for `pando serve --etcd` or in a simulation, passes
//! a function. Threads and clocks are those of `device`, so a seed may decide their order.
//!
//! Promises: etcd's word decides who tries, and when a server stops sooner than it must. Whether
//! it may answer is decided by grants of the volume's log alone.
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
