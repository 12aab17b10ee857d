//! One request and its answer, converted to results of the device crate.

use std::io::{self, Read};
use std::time::Duration;

use device::{Clock, Error, Result};
use ureq::Body;
use ureq::http::Response;

/// Maximum attempts.
const TRIES: u32 = 4;
/// Pause before the second attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum length of an error text that is read.
const SAID_BYTES: u64 = 512;

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

    /// Reads an answer and its body, if it has one.
    pub(crate) fn answered<T>(
        &self,
        answer: Answer,
        read: impl FnOnce(Response<Body>) -> Tried<T>,
    ) -> Tried<T> {
        match answer {
            Ok(answer) => read(answer),
            Err(error) => self.failed(unanswered(error)),
        }
    }

    /// An unexpected answer, with the server's error text.
    pub(crate) fn unexpected<T>(&self, mut answer: Response<Body>) -> Tried<T> {
        let status = status(&answer);
        let mut said = Vec::new();
        // If the connection broke, the text received before is included.
        drop(answer.body_mut().as_reader().take(SAID_BYTES).read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said);
        let kind = match status {
            404 => io::ErrorKind::NotFound,
            401 | 403 => io::ErrorKind::PermissionDenied,
            507 => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::Other,
        };
        let message = format!("the server answered {status} {}", said.trim());
        let error = self.error(io::Error::new(kind, message));
        if passes(status, &said) { Tried::Failed(error) } else { Tried::Refused(error) }
    }
}

/// Whether the server may answer differently on a retry.
fn passes(status: u16, said: &str) -> bool {
    /// Codes that the protocol returns under 400 although the connection caused them, not the
    /// request.
    const OF_THE_WAY: [&str; 4] =
        ["RequestTimeout", "BadDigest", "XAmzContentChecksumMismatch", "IncompleteBody"];
    /// Codes that the protocol returns under 409 for concurrent requests for the same name.
    const AT_ONCE: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];
    match status {
        408 | 429 | 500 | 502 | 503 | 504 => true,
        400 => OF_THE_WAY.iter().any(|code| said.contains(code)),
        409 => AT_ONCE.iter().any(|code| said.contains(code)),
        _ => false,
    }
}

/// The status of an answer.
pub(crate) fn status(answer: &Response<Body>) -> u16 {
    answer.status().as_u16()
}

/// Retries until there is an answer that is not a transient failure.
pub(crate) fn patiently<T>(clock: &dyn Clock, mut once: impl FnMut() -> Tried<T>) -> Result<T> {
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match once() {
            Tried::Failed(_) => clock.sleep(pause),
            done => return done.result(),
        }
        pause *= 2;
    }
    once().result()
}

/// Why there was no answer.
fn unanswered(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Io(error) => error,
        ureq::Error::Timeout(_) => io::Error::new(io::ErrorKind::TimedOut, error.to_string()),
        other => io::Error::other(other.to_string()),
    }
}
