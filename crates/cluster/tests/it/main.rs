//! The coordinator over a real etcd, and over things that are none.

mod etcd;
mod running;
