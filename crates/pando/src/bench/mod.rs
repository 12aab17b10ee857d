//! `pando bench`: workloads in process, without a mount.

use wire::{Failure, FailureKind};

use crate::cli::BenchArgs;
use crate::failure::Result;
use crate::output::Output;

pub(crate) fn run(args: &BenchArgs, output: &mut Output) -> Result<()> {
    output.remark(&format!("{:?}", args.workload));
    Err(Failure::new(FailureKind::NotSupported, "bench is not built"))
}
