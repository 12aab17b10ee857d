//! Fills a bare store of the log-structured engine with entries of keys of 20 bytes and
//! incompressible values, in order or at random. It does all background work that becomes due
//! meanwhile.

use std::sync::Arc;

use device::{DirectDevice, Env};
use store::{Batch, EngineOptions, Store};

use super::Run;
use super::bare::{Bare, TREE};
use super::engine::{self, broken};
use program::failure::Result;

/// Bytes of a key, as in IndexFS III.D.
pub(super) const KEY_BYTES: usize = 20;
/// Entries per commit.
const AT_ONCE: u64 = 100;
/// Nodes per merge step between two commits: half a mebibyte.
const STEP: usize = 32;

/// The order of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    Random,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Sequential => "sequential",
            Order::Random => "random",
        }
    }

    /// The entry at a position of the order, each once: steps of a constant that is coprime to the
    /// number of entries.
    pub(super) fn entry(self, at: u64, entries: u64) -> u64 {
        match self {
            Order::Sequential => at,
            Order::Random => {
                (u128::from(at) * u128::from(stride(entries)) % u128::from(entries)) as u64
            }
        }
    }
}

fn stride(entries: u64) -> u64 {
    let common = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // The golden section of the range: entries that follow each other are far apart.
    let mut stride = (entries as f64 * 0.618_033_988_75) as u64 | 1;
    while common(stride, entries) != 1 {
        stride += 2;
    }
    stride
}

/// The key of an entry: keys ascend with the entries.
pub(super) fn key(entry: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = entry;
    for place in key.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A value that is unique to its entry.
pub(super) fn value(entry: u64, bytes: usize, into: &mut Vec<u8>) {
    into.clear();
    let mut state = entry.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while into.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        into.extend_from_slice(&state.to_le_bytes());
    }
    into.truncate(bytes);
}

/// Creates a store of the log-structured engine that reads past the page cache. The values are
/// incompressible, so it does not try to compress.
pub(super) fn make(run: &Run<'_>, cache_bytes: usize, options: lsm::Options) -> Result<Bare> {
    let common = EngineOptions { cache_bytes, ..engine::options(run.args) };
    let options = lsm::Options { common, compression: 0, ..options };
    let direct = |path: &std::path::Path| {
        Ok(Env { device: Arc::new(DirectDevice::open(path)?), ..Env::system(path)? })
    };
    Bare::make_with(run, direct, |env| Ok(lsm::LsmStore::create(env, &options).map_err(broken)?))
}

/// Puts all entries, and merges until nothing is left to merge.
pub(super) fn fill(
    run: &Run<'_>,
    store: &dyn Store,
    order: Order,
    entries: u64,
    bytes: usize,
) -> Result<()> {
    let (mut batch, mut buffer) = (Batch::new(), Vec::new());
    for at in 0..entries {
        let entry = order.entry(at, entries);
        value(entry, bytes, &mut buffer);
        batch.put(TREE, &key(entry), &buffer);
        if at % AT_ONCE == AT_ONCE - 1 || at == entries - 1 {
            store.commit(&batch).map_err(broken)?;
            batch.clear();
            run.check()?;
            run.bar.inc(AT_ONCE);
            if store.checkpoint_due() {
                store.checkpoint().map_err(broken)?;
            }
            store.reclaim_step(STEP).map_err(broken)?;
        }
    }
    store.sync(store.last_commit()).map_err(broken)?;
    store.checkpoint().map_err(broken)?;
    while store.reclaim_step(STEP).map_err(broken)? {
        run.check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_comes_once_in_any_order() {
        for entries in [1, 2, 10, 100, 997, 100_000] {
            let mut seen: Vec<u64> =
                (0..entries).map(|at| Order::Random.entry(at, entries)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..entries), "{entries}");
        }
    }

    #[test]
    fn keys_ascend_as_entries_do() {
        assert!((0..2000).map(|n| key(n * 77_777_777)).is_sorted());
        assert_eq!(&key(1234), b"00000000000000001234");
    }
}
