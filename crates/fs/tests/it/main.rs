//! Tests of the namespace through its calls, over the oracle store. One file an operation.

mod ops;
mod support;
