//! Tests of the coordinator.

mod campaign;
mod etcd;
mod running;
mod tls;
