//! Tests of the coordinator.

mod etcd;
mod running;
mod tls;
