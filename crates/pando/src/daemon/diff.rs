//! Comparing two states of a directory: changes leave in messages of bounded size, and the work
//! ends when nobody reads on.

use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use fs::{Entry, Volume};
use inode::{Attr, Caller, FsError, Kind};
use wire::{Body, Difference, Failure, FailureKind};

use super::{stream_terms, watch};

/// Approximate bytes of changes in one message.
const PART_BYTES: usize = 64 << 10;
/// Approximate bytes of a change without its paths.
const CHANGE_BYTES: usize = 208;
/// Longest path that is reported: directories can be made below one another without end, and a
/// message has two paths.
const PATH_BYTES_MAX: usize = 256 << 10;
/// How much of the end of a longer path is reported.
const END_BYTES: usize = 256;

/// Refuses to compare what is not a directory.
pub(super) fn check(entry: &Entry) -> Result<(), Failure> {
    if entry.attr.kind == Kind::Directory {
        return Ok(());
    }
    let failure = Failure::from(FsError::NotDirectory);
    Err(failure.hint("directories are compared: name the one that it is in"))
}

/// Sends the changes from one state of a directory to another, within bytes of memory.
pub(super) fn diff(
    fs: &Volume,
    caller: &Caller,
    ((old, new), (memory, is_short)): ((&Entry, &Entry), (usize, bool)),
    peer: &UnixStream,
    send: &mut dyn FnMut(Body) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let cancel = AtomicBool::new(false);
    let mut parts = Parts { send, part: Vec::new(), bytes: 0, broken: None };
    let nodes = (old.node, new.node);
    let mut add = |difference: &fs::Difference| parts.add(difference);
    let compare = || fs.compare_within(caller, nodes, memory, (&cancel, &mut add));
    let compared = watch::while_heard(peer, &cancel, || {}, compare)?;
    if cancel.load(Ordering::Relaxed) {
        return Err(watch::cut_off("the comparison"));
    }
    compared.map_err(|error| failed(error, is_short))?;
    parts.send();
    parts.broken.map_or(Ok(()), Err)
}

fn failed(error: FsError, is_short: bool) -> Failure {
    match error {
        FsError::MemoryExceeded(what) if is_short => stream_terms::short_of_memory(what),
        FsError::InvalidArgument(why) => {
            let message = format!("this and the other one are {why}");
            Failure::new(FailureKind::Invalid, message).hint(
                "a directory is compared with its snapshots and clones, or with itself in those \
                 of a directory above; `diff -r` compares any two",
            )
        }
        FsError::MemoryExceeded(what) => Failure::new(FailureKind::Other, what.to_owned())
            .hint("raise --memory, or compare a directory below"),
        // No memory and no other time changes it.
        FsError::LimitReached(what) => Failure::new(FailureKind::Other, what.to_owned())
            .hint("compare directories below, or a mount of both by `diff -r`"),
        FsError::NotPermitted(what) => {
            Failure::new(FailureKind::Invalid, format!("{what} is not a state of a directory"))
                .hint("name a directory, a clone of it, or DIR@SNAPSHOT")
        }
        error => error.into(),
    }
}

/// Changes on their way out.
struct Parts<'a> {
    send: &'a mut dyn FnMut(Body) -> Result<(), Failure>,
    part: Vec<Difference>,
    bytes: usize,
    broken: Option<Failure>,
}

impl Parts<'_> {
    fn add(&mut self, difference: &fs::Difference) -> ControlFlow<()> {
        let sides = [&difference.old, &difference.new];
        let longest = sides.into_iter().flatten().map(|(path, _)| path.len()).max();
        if longest.is_some_and(|longest| longest > PATH_BYTES_MAX) {
            let message = "a change below a path that is too long is not reported";
            let failure = Failure::new(FailureKind::Invalid, message)
                .hint("compare a directory on that path");
            self.send();
            let path = difference.path();
            self.send_body(Body::Skipped(
                failure.at(&path[path.len().saturating_sub(END_BYTES)..]),
            ));
        } else {
            self.bytes += CHANGE_BYTES;
            self.bytes += sides.into_iter().flatten().map(|(path, _)| path.len()).sum::<usize>();
            self.part.push(shown(difference));
            if self.bytes >= PART_BYTES {
                self.send();
            }
        }
        if self.broken.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn send(&mut self) {
        self.bytes = 0;
        if !self.part.is_empty() {
            let part = std::mem::take(&mut self.part);
            self.send_body(Body::Differences(part));
        }
    }

    fn send_body(&mut self, body: Body) {
        if self.broken.is_none() {
            self.broken = (self.send)(body).err();
        }
    }
}

fn shown(difference: &fs::Difference) -> Difference {
    let side = |side: &Option<(Vec<u8>, Attr)>| {
        side.as_ref().map(|(path, attr)| (path.as_slice().into(), attr.into()))
    };
    Difference {
        kind: difference.kind,
        old: side(&difference.old),
        new: side(&difference.new),
        fields: difference.fields.iter().collect(),
        is_link: difference.is_link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a comparison that no memory makes possible ended as one to be repeated.
    #[test]
    fn a_fixed_limit_is_no_reason_to_try_again() {
        for is_short in [false, true] {
            let memory = failed(FsError::MemoryExceeded("so many directories"), is_short);
            assert_eq!(memory.kind == FailureKind::Busy, is_short, "{memory:?}");
            assert!(memory.hint.contains("--memory"), "{memory:?}");
            let fixed = failed(FsError::LimitReached("paths of one file"), is_short);
            assert_eq!(fixed.kind, FailureKind::Other, "{fixed:?}");
            assert_eq!(fixed.message, "paths of one file");
            assert!(!fixed.hint.contains("memory") && !fixed.hint.contains("again"), "{fixed:?}");
        }
    }
}
