//! Steps of background work over a volume in memory, without checks.

#[path = "../../src/distinct.rs"]
mod distinct;
mod reclaimed;
#[path = "../../src/rest.rs"]
mod rest;
