//! Sessions of clients, and answers to their requests.

use fastrand::Rng;
use format::answer_record::{self, AnswerRecord, Executed, SESSION_BYTES, SessionRecord};

use super::again;
use crate::random::{bytes, id, number, signed};
use crate::target::{Category, Target, no_checksum};

pub(super) const TARGETS: &[Target] = &[Target {
    name: "answers",
    part: Category::Decoders,
    covers: &[
        "answer_record::SESSION_LAYOUT",
        "answer_record::LAYOUT",
        "answer_record::EXECUTED_LAYOUT",
        "answer_record::decode",
        "answer_record::parse_session",
        "answer_record::parse_answer",
    ],
    make,
    repair: no_checksum,
    run,
}];

fn make(random: &mut Rng) -> Vec<u8> {
    match random.u8(..5) {
        0 => SessionRecord { opened: signed(random), seen: signed(random), done: number(random) }
            .encode(),
        1 => answer_record::session(&id(random)).to_vec(),
        2 => answer_record::answer(&id(random), number(random)).to_vec(),
        3 => {
            let node = random.bool().then(|| (random.u32(..), random.u64(1..)));
            Executed { node, number: number(random) }.encode()
        }
        _ => {
            let request = number(random);
            AnswerRecord { request, answer: bytes(random, 5000) }.encode()
        }
    }
}

fn run(bytes: &[u8]) -> bool {
    let mut understood = false;
    if let Ok(record) = SessionRecord::decode(bytes) {
        assert_eq!(bytes.len(), SESSION_BYTES, "all bytes are read");
        again(&record, &record.encode(), SessionRecord::decode);
        understood = true;
    }
    if let Ok(record) = AnswerRecord::decode(bytes) {
        again(&record, &record.encode(), AnswerRecord::decode);
        understood = true;
    }
    if let Ok(executed) = Executed::decode(bytes) {
        again(&executed, &executed.encode(), Executed::decode);
        understood = true;
    }
    if let Ok(session) = answer_record::parse_session(bytes) {
        assert_eq!(answer_record::session(&session), bytes, "another key");
        understood = true;
    }
    if let Ok((session, number)) = answer_record::parse_answer(bytes) {
        assert_eq!(answer_record::answer(&session, number), bytes, "another key");
        understood = true;
    }
    understood
}
