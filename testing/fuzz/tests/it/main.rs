//! That every decoder is fuzzed, that the targets understand what they make, and that a run that
//! finds something says so.

mod died;
mod found;
mod registry;
mod understood;
