//! One request and its answer, as results of the device's kind.

use std::io::{self, Read};
use std::time::Duration;

use device::{Clock, Error, Result};
use ureq::Body;
use ureq::http::Response;

/// How often something is tried.
const TRIES: u32 = 4;
/// Pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// Most of an answer that says what is wrong.
const SAID_BYTES: u64 = 512;

/// What a request came to: the answer, or that there was none.
pub(crate) type Answer = std::result::Result<Response<Body>, ureq::Error>;

/// What one try came to.
pub(crate) enum Tried<T> {
    /// It was answered, to the end.
    Done(T),
    /// It was not answered, or not to the end, or the server could not do it now. It may have been
    /// carried out all the same.
    Failed(Error),
    /// The server does not do it, and will not when it is asked again.
    Refused(Error),
}

impl<T> Tried<T> {
    /// The result, for one who does not try again.
    pub(crate) fn result(self) -> Result<T> {
        match self {
            Tried::Done(value) => Ok(value),
            Tried::Failed(error) | Tried::Refused(error) => Err(error),
        }
    }
}

/// What is asked for, and of which object.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) operation: &'static str,
    pub(crate) name: &'a str,
}

impl Asked<'_> {
    /// An error of it.
    pub(crate) fn error(&self, error: io::Error) -> Error {
        Error::new(self.operation, self.name, error)
    }

    /// A failure of it.
    pub(crate) fn failed<T>(&self, error: io::Error) -> Tried<T> {
        Tried::Failed(self.error(error))
    }

    /// Reads an answer with its body, where there is one.
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

    /// An answer that was not expected, with what the server said.
    pub(crate) fn unexpected<T>(&self, mut answer: Response<Body>) -> Tried<T> {
        let status = status(&answer);
        let mut said = Vec::new();
        // What came before the connection broke is said, too.
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

/// Whether what a server answers may be otherwise when it is asked again.
fn passes(status: u16, said: &str) -> bool {
    /// What the protocol has under 400 although it is of the connection, not of the request.
    const OF_THE_WAY: [&str; 4] =
        ["RequestTimeout", "BadDigest", "XAmzContentChecksumMismatch", "IncompleteBody"];
    /// What the protocol has under 409 for requests that met another for the same name.
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

/// Tries until there is an answer that is not a passing failure.
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
