//! Structures that were falsified and sealed again, by somebody who can write to the volume's
//! directory. A repair takes memory and space for what the files hold, not for what a pointer
//! names.

use btree::{BtreeStore, repair};
use format::Pointer;
use format::catalog::RootRecord;
use format::node::{self, LeafBody, LeafValue, UNIT_BYTES};
use format::space_map::PAGE_BYTES;
use format::superblock::{Decoded, Superblock};
use store::{Durable, Maintain};
use testing::{SimDevice, SimEnv};

use crate::superblocks::{CACHE_BYTES, PATHS};
use crate::util::{TREE, commit, entries, options, store};

const NODES: &str = "btree/nodes";
/// A unit a petabyte behind the end.
const FAR: u64 = 1 << 42;

fn made() -> SimDevice {
    let (sim, store) = store(1, CACHE_BYTES);
    commit(&store, |batch| batch.put(TREE, b"key", b"value"));
    assert!(store.checkpoint().expect("checkpoint"));
    store.close().expect("there is space");
    sim.device
}

fn superblock(device: &SimDevice) -> Superblock {
    match Superblock::decode(&device.read_file(PATHS[0])) {
        Ok(Decoded::Superblock(superblock)) => superblock,
        other => panic!("{other:?}"),
    }
}

fn write(device: &SimDevice, superblock: &Superblock) {
    for path in PATHS {
        device.overwrite(path, 0, &superblock.encode());
    }
}

/// Repairs, and looks at how long the file of nodes is then.
fn repaired(device: &SimDevice) {
    let before = device.read_file(NODES).len();
    repair(&SimEnv::on(device.clone(), 1).env(), &options(CACHE_BYTES)).expect("there is space");
    let after = device.read_file(NODES).len();
    assert!(after <= before + (16 << 20), "{before} bytes before, {after} after");
}

#[test]
fn a_superblock_with_a_map_without_end_is_repaired() {
    let device = made();
    let mut falsified = superblock(&device);
    falsified.groups = FAR;
    falsified.directory = Pointer { unit: FAR, ..falsified.directory };
    write(&device, &falsified);
    repaired(&device);
    let store = BtreeStore::open(&SimEnv::on(device, 1).env(), &options(CACHE_BYTES));
    assert_eq!(entries(&*store.expect("it was repaired"), TREE)[&b"key"[..]], b"value");
}

#[test]
fn a_tree_beyond_the_end_of_the_file_costs_a_repair_nothing() {
    let device = made();
    let mut falsified = superblock(&device);
    let catalog = falsified.catalog;
    let first = 2 * PAGE_BYTES as u64 + catalog.unit * UNIT_BYTES as u64;
    let half = u64::from(catalog.units) / 2 * UNIT_BYTES as u64;
    let file = device.read_file(NODES);
    let mut bytes = file[first as usize..(first + half) as usize].to_vec();
    let (header, body) = node::verify(&bytes, catalog.unit, catalog.checksum).expect("whole");
    let length = node::HEADER_BYTES + body.len();
    let mut leaf = LeafBody::new(&header, body).expect("a catalog of one leaf");
    let mut records = Vec::new();
    while let Some((_, value)) = leaf.next_entry().expect("whole") {
        let LeafValue::Inline(value) = value else { continue };
        records.extend(RootRecord::decode(value).ok());
    }
    bytes.truncate(length);
    let was = records.pop().expect("some tree");
    let far = RootRecord { pointer: Pointer { unit: FAR, ..was.pointer }, ..was };
    let (was, far) = (was.encode(), far.encode());
    let at = bytes.windows(was.len()).position(|there| there == was).expect("it is there");
    bytes[at..at + far.len()].copy_from_slice(&far);
    falsified.catalog.checksum = node::seal(&mut bytes, catalog.unit);
    for place in [first, first + half] {
        device.overwrite(NODES, place, &bytes);
    }
    write(&device, &falsified);
    repaired(&device);
}
