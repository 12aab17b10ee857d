//! A way up from a directory: how many steps it may take, and the path that it yields.
//!
//! Steps are counted, so that no tree makes a walk endless. A path is built from its end, in
//! one buffer of bounded length.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use inode::FsError;
use vfs::FsResult;

/// Longest path that is built.
pub(super) const PATH_BYTES_MAX: usize = 256 << 10;

/// How far ways up are followed.
pub(super) struct StepBudget<'a> {
    left: Cell<usize>,
    cancel: &'a AtomicBool,
}

impl StepBudget<'_> {
    pub(super) fn new(steps_max: usize, cancel: &AtomicBool) -> StepBudget<'_> {
        StepBudget { left: Cell::new(steps_max), cancel }
    }

    /// One that does not end.
    pub(super) fn unbounded() -> StepBudget<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        StepBudget::new(usize::MAX, &NEVER)
    }

    /// Ends with the caller.
    pub(super) fn proceeds(&self) -> FsResult<()> {
        if self.cancel.load(Ordering::Relaxed) { Err(FsError::Interrupted) } else { Ok(()) }
    }

    /// Counts a step.
    pub(super) fn step(&self) -> FsResult<()> {
        self.proceeds()?;
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or(FsError::Busy(
            "a search for the paths of the snapshots takes too many steps: list the snapshots of \
             one directory",
        ))?);
        Ok(())
    }
}

/// A path that is built from its last name.
#[derive(Default)]
pub(super) struct Path {
    /// The bytes in reverse order; nothing once they are too many.
    reversed: Vec<u8>,
    bytes: usize,
}

impl Path {
    pub(super) fn push(&mut self, name: &[u8]) {
        self.bytes = self.bytes.saturating_add(name.len() + 1);
        if self.bytes > PATH_BYTES_MAX {
            self.reversed = Vec::new();
            return;
        }
        self.reversed.extend(name.iter().rev());
        self.reversed.push(b'/');
    }

    /// The path; `None`: it is too long.
    pub(super) fn built(self) -> Option<Vec<u8>> {
        if self.bytes > PATH_BYTES_MAX {
            return None;
        }
        let mut path = self.reversed;
        path.reverse();
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_kept_up_to_its_bound_and_counted_beyond() {
        let built = |names: &[&[u8]]| {
            let mut path = Path::default();
            for name in names {
                path.push(name);
            }
            path.built()
        };
        assert_eq!(built(&[]).unwrap(), b"/");
        assert_eq!(built(&[b"file", b"ab", b"a"]).unwrap(), b"/a/ab/file");
        let name = [b'n'; 255];
        let full = PATH_BYTES_MAX / 256;
        assert_eq!(built(&vec![&name[..]; full]).unwrap().len(), PATH_BYTES_MAX);
        let mut long = Path::default();
        for _ in 0..100 * full {
            long.push(&name);
            assert!(long.reversed.capacity() <= 2 * PATH_BYTES_MAX);
        }
        assert_eq!(long.built(), None);
    }

    #[test]
    fn a_walk_ends_with_its_steps_and_with_its_caller() {
        let cancel = AtomicBool::new(false);
        let walk = StepBudget::new(2, &cancel);
        assert!(walk.step().is_ok() && walk.step().is_ok());
        assert!(matches!(walk.step(), Err(FsError::Busy(_))));
        let walk = StepBudget::new(2, &cancel);
        cancel.store(true, Ordering::Relaxed);
        assert!(matches!(walk.step(), Err(FsError::Interrupted)));
    }
}
