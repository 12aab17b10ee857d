//! Sessions of clients, and the first answer to each of their requests
//! (`docs/format/answer-record.md`).
//!
//! They are in a tree of their own, which no snapshot or clone has: a client's answer stays
//! valid whatever is rolled back. A request is named by its session and its number. Its answer is
//! in the batch that made its change, so both are there or neither.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Number of the tree.
pub const ANSWER_TREE: u64 = 18;
/// Most bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = 4096;
/// Bytes of a session's record.
pub const SESSION_BYTES: usize = 24;

// DO NOT CHANGE THESE VALUES: they are on disk.
const SESSION: u8 = b'S';
const ANSWER: u8 = b'A';

/// Layout of a session's record.
pub const SESSION_LAYOUT: &[Field] = &[
    Field::fixed("opened", "i64 LE", 8),
    Field::fixed("seen", "i64 LE", 8),
    Field::fixed("done", "u64 LE", 8),
];
const _: () = assert!(size_of(SESSION_LAYOUT) == SESSION_BYTES);

/// Layout of an answer.
pub const LAYOUT: &[Field] =
    &[Field::fixed("request", "u64 LE", 8), Field::variable("answer", "bytes")];
const REQUEST_BYTES: usize = 8;
const _: () = assert!(size_of(LAYOUT) == REQUEST_BYTES);

/// Layout of what a request of a served volume did: its answer.
pub const EXECUTED_LAYOUT: &[Field] = &[
    Field::fixed("version", "u8", 1),
    Field::fixed("slot", "u32 LE", 4),
    Field::fixed("inode", "u64 LE", 8),
    Field::fixed("number", "u64 LE", 8),
];
/// Bytes of that.
pub const EXECUTED_BYTES: usize = 21;
const _: () = assert!(size_of(EXECUTED_LAYOUT) == EXECUTED_BYTES);
const EXECUTED_VERSION: u8 = 1;

/// What a request of a served volume did. Its answer is made of this and of the state at the time
/// of a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executed {
    /// The node that it made, or gave a name: its slot, and its inode, which is not 0.
    pub node: Option<(u32, u64)>,
    /// The number that it is answered with; 0: none.
    pub number: u64,
}

/// The random name of a session.
pub type SessionId = [u8; 16];

/// A session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRecord {
    /// When it began, in nanoseconds since 1970.
    pub opened: i64,
    /// When its client was last heard of, as far as that was recorded.
    pub seen: i64,
    /// The client has the answers to all requests up to this number: it repeats none of them.
    pub done: u64,
}

/// The first answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRecord {
    /// A hash of the request: a repeat has the same.
    pub request: u64,
    /// What was answered; at most [`ANSWER_BYTES_MAX`].
    pub answer: Vec<u8>,
}

/// Key of a session.
pub fn session(id: &SessionId) -> [u8; 17] {
    let mut key = [SESSION; 17];
    key.iter_mut().skip(1).zip(id).for_each(|(to, from)| *to = *from);
    key
}

/// Prefix of the keys of all sessions.
pub const SESSIONS_PREFIX: [u8; 1] = [SESSION];

/// Key of the answer to a request.
pub fn answer(id: &SessionId, number: u64) -> [u8; 25] {
    let mut key = [ANSWER; 25];
    let tail = id.iter().copied().chain(number.to_be_bytes());
    key.iter_mut().skip(1).zip(tail).for_each(|(to, from)| *to = from);
    key
}

/// Prefix of the keys of all answers of a session.
pub fn answers_prefix(id: &SessionId) -> [u8; 17] {
    let mut key = session(id);
    key.iter_mut().take(1).for_each(|tag| *tag = ANSWER);
    key
}

/// The session of a session's key.
pub fn parse_session(key: &[u8]) -> Result<SessionId, Malformed> {
    let mut reader = Reader::new("session key", key);
    let tag = reader.u8()?;
    let id = reader.array()?;
    reader.end()?;
    if tag == SESSION { Ok(id) } else { Err(reader.malformed("a session", tag.to_string())) }
}

/// Session and number of the key of an answer.
pub fn parse_answer(key: &[u8]) -> Result<(SessionId, u64), Malformed> {
    let mut reader = Reader::new("answer key", key);
    let tag = reader.u8()?;
    let id = reader.array()?;
    let number = u64::from_be_bytes(reader.array()?);
    reader.end()?;
    if tag == ANSWER {
        Ok((id, number))
    } else {
        Err(reader.malformed("an answer", tag.to_string()))
    }
}

impl SessionRecord {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SESSION_BYTES);
        out.put_i64(self.opened);
        out.put_i64(self.seen);
        out.put_u64(self.done);
        out
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<SessionRecord, Malformed> {
        let mut reader = Reader::new("session", bytes);
        let record =
            SessionRecord { opened: reader.i64()?, seen: reader.i64()?, done: reader.u64()? };
        reader.end()?;
        Ok(record)
    }
}

impl AnswerRecord {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(REQUEST_BYTES.saturating_add(self.answer.len()));
        out.put_u64(self.request);
        out.raw(&self.answer);
        out
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<AnswerRecord, Malformed> {
        let mut reader = Reader::new("answer", bytes);
        let request = reader.u64()?;
        let length = reader.remaining();
        if length > ANSWER_BYTES_MAX {
            return Err(reader.malformed("at most 4096 bytes of answer", length.to_string()));
        }
        Ok(AnswerRecord { request, answer: reader.take(length)?.to_vec() })
    }
}

impl Executed {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (slot, inode) = self.node.unwrap_or((0, 0));
        let mut out = Vec::with_capacity(EXECUTED_BYTES);
        out.put_u8(EXECUTED_VERSION);
        out.put_u32(slot);
        out.put_u64(inode);
        out.put_u64(self.number);
        out
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<Executed, Malformed> {
        let mut reader = Reader::new("executed request", bytes);
        let version = reader.u8()?;
        if version != EXECUTED_VERSION {
            return Err(reader.malformed("version 1", version.to_string()));
        }
        let (slot, inode, number) = (reader.u32()?, reader.u64()?, reader.u64()?);
        reader.end()?;
        Ok(Executed { node: (inode != 0).then_some((slot, inode)), number })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ANSWER_BYTES_MAX, AnswerRecord, EXECUTED_BYTES, Executed, SessionRecord, answer,
        answers_prefix, parse_answer, parse_session, session,
    };

    #[test]
    fn keys_round_trip_and_sort_by_number() {
        let id = [7; 16];
        assert_eq!(parse_session(&session(&id)), Ok(id));
        assert_eq!(parse_answer(&answer(&id, 300)), Ok((id, 300)));
        assert!(answer(&id, 255) < answer(&id, 256));
        assert!(answer(&id, 0).starts_with(&answers_prefix(&id)));
        assert!(!answer(&[8; 16], 0).starts_with(&answers_prefix(&id)));
        assert!(parse_session(&answer(&id, 1)).is_err() && parse_answer(&session(&id)).is_err());
        for length in 0..25 {
            assert!(parse_answer(&answer(&id, 9)[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn what_a_request_did_round_trips() {
        for executed in
            [Executed { node: None, number: 0 }, Executed { node: Some((3, u64::MAX)), number: 7 }]
        {
            let bytes = executed.encode();
            assert_eq!(bytes.len(), EXECUTED_BYTES);
            assert_eq!(Executed::decode(&bytes), Ok(executed));
            for length in (0..EXECUTED_BYTES).chain([EXECUTED_BYTES + 1]) {
                let cut = &[bytes.as_slice(), &[0]].concat()[..length];
                assert!(Executed::decode(cut).is_err(), "{length}");
            }
            assert!(Executed::decode(&[&[2], &bytes[1..]].concat()).is_err());
        }
    }

    #[test]
    fn records_round_trip_and_are_bounded() {
        let record = SessionRecord { opened: -1, seen: i64::MAX, done: u64::MAX };
        let bytes = record.encode();
        assert_eq!(SessionRecord::decode(&bytes), Ok(record));
        for length in (0..24).chain([25]) {
            assert!(SessionRecord::decode(&[bytes.as_slice(), &[0]].concat()[..length]).is_err());
        }
        for length in [0, 1, ANSWER_BYTES_MAX] {
            let record = AnswerRecord { request: 9, answer: vec![5; length] };
            assert_eq!(AnswerRecord::decode(&record.encode()), Ok(record));
        }
        let long = AnswerRecord { request: 9, answer: vec![5; ANSWER_BYTES_MAX + 1] };
        assert!(AnswerRecord::decode(&long.encode()).is_err());
        assert!(AnswerRecord::decode(&[0; 7]).is_err());
    }
}
