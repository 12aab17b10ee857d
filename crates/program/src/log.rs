//! Structured logs on standard error: warnings by default, more with `PANDO_LOG=debug`. With
//! `--json` they are objects, one per line, so that a program can parse everything on standard
//! error.
//!
//! The log of a daemon is on the disk of its volume, and users cause lines of it. Without
//! `PANDO_LOG` it takes `LINES_AT_ONCE` lines, and then one each `LINE_EVERY`. The next line counts
//! those that were left out.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock};

use tracing_subscriber::EnvFilter;
pub use tracing_subscriber::filter::LevelFilter;
use wire::os_words;

use crate::output::count;

/// Lines that a daemon logs at once.
const LINES_AT_ONCE: u64 = 200;
/// How often it logs a line after those: 8,640 a day.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Starts logging at a level, which `PANDO_LOG` overrides; of a daemon within its bound.
pub fn start(level: LevelFilter, json: bool, is_daemon: bool) {
    let filter = EnvFilter::builder()
        .with_default_directive(level.into())
        .with_env_var("PANDO_LOG")
        .from_env_lossy();
    let is_bounded = is_daemon && std::env::var_os("PANDO_LOG").is_none();
    let bound = is_bounded.then(|| Arc::new(Bound::new(Arc::new(SystemClock::new()))));
    let writer = move || Forgiving { bound: bound.clone(), json };
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    if json {
        logs.json().init();
    } else {
        logs.with_ansi(io::stderr().is_terminal()).init();
    }
}

/// Standard error, where a failed write is no failure. A daemon logs into its volume. On a full
/// disk the subscriber would report the failed write on standard error, and panic.
struct Forgiving {
    bound: Option<Arc<Bound>>,
    json: bool,
}

/// How many lines may be written.
struct Bound {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Lines that may be written now.
    lines: u64,
    /// Up to when lines were granted, on the monotonic clock.
    until: Duration,
    /// Lines that were not written since the last one that was.
    left_out: u64,
}

impl Bound {
    fn new(clock: Arc<dyn Clock>) -> Bound {
        let state = State { lines: LINES_AT_ONCE, until: clock.monotonic(), left_out: 0 };
        Bound { clock, state: Mutex::new(state) }
    }

    /// Whether a line may be written, and how many were left out before it.
    fn admit(&self) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        while state.lines < LINES_AT_ONCE && now.saturating_sub(state.until) >= LINE_EVERY {
            state.lines += 1;
            state.until += LINE_EVERY;
        }
        if state.lines == 0 {
            state.left_out += 1;
            return None;
        }
        if state.lines == LINES_AT_ONCE {
            state.until = now;
        }
        state.lines -= 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

impl Write for Forgiving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left_out = match self.bound.as_ref().map(|bound| bound.admit()) {
            None => 0,
            Some(Some(left_out)) => left_out,
            Some(None) => return Ok(bytes.len()),
        };
        if left_out > 0 {
            let lines = if self.json {
                format!("{{\"lines_left_out\":{left_out}}}\n")
            } else {
                let were = count(left_out, "line was", "lines were");
                format!("({were} left out before this one)\n")
            };
            io::stderr().write_all(lines.as_bytes()).unwrap_or_default();
        }
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
    use testing::SimClock;

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

    #[test]
    fn a_daemon_logs_a_bounded_number_of_lines() {
        let clock = Arc::new(SimClock::new());
        let bound = Bound::new(clock.clone());
        let written = |lines: u64| (0..lines).filter(|_| bound.admit().is_some()).count() as u64;
        assert_eq!(written(10_000), LINES_AT_ONCE);
        clock.advance(LINE_EVERY * 3);
        assert_eq!(bound.admit(), Some(10_000 - LINES_AT_ONCE));
        assert_eq!(written(10), 2);
        clock.advance(LINE_EVERY * 1_000);
        assert_eq!(bound.admit(), Some(8));
        assert_eq!(written(10_000), LINES_AT_ONCE - 1);
    }
}
