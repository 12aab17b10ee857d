//! `pando-bench`, as it is run: every workload at a small size.
#![expect(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

#[path = "../../../engines/src/engine.rs"]
mod engine;
#[expect(clippy::disallowed_methods, reason = "a part of a program that has no simulator")]
#[path = "../../../engines/src/ours.rs"]
mod ours;
mod compared;
mod counts_script;
mod program;
mod workloads;
