//! The gate: shared by commits, exclusive to see a state between commits.

use std::ops::Deref;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::Latch;
#[cfg(test)]
use device::sync::Mutex;

/// The gate. It guards no data of its own.
pub(crate) struct Gate {
    latch: Latch<()>,
    #[cfg(test)]
    pub(crate) probe: Probe,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            latch: Latch::new(()),
            #[cfg(test)]
            probe: Probe::default(),
        }
    }
}

impl Deref for Gate {
    type Target = Latch<()>;

    #[inline]
    fn deref(&self) -> &Latch<()> {
        &self.latch
    }
}

impl Gate {
    /// Enters exclusively, to see what all trees hold between two commits.
    #[cfg_attr(
        not(test),
        expect(clippy::unnecessary_wraps, reason = "tests bypass the gate, to see what that does")
    )]
    #[inline]
    pub(crate) fn between_commits(&self) -> Option<impl Sized> {
        #[cfg(test)]
        if self.probe.is_bypassed() {
            return None;
        }
        Some(self.latch.write())
    }
}

/// What tests do and see at a gate.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Probe {
    /// An action in the middle of a batch.
    pub(crate) hook: Mutex<Option<Hook>>,
    /// Whether threads that take a state between commits bypass the gate, which shows what it is
    /// for.
    pub(crate) bypassed: AtomicBool,
    /// Number of threads that have reached the gate for that.
    pub(crate) arrivals: AtomicU64,
}

/// An action to run once, after a number of further changes.
#[cfg(test)]
pub(crate) struct Hook {
    pub(crate) after: u32,
    pub(crate) act: Box<dyn FnOnce() + Send>,
}

#[cfg(test)]
impl Probe {
    /// Called before each change.
    pub(crate) fn before_change(&self) {
        let mut hook = self.hook.lock();
        match hook.as_mut() {
            Some(waiting) if waiting.after > 0 => waiting.after -= 1,
            Some(_) => {
                let due = hook.take();
                drop(hook);
                if let Some(due) = due {
                    (due.act)();
                }
            }
            None => {}
        }
    }

    /// Called by each thread that enters exclusively.
    pub(crate) fn is_bypassed(&self) -> bool {
        self.arrivals.fetch_add(1, Ordering::Relaxed);
        self.bypassed.load(Ordering::Relaxed)
    }
}
