//! What a client receives, and what it sends to a server that took over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpc::Channel;
use wire::remote::{FrameKind, Reclaim, put_head, split_head};
use wire::{FRAME_BYTES_MAX, Failure, decode, encode};

use super::remote::Remote;
use crate::convert;

/// How long the server may be silent: it answers pings.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// The same if another server may take over.
const SILENCE_MAX_OF_SEVERAL: Duration = Duration::from_secs(5);
/// An answer that takes longer counts only if the server that sent it still owned the volume when
/// it arrived: a server waits so long for answers of the one before it.
const DRAIN: Duration = Duration::from_secs(1);
/// How often callers are looked at that read their answers.
const READERS_PAUSE: Duration = Duration::from_millis(1);
/// Most nodes, and most locks, in one message to a server that took over.
const CLAIMED_MAX: usize = 4096;

impl Remote {
    /// Whether another server may take over.
    pub(super) fn has_several(&self) -> bool {
        self.target.places.len() > 1 || self.may_move.load(Ordering::Relaxed)
    }

    /// Receives answers until the connection ends; returns why it did.
    pub(super) fn receive(&self, channel: &Channel) -> String {
        let silence = if self.has_several() { SILENCE_MAX_OF_SEVERAL } else { SILENCE_MAX };
        let mut frame = Vec::new();
        // Answers that took long, and the ping whose pong shows that they count.
        let mut held: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        loop {
            if let Err(error) = channel.receive(&mut frame, FRAME_BYTES_MAX, silence) {
                return error.to_string();
            }
            match split_head(&frame) {
                Some((FrameKind::Reply, id, _)) if self.took_long(id) => {
                    let ping = self.ping(channel, &[]);
                    held.push((ping, id, std::mem::take(&mut frame)));
                }
                Some((FrameKind::Reply, id, _)) => self.answered(id, std::mem::take(&mut frame)),
                Some((FrameKind::Pong, number, _)) => {
                    for (_, id, frame) in held.extract_if(.., |(ping, ..)| *ping <= number) {
                        self.answered(id, frame);
                    }
                }
                Some((FrameKind::Refused, _, body)) => {
                    return decode::<Failure>(body)
                        .map_or_else(|error| error.to_string(), |failure| failure.to_string());
                }
                _ => return "a message that no server sends here".to_owned(),
            }
        }
    }

    /// Whether an answer took so long that another server may own the volume since: one that was
    /// stopped between its decision to answer and the sending does not know that.
    fn took_long(&self, id: u64) -> bool {
        if !self.has_several() {
            return false;
        }
        let since = self.state.lock().calls.get(&id).map(|call| call.since);
        since.is_some_and(|since| self.clock.monotonic().saturating_sub(since) >= DRAIN)
    }

    fn answered(&self, id: u64, frame: Vec<u8>) {
        let mut state = self.state.lock();
        let call = state.calls.remove(&id);
        state.acknowledged.push(id);
        if let Some(call) = &call {
            state.readers.retain(|reader| reader.strong_count() > 0);
            state.readers.push(Arc::downgrade(&call.waiting));
        }
        drop(state);
        if let Some(call) = call {
            call.waiting.put(Ok(frame));
        }
        self.changed.notify_one();
    }

    /// Sends a ping; returns its number.
    pub(super) fn ping(&self, channel: &Channel, acknowledged: &[u64]) -> u64 {
        let number = self.pings.fetch_add(1, Ordering::SeqCst) + 1;
        let mut frame = Vec::new();
        put_head(FrameKind::Ping, number, &mut frame);
        encode(&acknowledged, &mut frame);
        channel.send(&frame).unwrap_or_default();
        number
    }

    /// Waits until the callers whose answers have arrived have read them: what they got belongs to
    /// what the client holds, and is claimed.
    pub(super) fn await_readers(&self) {
        let readers = std::mem::take(&mut self.state.lock().readers);
        for reader in readers {
            while reader.strong_count() > 0 {
                self.clock.sleep(READERS_PAUSE);
            }
        }
    }

    /// Reports to a server that took over what the client holds.
    pub(super) fn claim(&self, frames: &mut Vec<Vec<u8>>) {
        let mut locks: Vec<_> = self.locks.all();
        if device::mutated("a client claims no locks") {
            locks.clear();
        }
        let mut nodes = self.kept.held();
        loop {
            let some = nodes.split_off(nodes.len().saturating_sub(CLAIMED_MAX));
            // Locks are on nodes of messages before.
            let count = if nodes.is_empty() { locks.len().min(CLAIMED_MAX) } else { 0 };
            let claimed = locks.split_off(locks.len() - count);
            let claimed = claimed.into_iter();
            let last = nodes.is_empty() && locks.is_empty();
            let reclaim = Reclaim {
                nodes: some,
                locks: claimed.map(|(node, lock)| (convert::node_to_wire(node), lock)).collect(),
                last,
            };
            let mut frame = Vec::new();
            put_head(FrameKind::Reclaim, 0, &mut frame);
            encode(&reclaim, &mut frame);
            frames.push(frame);
            if last {
                return;
            }
        }
    }
}
