//! The trace of a mount. It begins after the volume is open, or its server reached, and before the
//! mount. It ends when the mount is gone.
//!
//! Names are in a trace, so its file can be read by its owner alone.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::{Clock, Random};
use fs::FileSystem;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
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

impl TraceStart {
    /// The trace at a path, which must not exist: no trace is overwritten.
    pub(crate) fn at(path: &Path, limit: Option<u64>) -> Result<TraceStart> {
        let file = std::path::absolute(path);
        let file = file.map_err(|error| failure::io("record a trace in", path, &error))?;
        if file.symlink_metadata().is_ok() {
            let message = format!("cannot record a trace in {}: it exists", path.display());
            return Err(Failure::new(FailureKind::Exists, message)
                .hint("remove it, or choose another name with --trace"));
        }
        Ok(TraceStart { file, limit })
    }

    /// The options that pass it on to the process in the background.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec!["--trace".into(), self.file.clone().into()];
        let limit = self.limit.into_iter();
        arguments.extend(limit.flat_map(|n| ["--trace-limit".into(), n.to_string().into()]));
        arguments
    }
}

/// A trace that is being recorded.
pub(crate) struct Recording {
    made: Made,
    recorder: Arc<Recorder>,
}

/// The file of a trace, and the directory that it was made in. So a user who may rename directories
/// above it cannot direct its removal to another file.
struct Made {
    parent: OwnedFd,
    name: OsString,
}

impl Made {
    /// Creates the file, which must not exist, for its owner alone.
    fn create(path: &Path) -> rustix::io::Result<(Made, File)> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = above.unwrap_or(Path::new("."));
        let parent = rustix::fs::open(above, flags, Mode::empty())?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok((Made { parent, name }, File::from(file)))
    }

    fn remove(&self) {
        rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::empty()).unwrap_or_default();
    }
}

impl Recording {
    /// Creates the file, which must not exist, and starts the thread that writes it.
    fn start(
        trace: &TraceStart,
        (clock, random): (Arc<dyn Clock>, &dyn Random),
        opens: bool,
    ) -> Result<Recording> {
        let path = trace.file.as_path();
        let made = Made::create(path);
        let (made, file) =
            made.map_err(|error| failure::io("record a trace in", path, &error.into()))?;
        let file_bytes = trace.limit.unwrap_or(u64::MAX);
        let limits = Limits { file_bytes, ..Limits::default() };
        let recorder = Recorder::start(Box::new(file), (clock, random), limits, opens);
        let recorder = recorder.map_err(|error| {
            let message = format!("cannot record a trace in {}: {error}", path.display());
            Failure::new(FailureKind::Other, message)
                .hint("name another file, or mount without --trace")
        });
        match recorder {
            Ok(recorder) => {
                tracing::info!(path = %path.display(), "records all calls");
                Ok(Recording { made, recorder: Arc::new(recorder) })
            }
            Err(failure) => {
                made.remove();
                Err(failure)
            }
        }
    }

    /// Writes what is left, and ends the trace. A trace of a mount that was not made is removed.
    pub(crate) fn end(self, was_made: bool) {
        self.recorder.end();
        if !was_made {
            self.made.remove();
        }
    }
}

/// A file system to mount: one whose calls are recorded, if that is requested.
pub(crate) fn wrapped(
    trace: Option<&TraceStart>,
    options: &fuse::MountOptions,
    inner: Arc<dyn FileSystem>,
    by: (Arc<dyn Clock>, &dyn Random),
) -> Result<(Arc<dyn FileSystem>, Option<Recording>)> {
    let Some(trace) = trace else { return Ok((inner, None)) };
    // The kernel reports opens of what others may change.
    let recording = Recording::start(trace, by, options.trace_opens || options.remote)?;
    let traced = Traced::new(inner, Arc::clone(&recording.recorder));
    Ok((Arc::new(traced), Some(recording)))
}
