//! A connection to the owner of a volume, for verbs.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use client::{Connection, connect_or_spawn};
use device::SystemClock;
use wire::{Answer, Body, Call, Failure, FailureKind};

use crate::failure::{self, Result};
use crate::output::Output;
use crate::{mounts, spawn};

/// What a call is made of: a volume, or a place in one.
pub(crate) trait Target {
    /// The volume.
    fn volume(&self) -> &Path;

    /// A failure of a call in the words of whoever made it.
    fn told(&self, failure: Failure) -> Failure {
        failure
    }
}

impl Target for Path {
    fn volume(&self) -> &Path {
        self
    }

    /// What somebody may not do he may not do to the volume, where nothing in it is named.
    fn told(&self, failure: Failure) -> Failure {
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

    fn told(&self, failure: Failure) -> Failure {
        self.as_path().told(failure)
    }
}

/// Connects to the owner of a volume, spawning one where there is none.
fn open(volume: &Path) -> Result<Connection> {
    connect_or_spawn(volume, &SystemClock::new(), &mut || spawn::owner(volume, &[]))
}

/// Does something over a fresh connection, and again with the successor of an owner that leaves
/// before it began.
pub(crate) fn with<T>(volume: &Path, mut work: impl FnMut(Connection) -> Result<T>) -> Result<T> {
    loop {
        match work(open(volume)?) {
            Err(failure) if failure.kind == FailureKind::Leaving => {}
            done => return done,
        }
    }
}

/// Has the kernel hand over what programs have stored into mapped files of a volume, for a call
/// that acts on what is in it. `argument` is what names the volume.
pub(crate) fn write_back(volume: &Path, argument: &Path, output: &mut Output) -> Result<()> {
    let mounts = mounts::of(volume);
    match fuse::write_back(&mounts, argument).map_err(|error| failure::mount(&error))? {
        fuse::WriteBack::Taken => {}
        // It may be of anybody, of any file: no reason to refuse this call.
        fuse::WriteBack::Refused(error) => {
            output.remark(&format!("{error}: something that was stored in a map is lost"));
        }
        fuse::WriteBack::NotPermitted => {
            output.remark("the mount cannot be opened: what is stored in maps may not be in it");
        }
    }
    Ok(())
}

/// Does one call; `part` sees the parts before its end.
pub(crate) fn call(
    target: &(impl Target + ?Sized),
    call: &Call<'_>,
    part: &mut dyn FnMut(Body) -> Result<()>,
) -> Result<Answer> {
    with(target.volume(), |mut connection| connection.call(call.clone(), part))
        .map_err(|failure| target.told(failure))
}

/// Does one call whose answer has no parts.
pub(crate) fn ask(target: &(impl Target + ?Sized), call: &Call<'_>) -> Result<Answer> {
    self::call(target, call, &mut |_| Ok(()))
}

/// Does one call that answers nothing.
pub(crate) fn perform(target: &(impl Target + ?Sized), call: &Call<'_>) -> Result<()> {
    match ask(target, call)? {
        Answer::Nothing => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// An answer to another question.
pub(crate) fn unexpected(answer: &Answer) -> Failure {
    let mut text = format!("{answer:?}");
    text.truncate(text.find(['(', ' ', '{']).unwrap_or(text.len()));
    Failure::new(
        FailureKind::Protocol,
        format!("the daemon gave an answer of another kind: {text}"),
    )
}
