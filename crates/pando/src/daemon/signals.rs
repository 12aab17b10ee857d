//! SIGTERM, SIGINT and SIGHUP end a daemon cleanly.

use device::sync::Sender;
use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::event::Event;

/// Signals are watched; dropping this ends that. (A server opens a volume again and again.)
pub(super) struct Watching(Handle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Sends an event for every signal that requests an end.
pub(super) fn watch(events: Sender<Event>) -> io::Result<Watching> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let watching = Watching(signals.handle());
    device::spawn("signals", move || {
        for signal in signals.forever() {
            tracing::info!(signal, "received a signal to end");
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    Ok(watching)
}
