//! Helpers shared by the tests.

use std::ops::ControlFlow;
use std::sync::Arc;

use format::run_manifest::{Decoded, RunManifest};
use lsm::{LsmStore, Options, check, inspect};
use store::{Batch, CheckReport, Durability, Maintain, TreeId};
use testing::{SimDevice, SimEnv, sim_env};

pub(crate) const TREE: TreeId = TreeId(32);

pub(crate) fn options() -> Options {
    crate::conformance::options(Durability::Async)
}

/// The same with a value log for about half of the values that tests have.
pub(crate) fn column() -> Options {
    Options { values_from: 48, ..options() }
}

/// A store with one empty tree.
pub(crate) fn store(seed: u64) -> (SimEnv, Arc<LsmStore>) {
    store_with(seed, &options())
}

/// A store of this layout, which it keeps when it is opened again.
pub(crate) fn store_with(seed: u64, options: &Options) -> (SimEnv, Arc<LsmStore>) {
    let sim = sim_env(seed);
    let store = LsmStore::create(&sim.env(), options).expect("create");
    commit(&store, |batch| batch.create_tree(TREE));
    (sim, store)
}

pub(crate) fn open(sim: &SimEnv) -> Arc<LsmStore> {
    LsmStore::open(&sim.env(), &options()).expect("open")
}

pub(crate) fn commit(store: &LsmStore, fill: impl FnOnce(&mut Batch)) {
    testing::commit(store, fill);
}

/// Checkpoints, checks everything, and fails on any finding.
pub(crate) fn checked(store: &LsmStore) -> CheckReport {
    assert!(store.checkpoint().expect("checkpoint"));
    let report = check(store).expect("check");
    assert!(report.is_clean(), "{:#?}", report.findings);
    report
}

/// The findings of a check of a store that no process has open.
pub(crate) fn inspected(sim: &SimEnv) -> CheckReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    inspect(&sim.env(), &options(), &mut proceed).expect("the files are there")
}

/// Merges and reclaims until nothing is left to do.
pub(crate) fn settle(store: &LsmStore) {
    while store.reclaim_step(100).expect("reclaim") {}
}

/// The names of the blobs.
pub(crate) fn blobs(device: &SimDevice) -> Vec<String> {
    let files = device.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.starts_with("lsm/run-")).collect()
}

/// Changes the newest manifest and its copy, and seals them again.
pub(crate) fn falsify(sim: &SimEnv, change: impl FnOnce(&mut RunManifest)) {
    let files = sim.device.files();
    let name = files.iter().rev().map(|(path, _)| path).find(|path| path.contains("manifest-"));
    let name = name.expect("there is one").clone();
    let number = u64::from_str_radix(&name[name.len() - 16..], 16).expect("it is a number");
    let found = RunManifest::decode(&sim.device.read_file(&name), [7; 16], number);
    let Ok(Decoded::Manifest(mut manifest)) = found else { panic!("it was whole") };
    change(&mut manifest);
    for name in [name.clone(), name.replace("manifest-", "copy-")] {
        sim.device.truncate(&name, 0);
        sim.device.overwrite(&name, 0, &manifest.encode());
    }
}
