//! `pando-bench`, as it is run: every workload at a small size.
#![expect(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

mod program;
mod workloads;
