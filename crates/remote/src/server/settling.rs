//! Answers that wait until everything is durable that they rest on.
//!
//! A change is in memory before it is durable, and other calls see it there. No answer reports it
//! before: neither its own, nor one to a call that saw it. The threads that execute calls do not
//! wait for that. A few others do, each for all answers that came while it and the rest were busy.
//! One write to the log makes many of them true, and several are under way at the same time.
//!
//! What waits is bounded by its bytes: beyond those, a call's own thread waits, so that no more
//! calls begin.

use std::sync::Arc;

use device::sync::{Condvar, Mutex};
use vfs::{FileSystem, FsResult};

use super::memory::{LEAVES_BYTES, Usage, is_fair};

/// Threads: as many writes of a log are under way at most.
const THREADS_MAX: usize = 8;
/// Most bytes of answers that wait for a volume. One client has half as many of them as are
/// left to others at most.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// What an answer takes beside its frame.
pub(super) const ANSWER_BYTES: usize = 256;

/// Sends an answer, or an error in its place.
pub(super) type Send = dyn FnOnce(&FsResult<()>) + std::marker::Send;

/// An answer to a call.
struct Answer {
    /// What must be settled first.
    position: u64,
    bytes: usize,
    send: Box<Send>,
}

/// The answers of one volume.
pub(super) struct Settling {
    fs: Arc<dyn FileSystem>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Answer>,
    bytes: usize,
    threads: usize,
    idle: usize,
    ended: bool,
}

impl Settling {
    pub(super) fn new(fs: &Arc<dyn FileSystem>) -> Arc<Settling> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Settling { fs: Arc::clone(fs), state, changed })
    }

    /// Sends an answer of a client, whose bytes count in its usage already, when everything up to a
    /// position is durable. Returns before that if others can wait for it.
    pub(super) fn put(
        self: &Arc<Settling>,
        position: u64,
        (usage, bytes): (&Usage, usize),
        send: Box<Send>,
    ) {
        let answer = Answer { position, bytes, send };
        let mut state = self.state.lock();
        let left = WAITING_BYTES_MAX.saturating_sub(state.bytes);
        if !is_fair(LEAVES_BYTES, usage.waiting(), 0, left) || state.ended {
            drop(state);
            return self.settle(vec![answer]);
        }
        state.bytes += bytes;
        state.waiting.push(answer);
        if state.idle > 0 || state.threads == THREADS_MAX {
            drop(state);
            self.changed.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let own = Arc::clone(self);
        if let Err(error) = device::spawn("serve-settle", move || own.work()) {
            tracing::warn!(%error, "calls wait until their answers may be sent");
            // As that thread would, but not for what comes later.
            let (answers, bytes) = self.state.lock().take();
            self.settle(answers);
            let mut state = self.state.lock();
            state.bytes -= bytes;
            state.threads -= 1;
        }
    }

    /// Ends the threads when nothing waits.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if state.waiting.is_empty() {
                if state.ended {
                    state.threads -= 1;
                    return;
                }
                state.idle += 1;
                self.changed.wait(&mut state);
                state.idle -= 1;
                continue;
            }
            let (answers, bytes) = state.take();
            drop(state);
            self.settle(answers);
            state = self.state.lock();
            state.bytes -= bytes;
        }
    }

    /// Waits, and sends them.
    fn settle(&self, answers: Vec<Answer>) {
        let Some(last) = answers.iter().map(|answer| answer.position).max() else { return };
        let settled = self.fs.settle(last);
        for answer in answers {
            (answer.send)(&settled);
        }
    }
}

impl State {
    /// All that wait. Their bytes count until they are sent.
    fn take(&mut self) -> (Vec<Answer>, usize) {
        let answers = std::mem::take(&mut self.waiting);
        let bytes = answers.iter().map(|answer| answer.bytes).sum();
        (answers, bytes)
    }
}
