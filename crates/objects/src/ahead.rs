//! How many chunks one request reads around a chunk that is not in the cache, and which requests
//! are under way.
//!
//! A request to a store takes as long as reading megabytes, and costs the same for a byte as for
//! those. So a miss reads a window, which grows while what was read unasked is used, and shrinks
//! while it is not. Invariants: a window never shrinks below the chunk that is wanted. A chunk is
//! requested by one thread at a time. What is remembered of objects is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use device::sync::{Condvar, Mutex};

/// Chunks of the window of an object that was not read before.
const FIRST: u64 = 4;
/// Chunks of the largest window.
const LARGEST: u64 = 32;
/// Objects that are remembered.
const OBJECTS_MAX: usize = 1024;
/// Chunks of an object that were read unasked and are remembered.
const UNASKED_MAX: usize = 256;
/// A cache has at least so many windows.
const WINDOWS_MIN: u64 = 16;

/// What is known of an object.
struct Seen {
    window: u64,
    /// Behind the last chunk that was read.
    end: u64,
    /// Chunks read unasked that were not used yet.
    unasked: BTreeSet<u64>,
    /// How many were read unasked, and how many of them were used; both halved at each miss.
    read: u64,
    used: u64,
    /// When it was last of interest.
    at: u64,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<u64, Seen>,
    by_time: BTreeMap<u64, u64>,
    now: u64,
    under_way: Vec<(u64, Range<u64>)>,
}

/// The windows of all objects.
pub(crate) struct Ahead {
    state: Mutex<State>,
    ended: Condvar,
    largest: u64,
}

/// A request under way for chunks of an object. Dropped when it has ended, however.
pub(crate) struct UnderWay<'a> {
    ahead: &'a Ahead,
    object: u64,
    chunks: Range<u64>,
}

impl Ahead {
    /// Windows for a cache of so many chunks.
    pub(crate) fn new(chunks_max: u64) -> Ahead {
        let largest = (chunks_max / WINDOWS_MIN).clamp(1, LARGEST);
        Ahead { state: Mutex::default(), ended: Condvar::new(), largest }
    }

    /// Notes that a chunk was found in the cache.
    pub(crate) fn hit(&self, object: u64, chunk: u64) {
        let mut state = self.state.lock();
        if let Some(seen) = state.objects.get_mut(&object)
            && seen.unasked.remove(&chunk)
        {
            seen.used += 1;
        }
    }

    /// Chooses what to request for chunks that are not in the cache, from `wanted.start` on. These
    /// are those of `wanted`, and absent ones of the window around them. Returns `None` if another
    /// thread requested the first of them; that request has ended on return, so it may be there
    /// now.
    pub(crate) fn begin(
        &self,
        object: u64,
        wanted: Range<u64>,
        is_absent: impl Fn(u64) -> bool,
    ) -> Option<UnderWay<'_>> {
        let mut state = self.state.lock();
        let is_requested = |state: &State, chunk: u64| {
            state.under_way.iter().any(|(of, chunks)| *of == object && chunks.contains(&chunk))
        };
        if is_requested(&state, wanted.start) {
            while is_requested(&state, wanted.start) {
                self.ended.wait(&mut state);
            }
            return None;
        }
        let window = state.missed(object, wanted.start, self.largest);
        let first = wanted.start - wanted.start % window;
        let is_free = |chunk: &u64| is_absent(*chunk) && !is_requested(&state, *chunk);
        let below = (first..wanted.start).rev().take_while(is_free).count() as u64;
        let above = wanted.start + 1..(first + window).max(wanted.end);
        let above = above.take_while(is_free).count() as u64;
        let chunks = wanted.start - below..wanted.start + 1 + above;
        state.under_way.push((object, chunks.clone()));
        state.reads(object, &chunks, &wanted);
        Some(UnderWay { ahead: self, object, chunks })
    }
}

impl State {
    /// The window of an object, one of whose chunks was missed.
    fn missed(&mut self, object: u64, chunk: u64, largest: u64) -> u64 {
        self.now += 1;
        let now = self.now;
        if let Some(seen) = self.objects.get_mut(&object) {
            self.by_time.remove(&seen.at);
            seen.at = now;
            let continues = chunk == seen.end && seen.window == 1;
            if continues || (seen.read > 0 && seen.used * 2 >= seen.read) {
                seen.window = (seen.window * 2).min(largest);
            } else if seen.used * 8 < seen.read {
                seen.window = (seen.window / 2).max(1);
            }
            (seen.read, seen.used) = (seen.read / 2, seen.used / 2);
            self.by_time.insert(now, object);
            return seen.window;
        }
        if self.objects.len() >= OBJECTS_MAX
            && let Some((_, oldest)) = self.by_time.pop_first()
        {
            self.objects.remove(&oldest);
        }
        let window = FIRST.min(largest);
        let (unasked, read, used, end) = (BTreeSet::new(), 0, 0, u64::MAX);
        self.objects.insert(object, Seen { window, end, unasked, read, used, at: now });
        self.by_time.insert(now, object);
        window
    }

    /// Notes what is requested.
    fn reads(&mut self, object: u64, chunks: &Range<u64>, wanted: &Range<u64>) {
        let Some(seen) = self.objects.get_mut(&object) else { return };
        seen.end = chunks.end;
        for chunk in chunks.clone().filter(|chunk| !wanted.contains(chunk)) {
            seen.read += 1;
            seen.unasked.insert(chunk);
        }
        while seen.unasked.len() > UNASKED_MAX {
            seen.unasked.pop_first();
        }
    }
}

impl UnderWay<'_> {
    /// The chunks to request.
    pub(crate) fn chunks(&self) -> Range<u64> {
        self.chunks.clone()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.ahead.state.lock();
        let own = (self.object, self.chunks.clone());
        if let Some(at) = state.under_way.iter().position(|it| *it == own) {
            state.under_way.swap_remove(at);
        }
        drop(state);
        self.ahead.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, LARGEST, OBJECTS_MAX};
    use std::collections::BTreeSet;

    /// Reads chunks through windows; returns requests and chunks requested.
    fn read(ahead: &Ahead, order: impl Iterator<Item = u64>) -> (usize, u64) {
        let mut there = BTreeSet::new();
        let (mut requests, mut chunks) = (0, 0);
        for chunk in order {
            if there.contains(&chunk) {
                ahead.hit(7, chunk);
                continue;
            }
            let request = ahead.begin(7, chunk..chunk + 1, |it| !there.contains(&it));
            let read = request.expect("nobody else requests").chunks();
            assert!(read.contains(&chunk));
            requests += 1;
            chunks += read.end - read.start;
            there.extend(read);
        }
        (requests, chunks)
    }

    #[test]
    fn windows_grow_while_they_are_used() {
        let (requests, chunks) = read(&Ahead::new(1 << 20), 0..1000);
        assert!(requests < 45 && chunks < 1000 + LARGEST, "{requests} requests, {chunks} chunks");
        let (requests, _) = read(&Ahead::new(1 << 20), (0..1000).rev());
        assert!(requests < 60, "{requests} requests backwards");
        let mut all: Vec<u64> = (0..1000).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut all);
        let (requests, chunks) = read(&Ahead::new(1 << 20), all.into_iter());
        assert!(requests < 1000 && chunks == 1000, "{requests} requests in any order");
    }

    #[test]
    fn single_reads_of_a_large_object_stay_single() {
        let mut random = fastrand::Rng::with_seed(1);
        let order = (0..200).map(|_| random.u64(0..1 << 40));
        let (requests, chunks) = read(&Ahead::new(1 << 20), order);
        assert_eq!(requests, 200);
        assert!(chunks < 210, "{chunks} chunks");
    }

    #[test]
    fn a_small_cache_is_not_filled_by_windows() {
        let (requests, chunks) = read(&Ahead::new(6), 0..100);
        assert_eq!((requests, chunks), (100, 100));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let ahead = Ahead::new(1 << 20);
        for object in 0..3 * OBJECTS_MAX as u64 {
            drop(ahead.begin(object, 0..1, |_| true));
        }
        let state = ahead.state.lock();
        assert_eq!((state.objects.len(), state.by_time.len()), (OBJECTS_MAX, OBJECTS_MAX));
        assert!(state.under_way.is_empty());
    }
}
