//! The request of a client for which a thread changes something, so that it is executed once. The
//! batch of the change records that the request was executed.
//!
//! The executor of a change takes it ([`take_request`]) and puts it into the first batch that has
//! the whole change. What a policy changes before that, on behalf of the same request, finds none.

use std::cell::Cell;

/// A request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The client's session.
    pub session: [u8; 16],
    /// Its number in the session, from 1.
    pub number: u64,
    /// A hash of all that it asks for.
    pub hash: u64,
}

thread_local! {
    static REQUEST: Cell<Option<Request>> = const { Cell::new(None) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Runs a change for a request.
pub fn with_request<T>(request: &Request, run: impl FnOnce() -> T) -> T {
    let before = REQUEST.replace(Some(*request));
    let number = NUMBER.replace(0);
    let done = run();
    REQUEST.set(before);
    NUMBER.set(number);
    done
}

/// The request of this thread, until this is dropped.
#[derive(Debug)]
pub struct TakenRequest(Option<Request>);

/// Takes the request of this thread, if it has one.
#[inline]
pub fn take_request() -> TakenRequest {
    // Nothing is moved where there is none, as in each call of a mount.
    let has_one = REQUEST.get().is_some();
    TakenRequest(if has_one { REQUEST.take() } else { None })
}

impl TakenRequest {
    /// The request, for the batch that has all of its change: it is not put back.
    #[inline]
    pub fn into_batch(&mut self) -> Option<Request> {
        self.0.take()
    }
}

impl Drop for TakenRequest {
    #[inline]
    fn drop(&mut self) {
        if let Some(request) = self.0.take() {
            REQUEST.set(Some(request));
        }
    }
}

/// Notes the number that the request is answered with.
pub fn note_number(number: u64) {
    NUMBER.set(number);
}

/// That number; 0: none was noted.
pub fn noted_number() -> u64 {
    NUMBER.get()
}
