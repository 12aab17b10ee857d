//! Helpers that tests of every store share.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{Batch, CommitToken, KeyRange, Read, Store, TreeId};

/// Commits a batch that `build` fills; the store must accept it.
pub fn commit(store: &dyn Store, build: impl FnOnce(&mut Batch)) -> CommitToken {
    let mut batch = Batch::new();
    build(&mut batch);
    store.commit(&batch).expect("the batch is valid")
}

/// An operation must fail, with an error whose text contains this.
#[track_caller]
pub fn fails<T, E: Display>(result: Result<T, E>, text: &str) {
    let Err(error) = result else { panic!("it succeeded, where {text:?} was expected") };
    let error = error.to_string();
    assert!(error.contains(text), "{text:?} is not in {error:?}");
}

/// Sets a flag when it drops, also when a test fails. Threads that run until it is set then end.
/// Otherwise a scope would wait for them forever, and nobody would learn what failed.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// All entries of a tree, by cursor, which returns them in order.
pub fn entries(store: &dyn Read, tree: TreeId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut cursor = store.scan(tree, KeyRange::all()).expect("the tree exists");
    while let Some(item) = cursor.next().expect("read") {
        assert!(all.last().is_none_or(|(last, _)| last[..] < *item.key), "keys come in order");
        all.push((item.key.to_vec(), item.value.to_vec()));
    }
    // The list is sorted, so the map is built without looking for places.
    all.into_iter().collect()
}

/// Whether a tree has these entries and no others. Costs less than a comparison of [`entries`].
pub fn has_exactly(store: &dyn Read, tree: TreeId, all: &BTreeMap<Vec<u8>, Vec<u8>>) -> bool {
    let mut cursor = store.scan(tree, KeyRange::all()).expect("the tree exists");
    let mut expected = all.iter();
    while let Some(item) = cursor.next().expect("read") {
        if !expected.next().is_some_and(|(key, value)| key == item.key && value == item.value) {
            return false;
        }
    }
    expected.next().is_none()
}

/// Bytes that no engine can compress.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..bytes).map(|_| random.u8(..)).collect()
}

/// Entries with the numbers of a range as keys, and values of so many bytes.
pub fn numbered(numbers: std::ops::Range<u32>, bytes: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    numbers.map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; bytes])).collect()
}
