//! Which chunks a cache has, how large they are, and when each was used.

use std::collections::BTreeMap;
use std::fmt;

use device::Device;
use device::sync::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The name of a chunk's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkName {
    /// Hash of volume and object name. A chunk's file has both in full.
    object: u64,
    number: u64,
}

impl ChunkName {
    /// That of a chunk of an object.
    pub(crate) fn of(volume: &[u8; 16], name: &str, number: u64) -> ChunkName {
        let seed = xxh3_64_with_seed(volume, 0);
        ChunkName { object: xxh3_64_with_seed(name.as_bytes(), seed), number }
    }

    /// What all chunks of the object have in common.
    pub(crate) fn object(self) -> u64 {
        self.object
    }

    /// From a directory's name and a file's name in it.
    fn parse(directory: &str, name: &str) -> Option<ChunkName> {
        let (object, number) = name.split_once('-')?;
        let parsed = ChunkName {
            object: u64::from_str_radix(object, 16).ok()?,
            number: u64::from_str_radix(number, 16).ok()?,
        };
        (parsed.to_string() == format!("{directory}/{name}")).then_some(parsed)
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}/{:016x}-{:x}", self.object >> 56, self.object, self.number)
    }
}

/// The chunks of a cache.
#[derive(Default)]
pub(crate) struct CacheIndex(Mutex<State>);

#[derive(Default)]
struct State {
    chunks: BTreeMap<ChunkName, Used>,
    by_time: BTreeMap<u64, ChunkName>,
    now: u64,
    bytes: u64,
}

struct Used {
    at: u64,
    bytes: u64,
}

impl State {
    fn insert(&mut self, chunk: ChunkName, bytes: u64) {
        self.remove(chunk);
        self.now += 1;
        self.bytes += bytes;
        self.chunks.insert(chunk, Used { at: self.now, bytes });
        self.by_time.insert(self.now, chunk);
    }

    fn remove(&mut self, chunk: ChunkName) {
        if let Some(used) = self.chunks.remove(&chunk) {
            self.by_time.remove(&used.at);
            self.bytes -= used.bytes;
        }
    }
}

impl CacheIndex {
    /// Finds the chunks in a directory. Other files are not touched; what cannot be read is not
    /// there.
    pub(crate) fn load(&self, device: &dyn Device, directory: &str) {
        for above in device.list(directory).unwrap_or_default() {
            let path = format!("{directory}/{above}");
            if above.len() != 2 || !above.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                continue;
            }
            for name in device.list(&path).unwrap_or_default() {
                let Some(chunk) = ChunkName::parse(&above, &name) else { continue };
                if let Ok(Some(found)) = device.metadata(&format!("{path}/{name}"))
                    && !found.directory
                {
                    self.add(chunk, found.length);
                }
            }
        }
    }

    /// Bytes of all chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// Whether a chunk is there.
    pub(crate) fn has(&self, chunk: ChunkName) -> bool {
        self.0.lock().chunks.contains_key(&chunk)
    }

    /// Whether a chunk is there; then it counts as used now.
    pub(crate) fn touch(&self, chunk: ChunkName) -> bool {
        let mut state = self.0.lock();
        let Some(bytes) = state.chunks.get(&chunk).map(|used| used.bytes) else { return false };
        state.insert(chunk, bytes);
        true
    }

    /// Adds a chunk that was written.
    pub(crate) fn add(&self, chunk: ChunkName, bytes: u64) {
        self.0.lock().insert(chunk, bytes);
    }

    /// Removes a chunk.
    pub(crate) fn remove(&self, chunk: ChunkName) {
        self.0.lock().remove(chunk);
    }

    /// The chunk that was not used for the longest time, if all have more bytes than this.
    pub(crate) fn oldest_beyond(&self, bytes_max: u64) -> Option<ChunkName> {
        let state = self.0.lock();
        (state.bytes > bytes_max).then(|| state.by_time.values().next().copied())?
    }

    /// All chunks of an object.
    pub(crate) fn of_object(&self, volume: &[u8; 16], name: &str) -> Vec<ChunkName> {
        let from = ChunkName::of(volume, name, 0);
        let to = ChunkName { number: u64::MAX, ..from };
        self.0.lock().chunks.range(from..=to).map(|(chunk, _)| *chunk).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{CacheIndex, ChunkName};

    #[test]
    fn names_of_files_are_those_of_chunks_alone() {
        let chunk = ChunkName::of(&[1; 16], "run/1", 0x12);
        let text = chunk.to_string();
        let (directory, name) = text.split_once('/').unwrap();
        assert_eq!(ChunkName::parse(directory, name), Some(chunk));
        assert_ne!(chunk, ChunkName::of(&[2; 16], "run/1", 0x12));
        for (directory, name) in [
            ("zz", name),
            (directory, "rubbish"),
            (directory, "0-0"),
            (directory, &format!("{name}.staged")),
            (directory, &name.replace("-12", "-0012")),
            (directory, &format!("+{}", &name[1..])),
        ] {
            assert_eq!(ChunkName::parse(directory, name), None, "{directory}/{name}");
        }
    }

    #[test]
    fn the_chunk_that_was_not_used_for_longest_goes_first() {
        let index = CacheIndex::default();
        let chunk = |number| ChunkName { object: 7, number };
        (0..4).for_each(|number| index.add(chunk(number), 10));
        assert!(index.touch(chunk(0)) && !index.touch(chunk(9)));
        assert_eq!(index.bytes(), 40);
        assert_eq!(index.oldest_beyond(40), None);
        assert_eq!(index.oldest_beyond(39), Some(chunk(1)));
        index.add(chunk(1), 5);
        assert_eq!((index.bytes(), index.oldest_beyond(0)), (35, Some(chunk(2))));
        index.remove(chunk(2));
        index.remove(chunk(2));
        assert_eq!((index.bytes(), index.oldest_beyond(0)), (25, Some(chunk(3))));
    }
}
