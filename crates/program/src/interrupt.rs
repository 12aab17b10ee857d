//! Ctrl-C: either it sets a flag, or it ends the program with a message. The message of a command
//! that only waits for the daemon names what is already done, and how to continue.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// How long an input is awaited between two looks at the flag.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Standard input or a file, whose reads end with an error when the flag is set. The system repeats
/// a read that a signal interrupts, and nothing may come from a pipe for hours.
#[derive(Debug)]
pub struct Input {
    file: File,
    interrupted: Arc<AtomicBool>,
}

impl Input {
    /// Standard input.
    pub fn standard(interrupted: &Arc<AtomicBool>) -> io::Result<Input> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Input { file, interrupted: Arc::clone(interrupted) })
    }

    /// A file. A FIFO that nobody writes to yet is opened all the same.
    pub fn open(path: &Path, interrupted: &Arc<AtomicBool>) -> io::Result<Input> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        Ok(Input { file, interrupted: Arc::clone(interrupted) })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns when there is something to read, or the end.
    fn wait(&self) -> io::Result<()> {
        let ended = || io::Error::other("interrupted");
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(ended());
            }
            let mut input = [rustix::event::PollFd::new(&self.file, rustix::event::PollFlags::IN)];
            let most =
                rustix::event::Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
            match rustix::event::poll(&mut input, Some(&most)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait()?;
            match self.file.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err calls")]
fn unwatched(error: io::Error) -> Failure {
    Failure::new(FailureKind::Other, format!("cannot watch for interrupts: {error}"))
        .hint("raise the limit of open files (`ulimit -n`), and repeat the command")
}
