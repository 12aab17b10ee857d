//! The report of a process started in the background to the one that started it, over its standard
//! output, before it detaches: one frame.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use wire::{Failure, FailureKind, FrameError, decode, encode, read_frame, write_frame};

/// Result of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Launch {
    /// It owns the volume, and has mounted it if a mount was requested.
    Ready {
        /// The process id.
        pid: u32,
    },
    /// Another process owns the volume, and listens.
    Taken,
    /// The start failed.
    Failed(Failure),
}

/// Destination of the report: written at most once.
#[derive(Debug)]
pub struct LaunchReport<W>(Option<W>);

impl<W: Write> LaunchReport<W> {
    /// Reports into `to`.
    pub fn new(to: W) -> LaunchReport<W> {
        LaunchReport(Some(to))
    }

    /// Sends the report; a second report is dropped, and so is one without a reader.
    pub fn send(&mut self, launch: &Launch) {
        if let Some(mut to) = self.0.take() {
            let mut bytes = Vec::new();
            encode(launch, &mut bytes);
            let sent = write_frame(&mut to, &bytes).and_then(|()| to.flush());
            if let Err(error) = sent {
                tracing::debug!(%error, "no process reads the launch report");
            }
        }
    }
}

impl Launch {
    /// Reads the report of a process that was just started.
    pub fn read(from: &mut impl Read) -> Launch {
        let mut bytes = Vec::new();
        let failed = |message: String| {
            let failure = Failure::new(FailureKind::Other, message);
            Launch::Failed(failure.hint("the file owner.log in the volume has the reason"))
        };
        match read_frame(from, &mut bytes) {
            Ok(()) => match decode(&bytes) {
                Ok(launch) => launch,
                Err(error) => failed(format!("the daemon's report is not understood: {error}")),
            },
            Err(FrameError::Closed) => failed("the daemon ended before it was ready".into()),
            Err(error) => failed(format!("the daemon's report ended early: {error}")),
        }
    }

    /// For `map_err` where a process is started.
    pub fn not_started(error: &io::Error) -> Failure {
        Failure::new(FailureKind::Other, format!("cannot start a daemon: {error}"))
            .hint("free memory, or raise the limit of processes (ulimit -u), and run it again")
    }
}
