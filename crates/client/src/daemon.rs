//! Finds the daemon of a volume, or starts one.
//!
//! Any number of commands may do this concurrently. Each that finds no listener spawns a daemon,
//! the lock of the volume elects one of those, and the others connect to it. A connection that is
//! closed before the welcome was refused by an exiting daemon, so a retry loses nothing.

use std::path::Path;
use std::time::Duration;

use device::Clock;
use wire::{Failure, FailureKind};

use crate::{Connection, Launch, Opened, Result};

/// Timeout of the retries: far longer than a daemon takes to exit.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout for a daemon that accepts no more connections: meanwhile other commands of the user
/// nearly always end.
const REFUSED_PATIENCE: Duration = Duration::from_secs(10);

/// First and longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Connects to the daemon of `volume`; if there is none, `spawn` starts one and returns its report.
pub fn connect_or_spawn(
    volume: &Path,
    clock: &dyn Clock,
    spawn: &mut dyn FnMut() -> Result<Launch>,
) -> Result<Connection> {
    let begin = clock.monotonic();
    let deadline = begin + PATIENCE;
    let mut pause = PAUSE.0;
    loop {
        match Connection::open(volume)? {
            Opened::Connected(connection) => return Ok(connection),
            Opened::Refused(failure) if clock.monotonic() > begin + REFUSED_PATIENCE => {
                return Err(failure);
            }
            Opened::Leaving | Opened::Refused(_) => {}
            Opened::NoDaemon => match spawn()? {
                // Without a pause: it listens now.
                Launch::Ready { .. } => continue,
                Launch::Taken => {}
                Launch::Failed(failure) => return Err(failure),
            },
        }
        if clock.monotonic() > deadline {
            let message = format!(
                "the daemon of {} neither answers nor ends after {} s",
                volume.display(),
                PATIENCE.as_secs()
            );
            return Err(Failure::new(FailureKind::Busy, message)
                .hint("its process ID is in the file owner.lock of the volume"));
        }
        clock.sleep(pause);
        pause = (pause * 2).min(PAUSE.1);
    }
}
