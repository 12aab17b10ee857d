//! Structured logs on standard error: warnings by default, more with `PANDO_LOG=debug`. With
//! `--json` they are objects, one per line, so that a program can parse everything on standard
//! error.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
pub use tracing_subscriber::filter::LevelFilter;
use wire::os_words;

/// Starts logging at a level, which `PANDO_LOG` overrides.
pub fn start(level: LevelFilter, json: bool) {
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

/// Standard error, where a failed write is no failure. A daemon logs into its volume. On a full
/// disk the subscriber would report the failed write on standard error, and panic.
struct Forgiving;

impl Write for Forgiving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(without_numbers(bytes).as_bytes()).unwrap_or_default();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A whole line of the log: errors of the system are in it with their numbers.
fn without_numbers(line: &[u8]) -> String {
    os_words(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `tracing::warn!(%error)` writes it, for people and as JSON.
    #[test]
    fn errors_of_the_system_are_logged_without_their_numbers() {
        let error = io::Error::from_raw_os_error(24);
        for line in [
            format!("WARN cannot accept a connection error={error} id=3\n"),
            format!("{{\"fields\":{{\"message\":\"cannot accept\",\"error\":\"{error}\"}}}}\n"),
        ] {
            assert!(line.contains("(os error 24)"));
            let logged = without_numbers(line.as_bytes());
            assert_eq!(logged, line.replace(" (os error 24)", ""));
        }
    }
}
