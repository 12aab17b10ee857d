//! Reads ahead what the daemon sends to a command of another machine. Meanwhile, what was read
//! before waits until everything is durable that it depends on. So a stream passes on much with
//! each wait.
//!
//! What was read and not passed on is bounded, for one command and, with answers of all kinds, for
//! all clients.

use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use device::sync::{Condvar, Mutex};

use super::memory::{Usage, Waiting};
use super::volume::Served;

/// Bytes that are carried at once.
const PART_BYTES: usize = 64 << 10;
/// Most bytes that were read and not passed on.
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// What was read at once; nothing: the end.
pub(super) struct Part {
    pub(super) bytes: Vec<u8>,
    _counted: Waiting,
}

/// What was read and not passed on.
#[derive(Default)]
pub(super) struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parts: VecDeque<Part>,
    bytes: usize,
    /// What they rest on.
    position: Option<u64>,
    ended: bool,
}

impl Ahead {
    /// The thread that reads, until the end or until nobody takes any more.
    pub(super) fn read(&self, volume: &Served, mut from: &UnixStream, usage: &Arc<Usage>) {
        let mut buffer = vec![0; PART_BYTES];
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            // After it was read: this covers all that it may have seen.
            let position = volume.fs.unsettled();
            let mut state = self.state.lock();
            // (A part alone always has space; the next one comes when it is taken.)
            while !state.ended && !state.parts.is_empty() && !has_space(&state, usage, count) {
                self.changed.wait(&mut state);
            }
            if state.ended {
                return;
            }
            let counted = Waiting::new(usage, count);
            state.parts.push_back(Part { bytes: buffer[..count].to_vec(), _counted: counted });
            state.bytes += count;
            state.position = state.position.max(position);
            drop(state);
            self.changed.notify_all();
            if count == 0 {
                return;
            }
        }
    }

    /// Waits for what was read; returns all of it, and what it rests on.
    pub(super) fn take(&self) -> (VecDeque<Part>, Option<u64>) {
        let mut state = self.state.lock();
        while state.parts.is_empty() {
            self.changed.wait(&mut state);
        }
        state.bytes = 0;
        let taken = (std::mem::take(&mut state.parts), state.position.take());
        drop(state);
        self.changed.notify_all();
        taken
    }

    /// Nobody takes any more.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

fn has_space(state: &State, usage: &Usage, more: usize) -> bool {
    state.bytes + more <= AHEAD_BYTES_MAX && usage.answers.has_space(more)
}
