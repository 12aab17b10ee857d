//! Checks and repairs of a volume on a simulated disk, with each engine, without `Fs`.

mod report;
#[path = "../../src/sets.rs"]
mod sets;
mod sound;
