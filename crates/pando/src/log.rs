//! Structured logs on standard error: warnings by default, more with `PANDO_LOG=debug`.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::Verb;

/// Starts logging. An owner says what it does; a command only what goes wrong.
pub(crate) fn start(verb: &Verb) {
    let level = match verb {
        Verb::Owner(_) => LevelFilter::INFO,
        _ => LevelFilter::WARN,
    };
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .with_env_var("PANDO_LOG")
        .from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .init();
}
