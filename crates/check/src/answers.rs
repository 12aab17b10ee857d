//! Sessions of clients and answers to their requests: each answer is of a session, and its number
//! is one that the session may use.

use std::collections::BTreeMap;

use format::answer_record::{self, AnswerRecord, SESSIONS_PREFIX, SessionRecord};
use ops::once::{ANSWERS, UNCONFIRMED_MAX};
use vfs::FsResult;
use volume::numbers::read_root;
use volume::readable::Scan;

use super::{Checker, Edit, Fix, Problem, ProblemKind};

impl Checker<'_, '_> {
    /// Checks the tree of answers, if there is one. What cannot be read is reported by the engine.
    pub(super) fn check_answers(&mut self) -> FsResult<()> {
        if !read_root(&*self.fs.store).is_ok_and(|root| root.features.answers) {
            return Ok(());
        }
        let (mut sessions, mut wrong, mut unused) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut scan = Scan::new(self.pin, ANSWERS, &SESSIONS_PREFIX)?;
        while scan.advance()? {
            let id = answer_record::parse_session(&scan.key);
            match id.and_then(|id| Ok((id, SessionRecord::decode(&scan.value)?))) {
                Ok((id, session)) => drop(sessions.insert(id, session.done)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        let all_are_known = scan.lost.is_empty() && wrong.is_empty();
        let answers = answer_record::answers_prefix(&[0; 16]);
        let mut scan = Scan::new(self.pin, ANSWERS, &answers[..1])?;
        while scan.advance()? {
            let key = answer_record::parse_answer(&scan.key);
            match key.and_then(|key| AnswerRecord::decode(&scan.value).map(|_| key)) {
                Ok((id, number)) => {
                    let done = sessions.get(&id);
                    let may_be = |done: &u64| {
                        number > *done && number.saturating_sub(*done) <= UNCONFIRMED_MAX
                    };
                    if all_are_known && !done.is_some_and(may_be) {
                        unused.push((scan.key.clone(), number));
                    }
                }
                Err(error) => wrong.push(error.to_string()),
            }
        }
        for what in wrong {
            self.found(Problem::new(
                ProblemKind::Structure,
                format!("the tree of answers: {what}"),
            ));
        }
        for (key, number) in unused {
            let what =
                format!("the answer to request {number} is of no session that may repeat it");
            let fix = Fix::Edits("remove it", vec![Edit::Delete(ANSWERS, key)]);
            self.found(Problem::new(ProblemKind::Structure, what).repaired_by(fix));
        }
        Ok(())
    }
}
