//! Tests of file contents against a model, under crashes, faults and damage.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

mod crash;
mod damage;
mod exchanged;
mod faults;
mod files;
mod gather;
mod gc;
mod inline;
mod model;
mod reach;
mod recover;
#[expect(dead_code, reason = "a part of the crate, with the tests that it ends with")]
#[path = "../../src/segments.rs"]
mod segments;
mod share;
mod space;
mod support;
mod threads;
mod uploads;
