//! What leaves by a connection of a session: answers wait in an outbox, and a thread of the
//! connection sends them. Nobody else waits for a client that does not read. The thread ends when
//! there was nothing to send for a while, and begins again: idle sessions have one thread less.
//!
//! The outbox is bounded. Requests of a client begin only while it and its other connections have
//! little unread. A connection with more frames than an honest client can be owed is closed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use rpc::Channel;

use super::memory::Usage;
use super::pool::Pool;

/// Requests begin while their connection has less unread than this, and all connections of their
/// client have less than that. Requests that run already add to it.
const UNREAD_MAX: usize = 4 << 20;
const UNREAD_OF_CLIENT_MAX: usize = 64 << 20;
/// Most frames that wait: answers to all requests that may be in flight, and pongs.
const FRAMES_MAX: usize = 1024;
/// How long the thread that sends stays without anything to send.
const IDLE: Duration = Duration::from_secs(2);
/// Bytes that are sent in one write.
const WRITE_BYTES: usize = 1 << 20;

/// A connection of a session.
pub(super) struct Connection {
    pub(super) channel: Arc<Channel>,
    outbox: Mutex<Outbox>,
    changed: Condvar,
    /// Bytes that wait, or are being sent, of this connection.
    unread: AtomicUsize,
    /// What the client uses, by all its connections.
    usage: Arc<Usage>,
    /// The newest ping that a thread is to answer.
    pong: Mutex<Option<u64>>,
    /// Has work that waits for space here.
    pool: Arc<Pool>,
}

#[derive(Default)]
struct Outbox {
    frames: VecDeque<Vec<u8>>,
    /// There is a thread that sends.
    is_sent: bool,
    ended: bool,
}

impl Connection {
    /// A connection.
    pub(super) fn new(
        channel: Arc<Channel>,
        usage: Arc<Usage>,
        pool: Arc<Pool>,
    ) -> Arc<Connection> {
        Arc::new(Connection {
            channel,
            outbox: Mutex::default(),
            changed: Condvar::new(),
            unread: AtomicUsize::new(0),
            usage,
            pong: Mutex::default(),
            pool,
        })
    }

    /// Sends a frame, later. A session keeps what its client did not get.
    pub(super) fn send(self: &Arc<Connection>, frame: Vec<u8>) {
        let mut outbox = self.outbox.lock();
        if outbox.ended {
            return;
        }
        if outbox.frames.len() >= FRAMES_MAX {
            drop(outbox);
            tracing::info!("a client reads no answers: its connection is closed");
            self.close();
            return;
        }
        self.count(frame.len());
        outbox.frames.push_back(frame);
        let has_thread = std::mem::replace(&mut outbox.is_sent, true);
        drop(outbox);
        if has_thread {
            self.changed.notify_one();
            return;
        }
        let own = Arc::clone(self);
        if let Err(error) = device::spawn("serve-send", move || own.send_all()) {
            tracing::warn!(%error, "cannot send to a client: its connection is closed");
            self.close();
        }
    }

    /// Sends a pong, from the thread that receives here, which nobody else waits for; if there is a
    /// thread that sends, by that.
    pub(super) fn send_pong(self: &Arc<Connection>, frame: Vec<u8>) {
        let outbox = self.outbox.lock();
        let (has_thread, ended) = (outbox.is_sent, outbox.ended);
        drop(outbox);
        if has_thread {
            self.send(frame);
        } else if !ended && self.channel.send(&frame).is_err() {
            self.close();
        }
    }

    /// Whether another request may begin whose answer leaves here.
    pub(super) fn has_space(&self) -> bool {
        self.unread.load(Ordering::Relaxed) < UNREAD_MAX
            && self.usage.unread() < UNREAD_OF_CLIENT_MAX
            && self.usage.reads_its_share()
    }

    /// Notes a ping for the thread that answers it; whether there is one already.
    pub(super) fn awaits_pong(&self, number: u64) -> bool {
        self.pong.lock().replace(number).is_some()
    }

    /// The ping to answer now; those that arrive from now on are another thread's.
    pub(super) fn next_pong(&self) -> Option<u64> {
        self.pong.lock().take()
    }

    /// Closes it.
    pub(super) fn close(&self) {
        self.end();
        self.channel.close();
    }

    /// Whether it was closed.
    pub(super) fn has_ended(&self) -> bool {
        self.outbox.lock().ended
    }

    /// Sends nothing more.
    pub(super) fn end(&self) {
        let dropped = {
            let mut outbox = self.outbox.lock();
            outbox.ended = true;
            std::mem::take(&mut outbox.frames)
        };
        self.uncount(dropped.iter().map(Vec::len).sum());
        self.changed.notify_all();
    }

    fn count(&self, bytes: usize) {
        self.unread.fetch_add(bytes, Ordering::Relaxed);
        self.usage.is_to_read(bytes);
    }

    fn uncount(&self, bytes: usize) {
        self.unread.fetch_sub(bytes, Ordering::Relaxed);
        self.usage.has_read(bytes);
    }

    fn send_all(&self) {
        while let Some((frames, bytes)) = self.next() {
            let sent = self.channel.send_all(&frames);
            let was_full = !self.has_space();
            self.uncount(bytes);
            if was_full || self.usage.answers.was_pressed() {
                self.pool.look_again();
            }
            if sent.is_err() {
                self.close();
            }
        }
        // What waited for this connection may begin.
        self.pool.look_again();
    }

    /// Waits for what is sent next; `None`: the thread ends.
    fn next(&self) -> Option<(Vec<Vec<u8>>, usize)> {
        let mut outbox = self.outbox.lock();
        loop {
            if outbox.ended {
                return None;
            }
            let (mut frames, mut bytes) = (Vec::new(), 0);
            while bytes < WRITE_BYTES
                && let Some(frame) = outbox.frames.pop_front()
            {
                bytes += frame.len();
                frames.push(frame);
            }
            if !frames.is_empty() {
                return Some((frames, bytes));
            }
            let waited = self.changed.wait_for(&mut outbox, IDLE);
            if waited.timed_out() && outbox.frames.is_empty() {
                outbox.is_sent = false;
                return None;
            }
        }
    }
}
