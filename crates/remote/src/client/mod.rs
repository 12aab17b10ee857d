//! The client's side: a connection that is made again when it is lost, and the file system over it.
//!
//! Which module decides what:
//! * `remote`, `under_way`: calls, their numbers, and what is acknowledged when
//! * `again`: what is claimed and sent again after a loss, and what fails
//! * `connect`: which server, and how long
//! * `receive`: which answers count
//! * `filesystem`, `kept`: calls as messages; what the kernel's pages are of
//! * `control`: verbs

mod filesystem;
mod again;
mod receive;
mod remote;
mod under_way;
mod kept;
mod control;
mod connect;
mod silent;

pub use connect::{ConnectError, Proof, ServerAddress, Target, url};
pub use control::{Control, control};
pub use filesystem::RemoteFs;
pub use remote::Remote;
