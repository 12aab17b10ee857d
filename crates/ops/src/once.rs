//! Requests of clients that are executed once, however often they arrive
//! (`docs/format/answer-record.md`).
//!
//! A client has a session, and gives its requests numbers. The server looks whether a request was
//! executed ([`Ops::executed`]), and if not makes the change below [`vfs::with_request`]. The batch
//! that has all of the change then takes the answer, too (`execute::sign`). So after a crash both
//! are there or neither. What fails has no answer and is executed again. A session and its answers
//! end together; a request of a session that has ended is refused, never executed.
//!
//! Nothing here keeps two that arrive at the same time apart. A server has one connection for each
//! session, and answers a repeat of a running request with that request's answer
//! (`remote::server::session`).
//!
//! The tree of answers is there if the volume was opened with `OpenOptions::answers`.

use device::Timestamp;
use format::answer_record::{
    self, ANSWER_BYTES_MAX, ANSWER_TREE, AnswerRecord, Executed, SESSIONS_PREFIX, SessionId,
    SessionRecord,
};
use inode::{FsError, NodeId};
use store::{KeyRange, TreeId, prefix_end};
pub use vfs::Request;
use vfs::{Entry, FsResult};
use volume::error::{from_store, malformed};
use volume::locks::{Lock, Mode};
use volume::view::View;

use crate::Ops;
use crate::execute::{execute_alone, execute_alone_locked};
use crate::plan::Plan;

/// The tree of sessions and answers.
pub const ANSWERS: TreeId = TreeId(ANSWER_TREE);
/// Most sessions at one time.
pub const SESSIONS_MAX: usize = 4096;
/// Most requests of a session whose answers it has not confirmed: what bounds the answers kept.
pub const UNCONFIRMED_MAX: u64 = 1024;
/// Most sessions that a batch ends.
const SESSIONS_OF_BATCH: usize = 64;

/// The lock of a session while its record changes, or while it ends.
fn lock_of(session: &SessionId) -> Lock {
    Lock::Object { subvol: 0, ino: name_of(session) }
}

fn name_of(session: &SessionId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *session;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

impl Plan {
    /// Adds the answer to a request to the batch.
    pub fn answer(&mut self, request: &Request, answer: &[u8]) -> FsResult<()> {
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(FsError::InvalidArgument("an answer of more than 4096 bytes"));
        }
        let key = answer_record::answer(&request.session, request.number);
        let record = AnswerRecord { request: request.hash, answer: answer.to_vec() };
        self.batch().put(ANSWERS, &key, &record.encode());
        Ok(())
    }
}

/// The first answer to a request; `None`: it was not executed. Refuses requests of sessions that
/// have ended, and those whose answers the client has confirmed.
fn first_answer(fs: &Ops, request: &Request) -> FsResult<Option<Vec<u8>>> {
    let view = View::new(&*fs.store, ANSWERS);
    let session = answer_record::session(&request.session);
    let Some(session) = view.read(&session, SessionRecord::decode)? else {
        return Err(FsError::Stale);
    };
    if request.number <= session.done {
        return Err(FsError::InvalidArgument("a request whose answer the client has confirmed"));
    }
    if request.number - session.done > UNCONFIRMED_MAX {
        return Err(FsError::LimitReached(
            "1024 requests of a client await its confirmation; repeat it later",
        ));
    }
    let key = answer_record::answer(&request.session, request.number);
    match view.read(&key, AnswerRecord::decode)? {
        Some(known) if known.request != request.hash => {
            Err(FsError::InvalidArgument("a request has the number of another one"))
        }
        known => Ok(known.map(|known| known.answer)),
    }
}

impl Ops {
    /// What a request did that was executed before; `None`: it was not. Refuses requests of
    /// sessions that have ended, and those whose answers the client has confirmed.
    pub fn executed(&self, request: &Request) -> FsResult<Option<Executed>> {
        let Some(answer) = first_answer(self, request)? else { return Ok(None) };
        Executed::decode(&answer).map(Some).map_err(|error| malformed(ANSWERS, &error))
    }

    /// A key that is the volume's alone, for proofs that clients give back.
    pub fn proof_key(&self) -> [u8; 16] {
        self.header.hash_key
    }

    /// Whether inodes without names stay, although nobody holds them, because this opening may
    /// continue earlier sessions, which name them.
    pub fn await_orphans(&self, wait: bool) {
        self.queue.await_orphans(wait);
    }

    /// Finds a node again that a client held when another process served the volume; takes one
    /// look-up.
    pub fn find_again(&self, node: NodeId) -> FsResult<Entry> {
        crate::handles::find_again(self, node)
    }

    /// Begins a session, which is durable when this returns.
    pub fn begin_session(&self) -> FsResult<SessionId> {
        self.may_change()?;
        if self.sessions()?.len() >= SESSIONS_MAX {
            return Err(FsError::LimitReached("4096 clients have sessions; end some"));
        }
        let mut id = [0; 16];
        self.env.random.fill(&mut id);
        let Timestamp(now) = self.env.clock.now();
        let record = SessionRecord { opened: now, seen: now, done: 0 };
        execute_alone(self, |plan| {
            plan.batch().put(ANSWERS, &answer_record::session(&id), &record.encode());
            Ok(())
        })?;
        self.sync()?;
        Ok(id)
    }

    /// All sessions.
    pub fn sessions(&self) -> FsResult<Vec<(SessionId, SessionRecord)>> {
        let range = KeyRange::prefix(&SESSIONS_PREFIX);
        let mut cursor = self.store.scan(ANSWERS, range).map_err(from_store)?;
        let mut sessions = Vec::new();
        while let Some(item) = cursor.next().map_err(from_store)? {
            let wrong = |error| malformed(ANSWERS, &error);
            let id = answer_record::parse_session(item.key).map_err(wrong)?;
            sessions.push((id, SessionRecord::decode(item.value).map_err(wrong)?));
        }
        Ok(sessions)
    }

    /// Notes that the client of a session lives, and has the answers to all requests up to `done`.
    /// Those answers are removed, and their requests refused from now on. Returns up to which
    /// number that is so, which may be greater than `done`.
    pub fn confirm(&self, session: &SessionId, done: u64) -> FsResult<u64> {
        execute_alone_locked(self, &[(lock_of(session), Mode::Exclusive)], |plan| {
            let key = answer_record::session(session);
            let known = View::new(&*self.store, ANSWERS).read(&key, SessionRecord::decode)?;
            let Some(known) = known else { return Err(FsError::Stale) };
            if done <= known.done {
                return Ok(known.done);
            }
            let Timestamp(now) = self.env.clock.now();
            let record = SessionRecord { seen: now.max(known.seen), done, ..known };
            plan.removes();
            plan.batch().put(ANSWERS, &key, &record.encode());
            remove_answers(plan, session, done);
            Ok(done)
        })
    }

    /// Ends sessions, with all of their answers, by as few batches as that takes. What they ask for
    /// later is refused.
    pub fn end_sessions(&self, sessions: &[SessionId]) -> FsResult<()> {
        for some in sessions.chunks(SESSIONS_OF_BATCH) {
            let locks: Vec<_> = some.iter().map(|id| (lock_of(id), Mode::Exclusive)).collect();
            execute_alone_locked(self, &locks, |plan| {
                for session in some {
                    let key = answer_record::session(session);
                    let known = View::new(&*self.store, ANSWERS);
                    if known.read(&key, SessionRecord::decode)?.is_some() {
                        plan.removes();
                        plan.batch().delete(ANSWERS, &key);
                        remove_answers(plan, session, u64::MAX);
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Removes the answers of a session up to a number: as one range, which costs the same in the log
/// however many they are. It begins with the first number. So in a store that keeps ranges, the
/// ranges that a session removes one after the other are one.
fn remove_answers(plan: &mut Plan, session: &SessionId, up_to: u64) {
    let from = answer_record::answer(session, 0);
    let next = up_to.checked_add(1).map(|next| answer_record::answer(session, next).to_vec());
    let to = next.or_else(|| prefix_end(&answer_record::answers_prefix(session)));
    plan.batch().delete_range(ANSWERS, &from, &to.unwrap_or_default());
}
