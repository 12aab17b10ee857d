//! Errors in the map are detected in either direction. Flipping bits cannot make such a map,
//! because its pages have checksums.

use store::{Batch, CheckReport, Commit, Durable, Error, FindingKind, Maintain, Snapshot, TreeId};
use testing::{CrashPolicy, SimEnv, fails};

use crate::check::repair;
use crate::units::unit_offset;
use crate::{BtreeStore, Options, check};

/// Checks after the counts of the first group were altered.
fn altered(alter: impl FnOnce(&mut Vec<u32>)) -> CheckReport {
    let sim = testing::sim_env(1);
    let store = BtreeStore::create(&sim.env(), &Options::default()).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TreeId(32));
    for n in 0..2000_u32 {
        batch.put(TreeId(32), &n.to_be_bytes(), &[1; 90]);
    }
    batch.clone_tree(TreeId(32), TreeId(33));
    store.commit(&batch).expect("commit");
    assert!(store.checkpoint().expect("checkpoint"));
    assert!(check(&store).expect("check").is_clean());
    let mut state = store.engine().checkpoint.lock();
    alter(state.space.page_mut(0));
    drop(state);
    check(&store).expect("check")
}

fn first_node(page: &[u32]) -> usize {
    page.iter().position(|&count| count == 2).expect("the root has two owners")
}

#[test]
fn a_count_that_is_too_high_or_too_low_is_found() {
    for count in [1, 3, 70_000] {
        let mut unit = 0;
        let report = altered(|page| {
            unit = first_node(page);
            page[unit] = count;
        });
        assert_eq!(report.findings_count, 1, "{:#?}", report.findings);
        let finding = &report.findings[0];
        assert_eq!(finding.kind, FindingKind::Count);
        assert_eq!(finding.offset, unit_offset(unit as u64));
        assert!(
            finding.what.contains(&format!("has a reference count of {count}, but 2 pointers")),
            "{finding:?}"
        );
    }
}

#[test]
fn a_node_that_is_marked_as_free_is_found() {
    let report = altered(|page| {
        let unit = first_node(page);
        page[unit] = 0;
    });
    assert!(report.findings[0].what.contains("is marked as free, but 2 pointers point to it"));
    // The recorded number of free units is wrong as well.
    assert_eq!(report.findings_count, 2, "{:#?}", report.findings);
}

#[test]
fn unreachable_space_is_reported_as_one_range() {
    let mut unit = 0;
    let report = altered(|page| {
        unit = page.iter().rposition(|&count| count != 0).expect("some are used") + 5;
        page[unit] = 1;
        page[unit + 1..unit + 16].fill(u32::MAX);
    });
    assert_eq!(report.findings[0].kind, FindingKind::Lost);
    assert_eq!(report.findings[0].offset, unit_offset(unit as u64));
    assert_eq!(report.lost_bytes, 16 * format::node::UNIT_BYTES as u64);
}

#[test]
fn a_saturated_count_stays_saturated() {
    use format::space_map::COUNT_MAX;

    let sim = testing::sim_env(1);
    let store = BtreeStore::create(&sim.env(), &Options::default()).expect("create");
    let commit = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = Batch::new();
        fill(&mut batch);
        store.commit(&batch).expect("commit");
        assert!(store.checkpoint().expect("checkpoint"));
    };
    commit(&|batch| {
        batch.create_tree(TreeId(32));
        for n in 0..2000_u32 {
            batch.put(TreeId(32), &n.to_be_bytes(), &[1; 90]);
        }
        batch.clone_tree(TreeId(32), TreeId(33));
    });
    // As if there were nearly as many references as can be counted.
    let unit = {
        let mut state = store.engine().checkpoint.lock();
        let page = state.space.page_mut(0);
        let unit = first_node(page);
        page[unit] = COUNT_MAX - 2;
        unit
    };
    let count = || store.engine().checkpoint.lock().space.page_mut(0)[unit];
    // Two more are counted, and no more than that.
    commit(&|batch| (0..5).for_each(|n| batch.clone_tree(TreeId(32), TreeId(40 + n))));
    assert_eq!(count(), COUNT_MAX);
    commit(&|batch| batch.clone_tree(TreeId(33), TreeId(50)));
    assert_eq!(count(), COUNT_MAX);
    assert!(check(&store).expect("check").is_clean(), "there may be as many or fewer");
    // Nodes that are not counted are not freed, even once they are unreachable.
    commit(&|batch| {
        (32..34).chain(40..45).chain(50..51).for_each(|tree| batch.drop_tree(TreeId(tree)));
    });
    while store.reclaim_step(100).expect("reclaim") {}
    assert_eq!(count(), COUNT_MAX);
    let report = check(&store).expect("check");
    assert!(report.findings.iter().all(|finding| finding.kind == FindingKind::Lost));
    assert!(report.lost_bytes > 16 << 10, "the root, and what it alone had: {report:?}");
}

#[test]
fn a_count_that_is_too_low_fails_a_checkpoint_and_does_not_abort() {
    for count in [0, 1] {
        let sim = testing::sim_env(1);
        let store = BtreeStore::create(&sim.env(), &Options::default()).expect("create");
        let mut batch = Batch::new();
        batch.create_tree(TreeId(32));
        batch.put(TreeId(32), b"key", b"value");
        batch.clone_tree(TreeId(32), TreeId(33));
        store.commit(&batch).expect("commit");
        assert!(store.checkpoint().expect("checkpoint"));
        let unit = {
            let mut state = store.engine().checkpoint.lock();
            let page = state.space.page_mut(0);
            let unit = first_node(page);
            page[unit] = count;
            unit
        };
        let mut batch = Batch::new();
        batch.drop_tree(TreeId(32));
        batch.drop_tree(TreeId(33));
        store.commit(&batch).expect("commit");
        let error = store.checkpoint().expect_err("two references were lost, of fewer");
        let Error::Corrupt(damage) = &error else { panic!("{error:?}") };
        assert_eq!(damage.structure, "reference count");
        assert_eq!(damage.offset, unit_offset(unit as u64));
        // The log is sound, and its pending records are written, in async mode too.
        fails(store.close(), "reference count");
        drop(store);
        let lost = sim.device.after_crash(CrashPolicy::LoseAll, 1);
        let store = BtreeStore::open(&SimEnv::on(lost, 1).env(), &Options::default());
        let store = store.expect("opens");
        assert!(!store.tree_exists(TreeId(32)).expect("look"), "it was dropped");
    }
}

#[test]
fn a_log_is_not_truncated_while_a_damaged_superblock_may_be_newer() {
    let sim = testing::sim_env(1);
    let (env, options) = (sim.env(), Options::default());
    let store = BtreeStore::create(&env, &options).expect("create");
    for n in 0..3_u8 {
        let mut batch = Batch::new();
        if n == 0 {
            batch.create_tree(TreeId(32));
        }
        batch.put(TreeId(32), &[n], b"value");
        store.commit(&batch).expect("commit");
        assert!(store.checkpoint().expect("checkpoint"));
    }
    let generation = store.engine().checkpoint.lock().generation;
    drop(store);
    let rot = |generation: u64| {
        let path = crate::checkpoint::SUPERBLOCK_FILES[(generation % 2) as usize];
        let file = env.device.open(path).expect("open");
        file.write_at(&[0xff; 8], 40).expect("write");
    };
    let listing = || env.device.list("log").expect("list");
    let before = listing();
    rot(generation - 1);
    // The log has no record after the state, so it does not show that a newer state exists.
    let error = BtreeStore::cut_log(&env, &options).expect_err("it may be the older state");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert_eq!(listing(), before, "nothing was changed");
    repair(&env, &options).expect("repair");
    BtreeStore::cut_log(&env, &options).expect("both superblocks are whole");
    rot(generation + 1);
    rot(generation + 2);
    fails(BtreeStore::cut_log(&env, &options), "one that points to a state");
}
