//! Maps and sets of a few values, as states have them: sorted, in one piece of memory.
//!
//! A model checker copies, hashes and drops a state for each step that it tries. Trees, which
//! allocate and are walked node by node, were most of its time.
//!
//! Invariant: keys are sorted, and none is there twice. So equal contents are equal values, with
//! equal hashes.

/// A map.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> SortedMap<K, V> {
        SortedMap(Vec::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// A map of one value.
    pub fn of(key: K, value: V) -> SortedMap<K, V> {
        SortedMap(vec![(key, value)])
    }

    /// Where a key is, or belongs.
    fn place(&self, key: &K) -> Result<usize, usize> {
        self.0.binary_search_by(|(there, _)| there.cmp(key))
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    /// Whether a key is in it.
    pub fn contains_key(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    /// The value of a key, which is made if there is none.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &V {
        let at = self.place(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, value()));
            at
        });
        &self.0[at].1
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.place(key).ok().map(|at| self.0.remove(at).1)
    }

    /// Keeps what a condition holds for.
    pub fn retain(&mut self, keeps: impl Fn(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keeps(key, value));
    }

    /// The greatest key, and its value.
    pub fn last(&self) -> Option<&(K, V)> {
        self.0.last()
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SortedSet<T>(SortedMap<T, ()>);

impl<T> Default for SortedSet<T> {
    fn default() -> SortedSet<T> {
        SortedSet(SortedMap::default())
    }
}

impl<T: Ord> SortedSet<T> {
    /// A set of one value.
    pub fn of(value: T) -> SortedSet<T> {
        SortedSet(SortedMap::of(value, ()))
    }

    /// Adds a value; returns whether it was not in it.
    pub fn insert(&mut self, value: T) -> bool {
        let place = self.0.place(&value);
        if let Err(at) = place {
            self.0.0.insert(at, (value, ()));
        }
        place.is_err()
    }

    /// Removes a value, if it is in it.
    pub fn remove(&mut self, value: &T) {
        self.0.remove(value);
    }

    /// Whether a value is in it.
    pub fn contains(&self, value: &T) -> bool {
        self.0.contains_key(value)
    }

    /// All values, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.0.iter().map(|(value, ())| value)
    }

    /// The least value.
    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
