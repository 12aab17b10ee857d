//! What every engine is asked. One operation is one atomic change, except where an engine's own
//! file describes something else. Tests of `bench/workloads` compile this file, too, with `ours`.

use std::time::Duration;

/// A program that measures stops at the first error, and reports it.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Longest time that a change stays volatile in every engine: the default of ours.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// One open store.
pub(crate) trait Engine {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    fn delete(&mut self, key: &[u8]) -> Result<()>;

    /// Hands the value to `found` without copying it, where the engine can; returns whether the key
    /// is there.
    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Hands out all entries whose key starts with `prefix`; returns how many.
    fn scan(&mut self, prefix: &[u8], found: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Returns when all changes are durable.
    fn sync(&mut self) -> Result<()>;

    /// Brings what is in memory or in the log to its place, and waits for background work.
    fn settle(&mut self) -> Result<()>;

    /// Takes and drops a state for reading that later changes leave alone. It is gone with the
    /// process.
    fn snapshot(&mut self) -> Result<()>;

    /// Takes a durable copy, a clone where the engine has them; `Ok(false)` when it has neither.
    fn copy(&mut self, number: u64) -> Result<bool>;

    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}
