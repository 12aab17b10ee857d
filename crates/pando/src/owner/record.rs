//! The trace of a mount: created after the volume is open and before it is mounted, ended when the
//! mount is gone.
//!
//! Names are in a trace, so its file can be read by its owner alone.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use device::{Clock, Env};
use fs::FileSystem;
use trace::{Limits, Recorder, Traced};
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};

/// A trace to record.
#[derive(Debug, Clone)]
pub(crate) struct TraceStart {
    /// Where; it must not exist.
    pub(crate) file: PathBuf,
    /// Longest file, in bytes; `None` means as long as there is space.
    pub(crate) limit: Option<u64>,
}

/// A trace that is being recorded.
pub(super) struct Recording {
    path: PathBuf,
    recorder: Arc<Recorder>,
}

impl Recording {
    /// Creates the file, which must not exist, and starts the thread that writes it.
    pub(super) fn start(trace: &TraceStart, env: &Env, opens: bool) -> Result<Recording> {
        let path = trace.file.as_path();
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| failure::io("record a trace in", path, &error))?;
        let clock: Arc<dyn Clock> = Arc::clone(&env.clock);
        let file_bytes = trace.limit.unwrap_or(u64::MAX);
        let limits = Limits { file_bytes, ..Limits::default() };
        let recorder = Recorder::start(Box::new(file), (clock, &*env.random), limits, opens);
        let recorder = recorder.map_err(|error| {
            let message = format!("cannot record a trace in {}: {error}", path.display());
            Failure::new(FailureKind::Other, message)
        });
        match recorder {
            Ok(recorder) => {
                tracing::info!(path = %path.display(), "records all calls");
                Ok(Recording { path: path.to_owned(), recorder: Arc::new(recorder) })
            }
            Err(failure) => {
                std::fs::remove_file(path).unwrap_or_default();
                Err(failure)
            }
        }
    }

    /// A file system whose calls are recorded.
    pub(super) fn wrap(&self, inner: Arc<dyn FileSystem>) -> Arc<dyn FileSystem> {
        Arc::new(Traced::new(inner, Arc::clone(&self.recorder)))
    }

    /// Writes what is left, and ends the trace.
    pub(super) fn end(&self) {
        self.recorder.end();
    }

    /// Removes a trace of a mount that was not made.
    pub(super) fn discard(self) {
        self.recorder.end();
        std::fs::remove_file(&self.path).unwrap_or_default();
    }
}
