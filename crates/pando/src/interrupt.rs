//! The message at Ctrl-C of a command that only waits for the daemon: what is already done, and
//! how to continue. The interrupt ends the program.

use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use wire::{Failure, FailureKind};

use crate::exit;
use crate::failure::Result;
use crate::output::Output;

/// From now on an interrupt ends the program with this message and hint.
pub(crate) fn says(message: &str, hint: &str, bar: &ProgressBar, output: &Output) -> Result<()> {
    let failed = |error: std::io::Error| {
        Failure::new(FailureKind::Other, format!("cannot watch for interrupts: {error}"))
    };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let failure =
        Failure::new(FailureKind::Interrupted, format!("interrupted; {message}")).hint(hint);
    let (bar, json) = (bar.clone(), output.is_json());
    device::spawn("interrupt", move || {
        if signals.forever().next().is_some() {
            bar.finish_and_clear();
            Output::new(json, false).failure(&failure);
            std::process::exit(exit::number(failure.kind).into());
        }
    })
    .map_err(failed)?;
    Ok(())
}
