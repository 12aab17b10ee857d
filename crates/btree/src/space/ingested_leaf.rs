//! A leaf that was written outside of a checkpoint, with the places that it takes.

use format::Pointer;

/// The number of a pin that never drops.
pub(super) const FOREVER: u64 = u64::MAX;

/// A leaf, and the places of its long values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ingested {
    pub(crate) pointer: Pointer,
    pub(crate) overflows: Vec<Pointer>,
}

impl Ingested {
    /// All places that it takes.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &Pointer> {
        self.overflows.iter().chain([&self.pointer])
    }
}
