//! One request and its answer, converted to results of the device crate, and its repeats.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, Error, Random, Result};
use ureq::Body;
use ureq::http::Response;

use crate::explain::{Refusal, Target, element, is_page, unanswered};
use crate::traffic::{Kind, Traffic};

/// Longest pause before the second attempt; it doubles up to `PAUSE_MAX`. A pause is at least half
/// of that, at random: clients that failed together do not return together.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Maximum length of an error text that is read.
const TEXT_BYTES: u64 = 512;
/// Of a body that nobody needs, at most this much is read: for more, another connection is cheaper.
const REST_BYTES: u64 = 4096;

/// The result of a request: the answer, or a transport error.
pub(crate) type Answer = std::result::Result<Response<Body>, ureq::Error>;

/// The result of one attempt.
pub(crate) enum Tried<T> {
    /// It was answered completely.
    Done(T),
    /// It was not answered, or not completely, or the server could not execute it now. It may have
    /// been executed nevertheless.
    Failed(Error),
    /// The server refuses it, and would refuse it again.
    Refused(Error),
}

impl<T> Tried<T> {
    /// The result, for a caller that does not retry.
    pub(crate) fn result(self) -> Result<T> {
        match self {
            Tried::Done(value) => Ok(value),
            Tried::Failed(error) | Tried::Refused(error) => Err(error),
        }
    }
}

/// The operation, and the object's name.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) operation: &'static str,
    pub(crate) name: &'a str,
    pub(crate) target: &'a Target,
    pub(crate) clock: &'a dyn Clock,
}

impl Asked<'_> {
    /// An error of this request.
    pub(crate) fn error(&self, error: io::Error) -> Error {
        Error::new(self.operation, self.name, error)
    }

    /// A failure of this request.
    pub(crate) fn failed<T>(&self, error: io::Error) -> Tried<T> {
        Tried::Failed(self.error(error))
    }

    /// Reads an answer and its body, if it has one. What `read` leaves of a short body is read as
    /// well: only then does the connection serve later requests.
    pub(crate) fn answered<T>(
        &self,
        answer: Answer,
        read: impl FnOnce(&mut Response<Body>) -> Tried<T>,
    ) -> Tried<T> {
        self.answered_by_any_type(answer, |_| false, read)
    }

    /// The same for an answer that may be a web page of others, as `is_theirs` decides.
    pub(crate) fn answered_by_any_type<T>(
        &self,
        answer: Answer,
        is_theirs: impl FnOnce(&Response<Body>) -> bool,
        read: impl FnOnce(&mut Response<Body>) -> Tried<T>,
    ) -> Tried<T> {
        match answer {
            Ok(mut answer) => {
                // No success, whatever its status: nothing was created, listed or found.
                let is_other = is_page(&answer) && !is_theirs(&answer);
                let tried = if is_other { self.unexpected(&mut answer) } else { read(&mut answer) };
                read_rest(&mut answer);
                tried
            }
            Err(error) => {
                let (error, passes) = unanswered(error, self.target);
                if passes { self.failed(error) } else { Tried::Refused(self.error(error)) }
            }
        }
    }

    /// An unexpected answer, with what to check and the server's error text.
    pub(crate) fn unexpected<T>(&self, answer: &mut Response<Body>) -> Tried<T> {
        let mut text = Vec::new();
        // If the connection broke, the text received before is included.
        drop(answer.body_mut().as_reader().take(TEXT_BYTES).read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let refusal = Refusal::of(answer, &text, self.clock.now().0 / 1_000_000_000);
        let advice = refusal.advice(self.target, self.operation);
        let advice = advice.map_or_else(String::new, |advice| format!("{advice}; "));
        // Markup helps nobody.
        let text = match (refusal.is_page, element(&text, "Message")) {
            (true, _) => String::new(),
            (false, Some(words)) if !refusal.code.is_empty() => {
                format!("{}: {words}", refusal.code)
            }
            (false, _) => text.trim().to_owned(),
        };
        let message = format!("{advice}the server answered {} {text}", refusal.status);
        let error = self.error(io::Error::new(refusal.kind(), message.trim_end().to_owned()));
        if refusal.passes() { Tried::Failed(error) } else { Tried::Refused(error) }
    }
}

/// Reads a short rest of an answer, and sees its end. A failure costs the connection only. Not of
/// an answer without a length: its end may come late, when all that was wanted is there.
fn read_rest(answer: &mut Response<Body>) {
    if answer.body().content_length().is_none() {
        return;
    }
    let mut rest = answer.body_mut().as_reader().take(REST_BYTES);
    drop(io::copy(&mut rest, &mut io::sink()));
}

/// The status of an answer.
pub(crate) fn status(answer: &Response<Body>) -> u16 {
    answer.status().as_u16()
}

/// Repeats requests that fail.
#[derive(Clone)]
pub(crate) struct Patience {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    /// Maximum time over all attempts.
    pub(crate) deadline: Duration,
    pub(crate) traffic: Arc<Traffic>,
}

impl Patience {
    /// The same with at most so much time.
    pub(crate) fn within(&self, deadline: Duration) -> Patience {
        Patience { deadline: self.deadline.min(deadline), ..self.clone() }
    }

    /// Retries until there is an answer that is not a transient failure, or the next attempt would
    /// begin after the deadline.
    pub(crate) fn patiently<T>(
        &self,
        (kind, bytes_out): (Kind, u64),
        mut once: impl FnMut() -> Tried<T>,
    ) -> Result<T> {
        let start = self.clock.monotonic();
        let (mut pause, mut tries) = (PAUSE, 1_u32);
        loop {
            self.traffic.sends(kind, bytes_out, tries > 1);
            let sent = self.clock.monotonic();
            let tried = once();
            let Tried::Failed(mut error) = tried else {
                self.traffic.answers(self.clock.monotonic());
                return tried.result();
            };
            self.traffic.fails(sent, &error);
            let waited = self.clock.monotonic().saturating_sub(start);
            let next = self.jitter(pause);
            if waited + next > self.deadline {
                if tries > 1 {
                    let seconds = waited.as_secs_f64();
                    let message = std::mem::take(&mut error.message);
                    error.message = format!("{message} (tried {tries} times in {seconds:.1} s)");
                }
                return Err(error);
            }
            self.clock.sleep(next);
            pause = (pause * 2).min(PAUSE_MAX);
            tries += 1;
        }
    }

    /// Between half of a pause and all of it.
    fn jitter(&self, pause: Duration) -> Duration {
        let half = pause / 2;
        let part = self.random.next_u64() % (half.as_micros().max(1) as u64);
        half + Duration::from_micros(part)
    }
}
