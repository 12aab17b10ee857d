//! Structured logs on standard error: warnings by default, more with `PANDO_LOG=debug`. With
//! `--json` they are objects, a line each, so that a program reads all that comes there.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::Verb;

/// Starts logging. An owner says what it does; a command only what goes wrong.
pub(crate) fn start(verb: &Verb, json: bool) {
    let level = match verb {
        Verb::Owner(_) => LevelFilter::INFO,
        _ => LevelFilter::WARN,
    };
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .with_env_var("PANDO_LOG")
        .from_env_lossy();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Forgiving);
    if json {
        logs.json().init();
    } else {
        logs.with_ansi(io::stderr().is_terminal()).init();
    }
}

/// Standard error, for which a failed write is no failure. An owner logs into its volume, and on
/// a full disk the subscriber would complain of that on standard error, and panic.
struct Forgiving;

impl Write for Forgiving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(bytes).unwrap_or_default();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
