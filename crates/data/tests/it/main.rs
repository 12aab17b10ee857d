//! Tests of file contents against a model, under crashes, faults and damage.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

mod crash;
mod damage;
mod exchanged;
mod faults;
mod files;
mod gc;
mod inline;
mod model;
mod reach;
mod recover;
mod share;
mod space;
mod support;
mod threads;
mod uploads;
