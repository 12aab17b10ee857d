//! Cancels the work of a thread whose caller no longer waits. A search that a program began by
//! opening a directory, or by reading an attribute, ends when the program is interrupted.
//!
//! The flag is thread-local, because the calls in between have nothing to do with it.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CANCEL: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs calls of the namespace until they are done, or `cancel` is set: searches poll it, and then
/// return `Interrupted`.
pub fn with_cancellation<T>(cancel: &Arc<AtomicBool>, run: impl FnOnce() -> T) -> T {
    let before = CANCEL.with(|own| own.replace(Some(Arc::clone(cancel))));
    let done = run();
    CANCEL.with(|own| own.replace(before));
    done
}

/// The flag that is set when no caller waits for this thread any more.
pub fn cancel() -> Arc<AtomicBool> {
    CANCEL.with(|own| own.borrow().clone()).unwrap_or_default()
}

/// Whether no caller waits for this thread any more.
pub fn is_cancelled(cancel: &AtomicBool) -> bool {
    cancel.load(Ordering::Relaxed)
}
