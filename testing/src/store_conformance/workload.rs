//! Random batches that are valid for the existing trees. The composition of a run (kinds of keys,
//! lengths of values, frequency of each operation) is itself drawn from the seed.

use store::{Batch, Lane, MergeKind, TreeId};

/// Limits on sizes.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Maximum number of trees at once.
    pub trees_max: usize,
    /// Maximum operations of an ordinary batch.
    pub batch_max: usize,
    /// Approximate number of distinct keys.
    pub keys: u64,
    /// Maximum length of an ordinary put's value; longer ones occur sometimes if `large` is set.
    pub value_max: usize,
    /// Whether values of 64 KiB and beyond occur.
    pub large: bool,
}

impl Shape {
    /// For crash enumeration: small, so that a state is compared quickly.
    pub const SMALL: Shape =
        Shape { trees_max: 5, batch_max: 6, keys: 400, value_max: 300, large: false };
    /// For long random runs.
    pub const WIDE: Shape =
        Shape { trees_max: 12, batch_max: 20, keys: 4000, value_max: 200, large: true };
}

#[derive(Debug, Clone, Copy)]
enum Keys {
    /// Eight bytes, big-endian.
    Numbers,
    /// A long common prefix, then a number.
    LongPrefix,
    /// 0 to 512 bytes with few different values, so that keys are prefixes of each other.
    Few,
    /// As in the namespace: a letter, a directory, a hash, a type.
    Entries,
}

/// Weights of the operations, in this order.
#[derive(Debug, Clone, Copy)]
struct Weights {
    put: u32,
    delete: u32,
    delete_range: u32,
    merge: u32,
    create: u32,
    clone: u32,
    drop: u32,
}

/// A source of batches.
#[derive(Debug)]
pub struct Workload {
    /// The random source; suites draw from it too.
    pub random: fastrand::Rng,
    shape: Shape,
    keys: Keys,
    weights: Weights,
    trees: Vec<TreeId>,
    next_tree: u64,
    used: Vec<Vec<u8>>,
}

/// Number of remembered keys, so that later operations use them again.
const USED_MAX: usize = 4096;

impl Workload {
    /// The workload for a seed.
    pub fn new(seed: u64, shape: Shape) -> Workload {
        let mut random = fastrand::Rng::with_seed(seed);
        let all = [Keys::Numbers, Keys::LongPrefix, Keys::Few, Keys::Entries];
        let keys = *random.choice(&all).expect("invariant: there are some");
        let weights = Weights {
            put: 60,
            delete: random.u32(0..40),
            delete_range: random.u32(0..3),
            merge: random.u32(0..15),
            create: 1,
            clone: random.u32(0..4),
            drop: random.u32(0..3),
        };
        let trees = Vec::new();
        Workload { random, shape, keys, weights, trees, next_tree: 100, used: Vec::new() }
    }

    /// The trees that exist after the batches so far.
    pub fn trees(&self) -> &[TreeId] {
        &self.trees
    }

    /// One of the trees.
    pub fn tree(&mut self) -> TreeId {
        *self.random.choice(&self.trees).expect("invariant: the first batch creates a tree")
    }

    /// A number that no tree has had.
    pub fn new_tree(&mut self) -> TreeId {
        self.next_tree += 1;
        TreeId(self.next_tree)
    }

    /// Restores the trees from before a batch that was not committed.
    pub fn set_trees(&mut self, trees: Vec<TreeId>) {
        self.trees = trees;
    }

    /// A key; one time in two, one that was used before.
    pub fn key(&mut self) -> Vec<u8> {
        if self.random.bool()
            && let Some(used) = self.random.choice(&self.used)
        {
            return used.clone();
        }
        let number = self.random.u64(0..self.shape.keys);
        let key = match self.keys {
            Keys::Numbers => number.to_be_bytes().to_vec(),
            Keys::LongPrefix => {
                let mut key = vec![b'p'; 120 + (number % 3) as usize * 40];
                key.extend_from_slice(format!("{number:05}").as_bytes());
                key
            }
            Keys::Few => {
                let most = if self.random.u8(0..10) == 0 { 512 } else { 12 };
                let length = self.random.usize(0..=most);
                (0..length).map(|_| [0, 1, b'a', 0xff][self.random.usize(0..4)]).collect()
            }
            Keys::Entries => {
                let mut key = vec![b'D'];
                key.extend_from_slice(&(number % 7).to_be_bytes());
                key.extend_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
                key.push(self.random.u8(1..4));
                key
            }
        };
        if self.used.len() < USED_MAX {
            self.used.push(key.clone());
        } else {
            let at = self.random.usize(0..USED_MAX);
            self.used[at].clone_from(&key);
        }
        key
    }

    /// A value.
    pub fn value(&mut self) -> Vec<u8> {
        let length = match self.random.u32(0..1000) {
            0 if self.shape.large => self.random.usize(100_000..400_000),
            1..=4 if self.shape.large => self.random.usize(60_000..70_000),
            5..=20 => self.random.usize(1500..9000),
            21..=100 => 0,
            _ => self.random.usize(0..=self.shape.value_max),
        };
        let mut value = vec![0; length];
        self.random.fill(&mut value);
        value
    }

    /// Lanes of a merge.
    pub fn lanes(&mut self) -> Vec<Lane> {
        let count = self.random.usize(1..4);
        let most = if self.random.u8(0..50) == 0 { 4096 } else { 64 };
        (0..count)
            .map(|_| Lane {
                offset: self.random.u16(0..=most),
                kind: if self.random.bool() { MergeKind::Add } else { MergeKind::Max },
                operand: self.random.i64(-1_000_000..1_000_000),
            })
            .collect()
    }

    /// The next batch. The first creates a tree.
    pub fn batch(&mut self) -> Batch {
        let mut batch = Batch::new();
        if self.trees.is_empty() {
            self.create(&mut batch);
        }
        let most = if self.random.u8(0..50) == 0 {
            self.shape.batch_max * 10
        } else {
            self.shape.batch_max
        };
        for _ in 0..self.random.usize(1..=most) {
            self.operation(&mut batch);
        }
        if batch.is_empty() {
            let (tree, key) = (self.tree(), self.key());
            batch.delete(tree, &key);
        }
        batch
    }

    fn create(&mut self, batch: &mut Batch) {
        let tree = self.new_tree();
        batch.create_tree(tree);
        self.trees.push(tree);
    }

    fn operation(&mut self, batch: &mut Batch) {
        let Weights { put, delete, delete_range, merge, create, clone, drop } = self.weights;
        let total = put + delete + delete_range + merge + create + clone + drop;
        let mut drawn = self.random.u32(0..total);
        let mut is = |weight: u32| {
            let hit = drawn < weight;
            drawn = drawn.saturating_sub(weight);
            // After a hit, the later ones are not evaluated.
            hit
        };
        let full = self.trees.len() >= self.shape.trees_max;
        if is(put) {
            let (tree, key, value) = (self.tree(), self.key(), self.value());
            batch.put(tree, &key, &value);
        } else if is(delete) {
            let (tree, key) = (self.tree(), self.key());
            batch.delete(tree, &key);
        } else if is(delete_range) {
            self.delete_range(batch);
        } else if is(merge) {
            let (tree, key, lanes) = (self.tree(), self.key(), self.lanes());
            batch.merge(tree, &key, &lanes);
        } else if is(drop) || full {
            if self.trees.len() > 1 {
                let at = self.random.usize(0..self.trees.len());
                batch.drop_tree(self.trees.swap_remove(at));
            }
        } else if is(create) {
            self.create(batch);
        } else {
            self.clone_tree(batch);
        }
    }

    fn delete_range(&mut self, batch: &mut Batch) {
        let tree = self.tree();
        let mut ends = [self.key(), self.key()];
        ends.sort();
        if self.random.u8(0..10) > 0 {
            // Mostly narrow, or trees would stay empty.
            let mut end = ends[0].clone();
            end.truncate(500);
            end.extend_from_slice(&[0xff, 0xff]);
            ends[1] = end;
        }
        batch.delete_range(tree, &ends[0], &ends[1]);
    }

    fn clone_tree(&mut self, batch: &mut Batch) {
        let source = self.tree();
        let target = self.new_tree();
        if self.random.u8(0..4) == 0 {
            let prefixes = self.prefixes();
            let borrowed: Vec<&[u8]> = prefixes.iter().map(Vec::as_slice).collect();
            batch.clone_prefixes(source, target, &borrowed);
        } else {
            batch.clone_tree(source, target);
        }
        self.trees.push(target);
    }

    /// Prefixes of keys, ascending, none a prefix of another, none empty.
    pub fn prefixes(&mut self) -> Vec<Vec<u8>> {
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            let mut prefix = self.key();
            prefix.truncate(self.random.usize(0..=prefix.len()));
            if !prefix.is_empty() {
                prefixes.push(prefix);
            }
        }
        prefixes.sort();
        // After sorting, a prefix is before the keys that it is a prefix of.
        prefixes.dedup_by(|later, kept| later.starts_with(kept));
        prefixes
    }
}
