//! How the memory of `pando serve` is divided: `--memory`, or half of the machine's. One setting
//! bounds caches, changes that are not durable yet, and what clients make the server keep.
//!
//! Not in it: the program itself, and what searches, imports and lists compute in, which have
//! bounds of their own (docs/limits.md).

use program::cache_size;
use remote::Bounds;
use wire::{Failure, FailureKind};

use crate::failure::Result;

/// With less, a message of the greatest length would not fit everywhere.
const MEMORY_MIN: u64 = 128 << 20;
/// Parts of the whole, in sixteenths: cached nodes and changes that checkpoints write,
const CACHE: u64 = 7;
/// the search index,
const INDEX: u64 = 1;
/// the log and contents, until they are written,
const LOG: u64 = 1;
/// requests, answers, connections, and what clients hold,
const CLIENTS: u64 = 5;
/// and streams and dumps for clients.
const STREAMS: u64 = 2;
const PARTS: u64 = CACHE + INDEX + LOG + CLIENTS + STREAMS;

/// A log has one buffer that is filled, one that waits, and eight that are being written.
const LOG_BUFFERS: u64 = 10;
const LOG_BUFFER_MIN: u64 = 512 << 10;
const CONTENTS_MIN: u64 = 4 << 20;

/// The parts, in bytes; those of volumes are of all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) cache: u64,
    pub(crate) index: u64,
    log: u64,
    clients: u64,
    streams: u64,
}

/// What is bounded for each volume in its daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfVolume {
    /// A buffer of the log.
    pub(crate) log_buffer: usize,
    /// Contents that are not durable yet.
    pub(crate) contents: u64,
    /// Streams and dumps for clients.
    pub(crate) streams: u64,
}

/// A size from the command line.
pub(crate) fn parse(text: &str) -> std::result::Result<u64, String> {
    match inode::parse_bytes(text) {
        None => Err("expected a number of bytes, such as 2G".to_owned()),
        Some(bytes) if bytes < MEMORY_MIN => {
            Err(format!("must be at least {} MiB", MEMORY_MIN >> 20))
        }
        Some(bytes) => Ok(bytes),
    }
}

/// Divides what was requested, or half of the machine's memory. The cache and the index may have
/// other sizes; what they leave is divided as before, and must not be less than usual.
pub(crate) fn divide(
    asked: Option<u64>,
    cache: Option<u64>,
    index: Option<u64>,
) -> Result<Division> {
    divided(asked, (cache, index), 2 * cache_size::default_bytes())
}

fn divided(
    asked: Option<u64>,
    (cache, index): (Option<u64>, Option<u64>),
    half: u64,
) -> Result<Division> {
    let given = cache.unwrap_or(0).saturating_add(index.unwrap_or(0));
    // (As much for all that was not requested as for all that was.)
    let memory = asked.unwrap_or_else(|| half.max(given.saturating_mul(2)).max(MEMORY_MIN));
    let part = |parts: u64| memory / PARTS * parts;
    let (own_cache, own_index) = (cache.unwrap_or(part(CACHE)), index.unwrap_or(part(INDEX)));
    if own_cache.saturating_add(own_index) > part(CACHE + INDEX) {
        let message = format!(
            "a cache of {} MiB and an index of {} MiB are more than half of the memory of {} MiB",
            own_cache >> 20,
            own_index >> 20,
            memory >> 20
        );
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("give only --memory, which the server divides, or raise it"));
    }
    Ok(Division {
        cache: own_cache,
        index: own_index,
        log: part(LOG),
        clients: part(CLIENTS),
        streams: part(STREAMS),
    })
}

impl Division {
    /// Bounds of what clients make the server keep.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds::within(self.clients)
    }

    /// What one of so many volumes may take.
    pub(crate) fn of_volume(&self, volumes: u64) -> OfVolume {
        let default = fs::OpenOptions::default();
        let half = self.log / volumes / 2;
        let buffer = (half / LOG_BUFFERS).clamp(LOG_BUFFER_MIN, default.log_buffer_bytes as u64);
        let log_buffer = usize::try_from(buffer).unwrap_or(usize::MAX);
        let contents = half.clamp(CONTENTS_MIN, default.data.unsynced_bytes_max);
        OfVolume { log_buffer, contents, streams: self.streams / volumes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(of: &Division) -> u64 {
        of.cache + of.index + of.log + of.clients + of.streams
    }

    #[test]
    fn the_parts_are_the_whole_and_half_of_the_machine_is_the_default() {
        for memory in [MEMORY_MIN, 1 << 30, 3 << 30] {
            let parts = divided(Some(memory), (None, None), 1).unwrap();
            assert!(sum(&parts) <= memory && sum(&parts) > memory - PARTS);
            let own = divided(None, (None, None), memory).unwrap();
            assert_eq!(own, parts);
        }
        // A part that was requested by its own name is no more than half.
        let cache = divided(None, (Some(6 << 30), Some(1 << 30)), 1 << 30).unwrap();
        assert_eq!((cache.cache, cache.index), (6 << 30, 1 << 30));
        assert!(sum(&cache) <= 14 << 30);
        let refused = divided(Some(1 << 30), (Some(600 << 20), None), 1 << 30).unwrap_err();
        assert!(refused.message.contains("600 MiB"), "{}", refused.message);
        assert!(divided(Some(1 << 30), (Some(64 << 20), Some(0)), 1).is_ok());
    }

    #[test]
    fn volumes_share_and_bounds_follow() {
        let parts = divided(Some(1 << 30), (None, None), 1).unwrap();
        let (one, four) = (parts.of_volume(1), parts.of_volume(4));
        assert_eq!((one.streams, four.streams), (128 << 20, 32 << 20));
        let log = |one: &OfVolume| one.log_buffer as u64 * LOG_BUFFERS + one.contents;
        assert!(log(&one) <= 64 << 20 && log(&four) * 4 <= 64 << 20);
        let bounds = parts.bounds();
        let clients = (5 << 30) / 16;
        assert!(bounds.request_bytes + bounds.answer_bytes <= clients / 2);
        assert!(bounds.connections * (384 << 10) <= clients / 4);
        assert!(bounds.nodes * 256 + bounds.locks * 256 <= clients / 4);
        assert!(parse("64M").is_err_and(|message| message.contains("128 MiB")));
        assert_eq!(parse("2G"), Ok(2 << 30));
    }
}
