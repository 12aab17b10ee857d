//! A connection to the owner of a volume, for verbs.

use std::path::Path;

use client::{Connection, connect_or_spawn};
use device::SystemClock;
use wire::{Answer, Call, Failure, FailureKind};

use crate::failure::Result;
use crate::spawn;

/// Connects to the owner of a volume, spawning one where there is none.
pub(crate) fn open(volume: &Path) -> Result<Connection> {
    connect_or_spawn(volume, &SystemClock::new(), &mut || spawn::owner(volume, &[]))
}

/// Does one call that answers nothing.
pub(crate) fn perform(volume: &Path, call: Call<'_>) -> Result<()> {
    match open(volume)?.ask(call)? {
        Answer::Nothing => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// An answer to another question.
pub(crate) fn unexpected(answer: &Answer) -> Failure {
    let mut text = format!("{answer:?}");
    text.truncate(text.find(['(', ' ', '{']).unwrap_or(text.len()));
    Failure::new(FailureKind::Protocol, format!("the owner gave an answer of another kind: {text}"))
}
