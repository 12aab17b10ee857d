//! Operations over records in memory, without quotas, trash, background work or checks.

mod opening;
mod plans;
mod recorded;
mod support;
mod verbs;
#[expect(dead_code, reason = "a part of the crate, with the tests that it ends with")]
#[path = "../../src/subvolumes/way.rs"]
mod way;
