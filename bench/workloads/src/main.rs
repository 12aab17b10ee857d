//! `pando-bench`: workloads in process, without a mount; one JSON object per run.
//!
//! A run creates a volume (or uses the given one), fills it as the workload needs, runs the
//! workload in rounds, and reports. With a yardstick, the same record operations on an ordered map
//! follow every round. `tap` records every request to the store, byte for byte, and `yardstick`
//! replays them.

// Workloads on a volume.
mod counts;
mod latency;
mod churn;
mod create_scattered;
mod import;
mod postmark;
mod group_commit;
mod served;
mod clone;
mod clone_lookups;
mod clones_scale;
mod recover;
mod reopen;
mod scattered;
mod search;
mod search_clones;
mod name_query;

// Workloads on a bare store.
mod stall;
mod rodeh;
mod two_threads;
mod write_amplification;
mod column_style;
mod fill;
mod cluster_search;

// What workloads share.
mod namespace;
mod bare;
mod measure;
mod report;
mod meter;
mod files;
mod volume;
mod engine;
mod yardstick;
mod tap;
mod delayed;
mod memory;
mod median;

mod run;
mod cli;

#[cfg(test)]
mod documented;

use std::process::ExitCode;

use clap::Parser;
use program::failure::Result;
use program::{EngineArg, Output, exit, interrupt, log};
use wire::{Failure, FailureKind};

use crate::cli::{BenchArgs, Cli, Workload};
use report::Report;
use run::Run;
use volume::Volume;

/// The allocator of `pando`, and so of the yardstick that it is measured against.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(log::LevelFilter::WARN, cli.json, false);
    let mut output = Output::new(cli.json, cli.quiet);
    match run(&cli.bench, &mut output).and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            exit::code(failure.kind)
        }
    }
}

/// Refuses options that the workload would ignore.
fn check(args: &BenchArgs) -> Result<()> {
    use Workload::{
        CheckpointStall, CloneLookups, ClonesScale, ClusterSearch, ColumnStyle, Counts,
        GroupCommit, Search, Served, TwoThreads, WriteAmplification,
    };
    let storeless = matches!(args.workload, GroupCommit | ClusterSearch);
    let bare = matches!(args.workload, CheckpointStall | CloneLookups | ClonesScale | TwoThreads);
    let lsm = matches!(args.workload, ColumnStyle | WriteAmplification);
    let only_lsm = lsm || args.workload == Served;
    let message = if only_lsm && args.engine == Some(EngineArg::Btree) {
        "this workload is about --engine lsm"
    } else if !lsm && (args.lsm.policy.is_some() || args.lsm.value_bytes.is_some()) {
        "--policy and --value-bytes belong to write-amplification and column-style"
    } else if args.workload != TwoThreads && args.two_threads.work.is_some() {
        "--work belongs to two-threads"
    } else if args.workload != Served && args.served.is_given() {
        "--sessions, --in-flight and --put-ms belong to served"
    } else if args.workload != Workload::Churn && args.churn.pattern.is_some() {
        "--pattern belongs to churn"
    } else if args.workload != Counts && args.far {
        "--far belongs to counts"
    } else if storeless && args.engine.is_some() {
        "--engine belongs to workloads with a store"
    } else if args.direct
        && (storeless
            || bare
            || lsm
            || matches!(args.workload, Counts | Search | Served)
            || rodeh::is_rodeh(args.workload))
    {
        "--direct belongs to workloads of a volume; those of rodeh always read so"
    } else if args.cache_size.is_some() && is_fixed(args.workload) {
        "the cache of this workload is what it measures: --cache-size belongs to others"
    } else if args.threads.is_some() && !has_threads(args.workload) {
        "this workload has threads of its own: --threads belongs to others"
    } else if args.rounds.is_some() && !args.yardstick && !has_rounds(args.workload) {
        "--rounds belongs to workloads that compare, or to --yardstick"
    } else {
        return Ok(());
    };
    Err(Failure::new(FailureKind::Invalid, message))
}

/// Whether a workload has a cache of a fixed size, or none.
fn is_fixed(workload: Workload) -> bool {
    use Workload::{CheckpointStall, ClonesScale, Counts, GroupCommit, Served};
    matches!(workload, CheckpointStall | ClonesScale | Counts | GroupCommit | Served)
}

/// Whether a workload runs on the requested number of threads.
fn has_threads(workload: Workload) -> bool {
    use Workload::{CreateDeep, CreateFlat, List, Lookup, Rename, Stat, TwoThreads, Unlink};
    let of_files =
        matches!(workload, CreateDeep | CreateFlat | List | Lookup | Rename | Stat | Unlink);
    of_files || workload == TwoThreads || rodeh::is_rodeh(workload)
}

/// Whether a workload runs the requested number of rounds, without a yardstick too.
fn has_rounds(workload: Workload) -> bool {
    use Workload::{
        CheckpointStall, CloneLookups, CreateLatency, CreateScattered, GroupCommit, Served,
        TwoThreads,
    };
    matches!(
        workload,
        CheckpointStall
            | CloneLookups
            | CreateLatency
            | CreateScattered
            | GroupCommit
            | Served
            | TwoThreads
    )
}

fn run(args: &BenchArgs, output: &mut Output) -> Result<()> {
    if args.yardstick && !measure::has_yardstick(args.workload) {
        let message = "an ordered map does nothing like this workload: there is no yardstick";
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    rodeh::check(args)?;
    check(args)?;
    if args.yardstick || args.workload == Workload::TwoThreads {
        memory::keep_what_is_freed()?;
    }
    let run = Run { args, interrupted: interrupt::flag()?, bar: output.progress("operations") };
    match args.workload {
        Workload::Counts => return counts::run(&run, output),
        Workload::ClonesScale => return clones_scale::run(&run, output),
        Workload::ClusterSearch => return cluster_search::run(&run, output),
        Workload::Search => return search::run(&run, output),
        Workload::CreateLatency => return latency::run(&run, output),
        Workload::CloneLookups => return clone_lookups::run(&run, output),
        Workload::ColumnStyle => return column_style::run(&run, output),
        Workload::WriteAmplification => return write_amplification::run(&run, output),
        Workload::Served => return served::run(&run, output),
        _ => {}
    }
    if args.workload == Workload::TwoThreads {
        let lines = two_threads::run(&run);
        run.bar.finish_and_clear();
        let object = lines?;
        output.object(&object)?;
        return two_threads::text(&object).iter().try_for_each(|line| output.line(line));
    }
    if args.workload == Workload::GroupCommit {
        return group_commit::run(&run, output);
    }
    if args.workload == Workload::CheckpointStall {
        return stall::run(&run, output);
    }
    if rodeh::is_rodeh(args.workload) {
        return rodeh::run(&run, output);
    }
    let volume = Volume::make(args)?;
    match args.workload {
        Workload::RecoverScattered => return scattered::run(&run, volume, output),
        Workload::CreateScattered => return create_scattered::run(&run, volume, output),
        Workload::Reopen => return reopen::run(&run, volume, output),
        Workload::SearchClones => return search_clones::run(&run, &volume, output),
        Workload::Import => return import::run(&run, &volume, output),
        Workload::Churn => return churn::run(&run, volume, output),
        Workload::Postmark => return postmark::run(&run, &volume, output),
        _ => {}
    }
    let measured = match args.workload {
        Workload::Clone => clone::run(&run, volume),
        Workload::Recover => recover::run(&run, volume),
        _ => measure::run(&run, volume),
    };
    run.bar.finish_and_clear();
    let report: Report = measured?;
    output.object(&report.json())?;
    report.text().iter().try_for_each(|line| output.line(line))
}
