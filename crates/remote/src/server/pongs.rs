//! Questions whether an answer may be sent now, of all clients of a volume: a thread of its own asks
//! the store, once for all that came before it begins. Requests that wait for the store occupy the
//! pool's threads, and a client that hears no pong hangs up.

use std::sync::Arc;

use device::sync::Mutex;
use wire::remote::{FrameKind, put_head};

use super::outbox::Connection;
use super::volume::Served;

/// Connections that wait for a pong.
#[derive(Default)]
pub(super) struct Pongs(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    all: Vec<Arc<Connection>>,
    /// A thread takes them.
    is_asked: bool,
}

/// Answers a ping: with the first pong after an answer its client knows that this process owned the
/// volume when the answer arrived.
pub(super) fn pong(volume: &Arc<Served>, connection: &Arc<Connection>, number: u64) {
    if volume.is_known_to_be_ours() {
        connection.send(pong_frame(number));
        return;
    }
    if connection.awaits_pong(number) {
        return;
    }
    {
        let mut waiting = volume.pongs.0.lock();
        waiting.all.push(Arc::clone(connection));
        if std::mem::replace(&mut waiting.is_asked, true) {
            return;
        }
    }
    let own = Arc::clone(volume);
    if let Err(error) = device::spawn("serve-pong", move || own.pongs.answer(&own)) {
        tracing::warn!(%error, "cannot answer pings");
        let all = std::mem::take(&mut *volume.pongs.0.lock()).all;
        // Their clients connect again.
        all.into_iter().for_each(|connection| connection.close());
    }
}

impl Pongs {
    fn answer(&self, volume: &Served) {
        loop {
            let all = {
                let mut waiting = self.0.lock();
                if waiting.all.is_empty() {
                    waiting.is_asked = false;
                    return;
                }
                std::mem::take(&mut waiting.all)
            };
            // Pings that arrive from now on are for the next time.
            let all: Vec<_> =
                all.into_iter().map(|leaves_by| (leaves_by.next_pong(), leaves_by)).collect();
            let is_ours = volume.may_answer();
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

pub(super) fn pong_frame(number: u64) -> Vec<u8> {
    let mut pong = Vec::new();
    put_head(FrameKind::Pong, number, &mut pong);
    pong
}
