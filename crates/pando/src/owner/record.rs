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
    fn start(trace: &TraceStart, env: &Env, opens: bool) -> Result<Recording> {
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
                .hint("name another file, or mount without --trace")
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

    /// Writes what is left, and ends the trace. A trace of a mount that was not made is removed.
    pub(super) fn end(self, was_made: bool) {
        self.recorder.end();
        if !was_made {
            std::fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}

/// A file system to mount: one whose calls are recorded, if that is requested.
pub(super) fn wrapped(
    trace: Option<&TraceStart>,
    options: &fuse::MountOptions,
    inner: Arc<dyn FileSystem>,
    env: &Env,
) -> Result<(Arc<dyn FileSystem>, Option<Recording>)> {
    let Some(trace) = trace else { return Ok((inner, None)) };
    let recording = Recording::start(trace, env, options.trace_opens)?;
    let traced = Traced::new(inner, Arc::clone(&recording.recorder));
    Ok((Arc::new(traced), Some(recording)))
}
