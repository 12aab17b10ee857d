//! File descriptors, a limited resource of the process. The process raises its limit to the
//! system's maximum. When descriptors run out, it closes cached files that can be opened again.

use std::sync::{Arc, Weak};

use crate::sync::Mutex;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

/// Open files that are cached and can be opened again.
pub(crate) trait OpenFiles: Send + Sync {
    /// Closes them and returns how many were open.
    fn close_all(&self) -> usize;
}

/// The caches of the whole process, because descriptors belong to the process.
static KEPT: Mutex<Vec<Weak<dyn OpenFiles>>> = Mutex::new(Vec::new());

/// Raises the process's descriptor limit to its maximum and returns it; `None`: there is no limit.
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // The limit stays.
        Err(_) => limit.current,
    }
}

/// Registers files to be closed when descriptors run out.
pub(crate) fn may_be_closed(files: &Arc<impl OpenFiles + 'static>) {
    let files: Weak<dyn OpenFiles> = Arc::downgrade(files) as Weak<dyn OpenFiles>;
    let mut kept = KEPT.lock();
    kept.retain(|one| one.strong_count() > 0);
    kept.push(files);
}

/// Makes a call that returns a descriptor. Retries after a signal, and once more when none was left
/// and some could be closed.
pub(crate) fn open<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let mut closed_any = false;
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::MFILE | Errno::NFILE) if !closed_any && close_kept() > 0 => {
                closed_any = true;
            }
            done => return done,
        }
    }
}

/// As `open` here, for calls of the standard library: one that returns a descriptor, and changes
/// nothing when none is left.
pub fn with_a_descriptor<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let none_left = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
    match call() {
        Err(error) if none_left.contains(&error.raw_os_error()) && close_kept() > 0 => call(),
        done => done,
    }
}

fn close_kept() -> usize {
    let kept: Vec<_> = KEPT.lock().iter().filter_map(Weak::upgrade).collect();
    kept.iter().map(|files| files.close_all()).sum()
}
