//! Pings of all clients of a volume that wait for a proof that this server has it. A thread of its
//! own asks the store, once for all that came before it begins. Requests that wait for the store
//! occupy the pool's threads, and a client that hears no pong hangs up.

use std::sync::Arc;

use device::sync::Mutex;
use wire::remote::{FrameKind, put_head};

use super::outbox::Connection;

/// Connections that wait for a pong.
#[derive(Default)]
pub(super) struct Pongs(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    all: Vec<Arc<Connection>>,
    /// A thread takes them.
    is_taken: bool,
}

impl Pongs {
    /// Has a ping answered; whether the caller has to begin the thread.
    pub(super) fn put(&self, connection: &Arc<Connection>, number: u64) -> bool {
        if connection.awaits_pong(number) {
            return false;
        }
        let mut waiting = self.0.lock();
        waiting.all.push(Arc::clone(connection));
        !std::mem::replace(&mut waiting.is_taken, true)
    }

    /// There is no thread: clients connect again.
    pub(super) fn drop_all(&self) {
        let all = std::mem::take(&mut *self.0.lock()).all;
        for connection in all {
            connection.close();
        }
    }

    /// The thread: answers all, if this process owns the volume.
    pub(super) fn answer(&self, may_answer: impl Fn() -> bool) {
        loop {
            let all = {
                let mut waiting = self.0.lock();
                if waiting.all.is_empty() {
                    waiting.is_taken = false;
                    return;
                }
                std::mem::take(&mut waiting.all)
            };
            // Pings that arrive from now on are for the next time.
            let all: Vec<_> =
                all.into_iter().map(|leaves_by| (leaves_by.next_pong(), leaves_by)).collect();
            let is_ours = may_answer();
            for (number, leaves_by) in all {
                match number {
                    Some(number) if is_ours => leaves_by.send(pong_frame(number)),
                    Some(_) => leaves_by.close(),
                    None => {}
                }
            }
        }
    }
}

/// The answer to a ping.
pub(super) fn pong_frame(number: u64) -> Vec<u8> {
    let mut pong = Vec::new();
    put_head(FrameKind::Pong, number, &mut pong);
    pong
}
