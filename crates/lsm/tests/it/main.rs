//! The engine's tests: the suite that every engine must pass, and what is particular to this one.

mod conformance;
