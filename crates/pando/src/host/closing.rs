//! What a daemon that closes its volume waits for: a note in the host directory, because by then
//! its socket is closed. `pando umount` reads it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Env, PatientBlobs, Thread};

use super::{note, noted};

/// File of a host directory while its daemon cannot close the volume because the store accepts
/// nothing.
const CLOSING: &str = "closing";
/// How often the daemon looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest part of the store's last error.
const WHY_CHARS_MAX: usize = 800;

/// A daemon that closes its volume.
pub(crate) struct Closing {
    env: Env,
    ends: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<Thread<()>>,
}

impl Closing {
    /// Begins to note what closing waits for, if the volume is in an object store.
    pub(crate) fn begin(env: &Env) -> Option<Closing> {
        let store = Arc::clone(&env.objects.as_ref()?.store);
        forget(env);
        let ends = Arc::<(Mutex<bool>, Condvar)>::default();
        let thread = device::spawn("closing", {
            let (ends, env) = (Arc::clone(&ends), env.clone());
            move || watch(&env, &store, &ends)
        });
        let thread = thread
            .inspect_err(|error| tracing::warn!(%error, "cannot report what closing waits for"))
            .ok();
        Some(Closing { env: env.clone(), ends, thread })
    }

    /// The volume is closed, or cannot be.
    pub(crate) fn end(self) {
        *self.ends.0.lock() = true;
        self.ends.1.notify_all();
        if let Some(thread) = self.thread {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        forget(&self.env);
    }
}

/// Keeps the note until the volume is closed.
fn watch(env: &Env, store: &PatientBlobs, ends: &(Mutex<bool>, Condvar)) {
    let mut noted = false;
    let mut ended = ends.0.lock();
    while !*ended {
        let outage = store.outage();
        if let Some(outage) = &outage {
            let seconds = env.clock.monotonic().saturating_sub(outage.since).as_secs();
            let why: String = outage.why.chars().take(WHY_CHARS_MAX).collect();
            let text = format!("the store has accepted nothing for {seconds} s: {why}");
            if !noted {
                tracing::warn!("closing waits: {text}");
            }
            if let Err(error) = note(&*env.device, CLOSING, Some(&text)) {
                tracing::warn!(%error, "cannot note what closing waits for");
            }
        } else if noted {
            forget(env);
        }
        noted = outage.is_some();
        ends.1.wait_for(&mut ended, LOOK_EVERY);
    }
}

fn forget(env: &Env) {
    if let Err(error) = note(&*env.device, CLOSING, None) {
        tracing::debug!(%error, "a note is left");
    }
}

/// What the daemon of a volume waits for to close it, if that is the store.
pub(crate) fn closing(volume: &Path) -> Option<String> {
    noted(volume, CLOSING).filter(|text| !text.is_empty())
}
