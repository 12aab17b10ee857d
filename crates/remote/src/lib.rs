//! File systems over a network. [`Server`] answers the calls of other machines for the volumes that
//! it was given; [`RemoteFs`] is a file system that asks a server.
//!
//! Promises:
//! * The server checks every permission. The client's certificate names the users for whom it may
//!   act; nothing else that a client claims is believed.
//! * A session names nodes by numbers that the server returned to it; any other number is stale.
//! * A change is executed once. A client repeats it with its number, and gets the first answer,
//!   while its session lives and it has not confirmed the answer. The volume keeps both, so the
//!   next server has them. If the volume cannot keep a session (it is full), the session is one of
//!   this server's process alone. If a server has lost the session, the client reports an error
//!   that the change may have been made, and does not repeat it.
//! * What a session holds open lives on without a name until the session ends.
//!
//! Which module decides what:
//! * `client`: a connection that is made again, what is sent again, and what the kernel may keep
//! * `server`: sessions, locks, threads, answers; what survives a restart
//! * `convert`: types of the wire as those of a file system

mod client;
mod server;
mod convert;

pub use client::{
    ConnectError, Control, Proof, Remote, RemoteFs, ServerAddress, Target, control, url,
};
pub use server::{
    Bounds, Client, Counts, Executed, Export, Lasting, OpenControl, Security, Server, SessionId,
    Settings, Totals, Warrant, WhoIsLocal,
};
