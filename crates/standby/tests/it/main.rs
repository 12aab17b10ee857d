//! Tests of the right to answer for a volume. What servers do together is in
//! `testing/scheduled/tests/simulated` and `crates/pando/tests/it/failover.rs`.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

mod warrant;
#[path = "../../src/written.rs"]
mod written;
