//! What a client receives, and which answers count.
//!
//! The thread that receives sends nothing: a server that cannot send its answers may read nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpc::Channel;
use wire::remote::{FrameKind, split_head};
use wire::{FRAME_BYTES_MAX, Failure, decode};

use super::remote::Remote;

/// How long the server may be silent: it answers pings.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// The same if another server may take over.
const SILENCE_MAX_OF_SEVERAL: Duration = Duration::from_secs(5);
/// An answer that takes longer counts only if the server that sent it still owned the volume when
/// it arrived. A server waits so long for answers of the one before it.
const DRAIN: Duration = Duration::from_secs(1);

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
                    held.push((self.next_ping(), id, std::mem::take(&mut frame)));
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
                _ => return "a message that a server does not send in this state".to_owned(),
            }
        }
    }

    /// Whether an answer took so long that another server may own the volume since. A server that
    /// was stopped between its decision to answer and the sending does not know that.
    fn took_long(&self, id: u64) -> bool {
        if !self.has_several() {
            return false;
        }
        let since = self.state.lock().calls.get(&id).map(|call| call.since);
        since.is_some_and(|since| self.clock.monotonic().saturating_sub(since) >= DRAIN)
    }

    fn answered(&self, id: u64, frame: Vec<u8>) {
        let mut state = self.state.lock();
        let call = state.take_answered(id, frame.len());
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

    /// Has the thread that reports send a ping; returns its number.
    fn next_ping(&self) -> u64 {
        // Those that have it, or a greater one, get it from now on.
        let number = self.pings.load(Ordering::SeqCst) + 1;
        self.state.lock().ping_is_due = true;
        self.signal.notify_all();
        number
    }
}
