//! Random operations on files of several trees, clones and collections among them, against a
//! model that is a vector of bytes a file.

use testing::run::{for_seeds, rounds};

use crate::support::{Volume, check_records, pattern, small_options};

/// Does one random operation.
pub(crate) fn random_op(volume: &mut Volume, random: &mut fastrand::Rng) -> store::Result<()> {
    let trees: Vec<u64> = volume.trees.keys().copied().collect();
    let tree = *random.choice(&trees).unwrap();
    let ino = random.u64(1..4);
    let size = volume.contents(tree, ino).len() as u64;
    match random.u32(0..100) {
        0..50 => {
            let at = random_offset(random, size);
            let bytes = pattern(random.u64(..), random_length(random));
            volume.write(tree, ino, at, &bytes)
        }
        50..56 if volume.now.contains_key(&(tree, ino)) => {
            let target = random.u64(0..=size + 5000);
            volume.truncate(tree, ino, if random.bool() { target } else { target & !4095 })
        }
        56..62 if size > 0 => {
            let from = random.u64(0..size);
            let to = from + 1 + random.u64(0..20_000);
            volume.punch(tree, ino, (from, to))
        }
        62..66 if size > 0 => {
            let from = random.u64(0..size);
            let length = (1 + random.u64(0..40_000)).min(size - from);
            let (other, file) = (*random.choice(&trees).unwrap(), random.u64(1..4));
            let end = volume.contents(other, file).len() as u64;
            let at = random_offset(random, end);
            let apart = at + length <= from || from + length <= at;
            if (other, file) == (tree, ino) && !apart {
                return Ok(());
            }
            volume.share((tree, ino, from), (other, file, at), length)
        }
        66..68 if volume.now.contains_key(&(tree, ino)) => volume.release(tree, ino),
        68..70 => {
            volume.data.note_fsync(data::FileRef { tree: store::TreeId(tree), ino });
            volume.sync()
        }
        70..74 => volume.sync(),
        74..80 => volume.clean(false),
        80..83 => volume.clean(true),
        83..86 => volume.settle(tree, ino),
        86..89 if trees.len() < 5 => volume.clone_tree(tree).map(drop),
        89..92 if trees.len() > 1 => volume.drop_tree(tree),
        92..95 => volume.collect().map(drop),
        95..96 => volume.reopen(),
        _ => {
            volume.sim.clock.advance(std::time::Duration::from_secs(random.u64(0..4)));
            Ok(())
        }
    }
}

fn random_offset(random: &mut fastrand::Rng, size: u64) -> u64 {
    match random.u32(0..10) {
        0..4 => size,
        4..6 => random.u64(0..=size) & !4095,
        6..9 => random.u64(0..=size),
        _ => size + random.u64(0..100_000),
    }
}

fn random_length(random: &mut fastrand::Rng) -> usize {
    match random.u32(0..10) {
        0..2 => random.usize(1..60),
        2..4 => random.usize(1..1500),
        4..6 => random.usize(1..=4096),
        6..7 => 4096,
        7..8 => 4096 * random.usize(1..5),
        8..9 => random.usize(1..30_000),
        _ => random.usize(1..300_000),
    }
}

fn run(seed: u64, punches: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut volume = Volume::with(testing::sim_env(seed), small_options(), punches);
    for round in 0..rounds(150, 600) {
        random_op(&mut volume, &mut random).unwrap();
        if round % 10 == 0 {
            volume.verify();
        }
    }
    volume.verify();
    volume.collect().unwrap();
    assert!(check_records(&volume.store), "counts are exact after a collection");
    volume.clean(true).unwrap();
    volume.reopen().unwrap();
    volume.verify();
}

#[test]
fn reads_after_random_operations_agree_with_the_model() {
    for_seeds("model", 40, 2000, |seed| run(seed, true));
}

#[test]
fn random_operations_work_on_blobs_without_punching() {
    for_seeds("model without punching", 20, 1000, |seed| run(seed, false));
}

#[test]
fn counts_of_one_tree_without_clones_are_exact_at_any_time() {
    for_seeds("exact counts", 20, 500, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut volume = Volume::new(seed);
        for _ in 0..100 {
            let size = volume.contents(32, 1).len() as u64;
            if random.u8(0..8) == 0 {
                volume.truncate(32, 1, random.u64(0..=size)).unwrap();
            } else {
                let bytes = pattern(random.u64(..), random_length(&mut random));
                let at = random_offset(&mut random, size);
                volume.write(32, 1, at, &bytes).unwrap();
            }
            assert!(check_records(&volume.store));
        }
        volume.release(32, 1).unwrap();
        assert!(check_records(&volume.store));
        volume.clean(true).unwrap();
        let stats = volume.data.stats();
        assert!(stats.sealed_segments <= 1, "{stats:?}");
    });
}
