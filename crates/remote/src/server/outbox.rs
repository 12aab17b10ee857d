//! What leaves by a connection of a session: answers wait in an outbox, and a thread of the
//! connection sends them. Nobody else waits for a client that does not read.
//!
//! The outbox is bounded: requests of a client begin only while it and its other connections have
//! little unread, and a connection with more frames than an honest client can be owed is closed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
}

#[derive(Default)]
struct Outbox {
    frames: VecDeque<Vec<u8>>,
    ended: bool,
}

impl Connection {
    /// A connection, with the thread that sends.
    pub(super) fn start(
        channel: Arc<Channel>,
        usage: Arc<Usage>,
        pool: Arc<Pool>,
    ) -> io::Result<Arc<Connection>> {
        let connection = Arc::new(Connection {
            channel,
            outbox: Mutex::default(),
            changed: Condvar::new(),
            unread: AtomicUsize::new(0),
            usage,
            pong: Mutex::default(),
        });
        let own = Arc::clone(&connection);
        device::spawn("serve-send", move || own.send_all(&pool))?;
        Ok(connection)
    }

    /// Sends a frame, later. A session keeps what its client did not get.
    pub(super) fn send(&self, frame: Vec<u8>) {
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
        drop(outbox);
        self.changed.notify_one();
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

    fn send_all(&self, pool: &Pool) {
        while let Some((frames, bytes)) = self.next() {
            let parts: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
            let sent = self.channel.send_all(&parts);
            let was_full = !self.has_space();
            self.uncount(bytes);
            if was_full || self.usage.answers.was_pressed() {
                pool.look_again();
            }
            if sent.is_err() {
                self.close();
            }
        }
        // What waited for this connection may begin.
        pool.look_again();
    }

    /// Waits for what is sent next; `None` at the end.
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
            self.changed.wait(&mut outbox);
        }
    }
}
