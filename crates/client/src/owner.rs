//! Finding the owner of a volume, or making one.
//!
//! Any number of commands may do this at once: whoever finds nobody listening spawns an owner,
//! the lock of the volume elects one of those, and the others connect to it. A connection that
//! is closed before the welcome was refused by an owner that leaves, so nothing is lost by
//! trying again.

use std::path::Path;
use std::time::Duration;

use device::Clock;
use wire::{Failure, FailureKind};

use crate::{Connection, Launch, Opened, Result};

/// How long to try before giving up: far longer than an owner takes to leave.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait for a place where a daemon takes no more connections: other commands of the
/// user end meanwhile, nearly always.
const REFUSED_PATIENCE: Duration = Duration::from_secs(10);

/// First and longest pause between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Connects to the owner of `volume`; where there is none, `spawn` starts one and returns its
/// report.
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
            Opened::NoOwner => match spawn()? {
                // Straight on: it listens now.
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
                .hint("the file owner.lock in the volume holds its process ID"));
        }
        clock.sleep(pause);
        pause = (pause * 2).min(PAUSE.1);
    }
}
