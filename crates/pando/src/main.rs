//! `pando`: composes the crates below. Parses the command line, runs one verb, and turns its
//! result into an exit code.
//!
//! Promises: a verb that returns 0 has done all that was requested, and what it changed is durable.
//! A failure is one message on standard error with what failed, where, and the next step, and an
//! exit code by its kind (`program::exit`). With `--json` it is an object. Standard output has
//! results only. A verb that is interrupted or killed leaves the volume as after some of its
//! changes, each whole. A verb never opens a volume that a daemon has open. It sends requests to
//! the daemon (`daemon`), which checks the caller's rights by what the kernel reports of the
//! caller. Sizes in output are bytes, in units of 1024 where a letter follows.
//!
//! Which module decides what:
//! * `cli`, `cli_totals`, `environment`: verbs, options, variables
//! * `verbs`: what each verb does, one a file
//! * `place`, `mounts`, `far`: which volume an argument names, and which verbs reach a server
//! * `session`, `spawn`, `host`: the daemon that is asked, or started; an object store's place here
//! * `daemon`: the process that has a volume open, and what it answers to whom
//! * `metrics`, `retention`, `serve_memory`, `loopback`: what it counts; which snapshots it keeps;
//!   its memory as a server; who connects
//! * `find`, `import`, `export`, `archive`, `index`, `replay`: what the verbs of these names have
//!   of their own
//! * `names`, `access`, `failure`: users and groups; access lists outside the volume; words of
//!   failures
//! * `allocator`: what is kept for threads that wait

// The command line, and its verbs.
mod cli;
mod verbs;
mod cli_totals;

// The daemon.
mod daemon;
mod metrics;
mod retention;

// What verbs have of their own.
mod import;
mod export;
mod index;
mod find;
mod archive;
mod replay;
mod access;
mod names;

// How an argument becomes a volume, and a connection to its daemon.
mod place;
mod far;
mod session;
mod host;
mod serve_memory;
mod mounts;
mod loopback;
mod spawn;
mod environment;

mod failure;
mod allocator;

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
    allocator::start();
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
            if !error.use_stderr() {
                error.exit();
            }
            // It repeats arguments, which may control a terminal: names from `pando ls *`.
            Output::new(false, false).usage(&error.to_string());
            return ExitCode::from(2);
        }
    };
    // A daemon logs what it does; a command logs only what goes wrong.
    let is_daemon = matches!(cli.verb, Verb::Daemon(_) | Verb::FarMount(_) | Verb::Serve(_));
    log::start(if is_daemon { LevelFilter::INFO } else { LevelFilter::WARN }, cli.json, is_daemon);
    let mut output = Output::new(cli.json, cli.quiet);
    if let Err(failure) = far {
        output.failure(&failure);
        return exit::code(failure.kind);
    }
    if cli.json || cli.quiet {
        session::set_quiet();
    }
    let done = run(cli.verb, &mut output).and_then(|()| output.flush());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            exit::code(failure.kind)
        }
    }
}

fn run(verb: Verb, output: &mut Output) -> Result<(), Failure> {
    match verb {
        Verb::Format(args) => verbs::format::run(&args, output),
        Verb::Mount(args) => verbs::mount::run(&args, output),
        Verb::Umount(args) => verbs::umount::run(&args, output),
        Verb::Status(args) => verbs::status::run(&args, output),
        Verb::Session(verb) => verbs::session::run(&verb, output),
        Verb::Info(args) => verbs::info::run(&args, output),
        Verb::Ls(args) => verbs::ls::run(&args, output),
        Verb::Stat(args) => verbs::stat::run(&args, output),
        Verb::Find(args) => verbs::find::run(&args.arguments, output),
        Verb::Search(verb) => verbs::search::run(&verb, output),
        Verb::Cat(args) => verbs::cat::run(&args, output),
        Verb::Import(args) => verbs::import::run(&args, output),
        Verb::Export(args) => verbs::export::run(&args, output),
        Verb::Index(args) => verbs::index::run(&args, output),
        Verb::Snapshot(verb) => verbs::snapshot::run(&verb, output),
        Verb::Clone(args) => verbs::clone::run(&args, output),
        Verb::Rollback(args) => verbs::rollback::run(&args, output),
        Verb::Du(args) => verbs::du::run(&args, output),
        Verb::Summary(args) => verbs::summary::run(&args, output),
        Verb::History(args) => verbs::history::run(&args, output),
        Verb::Diff(args) => verbs::diff::run(&args, output),
        Verb::Send(args) => verbs::stream::send(&args, output),
        Verb::Receive(args) => verbs::stream::receive(&args, output),
        Verb::Dump(args) => verbs::dump::dump(&args, output),
        Verb::Load(args) => verbs::dump::load(&args, output),
        Verb::Rmr(args) => verbs::rmr::run(&args, output),
        Verb::Subvolume(verb) => verbs::subvolume::run(&verb, output),
        Verb::Quota(verb) => verbs::quota::run(&verb, output),
        Verb::Trash(verb) => verbs::trash::run(&verb, output),
        Verb::Restore(args) => verbs::trash::restore(&args, output),
        Verb::Sync(args) => verbs::sync::run(&args, output),
        Verb::Fsck(args) => verbs::fsck::run(&args, output),
        Verb::Gc(args) => verbs::gc::run(&args, output),
        Verb::Bench(args) => verbs::bench::run(&args, output),
        Verb::Trace(verb) => verbs::trace::run(&verb, output),
        Verb::Replay(args) => verbs::replay::run(&args, output),
        Verb::Serve(args) => verbs::serve::run(&args, output),
        Verb::Cluster(verb) => verbs::cluster::run(&verb, output),
        Verb::FarMount(args) => verbs::mount_far::background(&args),
        Verb::Daemon(args) => verbs::daemon::run(&args),
        Verb::Generate(args) => verbs::generate::run(&args),
    }
}
