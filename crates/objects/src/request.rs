//! One request and its answer, as results of the device's kind.

use std::io;
use std::time::Duration;

use device::{Clock, Error, Result};
use ureq::Body;
use ureq::http::Response;

/// How often something harmless is tried.
const TRIES: u32 = 4;
/// Pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// Most of an answer that says what is wrong.
const SAID_BYTES: u64 = 512;

/// What a request came to: the answer, or that there was none.
pub(crate) type Answer = std::result::Result<Response<Body>, ureq::Error>;

/// The status of an answer.
pub(crate) fn status(answer: &Response<Body>) -> u16 {
    answer.status().as_u16()
}

/// Asks until there is an answer that is not the server's failure.
pub(crate) fn patiently(
    clock: &dyn Clock,
    operation: &'static str,
    name: &str,
    ask: impl Fn() -> Answer,
) -> Result<Response<Body>> {
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match ask() {
            Ok(answer) if status(&answer) < 500 => return Ok(answer),
            _ => clock.sleep(pause),
        }
        pause *= 2;
    }
    answered(operation, name, ask())
}

/// The answer, or the error that there was none.
pub(crate) fn answered(
    operation: &'static str,
    name: &str,
    answer: Answer,
) -> Result<Response<Body>> {
    answer.map_err(|error| Error::new(operation, name, unanswered(error)))
}

/// Why there was no answer.
pub(crate) fn unanswered(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Io(error) => error,
        ureq::Error::Timeout(_) => io::Error::new(io::ErrorKind::TimedOut, error.to_string()),
        other => io::Error::other(other.to_string()),
    }
}

/// The error of an answer that was not expected, with what the server said.
pub(crate) fn refused(operation: &'static str, name: &str, mut answer: Response<Body>) -> Error {
    let status = status(&answer);
    let said = answer.body_mut().with_config().limit(SAID_BYTES).lossy_utf8(true).read_to_string();
    let kind = match status {
        404 => io::ErrorKind::NotFound,
        401 | 403 => io::ErrorKind::PermissionDenied,
        507 => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    let said = said.unwrap_or_default();
    let message = format!("the server answered {status} {}", said.trim());
    Error::new(operation, name, io::Error::new(kind, message))
}
