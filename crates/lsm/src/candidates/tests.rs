//! The incremental state equals a full inspection of all trees, after any changes. The cost of an
//! update does not depend on the number of trees.

use format::run_manifest::RunEntry;
use store::Maintain;
use testing::{FarBlobs, commit, sim_env};

use super::*;
use crate::durable::Exchange;
use crate::exchange::Exchanger;
use crate::files::Files;
use crate::options::Options;
use crate::store::LsmStore;

/// Trees that change at random.
struct World {
    random: fastrand::Rng,
    files: Arc<Files>,
    catalog: Catalog,
    next: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let files = Arc::new(Files::new(FarBlobs::new(), [7; 16], 1 << 20));
        let random = fastrand::Rng::with_seed(seed);
        World { random, files, catalog: Catalog::new(), next: 1 }
    }

    /// A layer that no tree has, of any size, in any blob.
    fn layer(&mut self, bytes: u64) -> Arc<Layer> {
        let random = &mut self.random;
        let number = self.next;
        self.next += 1;
        let tombstones = if random.u8(..4) == 0 { random.u64(..50) } else { 0 };
        let entry = RunEntry {
            number,
            blob: random.u64(..8),
            start: 0,
            index: bytes,
            index_bytes: 0,
            ranges: 0,
            checksum: 0,
            entries: 100,
            tombstones,
        };
        let log = random.u64(..20);
        let uses = (log < 4).then_some(LogRows { log, rows: 1, bytes: random.u64(..1000) });
        let run = Run::new(&self.files, entry, uses.into_iter().collect());
        Arc::new(Layer::run(number, Arc::from([number]), Arc::new(run)))
    }

    fn any_tree(&mut self) -> Option<TreeId> {
        let count = self.catalog.len();
        let at = self.random.usize(..count.max(1));
        self.catalog.keys().nth(at).copied()
    }

    /// Adds a layer to a tree.
    fn write(&mut self, tree: TreeId) {
        let bytes = 1 << self.random.u32(4..24);
        let mut layers = vec![self.layer(bytes)];
        layers.extend(self.catalog.get(&tree).iter().flat_map(|stack| stack.layers.clone()));
        self.catalog.insert(tree, Arc::new(Stack { layers }));
    }

    /// Merges adjacent layers of a tree, in all trees that have them; sometimes the result is
    /// empty.
    fn merge(&mut self, tree: TreeId) {
        let layers = &self.catalog[&tree].layers;
        if layers.is_empty() {
            return;
        }
        let from = self.random.usize(..layers.len());
        let to = self.random.usize(from + 1..=layers.len());
        let old = layers[from..to].to_vec();
        let bytes = old.iter().map(|layer| layer.durable_run().bytes()).sum();
        let new = (self.random.u8(..5) > 0).then(|| self.layer(bytes));
        let exchanges = [Exchange { old, new }];
        let mut exchanger = Exchanger::new(&exchanges);
        for stack in self.catalog.values_mut() {
            *stack = exchanger.apply(stack);
        }
    }

    fn change(&mut self) {
        let other = self.any_tree();
        match (self.random.u8(..10), other) {
            (0, _) | (_, None) => {
                let tree = TreeId(self.random.u64(..1000));
                self.catalog.entry(tree).or_default();
            }
            (1..=3, Some(source)) => {
                let stack = Arc::clone(&self.catalog[&source]);
                self.catalog.insert(TreeId(self.random.u64(..1000)), stack);
            }
            (4, Some(tree)) => drop(self.catalog.remove(&tree)),
            (5, Some(tree)) => self.merge(tree),
            (_, Some(tree)) => self.write(tree),
        }
    }
}

/// What a layer hides of others, as defined by these tests.
fn hides(section: &[Arc<Layer>]) -> Vec<u64> {
    let bytes =
        |layers: &[Arc<Layer>]| -> u64 { layers.iter().map(|of| of.durable_run().bytes()).sum() };
    let of =
        |at: usize| bytes(&section[at + 1..]) / 40 * section[at].durable_run().entry.tombstones;
    (0..section.len()).map(of).collect()
}

/// All sections, by their feet, and all stacks, by their tops. A section is a sequence of adjacent
/// layers that the same number of trees have.
type Parts = (BTreeMap<LayerId, Vec<Arc<Layer>>>, BTreeMap<LayerId, Vec<Arc<Layer>>>);

fn parts(catalog: &Catalog) -> Parts {
    let mut sharers: BTreeMap<LayerId, u64> = BTreeMap::new();
    for layer in catalog.values().flat_map(|stack| &stack.layers) {
        *sharers.entry(layer.id).or_default() += 1;
    }
    let (mut sections, mut stacks) = (BTreeMap::new(), BTreeMap::new());
    for stack in catalog.values().filter(|stack| !stack.layers.is_empty()) {
        let alike = |a: &Arc<Layer>, b: &Arc<Layer>| sharers[&a.id] == sharers[&b.id];
        for section in stack.layers.chunk_by(alike) {
            sections.insert(section[section.len() - 1].id, section.to_vec());
        }
        stacks.insert(stack.layers[0].id, stack.layers.clone());
    }
    (sections, stacks)
}

fn with_hides(section: &[Arc<Layer>]) -> Vec<Facts> {
    let facts = facts(&section.iter().collect::<Vec<_>>());
    facts.into_iter().zip(hides(section)).map(|(of, hides)| Facts { hides, ..of }).collect()
}

fn ids(layers: &[Facts]) -> Vec<LayerId> {
    layers.iter().map(|layer| layer.id).collect()
}

/// The next merge, found by a full inspection.
fn picked_of_all(parts: &Parts, policy: Policy, look: Look, limits: Limits) -> Option<Merge> {
    let oldest = |stack: &Vec<Arc<Layer>>| stack[stack.len() - 1].id;
    let lowest: BTreeSet<LayerId> = parts.1.values().map(oldest).collect();
    let sections = || parts.0.iter().map(|(foot, section)| (foot, with_hides(section)));
    let in_sections = |rule: &dyn Fn(&[Facts], bool) -> LayerRange| {
        sections().find_map(|(foot, facts)| {
            let is_lowest = lowest.contains(foot);
            let (from, to) = rule(&facts, is_lowest)?;
            let lowest = is_lowest && to == facts.len();
            Some(Merge { layers: ids(&facts[from..to]), lowest, returns: false })
        })
    };
    let hidden = || in_sections(&|facts, lowest| hiding(facts, lowest, limits.returning));
    let hidden = (look == Look::Hidden).then(hidden).flatten();
    hidden
        .map(|merge| Merge { returns: true, ..merge })
        .or_else(|| in_sections(&|facts, _| by_size(policy, facts, limits.bytes)))
        .or_else(|| {
            parts.1.values().find_map(|stack| {
                let facts = with_hides(stack);
                let (from, to) = deep(&facts, limits.bytes)?;
                let (layers, lowest) = (ids(&facts[from..to]), to == facts.len());
                Some(Merge { layers, lowest, returns: false })
            })
        })
}

/// Compares what only some of the trees have with a full inspection.
fn agree_on_exclusive(
    candidates: &CompactionCandidates,
    catalog: &Catalog,
    random: &mut fastrand::Rng,
    place: &str,
) {
    for of in [2, 4, 9] {
        let is_one = catalog.keys().map(|tree| (*tree, random.u8(..10) < of));
        let is_one: BTreeMap<TreeId, bool> = is_one.collect();
        let is_one = &is_one;
        let stacks = |ones: bool| catalog.iter().filter(move |(tree, _)| is_one[*tree] == ones);
        let top = |stack: &Arc<Stack>| stack.layers.first().map(|layer| layer.id);
        let of_all = |ones: bool| -> BTreeSet<LayerId> {
            stacks(ones).flat_map(|(_, stack)| stack.layers.iter().map(|of| of.id)).collect()
        };
        let layers = of_all(true).difference(&of_all(false)).copied().collect::<Vec<_>>();
        let others: BTreeSet<_> = stacks(false).filter_map(|(_, stack)| top(stack)).collect();
        let tops = stacks(true).filter_map(|(tree, stack)| Some((*tree, top(stack)?)));
        let tops: BTreeMap<TreeId, LayerId> = tops.collect();
        let trees = tops.values().filter(|top| !others.contains(top)).count() as u64;
        let mut found = candidates.exclusive(&tops);
        found.layers.sort_unstable();
        assert_eq!(found, Exclusive { trees, layers }, "{place}: {tops:?}");
    }
}

/// Compares the incremental state with a full inspection; returns how often a merge was due.
fn agrees(
    candidates: &mut CompactionCandidates,
    catalog: &Catalog,
    random: &mut fastrand::Rng,
    place: &str,
) -> u32 {
    let all = parts(catalog);
    while let Some(section) = candidates.unlooked() {
        candidates.looked(&section, &hides(&section));
    }
    let mut placed = Placed::default();
    let layers: BTreeMap<LayerId, &Arc<Layer>> =
        all.0.values().flatten().map(|layer| (layer.id, layer)).collect();
    for layer in layers.values() {
        placed.add(layer.durable_run());
    }
    assert_eq!(candidates.placed, placed, "{place}");
    for layer in layers.values() {
        let mut found = BTreeSet::new();
        candidates.trees_with(layer.id, &mut found);
        let has = |stack: &Arc<Stack>| stack.layers.iter().any(|of| of.id == layer.id);
        let expected = catalog.iter().filter(|(_, stack)| has(stack)).map(|(id, _)| *id);
        assert_eq!(found, expected.collect(), "{place}: trees with {}", layer.id);
    }
    agree_on_exclusive(candidates, catalog, random, place);
    let mut merges = 0;
    for _ in 0..6 {
        let any = |random: &mut fastrand::Rng| match random.u8(..3) {
            0 => u64::MAX,
            _ => 1 << random.u32(4..30),
        };
        let limits = Limits { bytes: any(random), returning: any(random) };
        for look in [Look::Hidden, Look::Sizes] {
            let expected = picked_of_all(&all, candidates.policy, look, limits);
            merges += u32::from(expected.is_some());
            assert_eq!(candidates.pick(look, limits), expected, "{place}: {look:?} {limits:?}");
        }
    }
    merges
}

#[test]
fn the_kept_state_equals_a_full_search() {
    testing::run::for_seeds("candidates", 60, 2000, |seed| {
        let mut world = World::new(seed);
        let policy = if seed % 4 == 0 { Policy::Full } else { Policy::Tiered };
        let mut candidates = CompactionCandidates::new(policy, &Catalog::new());
        let mut merges = 0;
        for round in 0..60 {
            let before = world.catalog.clone();
            for _ in 0..=world.random.u32(..6) {
                world.change();
            }
            candidates.update(&before, &world.catalog);
            let (place, mut random) = (format!("seed {seed}, round {round}"), world.random.fork());
            merges += agrees(&mut candidates, &world.catalog, &mut random, &place);
        }
        assert!(merges > 20, "seed {seed}: {merges} merges were found");
        // And everything is removed.
        candidates.update(&world.catalog, &Catalog::new());
        assert_eq!(agrees(&mut candidates, &Catalog::new(), &mut world.random, "at the end"), 0);
    });
}

#[test]
fn a_deep_chain_of_clones_is_found() {
    let mut world = World::new(1);
    let mut candidates = CompactionCandidates::new(Policy::Tiered, &Catalog::new());
    let mut random = fastrand::Rng::with_seed(1);
    for n in 0..60_u64 {
        let before = world.catalog.clone();
        if n > 0 {
            let stack = Arc::clone(&world.catalog[&TreeId(n - 1)]);
            world.catalog.insert(TreeId(n), stack);
        }
        let mut layers = vec![world.layer(200)];
        layers.extend(world.catalog.get(&TreeId(n)).iter().flat_map(|of| of.layers.clone()));
        world.catalog.insert(TreeId(n), Arc::new(Stack { layers }));
        candidates.update(&before, &world.catalog);
        agrees(&mut candidates, &world.catalog, &mut random, &format!("clone {n}"));
    }
    assert_eq!(candidates.deep.len(), 60 - DEPTH_MAX);
}

/// A store with a tree and this many clones of it, each with a change of its own.
fn clones(count: u64, rounds: u64) -> (Arc<LsmStore>, u64) {
    const SOURCE: TreeId = TreeId(16);
    const FIRST: u64 = 32;
    let store = LsmStore::create(&sim_env(1).env(), &Options::default()).expect("create");
    commit(&*store, |batch| {
        batch.create_tree(SOURCE);
        batch.put(SOURCE, b"key", b"value");
    });
    assert!(store.checkpoint().expect("checkpoint"));
    commit(&*store, |batch| {
        for n in 0..count {
            batch.clone_tree(SOURCE, TreeId(FIRST + n));
        }
    });
    for round in 0..rounds {
        for n in 0..count {
            commit(&*store, |batch| batch.put(TreeId(FIRST + n), &round.to_be_bytes(), b"value"));
        }
        assert!(store.checkpoint().expect("checkpoint"));
    }
    (store, FIRST)
}

#[test]
fn choosing_a_merge_costs_the_same_with_any_number_of_trees() {
    let looks = |count: u64| {
        let (store, first) = clones(count, 1);
        while store.reclaim_step(100).expect("reclaim") {}
        let looks = || store.engine().candidates.lock().looks();
        let (begun, mut last) = (looks(), looks());
        let mut since = || {
            let now = looks();
            now - std::mem::replace(&mut last, now)
        };
        commit(&*store, |batch| batch.put(TreeId(first + 1), b"another", b"value"));
        assert!(store.stats().merges.is_some());
        assert_eq!(since(), 0, "nothing is to be merged");
        let steps: [&dyn Fn(); 3] = [
            &|| {},
            &|| {
                commit(&*store, |batch| batch.drop_tree(TreeId(first)));
            },
            &|| {
                commit(&*store, |batch| batch.clone_tree(TreeId(16), TreeId(first)));
            },
        ];
        for step in steps {
            step();
            assert!(store.checkpoint().expect("checkpoint"));
            store.reclaim_step(100).expect("reclaim");
            assert!(store.stats().merges.is_some());
            let looks = since();
            assert!((1..12).contains(&looks), "{looks} looks with {count} clones");
        }
        looks() - begun
    };
    assert_eq!(looks(10), looks(300));
}

#[test]
fn choosing_a_merge_inspects_one_of_many_trees() {
    let (store, _) = clones(200, 4);
    let mut candidates = store.engine().candidates.lock();
    assert_eq!(candidates.sized.len(), 200);
    let before = candidates.looks();
    let limits = Limits { bytes: u64::MAX, returning: u64::MAX };
    assert!(candidates.pick(Look::Sizes, limits).is_some());
    assert_eq!(candidates.looks() - before, 1);
}
