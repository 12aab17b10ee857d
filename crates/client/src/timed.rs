//! Reads from a socket with one limit for all that is read, however it arrives. A peer that sends a
//! byte at a time gets no more time than one that sends nothing.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use device::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The reading side of a connection. Its time-outs are those of the socket, so only one of these
/// reads from a socket.
pub struct Timed {
    stream: UnixStream,
    clock: SystemClock,
    until: Option<Duration>,
}

impl Timed {
    /// Reads without a limit.
    pub fn new(stream: UnixStream) -> Timed {
        Timed { stream, clock: SystemClock::new(), until: None }
    }

    /// From now on: all that is read until the next call comes within this time, or reading fails
    /// with a time-out. `None`: there is no limit.
    pub fn limit(&mut self, within: Option<Duration>) -> io::Result<()> {
        if within.is_none() && self.until.is_some() {
            self.stream.set_read_timeout(None)?;
        }
        self.until = within.map(|within| self.clock.monotonic() + within);
        Ok(())
    }

    /// Whether there is something to read now, or within some nanoseconds, less than a second.
    pub fn arrives(&self, nanos: u32) -> bool {
        let mut polled = [PollFd::new(&self.stream, PollFlags::IN)];
        let within = Timespec { tv_sec: 0, tv_nsec: nanos.into() };
        !matches!(poll(&mut polled, Some(&within)), Ok(0))
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(until) = self.until {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
        }
        self.stream.read(buffer)
    }
}

impl std::fmt::Debug for Timed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Timed")
            .field("stream", &self.stream)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
