//! Metrics of a daemon, in the text format that Prometheus scrapes (OpenMetrics 1.0).
//!
//! `pando mount --metrics ADDR` binds the address before the volume is opened, so that a wrong
//! address ends the mount with nothing done. From then on [`calls`] counts the calls of the mount,
//! [`volume`] reads the volume's counters at each scrape, and [`http`] answers the scraper.
//!
//! Invariants: a scrape never changes the volume. The counters are read at most once in
//! [`KEPT_FOR`], so many scrapes cost as little as one. Names carry the prefix `pando_` and base
//! units (seconds, bytes); `docs/guide/metrics.md` lists them, and a test compares that list.

mod hub;
mod calls;
mod http;
mod volume;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use device::sync::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use wire::{Failure, FailureKind};

pub(crate) use self::calls::Calls;
pub(crate) use self::hub::Hub;
pub(crate) use self::volume::Source;
use crate::failure::{self, Result};

/// How long the text of a scrape is kept and returned to other scrapes.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// Prefix of all names.
const PREFIX: &str = "pando";

/// Resolves the argument of `--metrics`: `HOST:PORT`.
pub(crate) fn parse(text: &str) -> std::result::Result<SocketAddr, String> {
    let expected = "expected HOST:PORT, such as 127.0.0.1:9478";
    let found = text.to_socket_addrs().map_err(|error| format!("{expected}: {error}"))?;
    let mut found = found.peekable();
    match found.peek() {
        None => Err(format!("{expected}: the name of the host has no address")),
        Some(address) if address.port() == 0 => {
            Err("expected a port from 1 to 65535, to configure the scraper for".to_owned())
        }
        Some(address) => Ok(*address),
    }
}

/// An address that is bound, before there is anything to report.
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Binds the address.
    pub(crate) fn bind(address: SocketAddr) -> Result<Bound> {
        let listener = TcpListener::bind(address).map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::AddrInUse => FailureKind::Busy,
                _ => failure::io_kind(&error),
            };
            Failure::new(kind, format!("cannot listen on {address} for metrics: {error}"))
                .hint("choose another address or port with --metrics")
        })?;
        Ok(Bound { listener, address })
    }

    /// Answers scrapes, on a thread of its own, until the process ends.
    pub(crate) fn serve(
        self,
        calls: &Calls,
        source: impl Source,
        clock: Arc<dyn Clock>,
    ) -> Result<()> {
        self.answer(Metrics::new(calls, source, clock))
    }

    fn answer(self, metrics: Metrics) -> Result<()> {
        let Bound { listener, address } = self;
        let clock = Arc::clone(&metrics.clock);
        http::start(listener, Arc::new(metrics), clock).map_err(|error| failure::thread(&error))?;
        tracing::info!(%address, "answers scrapes");
        Ok(())
    }
}

/// Makes the text of a scrape.
type Make = dyn Fn() -> std::result::Result<String, std::fmt::Error> + Send + Sync;

/// What a scrape returns.
struct Metrics {
    made: Box<Make>,
    clock: Arc<dyn Clock>,
    /// The last text, and when it was made.
    last: Mutex<Option<(Duration, Arc<str>)>>,
}

impl Metrics {
    fn new(calls: &Calls, source: impl Source, clock: Arc<dyn Clock>) -> Metrics {
        let mut registry = Registry::with_prefix(PREFIX);
        calls.register(&mut registry);
        registry.register_collector(Box::new(volume::Volume::new(source)));
        let made = move || {
            let mut made = String::new();
            text::encode(&mut made, &registry)?;
            Ok(made)
        };
        Metrics::of(clock, Box::new(made))
    }

    fn of(clock: Arc<dyn Clock>, made: Box<Make>) -> Metrics {
        Metrics { made, clock, last: Mutex::new(None) }
    }

    /// The present values. Concurrent callers wait for one that computes them.
    fn text(&self) -> std::result::Result<Arc<str>, std::fmt::Error> {
        let mut last = self.last.lock();
        let now = self.clock.monotonic();
        if let Some((made, text)) = &*last
            && now.saturating_sub(*made) < KEPT_FOR
        {
            return Ok(Arc::clone(text));
        }
        let made: Arc<str> = Arc::from((self.made)()?);
        *last = Some((now, Arc::clone(&made)));
        Ok(made)
    }
}

#[cfg(test)]
mod tests;
