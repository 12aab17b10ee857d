//! Objects with a cache of their bytes on the host's disk.
//!
//! Invariants: objects do not change, so a chunk that was once read is right for ever. What is in
//! the cache's directory is used only if its checksum, volume, object and offset are right. So the
//! directory may be deleted, filled, made read-only or exchanged at any moment: a chunk that cannot
//! be used is read from the store. No error of the cache is an error of a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Blobs, Device, File, Result};
use format::cached_chunk::{self, CHUNK_BYTES, ChunkId};

use crate::ahead::Ahead;
use crate::cache_index::{CacheIndex, ChunkName};

/// Maximum bytes that one request reads.
const READ_MAX: usize = 8 << 20;
/// Bytes of a chunk's file beside the data and the object's name.
const HEAD_BYTES: usize = 64;
/// Chunks that are not written after the directory refused one: it is full or read-only, and each
/// attempt costs a call.
const SKIPPED: u64 = 256;
/// An object that is larger than this part of the cache is not written to it when it is created.
const PART: u64 = 4;

/// Counts of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Chunks that were read from the cache.
    pub hits: u64,
    /// Chunks that were read from the store.
    pub misses: u64,
    /// Files that were not what they should be, and were ignored.
    pub refused: u64,
    /// Chunks that the directory did not take.
    pub unwritten: u64,
    /// Chunks that were removed to free space.
    pub evicted: u64,
    /// Bytes of the chunks that are in the cache.
    pub bytes: u64,
    /// Maximum of that.
    pub bytes_max: u64,
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    refused: AtomicU64,
    unwritten: AtomicU64,
    evicted: AtomicU64,
}

/// Objects, and chunks of them in a directory of a device.
pub struct CachedBlobs {
    blobs: Arc<dyn Blobs>,
    device: Arc<dyn Device>,
    directory: String,
    volume: [u8; 16],
    bytes_max: u64,
    index: CacheIndex,
    ahead: Ahead,
    counts: Counts,
    /// Chunks that are still to be skipped.
    skip: AtomicU64,
}

impl CachedBlobs {
    /// Uses the chunks that are in a directory, which is created when absent, and keeps at most so
    /// many bytes there. A directory that cannot be used is an empty cache.
    pub fn new(
        blobs: Arc<dyn Blobs>,
        device: Arc<dyn Device>,
        directory: &str,
        volume: [u8; 16],
        bytes_max: u64,
    ) -> CachedBlobs {
        let cached = CachedBlobs {
            blobs,
            device,
            directory: directory.to_owned(),
            volume,
            bytes_max,
            index: CacheIndex::default(),
            ahead: Ahead::new(bytes_max / CHUNK_BYTES as u64),
            counts: Counts::default(),
            skip: AtomicU64::new(0),
        };
        // A directory on a read-only disk may still have chunks; one that is absent has none.
        cached.device.create_dir(directory).ok();
        cached.index.load(&*cached.device, directory);
        cached.evict();
        cached
    }

    /// The objects without the cache.
    pub fn uncached(&self) -> &Arc<dyn Blobs> {
        &self.blobs
    }

    /// Removes all chunks: the volume was restored from an older copy, so names may have other
    /// bytes than before.
    pub fn clear(&self) {
        while let Some(chunk) = self.index.oldest_beyond(0) {
            self.drop_chunk(chunk);
        }
    }

    /// Counts so far.
    pub fn stats(&self) -> CacheStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CacheStats {
            hits: load(&self.counts.hits),
            misses: load(&self.counts.misses),
            refused: load(&self.counts.refused),
            unwritten: load(&self.counts.unwritten),
            evicted: load(&self.counts.evicted),
            bytes: self.index.bytes(),
            bytes_max: self.bytes_max,
        }
    }

    fn path(&self, chunk: ChunkName) -> String {
        format!("{}/{chunk}", self.directory)
    }

    /// Copies from a cached chunk; `None` if it is not there.
    fn cached(&self, name: &str, number: u64, within: usize, to: &mut [u8]) -> Option<usize> {
        let chunk = ChunkName::of(&self.volume, name, number);
        if !self.index.touch(chunk) {
            return None;
        }
        let refuse = || {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            self.drop_chunk(chunk);
        };
        let mut bytes = vec![0; CHUNK_BYTES + HEAD_BYTES + name.len()];
        let read = self.device.open(&self.path(chunk)).and_then(|file| file.read_at(&mut bytes, 0));
        let place = ChunkId { volume: self.volume, name, offset: number * CHUNK_BYTES as u64 };
        let Some(data) =
            read.ok().and_then(|read| cached_chunk::decode(&place, &bytes[..read]).ok())
        else {
            refuse();
            return None;
        };
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        self.ahead.hit(chunk.object(), number);
        let rest = data.get(within..).unwrap_or_default();
        let count = rest.len().min(to.len());
        to[..count].copy_from_slice(&rest[..count]);
        Some(count)
    }

    /// Writes a chunk to the cache, if the directory takes it.
    fn keep(&self, name: &str, number: u64, data: &[u8]) {
        let skipped = |left: u64| left.checked_sub(1);
        if data.is_empty()
            || data.len() as u64 > self.bytes_max
            || self.skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, skipped).is_ok()
        {
            return;
        }
        let chunk = ChunkName::of(&self.volume, name, number);
        let place = ChunkId { volume: self.volume, name, offset: number * CHUNK_BYTES as u64 };
        let bytes = cached_chunk::encode(&place, data);
        let path = self.path(chunk);
        let write = || {
            self.device.create_dir(path.rsplit_once('/').unwrap_or_default().0)?;
            // The file is of another object with the same hash, or not whole.
            if self.device.metadata(&path)?.is_some() {
                self.device.remove(&path)?;
            }
            self.device.create(&path)?.write_at(&bytes, 0)
        };
        match write() {
            Ok(()) => {
                self.index.add(chunk, bytes.len() as u64);
                self.evict();
            }
            Err(error) => {
                self.counts.unwritten.fetch_add(1, Ordering::Relaxed);
                self.drop_chunk(chunk);
                // Another thread may have written the same chunk.
                if error.kind != std::io::ErrorKind::AlreadyExists {
                    self.skip.store(SKIPPED, Ordering::Relaxed);
                }
            }
        }
    }

    /// Removes a chunk. If that fails, its bytes still count as absent.
    fn drop_chunk(&self, chunk: ChunkName) {
        self.index.remove(chunk);
        self.device.remove(&self.path(chunk)).ok();
    }

    /// Removes the chunks that were not used for the longest time, until the rest fits.
    fn evict(&self) {
        while let Some(chunk) = self.index.oldest_beyond(self.bytes_max) {
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            self.drop_chunk(chunk);
        }
    }

    /// Reads chunks from the store and keeps them; returns the bytes read.
    fn fetch(&self, name: &str, first: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = self.blobs.read_at(name, buffer, first * CHUNK_BYTES as u64)?;
        let whole = read == buffer.len();
        for (number, data) in (first..).zip(buffer[..read].chunks(CHUNK_BYTES)) {
            self.counts.misses.fetch_add(1, Ordering::Relaxed);
            // The last chunk may be short because the object ends there.
            debug_assert!(data.len() == CHUNK_BYTES || !whole);
            self.keep(name, number, data);
        }
        Ok(read)
    }

    /// Keeps the chunks of an object that was just created.
    fn keep_all(&self, name: &str, length: u64, read: impl Fn(&mut [u8], u64) -> Result<usize>) {
        if length > self.bytes_max / PART {
            return;
        }
        let mut buffer = vec![0; CHUNK_BYTES.min(length as usize)];
        for number in 0..length.div_ceil(CHUNK_BYTES as u64) {
            let offset = number * CHUNK_BYTES as u64;
            let expected = (length - offset).min(CHUNK_BYTES as u64) as usize;
            match read(&mut buffer[..expected], offset) {
                Ok(read) if read == expected => self.keep(name, number, &buffer[..read]),
                // The object exists; the cache lacks a part of it.
                _ => return,
            }
        }
    }
}

impl Blobs for CachedBlobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let made = self.blobs.create(name, bytes)?;
        if made {
            let length = bytes.len() as u64;
            self.keep_all(name, length, |buffer, at| Ok(device::part_of(bytes, buffer, at)));
        }
        Ok(made)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        // Stays readable when the file is removed.
        let file: Arc<dyn File> = device.open(path)?;
        let length = file.len()?;
        let made = self.blobs.adopt(name, device, path)?;
        if made {
            self.keep_all(name, length, |buffer, at| file.read_at(buffer, at));
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let Some(end) = offset.checked_add(buffer.len() as u64) else {
            return self.blobs.read_at(name, buffer, offset);
        };
        let chunk_bytes = CHUNK_BYTES as u64;
        let mut at = offset;
        while at < end {
            let (number, within) = (at / chunk_bytes, (at % chunk_bytes) as usize);
            let filled = (at - offset) as usize;
            let wanted = (CHUNK_BYTES - within).min(buffer.len() - filled);
            let to = &mut buffer[filled..filled + wanted];
            if let Some(read) = self.cached(name, number, within, to) {
                at += read as u64;
                if read < wanted {
                    break;
                }
                continue;
            }
            let last = (end - 1) / chunk_bytes;
            let most = number + (READ_MAX / CHUNK_BYTES) as u64;
            let absent = |number: u64| !self.index.has(ChunkName::of(&self.volume, name, number));
            let object = ChunkName::of(&self.volume, name, number).object();
            let wanted = number..(last + 1).min(most);
            // What another thread requested meanwhile is in the cache, unless that failed.
            let Some(request) = self.ahead.begin(object, wanted, absent) else {
                if absent(number) {
                    let (buffer, at) = (&mut buffer[filled..], offset + filled as u64);
                    return Ok(filled + self.blobs.read_at(name, buffer, at)?);
                }
                continue;
            };
            let asked = request.chunks();
            let mut chunks = vec![0; (asked.end - asked.start) as usize * CHUNK_BYTES];
            let read = self.fetch(name, asked.start, &mut chunks)?;
            drop(request);
            let within = (at - asked.start * chunk_bytes) as usize;
            let found = chunks[..read].get(within..).unwrap_or_default();
            let copied = found.len().min(buffer.len() - filled);
            buffer[filled..filled + copied].copy_from_slice(&found[..copied]);
            at += copied as u64;
            if read < chunks.len() {
                break;
            }
        }
        Ok((at - offset) as usize)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.blobs.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.blobs.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.index.of_object(&self.volume, name).into_iter().for_each(|it| self.drop_chunk(it));
        self.blobs.delete(name)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        for name in names {
            self.index.of_object(&self.volume, name).into_iter().for_each(|it| self.drop_chunk(it));
        }
        self.blobs.delete_all(names)
    }

    /// Punched bytes would stay in the caches of other hosts.
    fn punch(&self, _name: &str, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        self.blobs.disk_bytes(name)
    }

    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        self.blobs.occupied(name, offset, length)
    }

    fn disk_bytes_below(&self, prefix: &str) -> Result<u64> {
        self.blobs.disk_bytes_below(prefix)
    }

    fn bytes_max(&self) -> u64 {
        self.blobs.bytes_max()
    }

    fn answers_may_be_lost(&self) -> bool {
        self.blobs.answers_may_be_lost()
    }
}
