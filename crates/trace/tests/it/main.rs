//! Traces of a file system in memory: recorded, damaged, converted, and taken as a replay does.

mod expected;
mod recorded;
mod support;
