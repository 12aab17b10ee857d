//! Waits for an object store that a caller may give up.
//!
//! A thread that waits for an object store may wait for hours. If it waits on behalf of a caller
//! that accepts "nothing was done" as an answer (an `fsync`), it runs that in [`interruptible`].
//! Then what waits below returns an error as soon as the caller has given up. Everything else, such
//! as a commit that was applied, waits until the store accepts it.
//!
//! The question is thread-local, because the calls in between have nothing to do with it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// How often a thread that waits looks whether a caller still waits for it.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Returns whether the caller has given up.
type GaveUp = Arc<dyn Fn() -> bool>;

thread_local! {
    static GAVE_UP: RefCell<Option<GaveUp>> = const { RefCell::new(None) };
}

/// Runs calls that may return an error of the kind `Interrupted` once `gave_up` returns that nobody
/// waits for them. Where the object store is full they may return one of lacking space.
pub fn interruptible<T>(gave_up: Arc<dyn Fn() -> bool>, run: impl FnOnce() -> T) -> T {
    let before = GAVE_UP.with(|own| own.replace(Some(gave_up)));
    let done = run();
    GAVE_UP.with(|own| own.replace(before));
    done
}

/// Whether this thread runs such calls.
pub fn is_interruptible() -> bool {
    GAVE_UP.with(|own| own.borrow().is_some())
}

/// Whether this thread runs such calls, and nobody waits for them any more.
pub fn is_interrupted() -> bool {
    let gave_up = GAVE_UP.with(|own| own.borrow().clone());
    gave_up.is_some_and(|gave_up| gave_up())
}
