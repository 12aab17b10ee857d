//! Decides which server should own a volume, and records where it is served. A [`Coordinator`]
//! keeps names that vanish with the server that made them, and a [`Campaign`] decides by one such
//! name.
//!
//! Promises: safety never rests on an answer of a coordinator. It may forget everything, be
//! restored from a backup, or end the leases of living servers. Then a server takes over a volume
//! that needed no successor, or nobody takes it over. What keeps two servers apart is the claim and
//! the seal in the volume's store (`store::log`). `docs/protocol/cluster.md` has keys and values.
//!
//! Which module decides what:
//! * `campaign`: which volumes this server should own
//! * `coordinator`: what keeps names
//! * `etcd`: the same over etcd
//! * `values`: keys and values

mod campaign;
mod etcd;
mod values;

mod coordinator;

pub use crate::campaign::{Campaign, Standing};
pub use crate::coordinator::{Coordinator, Error, Item, Lease, Put, Result};
pub use crate::etcd::{Etcd, EtcdSettings};
pub use crate::values::{
    Advertised, Holder, NAME_BYTES_MAX, VALUE_BYTES_MAX, holder_key, is_server_name, server_key,
    volume_of_key,
};
