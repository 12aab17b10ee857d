//! What ends a daemon. Any thread that notices it sends it to the one that waits.

/// What ends a daemon.
#[derive(Debug)]
pub(super) enum Event {
    /// A signal.
    Signal,
    /// A mount requests the volume.
    HandOver,
    /// The daemon was idle for its whole idle time.
    Idle,
    /// The mount is gone, cleanly or with an error.
    Unmounted(Result<(), String>),
    /// Another server owns the volume, or is to, and why.
    Replaced(String),
}

impl From<standby::End> for Event {
    fn from(end: standby::End) -> Event {
        match end {
            standby::End::Signal => Event::Signal,
            standby::End::Replaced(why) => Event::Replaced(why),
        }
    }
}
