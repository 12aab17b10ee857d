//! How much memory a daemon gives to the search index: the requested size, or 256 MiB. If a quarter
//! of the node cache is less, it is that. With no memory, searches walk the tree.

use search::index::IndexOptions;

/// With less, not even the directories of a large volume would stay in memory.
const INDEX_BYTES_MIN: u64 = 8 << 20;
/// The default is at most this fraction of the node cache: one divided by this.
const SHARE: u64 = 4;

/// A size from the command line.
pub fn parse(text: &str) -> Result<u64, String> {
    match inode::parse_bytes(text) {
        None => Err("expected a number of bytes, such as 80M, or 0 for no index".to_owned()),
        Some(bytes) if bytes != 0 && bytes < INDEX_BYTES_MIN => {
            Err(format!("must be at least {} MiB, or 0 for no index", INDEX_BYTES_MIN >> 20))
        }
        Some(bytes) => Ok(bytes),
    }
}

/// The options of an index beside a node cache of this many bytes.
pub fn options(asked: Option<u64>, cache_bytes: u64) -> Option<IndexOptions> {
    let default = IndexOptions::default();
    let share = (cache_bytes / SHARE).max(INDEX_BYTES_MIN);
    let bytes = asked.unwrap_or(share.min(default.cache_bytes as u64));
    (bytes > 0).then(|| IndexOptions {
        cache_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        ..default
    })
}

#[cfg(test)]
mod tests {
    use super::{options, parse};

    #[test]
    fn zero_requested_rows_keep_none() {
        assert_eq!(options(Some(0), 1 << 30), None);
        let bytes = |asked, cache| options(asked, cache).map(|options| options.cache_bytes);
        assert_eq!(bytes(None, 8 << 30), Some(256 << 20));
        assert_eq!(bytes(None, 64 << 20), Some(16 << 20));
        assert_eq!(bytes(Some(80 << 20), 64 << 20), Some(80 << 20));
    }

    #[test]
    fn too_small_a_cache_is_refused() {
        assert_eq!(parse("80M"), Ok(80 << 20));
        assert_eq!(parse("0"), Ok(0));
        assert!(parse("1M").is_err_and(|message| message.contains("8 MiB")));
    }
}
