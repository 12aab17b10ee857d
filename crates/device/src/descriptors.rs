//! File descriptors, of which a process has only so many: as many as the system permits are asked
//! for, and where they run out, files are closed that are open only because they may be read again.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

/// Files that are kept open and can be opened again.
pub(crate) trait OpenFiles: Send + Sync {
    /// Closes them. How many.
    fn close_all(&self) -> usize;
}

/// Those of the process, as descriptors are the process's too.
static KEPT: Mutex<Vec<Weak<dyn OpenFiles>>> = Mutex::new(Vec::new());

/// Raises the number of descriptors that the process may have to what it can be raised to, and
/// returns it; `None`: there is no limit.
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        // It stays.
        Err(_) => limit.current,
    }
}

/// Has files closed when descriptors run out.
pub(crate) fn may_be_closed(files: &Arc<impl OpenFiles + 'static>) {
    let files: Weak<dyn OpenFiles> = Arc::downgrade(files) as Weak<dyn OpenFiles>;
    let mut kept = KEPT.lock();
    kept.retain(|one| one.strong_count() > 0);
    kept.push(files);
}

/// Makes a call that gives a descriptor: again where a signal came, and once more where there was
/// none left and some could be closed.
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

fn close_kept() -> usize {
    let kept: Vec<_> = KEPT.lock().iter().filter_map(Weak::upgrade).collect();
    kept.iter().map(|files| files.close_all()).sum()
}
