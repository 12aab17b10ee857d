//! Fuzzing on stable Rust: seeded, deterministic, for everything that takes bytes or calls.
//!
//! A *target* (`target`) makes valid input, damages it (`mutate`), and corrects checksums so that
//! the code behind them is reached. Then it passes the input to the code under test. Targets are
//! the decoders of `format` (`decoders`), whole clusters, messages of the socket (`messages`, made
//! by `values`) and of the kernel (`kernel`), and queries (`queries`). Others are random calls of
//! the file system on intact and damaged volumes (`operations`, `world`).
//!
//! A *worker* process runs cases; the *supervisor* detects that it dies or hangs, and records the
//! input.

mod operations;
mod structures;
pub mod decoders;
mod sealed_runs;
mod sealed_log;
mod messages;
mod queries;
mod values;
pub mod supervise;
pub mod worker;
mod clusters;
mod kernel;
mod verbs;
mod verbs_rare;
mod world;
mod small_index;
mod random;
pub mod target;
mod mutate;

use target::Target;

/// All targets.
pub fn targets() -> Vec<Target> {
    let mut all = decoders::targets();
    for some in [
        clusters::TARGETS,
        messages::TARGETS,
        queries::TARGETS,
        kernel::TARGETS,
        operations::TARGETS,
    ] {
        all.extend_from_slice(some);
    }
    all
}

/// The target with a name.
pub fn target(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}
