//! SIGTERM, SIGINT and SIGHUP end a daemon cleanly.

use device::sync::Sender;
use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::event::Event;

/// Sends an event for every signal that requests an end.
pub(super) fn watch(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    device::spawn("signals", move || {
        for signal in signals.forever() {
            tracing::info!(signal, "received a signal to end");
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
