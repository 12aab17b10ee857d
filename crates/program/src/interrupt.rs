//! Ctrl-C: either it sets a flag, or it ends the program with a message. The message of a command
//! that only waits for the daemon names what is already done, and how to continue.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use wire::{Failure, FailureKind};

use crate::exit;
use crate::failure::Result;
use crate::output::Output;

/// From now on an interrupt ends the program with this message and hint.
pub fn exits_with(message: &str, hint: &str, bar: &ProgressBar, output: &Output) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(unwatched)?;
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
    .map_err(unwatched)?;
    Ok(())
}

/// A flag that the first Ctrl-C sets; the second Ctrl-C ends the program at once.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(unwatched)?;
    }
    Ok(flag)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err calls")]
fn unwatched(error: std::io::Error) -> Failure {
    Failure::new(FailureKind::Other, format!("cannot watch for interrupts: {error}"))
        .hint("raise the limit of open files (`ulimit -n`), and repeat the command")
}
