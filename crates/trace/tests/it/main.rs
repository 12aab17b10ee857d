//! Traces of a file system in memory: recorded, damaged, converted, and taken as a replay does.

#![expect(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

mod every_call;
mod expected;
mod recorded;
mod support;
