//! Nodes of the catalog are stored twice. Whichever copy of whichever node is damaged, the store
//! opens and misses nothing, a check names it, and repairing writes it again.

use std::ops::ControlFlow;

use btree::{BtreeStore, inspect, repair};
use format::Pointer;
use format::node::{self, HEADER_BYTES, InteriorBody, UNIT_BYTES};
use format::space_map::{GROUP_BYTES, GROUP_UNITS, PAGE_BYTES};
use format::superblock::{Decoded, Superblock};
use store::{CheckReport, Durable, Maintain, Read, TreeId};
use testing::{CrashPolicy, SimDevice, SimEnv};

use crate::superblocks::PATHS;
use crate::util::{commit, options, store};

const CACHE_BYTES: usize = 8 << 20;
const NODES: &str = "btree/nodes";
const TREES: u64 = 1500;

/// A store with so many trees that the catalog has several leaves.
pub(crate) fn made() -> SimDevice {
    let (sim, store) = store(1, CACHE_BYTES);
    for tree in 100..100 + TREES {
        commit(&store, |batch| {
            batch.create_tree(TreeId(tree));
            batch.put(TreeId(tree), b"tree", &tree.to_le_bytes());
        });
    }
    assert!(store.checkpoint().expect("checkpoint"));
    store.close().expect("there is space");
    drop(store);
    sim.device
}

fn offset(unit: u64) -> u64 {
    let (group, within) = (unit / GROUP_UNITS as u64, unit % GROUP_UNITS as u64);
    group * GROUP_BYTES as u64 + 2 * PAGE_BYTES as u64 + within * UNIT_BYTES as u64
}

/// Where both copies of each node of the catalog are, and their length.
pub(crate) fn copies(device: &SimDevice) -> Vec<([u64; 2], u64)> {
    let Ok(Decoded::Superblock(superblock)) = Superblock::decode(&device.read_file(PATHS[0]))
    else {
        panic!("it is whole");
    };
    let bytes = device.read_file(NODES);
    let mut found = Vec::new();
    let mut next: Vec<(Pointer, u8)> = vec![(superblock.catalog, superblock.catalog_level)];
    while let Some((pointer, level)) = next.pop() {
        let first = offset(pointer.unit);
        let half = u64::from(pointer.units) / 2 * UNIT_BYTES as u64;
        let stored_bytes = &bytes[first as usize..(first + half) as usize];
        let (header, body) =
            node::verify(stored_bytes, pointer.unit, pointer.checksum).expect("it is whole");
        assert!(first.is_multiple_of(4096) && half.is_multiple_of(4096));
        let length = HEADER_BYTES as u64 + u64::from(header.body);
        found.push(([first, first + half], length));
        if level > 0 {
            let mut interior = InteriorBody::new(&header, body).expect("it is whole");
            next.push((interior.first(), level - 1));
            while let Some((_, below)) = interior.next_child().expect("it is whole") {
                next.push((below, level - 1));
            }
        }
    }
    found
}

fn looked_at(sim: &SimEnv) -> CheckReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    inspect(&sim.env(), &options(CACHE_BYTES), &mut proceed).expect("the files are there")
}

fn is_whole(store: &BtreeStore, place: &str) {
    for tree in 100..100 + TREES {
        let found = store.get(TreeId(tree), b"tree").unwrap_or_else(|error| {
            panic!("{place}: {error}");
        });
        assert_eq!(found, Some(tree.to_le_bytes().to_vec()), "{place}");
    }
}

#[test]
fn either_copy_of_a_catalog_node_suffices() {
    let left = made();
    let whole = left.read_file(NODES);
    let all = copies(&left);
    assert!(all.len() > 3, "the catalog has {} nodes", all.len());
    let options = options(CACHE_BYTES);
    for (seed, (places, length)) in (1..).zip(all) {
        for bad in places {
            for zeros in [true, false] {
                let place = format!("byte {bad}, {}", if zeros { "zeros" } else { "a bit" });
                let sim = SimEnv::on(left.copy(), seed);
                if zeros {
                    sim.device.overwrite(NODES, bad, &vec![0; length as usize]);
                } else {
                    sim.device.flip_bit(NODES, (bad + seed * 7 % length) * 8);
                }
                let report = looked_at(&sim);
                let found = report.findings.iter().map(|one| (one.offset, one.remedy));
                assert_eq!(found.collect::<Vec<_>>(), [(bad, store::Remedy::Rebuild)], "{place}");
                // Opened as it is, changed, and cut off.
                let opened = SimEnv::on(sim.device.copy(), seed);
                let store = BtreeStore::open(&opened.env(), &options).expect("it opens");
                is_whole(&store, &place);
                commit(&store, |batch| batch.create_tree(TreeId(5000)));
                assert!(store.checkpoint().expect("checkpoint"), "{place}");
                drop(store);
                let store = BtreeStore::open(&opened.env(), &options).expect("it opens");
                is_whole(&store, &place);
                // Repaired, and the power goes.
                repair(&sim.env(), &options).expect("there is space");
                let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, seed), seed);
                let report = looked_at(&sim);
                assert!(report.is_clean(), "{place}: {:#?}", report.findings);
                let range = bad as usize..(bad + length) as usize;
                assert_eq!(sim.device.read_file(NODES)[range.clone()], whole[range], "{place}");
            }
        }
    }
}
