//! Tests that every decoder is fuzzed, that the targets understand their own valid input, and that
//! a run with a finding reports it.

mod died;
mod found;
mod registry;
mod understood;
mod verbs;
