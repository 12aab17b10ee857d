//! `pando`: composes the crates below. Parses the command line, runs one verb, and turns its
//! result into an exit code.

mod access;
mod archive;
mod cli;
mod cli_totals;
mod environment;
mod export;
mod failure;
mod far;
mod find;
mod host;
mod import;
mod index;
mod loopback;
mod metrics;
mod mounts;
mod names;
mod owner;
mod place;
mod replay;
mod retention;
mod session;
mod spawn;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use program::log::LevelFilter;
// Modules of this program use these as if they were its own.
use program::{cache_size, exit, index_cache, interrupt, log, log_place, output};
use wire::{Failure, FailureKind};

use crate::cli::{Cli, Verb};
use crate::output::Output;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reports wrong usage like any other failure, for programs.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    // tidy: compares words: clap has the message and the usage in one text only.
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let message = paragraphs.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let message: Vec<_> = message.lines().map(str::trim).collect();
    let usage = paragraphs.find(|part| part.starts_with("Usage:"));
    let failure = Failure::new(FailureKind::Invalid, message.join(" "))
        .hint(usage.unwrap_or("`pando --help` lists the verbs"));
    Output::new(true, false).failure(&failure);
    exit::code(failure.kind)
}

/// The failure that a variable cannot be parsed, if that caused the error: clap names the option
/// that the variable sets.
fn of_environment(error: &clap::Error) -> Option<Failure> {
    let is_value = error.kind() == ErrorKind::ValueValidation;
    environment::check(&[]).err().filter(|_| is_value && environment::is_about(error))
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let arguments = verbs::mount_helper::rewrite(arguments);
    let arguments = cli::rewrite(arguments);
    let arguments = verbs::find::rewrite(arguments);
    let far = far::check_verb(&arguments);
    let json = arguments.iter().any(|argument| argument == "--json");
    let mut command = cli::command();
    let parsed = command.try_get_matches_from_mut(arguments);
    let parsed = parsed.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    let cli = match parsed.map_err(|error| error.format(&mut command)) {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(failure) = of_environment(&error) {
                Output::new(json, false).failure(&failure);
                return exit::code(failure.kind);
            }
            if json && error.use_stderr() {
                return wrong_usage(&error);
            }
            error.exit()
        }
    };
    // A daemon logs what it does; a command logs only what goes wrong.
    let is_daemon = matches!(cli.verb, Verb::Owner(_) | Verb::FarMount(_) | Verb::Serve(_));
    log::start(if is_daemon { LevelFilter::INFO } else { LevelFilter::WARN }, cli.json);
    let mut output = Output::new(cli.json, cli.quiet);
    if let Err(failure) = far {
        output.failure(&failure);
        return exit::code(failure.kind);
    }
    if cli.json || cli.quiet {
        session::set_quiet();
    }
    let done = match cli.verb {
        Verb::Format(args) => verbs::format::run(&args, &mut output),
        Verb::Mount(args) => verbs::mount::run(&args, &mut output),
        Verb::Umount(args) => verbs::umount::run(&args, &mut output),
        Verb::Status(args) => verbs::status::run(&args, &mut output),
        Verb::Session(verb) => verbs::session::run(&verb, &mut output),
        Verb::Info(args) => verbs::info::run(&args, &mut output),
        Verb::Ls(args) => verbs::ls::run(&args, &mut output),
        Verb::Stat(args) => verbs::stat::run(&args, &mut output),
        Verb::Find(args) => verbs::find::run(&args.arguments, &mut output),
        Verb::Search(verb) => verbs::search::run(&verb, &mut output),
        Verb::Cat(args) => verbs::cat::run(&args, &mut output),
        Verb::Import(args) => verbs::import::run(&args, &mut output),
        Verb::Export(args) => verbs::export::run(&args, &mut output),
        Verb::Index(args) => verbs::index::run(&args, &mut output),
        Verb::Snapshot(verb) => verbs::snapshot::run(&verb, &mut output),
        Verb::Clone(args) => verbs::clone::run(&args, &mut output),
        Verb::Rollback(args) => verbs::rollback::run(&args, &mut output),
        Verb::Du(args) => verbs::du::run(&args, &mut output),
        Verb::Summary(args) => verbs::summary::run(&args, &mut output),
        Verb::History(args) => verbs::history::run(&args, &mut output),
        Verb::Diff(args) => verbs::diff::run(&args, &mut output),
        Verb::Send(args) => verbs::stream::send(&args, &mut output),
        Verb::Receive(args) => verbs::stream::receive(&args, &mut output),
        Verb::Dump(args) => verbs::dump::dump(&args, &mut output),
        Verb::Load(args) => verbs::dump::load(&args, &mut output),
        Verb::Rmr(args) => verbs::rmr::run(&args, &mut output),
        Verb::Subvolume(verb) => verbs::subvolume::run(&verb, &mut output),
        Verb::Quota(verb) => verbs::quota::run(&verb, &mut output),
        Verb::Trash(verb) => verbs::trash::run(&verb, &mut output),
        Verb::Restore(args) => verbs::trash::restore(&args, &mut output),
        Verb::Sync(args) => verbs::sync::run(&args, &mut output),
        Verb::Fsck(args) => verbs::fsck::run(&args, &mut output),
        Verb::Gc(args) => verbs::gc::run(&args, &mut output),
        Verb::Bench(args) => verbs::bench::run(&args, &mut output),
        Verb::Trace(verb) => verbs::trace::run(&verb, &mut output),
        Verb::Replay(args) => verbs::replay::run(&args, &mut output),
        Verb::Serve(args) => verbs::serve::run(&args, &mut output),
        Verb::Cluster(verb) => verbs::cluster::run(&verb, &mut output),
        Verb::FarMount(args) => verbs::mount_far::background(&args),
        Verb::Owner(args) => verbs::owner::run(&args),
        Verb::Generate(args) => verbs::generate::run(&args),
    };
    let done = done.and_then(|()| output.flush());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            exit::code(failure.kind)
        }
    }
}
