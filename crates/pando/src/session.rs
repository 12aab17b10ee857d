//! A connection to the daemon of a volume, for verbs.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Connection, connect_or_spawn};
use device::SystemClock;
use wire::{Answer, Body, Call, Failure, FailureKind};

use crate::failure::{self, Result};
use crate::output::Output;
use crate::{far, host, mounts, spawn};

/// The target of a call: a volume, or a place in one.
pub(crate) trait Target {
    /// The volume.
    fn volume(&self) -> &Path;

    /// Rewrites a failure of a call in terms of the argument that the user typed.
    fn with_typed_path(&self, failure: Failure) -> Failure {
        failure
    }
}

impl Target for Path {
    fn volume(&self) -> &Path {
        self
    }

    /// A permission failure that names no path inside the volume is about the volume.
    fn with_typed_path(&self, failure: Failure) -> Failure {
        if failure.kind == FailureKind::Permission && failure.path.0.is_empty() {
            return failure.at(self.as_os_str().as_bytes());
        }
        failure
    }
}

impl Target for PathBuf {
    fn volume(&self) -> &Path {
        self
    }

    fn with_typed_path(&self, failure: Failure) -> Failure {
        self.as_path().with_typed_path(failure)
    }
}

/// Connects to the daemon of a volume, and starts one if there is none.
fn open(volume: &Path) -> Result<Connection> {
    if far::is_url(volume.as_os_str()) {
        return far::connect(volume);
    }
    let spawn = &mut || spawn::daemon(volume, &[]);
    let connection = connect_or_spawn(volume, &SystemClock::new(), spawn)?;
    if let Some(remark) = host::observed(volume)
        && !QUIET.swap(true, Ordering::Relaxed)
    {
        Output::new(false, false).remark(&remark);
    }
    Ok(connection)
}

/// Whether remarks are for nobody (`--quiet`, `--json`), or were printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Prints no remarks about connections from now on.
pub(crate) fn set_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Runs work over a fresh connection, and again with the successor if the daemon left before the
/// work began.
pub(crate) fn with<T>(volume: &Path, mut work: impl FnMut(Connection) -> Result<T>) -> Result<T> {
    loop {
        match work(open(volume)?) {
            Err(failure) if failure.kind == FailureKind::Leaving => {}
            done => return done,
        }
    }
}

/// Makes the kernel write back what programs have stored into mapped files of a volume, for a call
/// that acts on its contents. `argument` is what names the volume.
pub(crate) fn write_back(volume: &Path, argument: &Path, output: &mut Output) -> Result<()> {
    let mounts = mounts::of(volume);
    match fuse::write_back(&mounts, argument).map_err(|error| failure::mount(&error))? {
        fuse::WriteBack::Taken => {}
        // It may concern any user's file: no reason to refuse this call.
        fuse::WriteBack::Refused(error) => {
            output.remark(&format!("{error}: changes made through a memory map are lost"));
        }
        fuse::WriteBack::NotPermitted => {
            output
                .remark("the mount cannot be opened: changes made through memory maps may be lost");
        }
    }
    Ok(())
}

/// Makes one call; `part` gets the parts before its end.
pub(crate) fn call(
    target: &(impl Target + ?Sized),
    call: &Call<'_>,
    part: &mut dyn FnMut(Body) -> Result<()>,
) -> Result<Answer> {
    with(target.volume(), |mut connection| connection.call(call.clone(), part))
        .map_err(|failure| target.with_typed_path(failure))
}

/// Makes one call whose answer has no parts.
pub(crate) fn ask(target: &(impl Target + ?Sized), call: &Call<'_>) -> Result<Answer> {
    self::call(target, call, &mut |_| Ok(()))
}

/// Makes one call whose answer is empty.
pub(crate) fn perform(target: &(impl Target + ?Sized), call: &Call<'_>) -> Result<()> {
    match ask(target, call)? {
        Answer::Nothing => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// The failure for an answer of the wrong kind.
pub(crate) fn unexpected(answer: &Answer) -> Failure {
    let mut text = format!("{answer:?}");
    text.truncate(text.find(['(', ' ', '{']).unwrap_or(text.len()));
    Failure::new(FailureKind::Protocol, format!("the daemon sent an unexpected answer: {text}"))
}
