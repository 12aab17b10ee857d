//! `pando-fuzz`: runs the targets for a time, replays what it found. Exit code 0: cases ran and
//! nothing was found; 1: there was a finding, or nothing ran; 2: wrong usage.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the command line")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fuzz::supervise::{Outcome, Run, chosen};
use fuzz::target::Category;
use fuzz::worker::{self, Work};

#[derive(Parser)]
#[command(about = "Damaged bytes for every decoder, random calls and damaged volumes")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs a part for so much CPU time
    Run {
        /// decoders or operations
        #[arg(long)]
        part: String,
        /// Only this target
        #[arg(long)]
        only: Option<String>,
        /// CPU seconds, over all workers
        #[arg(long, default_value_t = 60.0)]
        cpu_seconds: f64,
        /// Workers; the processors
        #[arg(long)]
        jobs: Option<u64>,
        /// The seed; another one each time
        #[arg(long)]
        seed: Option<u64>,
        /// Where what is found is written
        #[arg(long, default_value = "target/fuzz-findings")]
        findings: PathBuf,
    },
    /// Runs what was found once more
    Replay {
        /// Files *.case
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Lists the targets
    List,
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        part: String,
        #[arg(long)]
        only: Option<String>,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        first: u64,
        #[arg(long)]
        stride: u64,
        #[arg(long)]
        cpu_seconds: f64,
        #[arg(long)]
        heartbeat: PathBuf,
        #[arg(long)]
        findings: PathBuf,
    },
}

fn part(name: &str) -> std::io::Result<Category> {
    Category::named(name).ok_or_else(|| std::io::Error::other("the part is decoders or operations"))
}

fn main() -> ExitCode {
    match answer(Arguments::parse().verb) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("pando-fuzz: {error}");
            ExitCode::from(2)
        }
    }
}

fn answer(verb: Verb) -> std::io::Result<bool> {
    match verb {
        Verb::Run { part: name, only, cpu_seconds, jobs, seed, findings } => {
            let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
            let run = Run {
                part: part(&name)?,
                only,
                seed: seed.unwrap_or_else(|| fastrand::u64(..) >> 32),
                cpu_seconds,
                jobs: jobs.unwrap_or(processors).max(1),
                findings,
            };
            println!("fuzzing {name}: seed {}, {cpu_seconds} CPU seconds", run.seed);
            let outcome = run.run(&std::env::current_exe()?)?;
            Ok(report(&run, &outcome))
        }
        Verb::Replay { files } => {
            let mut well = true;
            for file in &files {
                well &= replay(file)?;
            }
            Ok(well)
        }
        Verb::List => {
            for target in fuzz::targets() {
                println!("{:10} {}", target.part.name(), target.name);
            }
            Ok(true)
        }
        Verb::Worker {
            part: name,
            only,
            seed,
            first,
            stride,
            cpu_seconds,
            heartbeat,
            findings,
        } => {
            let targets = chosen(part(&name)?, only.as_deref());
            let work = Work { targets, seed, first, stride, cpu_seconds, heartbeat, findings };
            let (counts, found) = worker::work(&work)?;
            for (name, (executions, understood)) in counts {
                println!("{name} {executions} {understood}");
            }
            println!("findings {found}");
            Ok(found == 0)
        }
    }
}

/// Prints the result of a run; returns whether it is good.
fn report(run: &Run, outcome: &Outcome) -> bool {
    let mut well = outcome.findings == 0;
    for target in chosen(run.part, run.only.as_deref()) {
        let (executions, understood) = outcome.counts.get(target.name).copied().unwrap_or((0, 0));
        println!("{:28} {executions:>12} run {understood:>12} understood", target.name);
        if executions >= 64 && understood == 0 {
            eprintln!("{}: nothing was understood, so nothing was reached", target.name);
            well = false;
        }
    }
    let executions = outcome.executions();
    println!(
        "{executions} executions in {:.0} CPU seconds, seed {}, {} findings",
        outcome.cpu_seconds, run.seed, outcome.findings
    );
    if outcome.deaths > 0 {
        let end = if outcome.given_up { ": the run was given up before its time" } else { "" };
        eprintln!("{} workers died{end}", outcome.deaths);
    }
    if executions == 0 {
        eprintln!("nothing was run: that is a failure");
        well = false;
    }
    if outcome.findings > 0 {
        eprintln!("findings are in {}", run.findings.display());
    }
    well
}

fn replay(file: &std::path::Path) -> std::io::Result<bool> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let target = name.split('.').next().and_then(fuzz::target);
    let target = target.ok_or_else(|| {
        std::io::Error::other(format!("{name}: the name of a case begins with its target's"))
    })?;
    let input = std::fs::read(file)?;
    worker::note_panics();
    match worker::run(&target, &input) {
        Ok(understood) => {
            println!("{name}: {}", if understood { "understood" } else { "refused" });
            Ok(true)
        }
        Err((place, what)) => {
            println!("{name}: at {place}\n{what}");
            Ok(false)
        }
    }
}
