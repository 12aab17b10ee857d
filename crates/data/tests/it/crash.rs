//! Power cuts before every write, sync, rename and removal of random scripts. What the store kept
//! durable reads back whole, in every tree, and the volume continues. The same when a process was
//! killed there, and power is cut when the next one has made more durable.

use std::sync::Arc;

use store::{Durable, TreeId};
use testing::run::{Context, for_seeds, rounds};
use testing::{CrashPolicy, SimEnv};

use crate::model::random_op;
use crate::support::{Volume, check_records, open_data, pattern, small_options, verify};

/// Opens a disk and compares it with the model of the last durable commit.
fn opened(volume: &Volume, sim: SimEnv) -> Volume {
    let store = Arc::new(volume.store.after_crash());
    let durable = store.durable();
    let expected = volume.history.lock().get(&durable.0).cloned().expect("a known commit");
    let data = open_data(&sim, &store, &volume.options, volume.punches, None).unwrap();
    verify(&*store, &data, &expected);
    check_records(&store);
    store.set_barrier(Arc::<data::Data>::clone(&data));
    let mut again = Volume {
        sim,
        trees: volume.trees.clone(),
        epoch: volume.epoch + 10,
        next_tree: volume.next_tree + 100,
        now: expected,
        history: crate::support::History::default(),
        options: volume.options.clone(),
        punches: volume.punches,
        objects: None,
        store,
        data,
    };
    let trees = again.store.trees();
    again.trees.retain(|&tree, _| trees.contains(&TreeId(tree)));
    for tree in trees.iter().filter(|tree| tree.0 >= 32) {
        let last_clone = again.epoch - 1;
        again.trees.entry(tree.0).or_insert(crate::support::Subvolume { last_clone });
    }
    again
}

/// Opens what a crash left. The volume continues: new data disturbs nothing, and cleaning finds
/// nothing live dead.
fn check_crash(volume: &Volume, cut: &testing::SimDevice, policy: CrashPolicy, seed: u64) {
    let mut again = opened(volume, SimEnv::on(cut.after_crash(policy, seed), seed));
    let Some(&tree) = again.trees.keys().next() else { return };
    again.write(tree, 2, 1000, &pattern(seed, 9000)).unwrap();
    again.clean(true).unwrap();
    again.collect().unwrap();
    again.verify();
}

/// Opens what a killed process left: all of it is readable, and nothing is durable that was not
/// synced. Makes more durable, and then cuts the power.
fn check_killed(volume: &Volume, left: &testing::SimDevice, seed: u64) {
    let mut second = opened(volume, SimEnv::on(left.copy(), seed));
    let Some(&tree) = second.trees.keys().next() else { return };
    second.write(tree, 2, 1000, &pattern(seed, 9000)).unwrap();
    if seed.is_multiple_of(2) {
        second.clean(true).unwrap();
    }
    second.sync().unwrap();
    check_crash(&second, &second.sim.device, CrashPolicy::LoseAll, seed);
}

/// Runs a script and cuts the power before each operation of the disk.
fn enumerate(seed: u64, punches: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut volume = Volume::with(testing::sim_env(seed), small_options(), punches);
    for _ in 0..20 {
        random_op(&mut volume, &mut random).unwrap();
    }
    for _ in 0..rounds(25, 80) {
        // The script is run on disk once. A watcher visits each operation's crash points, and has
        // the volume as it was when the operation began.
        let shared = Arc::new(volume.seen_by_watcher());
        let mut visits = 0_u64;
        // Held on to: what the watcher alone holds would be closed while the disk is locked.
        let _held = Arc::clone(&shared);
        volume.sim.device.watch(move |disk, op| {
            visits += 1;
            for policy in CrashPolicy::ALL {
                let what = format!("crash of {policy:?} before operation {op}, visit {visits}");
                let _context = Context::new(what);
                check_crash(&shared, disk, policy, seed ^ op);
            }
            let _context = Context::new(format!("killed before operation {op}, visit {visits}"));
            check_killed(&shared, disk, seed ^ op);
        });
        random_op(&mut volume, &mut random).unwrap();
        volume.sim.device.unwatch();
    }
}

#[test]
fn a_power_cut_anywhere_leaves_what_was_durable() {
    for_seeds("crash", 12, 400, |seed| enumerate(seed, true));
}

#[test]
fn a_power_cut_anywhere_leaves_what_was_durable_without_punching() {
    for_seeds("crash without punching", 6, 200, |seed| enumerate(seed, false));
}

#[test]
fn a_power_cut_while_many_segments_are_sealed_loses_nothing() {
    for_seeds("sealing", 2, 20, |seed| {
        let mut volume = Volume::new(seed);
        for ino in 1..6 {
            volume.write(32, ino, 0, &pattern(ino, 200_000)).unwrap();
        }
        volume.sync().unwrap();
        let shared = Arc::new(Volume {
            sim: volume.sim.clone(),
            store: Arc::clone(&volume.store),
            data: Arc::clone(&volume.data),
            trees: volume.trees.clone(),
            epoch: volume.epoch,
            next_tree: volume.next_tree,
            now: volume.now.clone(),
            history: Arc::clone(&volume.history),
            options: volume.options.clone(),
            punches: true,
            objects: None,
        });
        volume.sim.device.watch(move |disk, op| {
            for policy in CrashPolicy::ALL {
                let _context = Context::new(format!("crash of {policy:?} before operation {op}"));
                check_crash(&shared, disk, policy, seed ^ op);
            }
            let _context = Context::new(format!("killed before operation {op}"));
            check_killed(&shared, disk, seed ^ op);
        });
        for ino in 1..4 {
            volume.release(32, ino).unwrap();
        }
        volume.sync().unwrap();
        volume.clean(true).unwrap();
        volume.sim.device.unwatch();
        volume.verify();
        assert!(volume.data.stats().sealed_segments > 0);
    });
}
