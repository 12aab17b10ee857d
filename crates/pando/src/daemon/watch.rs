//! Work that is cancelled when its caller goes away: another thread watches meanwhile whether the
//! peer closes the connection (Ctrl-C, `| head`), or the daemon leaves.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use wire::{Failure, FailureKind};

/// Time between two calls of `tick`.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The error for a connection that cannot be watched.
pub(super) fn cannot(error: &std::io::Error) -> Failure {
    Failure::new(FailureKind::Other, format!("cannot watch a connection: {error}"))
        .hint("repeat the command when fewer commands run")
}

/// The answer of work that was cut off. `what`: as "the search".
pub(super) fn cut_off(what: &str) -> Failure {
    let why = "the daemon is ending, or the caller disconnected";
    Failure::new(FailureKind::Interrupted, format!("{what} was cancelled: {why}"))
}

/// Runs some work, with `tick` called periodically beside it, and sets `cancel` when the peer
/// closes the connection.
pub(super) fn while_heard<T>(
    peer: &UnixStream,
    cancel: &AtomicBool,
    tick: impl Fn() + Send,
    work: impl FnOnce() -> T,
) -> Result<T, Failure> {
    let ended = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| cannot(&error.into()))?;
    Ok(device::scope(|scope| {
        let ended = &ended;
        scope.spawn(move || {
            loop {
                let mut descriptors =
                    [PollFd::new(peer, PollFlags::RDHUP), PollFd::new(ended, PollFlags::IN)];
                match poll(&mut descriptors, Some(&TICK)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot watch the client of a request; continuing");
                        return;
                    }
                }
                if !descriptors[1].revents().is_empty() {
                    return;
                }
                if !descriptors[0].revents().is_empty() {
                    cancel.store(true, Ordering::Relaxed);
                    return;
                }
                tick();
            }
        });
        let done = work();
        rustix::io::write(ended.as_fd(), &[1; 8]).ok();
        done
    }))
}
