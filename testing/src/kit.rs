//! Helpers that tests of every store share.

use std::collections::BTreeMap;

use store::{Batch, CommitToken, KeyRange, Read, Store, TreeId};

/// Commits a batch that `build` fills; the store must accept it.
pub fn commit(store: &dyn Store, build: impl FnOnce(&mut Batch)) -> CommitToken {
    let mut batch = Batch::new();
    build(&mut batch);
    store.commit(&batch).expect("the batch is valid")
}

/// All entries of a tree, by cursor.
pub fn entries(store: &dyn Read, tree: TreeId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut cursor = store.scan(tree, KeyRange::all()).expect("the tree exists");
    while let Some(item) = cursor.next().expect("read") {
        assert!(all.insert(item.key.to_vec(), item.value.to_vec()).is_none());
    }
    all
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
