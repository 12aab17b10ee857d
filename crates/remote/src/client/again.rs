//! A connection that is lost is made again: what the client holds is claimed, and calls without an
//! answer are sent again.
//!
//! * Claims leave before the connection is visible, so no call overtakes them.
//! * A call is sent again at most once on a connection, and never after its answer was
//!   acknowledged: the server would execute it again.
//! * Answers are received while calls are sent again: a server that cannot send them may read
//!   nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use inode::FsError;
use rpc::Channel;
use wire::encode;
use wire::remote::{
    FEATURE_TAKEN_OVER, FrameKind, LockKind, LockRange, Reclaim, RemoteWelcome, put_head,
};

use super::connect::{Purpose, connect};
use super::remote::{Remote, cancel_frame, gone};
use super::under_way::{State, nothing_more};
use crate::convert;

/// Pause between two attempts to connect: at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// The longest pause if another server may take over.
const PAUSE_OF_SEVERAL: Duration = Duration::from_millis(300);
/// How often callers are looked at that read their answers.
const READERS_PAUSE: Duration = Duration::from_millis(1);
/// Most nodes, and most locks, in one message to a server that took over.
const CLAIMED_MAX: usize = 4096;

impl Remote {
    /// Receives answers, and connects again when the connection is lost, until the session ends.
    pub(super) fn keep_connected(self: &Arc<Remote>, mut channel: Arc<Channel>) {
        loop {
            let why = self.receive(&channel);
            channel.close();
            let mut state = self.state.lock();
            if state.ended {
                return;
            }
            state.connection = None;
            state.lost_since = self.clock.monotonic();
            drop(state);
            tracing::warn!(server = %self.target, %why, "lost the connection to the server");
            match self.connect_again() {
                Some(next) => channel = next,
                None => return,
            }
        }
    }

    /// Connects again, and has sent what has no answer; `None` when the session ended.
    fn connect_again(self: &Arc<Remote>) -> Option<Arc<Channel>> {
        let mut pause = PAUSE.0;
        loop {
            let (resume, awaits) = {
                let mut state = self.state.lock();
                if state.ended {
                    return None;
                }
                if let Some(session) = &mut state.session {
                    session.attempt += 1;
                }
                (state.session, state.calls.keys().copied().collect::<Vec<_>>())
            };
            let purpose = Purpose::of_session(resume, &awaits);
            match connect(&*self.net, &self.clock, (&self.target, &self.silent), &purpose) {
                Ok((channel, welcome)) => {
                    if self.take_up(&channel, &welcome) {
                        return Some(channel);
                    }
                }
                Err(error) if error.may_pass() => {
                    tracing::debug!(server = %self.target, %error, "not connected");
                }
                Err(error) => {
                    tracing::error!(server = %self.target, %error, "the server refuses");
                    pause = PAUSE.1;
                }
            }
            self.clock.sleep(pause);
            let most = if self.has_several() { PAUSE_OF_SEVERAL } else { PAUSE.1 };
            pause = (pause * 2).min(most);
        }
    }

    /// Continues with a new connection; `false`: it is of no use.
    fn take_up(self: &Arc<Remote>, channel: &Arc<Channel>, welcome: &RemoteWelcome) -> bool {
        self.may_move.store(welcome.features & FEATURE_TAKEN_OVER != 0, Ordering::Relaxed);
        let reclaims = welcome.resumed && welcome.reclaims;
        if reclaims && !self.claim_all(channel) {
            return false;
        }
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            // As in `end`, which found no connection.
            let mut frame = Vec::new();
            put_head(FrameKind::Bye, 0, &mut frame);
            return channel.send(&frame).is_ok();
        }
        if !welcome.resumed {
            self.begin_session(&mut state);
        } else if !reclaims {
            tracing::info!(server = %self.target, "connected again");
        }
        state.session = Some(welcome.session);
        state.begin_connection();
        state.connection = Some(Arc::clone(channel));
        let now = self.clock.monotonic();
        for call in state.calls.values_mut() {
            call.is_sent = true;
            call.since = now;
        }
        let ids: Vec<u64> = state.calls.keys().copied().collect();
        drop(state);
        self.changed.notify_all();
        if ids.is_empty() {
            return true;
        }
        let (own, to) = (Arc::clone(self), Arc::clone(channel));
        match device::spawn("remote-resend", move || own.send_all_again(&to, &ids)) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "cannot send calls again: connecting again");
                channel.close();
                self.state.lock().connection = None;
                false
            }
        }
    }

    /// The server has lost the session: ends what belonged to it, and gives what is left to the new
    /// one.
    fn begin_session(&self, state: &mut State) {
        tracing::error!(
            server = %self.target,
            "the server does not know this session any more: open files are stale, locks are \
             lost, and changes without an answer may have been made"
        );
        state.drop_reports();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.kept.forget_opens();
        for (node, lock) in self.locks.all() {
            let kind = LockKind::None;
            self.locks.note(node, LockRange { kind, ..lock });
        }
        state.calls.retain(|_, call| {
            // Locks ended with the session, and files are not open in the new one.
            let is_over = call.ends.is_some() || call.is_of_handle;
            let repeats = device::mutated("changes are repeated in a new session");
            let is_safe = call.is_repeatable || !call.is_sent || repeats;
            if !is_safe {
                let text = "the server was restarted: the change may have been made";
                call.waiting.put(Err(gone(text)));
            } else if is_over {
                call.waiting.put(Err(FsError::Stale));
            }
            is_safe && !is_over
        });
        state.begin_numbers();
    }

    /// Sends calls again, in their order, as long as this is the connection.
    fn send_all_again(&self, channel: &Arc<Channel>, ids: &[u64]) {
        for &id in ids {
            let Some(mut state) = self.state_on(channel) else { return };
            // It may be answered: the server executed it before.
            let Some(frame) = state.send_again(id) else { continue };
            drop(state);
            let mut sent = channel.send(&frame);
            let Some(mut state) = self.state_on(channel) else { return };
            state.was_sent_again();
            let is_cancelled = state.calls.get(&id).is_some_and(|call| call.is_cancelled);
            drop(state);
            // A cancellation was lost with a connection, or was sent before the call just now.
            if sent.is_ok() && is_cancelled {
                sent = channel.send(&cancel_frame(id));
            }
            if sent.is_err() {
                // The receiver notices.
                return channel.close();
            }
        }
    }

    /// The state, if this is the connection.
    fn state_on(&self, channel: &Arc<Channel>) -> Option<device::sync::MutexGuard<'_, State>> {
        let state = self.state.lock();
        let is_current = state.connection.as_ref().is_some_and(|own| Arc::ptr_eq(own, channel));
        is_current.then_some(state)
    }

    /// Claims what the client holds from a server that took over; `false`: the connection broke, or
    /// the session ended.
    fn claim_all(&self, channel: &Channel) -> bool {
        self.await_readers();
        let frames = {
            let mut state = self.state.lock();
            tracing::info!(server = %self.target, "another server continues the session");
            // What was given back is not claimed. (What is given back from now on is reported.)
            state.drop_reports();
            state.calls.retain(|id, call| {
                if call.is_report {
                    call.waiting.put(Ok(nothing_more(*id)));
                }
                !call.is_report
            });
            self.claims()
        };
        for frame in frames {
            if channel.send(&frame).is_err() {
                return false;
            }
            // There is a server, so calls wait for it.
            let mut state = self.state.lock();
            state.lost_since = self.clock.monotonic();
        }
        true
    }

    /// Waits until the callers whose answers have arrived have read them: what they got belongs to
    /// what the client holds, and is claimed.
    fn await_readers(&self) {
        let readers = std::mem::take(&mut self.state.lock().readers);
        for reader in readers {
            while reader.strong_count() > 0 {
                self.clock.sleep(READERS_PAUSE);
            }
        }
    }

    /// What the client holds, as messages to a server that took over.
    fn claims(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
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
                return frames;
            }
        }
    }
}
