//! The client's side: a connection that is made again when it is lost, and the file system over it.

mod filesystem;
mod receive;
mod remote;
mod silent;
mod under_way;
mod kept;
mod control;
mod connect;

pub use connect::{ConnectError, Place, Proof, Target, url};
pub use control::{Control, control};
pub use filesystem::RemoteFs;
pub use remote::Remote;
