//! Becoming a background process: a session of its own, nothing on standard output.

use rustix::fs::{Mode, OFlags};

/// Leaves the terminal's session, so that Ctrl-C and a hang-up there do not reach us.
pub(crate) fn leave_session() {
    // It fails only for the leader of a process group, who was started as a session of its own.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "no session of its own");
    }
}

/// Puts `/dev/null` where the report went: whoever reads to the end of it need not wait for ours.
pub(crate) fn close_report() {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let closed = null.and_then(|null| rustix::stdio::dup2_stdout(&null));
    if let Err(error) = closed {
        tracing::warn!(%error, "standard output stays open");
    }
}
