//! How long the peer of a connection keeps the daemon waiting, because it does not read the answer
//! that it requested.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::Clock;

/// A write that takes longer waits for the peer; a peer that reads at once keeps a writer waiting
/// for less.
const WAITS: Duration = Duration::from_millis(50);

/// The waits of the current request, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct PeerWait {
    /// When the current write began, plus one; 0: there is none.
    since: AtomicU64,
    /// The sum of the waits that ended. Without it a peer that reads a little now and then would
    /// never be slow.
    before: AtomicU64,
}

impl PeerWait {
    /// Forgets the waits of the request before.
    pub(super) fn reset(&self) {
        self.before.store(0, Ordering::Relaxed);
    }

    pub(super) fn begin(&self, now: Duration) {
        self.since.store(millis(now) + 1, Ordering::Relaxed);
    }

    pub(super) fn end(&self, now: Duration) {
        let since = self.since.swap(0, Ordering::Relaxed).saturating_sub(1);
        let took = millis(now).saturating_sub(since);
        if took >= millis(WAITS) {
            self.before.fetch_add(took, Ordering::Relaxed);
        }
    }

    /// How long the request has waited for its peer to read; `None` if it does not wait now.
    pub(super) fn waited(&self, now: Duration) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed).checked_sub(1)?;
        let took = millis(now).saturating_sub(since);
        let before = self.before.load(Ordering::Relaxed);
        let waited = before.saturating_add(took);
        (waited >= millis(WAITS)).then(|| Duration::from_millis(waited))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX - 1)
}

/// The stream to a peer, whose waits are recorded.
pub(super) struct Outgoing {
    stream: UnixStream,
    wait: Arc<PeerWait>,
    clock: Arc<dyn Clock>,
}

impl Outgoing {
    pub(super) fn new(stream: UnixStream, wait: Arc<PeerWait>, clock: Arc<dyn Clock>) -> Outgoing {
        Outgoing { stream, wait, clock }
    }

    /// A stream whose waits do not matter.
    #[cfg(test)]
    pub(super) fn for_tests(stream: UnixStream) -> Outgoing {
        Outgoing::new(stream, Arc::default(), Arc::new(device::SystemClock::new()))
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

impl Write for Outgoing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait.begin(self.clock.monotonic());
        let written = self.stream.write(bytes);
        self.wait.end(self.clock.monotonic());
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_add_up_and_short_ones_do_not() {
        let wait = PeerWait::default();
        let second = Duration::from_secs;
        assert_eq!(wait.waited(second(100)), None);
        wait.begin(second(0));
        assert_eq!(wait.waited(Duration::from_millis(49)), None);
        assert_eq!(wait.waited(second(20)), Some(second(20)));
        wait.end(second(20));
        assert_eq!(wait.waited(second(50)), None, "it does not wait now");
        wait.begin(second(50));
        wait.end(Duration::from_millis(50_040));
        // A peer that reads a little every second is as slow as one that does not read.
        wait.begin(second(55));
        wait.end(Duration::from_millis(55_900));
        wait.begin(second(60));
        assert_eq!(wait.waited(second(70)), Some(Duration::from_millis(30_900)));
        wait.end(second(70));
        wait.reset();
        wait.begin(second(80));
        assert_eq!(wait.waited(second(82)), Some(second(2)));
    }

    /// A stream records when a write waits for its peer, and when it does no more.
    #[test]
    fn a_write_waits_until_its_peer_reads() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (wait, clock) = (Arc::new(PeerWait::default()), device::SystemClock::new());
        let mut outgoing = Outgoing::new(ours, Arc::clone(&wait), Arc::new(clock));
        let later = Duration::from_secs(1 << 20);
        outgoing.write_all(b"read at once").unwrap();
        assert_eq!(wait.waited(later), None, "it does not wait");
        while outgoing.write(&[0; 4096]).is_ok() {}
        assert_eq!(wait.waited(later), None, "a failed write does not wait, either");
        outgoing.stream().set_nonblocking(false).unwrap();
        let waiting = Arc::clone(&wait);
        let writer = device::spawn("writer", move || outgoing.write_all(&[0; 4096])).unwrap();
        while waiting.waited(later).is_none() {
            device::yield_now();
        }
        theirs.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 1 << 20];
        while waiting.waited(later).is_some() {
            io::Read::read(&mut theirs, &mut buffer).unwrap_or_default();
            device::yield_now();
        }
        writer.join().unwrap().unwrap();
    }
}
