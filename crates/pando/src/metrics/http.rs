//! Answers scrapes over HTTP/1.1: one request a connection.
//!
//! Invariants: a peer that sends or reads slowly is cut off after [`PATIENCE`], and at most
//! [`PEERS_MAX`] are served at once. So no peer costs the daemon more than that. Nothing that a
//! peer sends changes anything.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::Clock;

use super::Metrics;

/// How long one request and its answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most connections at once; further ones are closed unanswered.
const PEERS_MAX: usize = 8;

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// Most header fields of a request.
const FIELDS_MAX: usize = 64;

/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// The media type of the metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PLAIN: &str = "text/plain; charset=utf-8";

/// Starts to answer.
pub(super) fn start(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
) -> io::Result<()> {
    let peers = Arc::new(AtomicUsize::new(0));
    device::spawn("metrics", move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => admit(stream, &metrics, &clock, &peers),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a scrape");
                    clock.sleep(PAUSE);
                }
            }
        }
    })
    .map(drop)
}

fn admit(
    stream: TcpStream,
    metrics: &Arc<Metrics>,
    clock: &Arc<dyn Clock>,
    peers: &Arc<AtomicUsize>,
) {
    let place = ConnectionPermit::take(peers);
    let (metrics, clock) = (Arc::clone(metrics), Arc::clone(clock));
    let Some(place) = place else { return };
    let spawned = device::spawn("scrape", move || {
        if let Err(error) = serve(&stream, &metrics, &*clock) {
            tracing::debug!(%error, "a scrape ended early");
        }
        drop(place);
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "cannot start a thread for a scrape");
    }
}

/// One of the connections served at once.
struct ConnectionPermit(Arc<AtomicUsize>);

impl ConnectionPermit {
    fn take(peers: &Arc<AtomicUsize>) -> Option<ConnectionPermit> {
        let place = ConnectionPermit(Arc::clone(peers));
        // Counted before it is compared, so that two do not take the last one.
        (peers.fetch_add(1, Ordering::AcqRel) < PEERS_MAX).then_some(place)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a peer requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: &'static str,
    pub(super) kind: &'static str,
    pub(super) body: Arc<str>,
}

impl Answer {
    fn text(status: &'static str, body: &str) -> Answer {
        Answer { status, kind: PLAIN, body: Arc::from(body) }
    }
}

fn serve(stream: &TcpStream, metrics: &Metrics, clock: &dyn Clock) -> io::Result<()> {
    let deadline = clock.monotonic() + PATIENCE;
    let rest = || match deadline.saturating_sub(clock.monotonic()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        rest => Ok(rest),
    };
    let mut head = Vec::new();
    let request = loop {
        let mut part = [0; 1024];
        stream.set_read_timeout(Some(rest()?))?;
        let read = (&mut &*stream).read(&mut part)?;
        head.extend_from_slice(&part[..read]);
        match parse(&head) {
            Ok(Some(request)) => break Ok(request),
            Ok(None) if read == 0 => return Ok(()),
            Ok(None) if head.len() < HEAD_BYTES_MAX => {}
            Ok(None) => break Err("431 Request Header Fields Too Large"),
            Err(()) => break Err("400 Bad Request"),
        }
    };
    let (answer, with_body) = match &request {
        Ok(request) => (answer(request, metrics), request.method != "HEAD"),
        Err(status) => (Answer::text(status, "the request cannot be parsed\n"), true),
    };
    let mut bytes = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nAllow: GET, HEAD\r\n\
         Connection: close\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    if with_body {
        bytes.push_str(&answer.body);
    }
    let mut unsent = bytes.as_bytes();
    while !unsent.is_empty() {
        stream.set_write_timeout(Some(rest()?))?;
        let sent = (&mut &*stream).write(unsent)?;
        unsent = &unsent[sent..];
    }
    stream.shutdown(Shutdown::Write)
}

/// Parses the head of a request; `None` if it is not complete.
pub(super) fn parse(head: &[u8]) -> Result<Option<Request>, ()> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(_)) => {
            let (Some(method), Some(target)) = (request.method, request.path) else {
                return Err(());
            };
            let path = target.split('?').next().unwrap_or_default();
            Ok(Some(Request { method: method.to_owned(), path: path.to_owned() }))
        }
        Err(_) => Err(()),
    }
}

fn answer(request: &Request, metrics: &Metrics) -> Answer {
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Answer::text("405 Method Not Allowed", "metrics can only be read\n");
    }
    match request.path.as_str() {
        "/metrics" => match metrics.text() {
            Ok(body) => Answer { status: "200 OK", kind: OPEN_METRICS, body },
            Err(_) => Answer::text("500 Internal Server Error", "the metrics cannot be written\n"),
        },
        "/" => Answer::text("200 OK", "The metrics of this PandoFS daemon are at /metrics\n"),
        _ => Answer::text("404 Not Found", "the metrics are at /metrics\n"),
    }
}
