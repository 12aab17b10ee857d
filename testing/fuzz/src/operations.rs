//! Random calls on four kinds of volumes. One is intact, one's disk fills up or fails, and one's
//! files were damaged. In one, records or structures of the engine were falsified with every
//! checksum right. The input of a case is a seed, a number of calls, and the number of the case,
//! which selects the engine in rotation.

use std::sync::Arc;

use fastrand::Rng;
use fs::{Engine, Fs, Layout, OpenOptions, Repair};
use store::{Batch, KeyRange, Store, TreeId};
use testing::{Fault, FaultOn, SimDevice, SimEnv};

use crate::mutate::mutate;
use crate::target::{Category, Target, no_checksum, seen};
use crate::world::{World, check, repair};
use crate::{sealed_log, structures, verbs_rare};

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "calls",
        part: Category::Operations,
        covers: &[],
        make: make_seed,
        repair: no_checksum,
        run: run_calls,
    },
    Target {
        name: "calls-on-a-failing-disk",
        part: Category::Operations,
        covers: &[],
        make: make_seed,
        repair: no_checksum,
        run: run_failing,
    },
    Target {
        name: "damaged-files",
        part: Category::Operations,
        covers: &[],
        make: make_seed,
        repair: no_checksum,
        run: run_damaged_files,
    },
    Target {
        name: "falsified-records",
        part: Category::Operations,
        covers: &[],
        make: make_seed,
        repair: no_checksum,
        run: run_falsified,
    },
    Target {
        name: "falsified-structures",
        part: Category::Operations,
        covers: &[],
        make: make_seed,
        repair: no_checksum,
        run: run_falsified_structures,
    },
];

fn make_seed(random: &mut Rng) -> Vec<u8> {
    [random.u64(..).to_le_bytes(), random.u64(20..160).to_le_bytes()].concat()
}

/// The engines and stores below volumes, in turn.
const BELOW: [(Engine, Layout); 3] =
    [(Engine::Btree, Layout::Rows), (Engine::Lsm, Layout::Rows), (Engine::Lsm, Layout::Column)];

/// A new engine does not compile until it is here, and above.
const _: fn(Engine) = |engine| match engine {
    Engine::Btree | Engine::Lsm => {}
};

/// A volume made from an input, and the number of calls.
struct Input {
    random: Rng,
    calls: u32,
    below: (Engine, Layout),
}

impl Input {
    fn of(bytes: &[u8]) -> Option<Input> {
        let (seed, rest) = bytes.split_first_chunk()?;
        let (calls, rest) = rest.split_first_chunk()?;
        let (number, _) = rest.split_first_chunk()?;
        let below = BELOW[(u64::from_le_bytes(*number) % BELOW.len() as u64) as usize];
        let calls = u64::from_le_bytes(*calls).min(10_000) as u32;
        Some(Input { random: Rng::with_seed(u64::from_le_bytes(*seed)), calls, below })
    }

    fn fresh(self) -> World {
        World::fresh(self.random, self.below)
    }
}

fn run_calls(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes) else { return false };
    let (calls, mut world) = (input.calls, input.fresh());
    let device = world.env.device.clone();
    world.calls(calls);
    assert_eq!(world.damage, None, "nobody damaged anything");
    let succeeded = world.succeeded;
    if world.random.bool() {
        world.close().expect("a disk without faults takes everything");
    }
    let report = check(&device).expect("a volume without damage is looked at");
    assert!(report.is_clean(), "{:#?}", report.problems);
    succeeded > 0
}

fn run_failing(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes) else { return false };
    let (calls, mut world) = (input.calls, input.fresh());
    let device = world.env.device.clone();
    world.calls(calls / 4);
    let ons = [FaultOn::AnyChange, FaultOn::AnySync, FaultOn::Any];
    match world.random.u8(..4) {
        0 => device.set_capacity(Some(device.used_bytes() + world.random.u64(..600_000))),
        which => {
            let after = world.random.u64(..200);
            let fault = Fault::io(ons[usize::from(which) - 1], after);
            device.inject(if world.random.bool() { fault.forever() } else { fault });
        }
    }
    world.calls(calls);
    device.clear_faults();
    device.set_capacity(None);
    world.calls(10);
    let succeeded = world.succeeded;
    drop(world.close());
    seen(check(&device));
    succeeded > 0
}

/// A volume with contents, closed or as a crash leaves it.
fn filled(input: Input) -> (SimDevice, Rng) {
    let (calls, mut world) = (input.calls, input.fresh());
    let device = world.env.device.clone();
    world.calls(calls);
    let mut random = Rng::with_seed(world.random.u64(..));
    if random.bool() {
        verbs_rare::settings(&world);
    }
    if random.u8(..3) == 0 {
        world.fs.sync().expect("a disk without faults takes everything");
        return (device.copy(), random);
    }
    world.close().expect("a disk without faults takes everything");
    (device, random)
}

fn run_damaged_files(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes) else { return false };
    let (device, mut random) = filled(input);
    let files = device.files();
    for _ in 0..1 << random.u32(..4) {
        let (path, length) = &files[random.usize(..files.len())];
        let there = device.files().iter().any(|(other, _)| other == path);
        if *length == 0 || !there || device.read_file(path).is_empty() {
            continue;
        }
        let bytes = device.read_file(path);
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |at| at as u64 + 1);
        let at = random.u64(..used);
        match random.u8(..8) {
            0..=2 => device.flip_bit(path, at * 8 + random.u64(..8)),
            3 => device.overwrite(path, at, &vec![0; random.usize(1..5000)]),
            4 => {
                let from = random.usize(..bytes.len());
                let end = (from + random.usize(1..5000)).min(bytes.len());
                device.overwrite(path, at, &bytes[from..end]);
            }
            5 => device.truncate(path, at),
            6 if random.u8(..6) == 0 => device.delete(path),
            _ => {
                let mut bytes = bytes.get(at as usize..).unwrap_or_default().to_vec();
                bytes.truncate(512);
                mutate(&mut bytes, &[], &mut random);
                device.overwrite(path, at, &bytes);
            }
        }
    }
    use_damaged(&device, random)
}

/// Checks, uses, repairs and uses a volume with damage.
fn use_damaged(device: &SimDevice, mut random: Rng) -> bool {
    seen(check(device));
    let again = Rng::with_seed(random.u64(..));
    if let Ok(mut world) = World::open(&device.copy(), again) {
        world.calls(40);
        drop(world.close());
    }
    let how = if random.bool() { Repair::Do } else { Repair::DoAndCutLog };
    seen(repair(device, how));
    let Ok(mut world) = World::open(device, random) else { return false };
    world.calls(30);
    let succeeded = world.succeeded;
    drop(world.close());
    succeeded > 0
}

fn run_falsified(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes) else { return false };
    let (device, mut random) = filled(input);
    let mut captured: Option<Arc<dyn Store>> = None;
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    let fs = Fs::open_through(SimEnv::on(device.clone(), 7).env(), &options, |store| {
        captured = Some(Arc::clone(&store));
        store
    });
    let fs = fs.expect("a volume without damage opens");
    falsify(&*captured.expect("invariant: a volume that opened has a store"), &mut random);
    fs.close().expect("a disk without faults takes everything");
    seen(fs);
    use_falsified(&device, random)
}

fn run_falsified_structures(bytes: &[u8]) -> bool {
    let Some(input) = Input::of(bytes) else { return false };
    let (device, mut random) = filled(input);
    match random.u8(..4) {
        0 => sealed_log::falsify(&device, &mut random),
        _ => structures::falsify(&device, &mut random),
    }
    use_falsified(&device, random)
}

/// As `use_damaged`, and calls each verb before or after a repair.
fn use_falsified(device: &SimDevice, mut random: Rng) -> bool {
    let (before, after) = (random.bool(), Rng::with_seed(random.u64(..)));
    if before && let Ok(mut world) = World::open(&device.copy(), after.clone()) {
        world.verbs();
        drop(world.close());
    }
    let succeeded = use_damaged(device, random);
    if !before && let Ok(mut world) = World::open(device, after) {
        world.verbs();
        drop(world.close());
    }
    succeeded
}

/// Changes records, removes some, and puts some where they do not belong.
fn falsify(store: &dyn Store, random: &mut Rng) {
    let trees: Vec<TreeId> = (16..96)
        .map(TreeId)
        .filter(|tree| store.tree_exists(*tree).is_ok_and(|exists| exists))
        .collect();
    let mut records = Vec::new();
    for tree in &trees {
        let Ok(mut cursor) = store.scan(*tree, KeyRange::all()) else { continue };
        while let Ok(Some(item)) = cursor.next() {
            records.push((*tree, item.key.to_vec(), item.value.to_vec()));
        }
    }
    if records.is_empty() {
        return;
    }
    let mut batch = Batch::new();
    for _ in 0..1 << random.u32(..5) {
        let (tree, key, value) = &records[random.usize(..records.len())];
        let (_, other_key, other) = &records[random.usize(..records.len())];
        match random.u8(..8) {
            0 => batch.delete(*tree, key),
            1 => batch.put(*tree, key, other),
            2 => batch.put(*tree, other_key, value),
            3 => {
                let mut key = key.clone();
                mutate(&mut key, other_key, random);
                key.truncate(200);
                batch.put(*tree, &key, value);
            }
            _ => {
                let mut value = value.clone();
                mutate(&mut value, other, random);
                batch.put(*tree, key, &value);
            }
        }
    }
    store.commit(&batch).expect("a disk without faults takes everything");
}

#[cfg(test)]
mod tests {
    use super::{BELOW, Input, TARGETS};

    #[test]
    fn engines_and_layouts_alternate_by_case_number() {
        for target in TARGETS {
            for seed in 0..3 {
                let input = |number| Input::of(&target.case(seed, number)).expect("it is whole");
                let below = [7, 8, 9].map(|number| input(number).below);
                assert_eq!(below, [BELOW[1], BELOW[2], BELOW[0]], "{}", target.name);
            }
        }
    }
}
