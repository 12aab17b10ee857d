//! Becoming a background process: a session of its own, no standard output.

use rustix::fs::{Mode, OFlags};

/// Leaves the terminal's session, so that Ctrl-C and a hang-up there do not reach this process.
pub(crate) fn leave_session() {
    // It fails only for the leader of a process group, which was started as a session of its own.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "cannot start a session of its own");
    }
}

/// Replaces the report's descriptor by `/dev/null`: a reader that waits for its end need not wait
/// for this process to exit.
pub(crate) fn close_report() {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let closed = null.and_then(|null| rustix::stdio::dup2_stdout(&null));
    if let Err(error) = closed {
        tracing::warn!(%error, "cannot close standard output");
    }
}
