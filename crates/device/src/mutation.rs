//! Mutations: faults that a simulation plants in a protocol, to see that its checks find them.
//!
//! The code asks at the place where a mutated protocol would differ. Without the feature `sim` the
//! answer is a constant, and the compiler drops the other branch: no program of a user has one.

/// Whether the scheduler of this thread plants a fault of this name.
#[cfg(feature = "sim")]
pub fn mutated(name: &str) -> bool {
    crate::sim::mutation().is_some_and(|planted| planted == name)
}

/// Whether a fault of this name is planted: never.
#[cfg(not(feature = "sim"))]
#[inline]
pub const fn mutated(_: &str) -> bool {
    false
}
