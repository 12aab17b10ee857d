//! A request from its arrival to its answer: what it waits for, and its execution by a thread of
//! the pool.
//!
//! Each part of a message is decoded once. The thread that receives it decodes what is before the
//! call, and the one that executes it decodes the call. Only calls with long answers, and locks,
//! are decoded twice. Their space, and what they wait for, is known before a thread has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wire::remote::{
    AskedHead, FsCall, FsFailure, HEAD_BYTES, LockKind, is_looked_into, split_asked,
};
use wire::{DecodeError, decode};

use super::calls::{self, Executing, Outcome};
use super::memory::Reserved;
use super::outbox::Connection;
use super::pool::Work;
use super::session::Session;

/// What is known of a request before it is executed.
pub(super) struct Received {
    /// What is before its call, and how many bytes the encoded call has.
    head: Result<(AskedHead, usize), DecodeError>,
    /// Gets set when it may begin.
    waits: Option<Arc<AtomicBool>>,
    /// Space for its answer.
    reserved: Option<Reserved>,
}

impl Received {
    /// Takes what a request acknowledges, and finds out what it waits for.
    pub(super) fn of(session: &Session, body: &[u8]) -> Received {
        let (mut waits, mut reserved) = (None, None);
        let head = split_asked(body).map(|(mut head, call)| {
            session.acknowledge(&head.shorten(rpc::GROUPS_MAX));
            if is_looked_into(call)
                && let Ok(call) = decode::<FsCall<'_>>(call)
            {
                reserved = Reserved::of(&session.usage, &call);
                // Without a thread: earlier ones may take long to come back.
                if let FsCall::Lock { lock, .. } = &call
                    && lock.kind != LockKind::None
                    && !device::mutated(
                        "locks are granted before those from before the restart are claimed",
                    )
                {
                    waits = Some(session.volume.past_grace());
                }
            }
            (head, call.len())
        });
        Received { head, waits, reserved }
    }
}

/// A request that is to be executed.
pub(super) struct Request {
    pub(super) session: Arc<Session>,
    /// The connection by which its answer leaves.
    pub(super) connection: Arc<Connection>,
    pub(super) id: u64,
    pub(super) message: Vec<u8>,
    pub(super) asked: Received,
    /// Nobody waits for it any more.
    pub(super) cancel: Arc<AtomicBool>,
}

impl Work for Request {
    fn may_begin(&self) -> bool {
        let has_happened = |happened: &Arc<AtomicBool>| {
            happened.load(Ordering::SeqCst) || self.cancel.load(Ordering::SeqCst)
        };
        // (The last question takes the space, and the request begins.)
        self.connection.has_space()
            && self.asked.waits.as_ref().is_none_or(has_happened)
            && self.asked.reserved.as_ref().is_none_or(Reserved::take)
    }

    fn run(self: Box<Self>) {
        let Request { session, connection, id, message, asked, cancel } = *self;
        drop(connection);
        vfs::with_cancellation(&cancel, || execute(&session, id, &message, asked));
    }
}

/// Executes a request and answers it.
fn execute(session: &Arc<Session>, id: u64, message: &[u8], received: Received) {
    let Some(body) = message.get(HEAD_BYTES..) else { return };
    let Some(running) = session.volume.begin() else { return };
    let Received { head, reserved, .. } = received;
    let asked = head.and_then(|(head, length)| {
        let call = body.get(body.len() - length..).unwrap_or_default();
        Ok(head.with(decode(call)?))
    });
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => {
            tracing::info!(client = %session.client, %error, "a request is malformed");
            session.answered(id, calls::frame(id, Err(FsFailure::Invalid)), true);
            return;
        }
    };
    let executing = Executing::new(session, id, &asked.who);
    let outcome = executing.run_once(&asked, body);
    let frame = match &outcome {
        Ok(Outcome::Later) => return,
        Ok(outcome) => calls::frame(id, Ok(outcome)),
        Err(error) => calls::failed(session, id, error),
    };
    drop(outcome);
    // (It has its space until it is counted where it waits.)
    if let Some(reserved) = &reserved {
        reserved.shrink(frame.len());
    }
    let is_repeatable = asked.call.is_repeatable();
    session.volume.answer(session, (id, frame), is_repeatable, running);
}
