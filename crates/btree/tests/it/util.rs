//! What the tests share.

use std::ops::ControlFlow;
use std::sync::Arc;

use btree::{BtreeStore, Options, check, inspect};
use format::node::{HEADER_BYTES, Header, Kind, LeafBody, MAGIC, UNIT_BYTES};
use store::{Batch, CheckReport, Durability, Maintain, TreeId};
pub(crate) use testing::entries;
use testing::{SimEnv, sim_env};

pub(crate) const TREE: TreeId = TreeId(32);

/// A store with a cache of its own size, and one empty tree.
pub(crate) fn store(seed: u64, cache_bytes: usize) -> (SimEnv, Arc<BtreeStore>) {
    let sim = sim_env(seed);
    let store = BtreeStore::create(&sim.env(), &options(cache_bytes)).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    (sim, store)
}

pub(crate) fn options(cache_bytes: usize) -> Options {
    let mut options = crate::conformance::options(Durability::Async);
    options.common.cache_bytes = cache_bytes;
    options
}

pub(crate) fn commit(store: &BtreeStore, fill: impl FnOnce(&mut Batch)) {
    testing::commit(store, fill);
}

/// Checkpoints, checks everything, and fails on any finding.
pub(crate) fn checked(store: &BtreeStore) -> CheckReport {
    assert!(store.checkpoint().expect("checkpoint"));
    let report = check(store).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.underfull, 0, "underfull nodes");
    report
}

/// Reclaims all that was dropped.
pub(crate) fn reclaim_all(store: &BtreeStore) {
    // The second time it is seen that nobody commits: all free space goes back to the disk.
    for _ in 0..2 {
        while store.reclaim_step(500).expect("reclaim") {}
    }
    assert_eq!(store.stats().dropping, 0);
}

/// The durable state is whole as a power cut left it, and so is what is made of it, whose contents
/// `same` looks at. Returns what was found on disk.
pub(crate) fn verify(
    sim: &SimEnv,
    cache_bytes: usize,
    place: &str,
    same: impl Fn(&BtreeStore),
) -> CheckReport {
    let options = options(cache_bytes);
    let mut proceed = |_, _| ControlFlow::Continue(());
    let found = inspect(&sim.env(), &options, &mut proceed).expect("the files are there");
    let torn = found.findings.iter().all(|found| found.file.starts_with("btree/super"));
    assert!(torn, "{place}: {:#?}", found.findings);
    let store = BtreeStore::open(&sim.env(), &options).expect("open");
    same(&store);
    for _ in 0..2 {
        assert!(store.checkpoint().expect("checkpoint"));
        let report = check(&store).expect("check");
        assert!(report.is_clean(), "{place}: {:#?}", report.findings);
        while store.reclaim_step(50).expect("reclaim") {}
    }
    same(&store);
    found
}

/// First and last key of each leaf in the file of nodes, and the leaf's place: of leaves
/// whose keys are numbers.
pub(crate) fn leaf_keys(bytes: &[u8]) -> Vec<(u32, u32, usize)> {
    let mut found = Vec::new();
    for at in (0..bytes.len()).step_by(UNIT_BYTES) {
        let node = &bytes[at..];
        if !node.starts_with(&MAGIC) || node[6] != 1 {
            continue;
        }
        let field = |at: usize| u32::from_le_bytes(node[at..at + 4].try_into().expect("four"));
        let (entries, body) = (field(24), field(28));
        let header =
            Header { kind: Kind::Leaf, level: 0, address: 0, generation: 0, entries, body };
        let body = &node[HEADER_BYTES..HEADER_BYTES + body as usize];
        let mut leaf = LeafBody::new(&header, body).expect("a leaf");
        let prefix = leaf.prefix();
        let mut keys = Vec::new();
        while let Some((suffix, _)) = leaf.next_entry().expect("an entry") {
            let key = [prefix, suffix].concat().try_into();
            keys.extend(key.map(u32::from_be_bytes));
        }
        if let (Some(first), Some(last)) = (keys.first(), keys.last()) {
            found.push((*first, *last, at));
        }
    }
    found.sort_unstable();
    found
}
