//! What files do: holes, sizes, overwrites, growing in place.

use data::{FileRef, STORED_BYTES_MAX};
use store::{Batch, Commit, TreeId};

use crate::support::{Volume, check_records, pattern};

const FILE: FileRef = FileRef { tree: TreeId(32), ino: 1 };

fn extents(volume: &Volume, from: u64) -> Vec<(u64, u64, bool)> {
    let mut cursor = volume.data.extents(&*volume.store, FILE, (from, u64::MAX)).unwrap();
    let mut all = Vec::new();
    while let Some(extent) = cursor.next().unwrap() {
        all.push((extent.offset, extent.length, extent.inline));
    }
    all
}

#[test]
fn a_sparse_file_of_100_gb_costs_what_it_holds() {
    let mut volume = Volume::new(1);
    let far = 100 << 30;
    let bytes = pattern(1, 8192);
    // The model would hold the holes; here the file is compared piece by piece.
    let mut batch = Batch::new();
    let owner = volume.owner(32);
    for at in [0, far / 2, far - 8192] {
        let freed = volume.data.write(&*volume.store, FILE, at, &bytes, owner, &mut batch).unwrap();
        let token = volume.store.commit(&batch).unwrap();
        volume.data.reclaim_after(freed, token);
        batch.clear();
    }
    let mut buffer = vec![1; 3 * 8192];
    let read = volume.data.read(&*volume.store, FILE, far, far / 2 - 8192, &mut buffer).unwrap();
    assert_eq!(read, buffer.len());
    assert!(buffer[..8192].iter().all(|&byte| byte == 0));
    assert_eq!(buffer[8192..16384], bytes);
    assert!(buffer[16384..].iter().all(|&byte| byte == 0));
    let read = volume.data.read(&*volume.store, FILE, far, far - 4096, &mut buffer).unwrap();
    assert_eq!(read, 4096);
    assert_eq!(buffer[..4096], bytes[4096..]);
    assert_eq!(volume.data.allocated_bytes(&*volume.store, FILE).unwrap(), 3 * 8192);
    assert_eq!(extents(&volume, 8192), [(far / 2, 8192, false), (far - 8192, 8192, false)]);
    assert!(volume.sim.device.used_bytes() < 100_000);
    volume.trees.clear();
}

#[test]
fn sequential_appends_grow_one_extent_up_to_its_limit() {
    let mut volume = Volume::new(2);
    for step in 0..100_u64 {
        volume.write(32, 1, step * 3000, &pattern(step, 3000)).unwrap();
    }
    volume.verify();
    let found = extents(&volume, 0);
    assert!(found.len() <= 4, "{found:?}");
    assert_eq!(found[0].1, u64::from(STORED_BYTES_MAX));
    assert!(check_records(&volume.store));
}

#[test]
fn appends_to_two_files_in_turn_fill_their_last_pages() {
    let mut volume = Volume::new(3);
    for step in 0..40_u64 {
        for ino in [1, 2] {
            volume.write(32, ino, step * 3000, &pattern(step * 2 + ino, 3000)).unwrap();
        }
    }
    volume.verify();
    volume.sync().unwrap();
    let held: u64 = 2 * 40 * 3000;
    assert!(volume.data.disk_bytes().unwrap() < held + held / 10 + 8192);
}

#[test]
fn a_write_of_1_mib_is_few_device_writes() {
    let mut volume = Volume::with(testing::sim_env(4), data::Options::default(), true);
    volume.write(32, 1, 0, &pattern(1, 4096)).unwrap();
    let before = volume.sim.device.counts().of(testing::Op::Write);
    volume.write(32, 2, 0, &pattern(2, 1 << 20)).unwrap();
    assert_eq!(volume.sim.device.counts().of(testing::Op::Write) - before, 1);
    volume.verify();
}

#[test]
fn a_file_that_shrinks_and_grows_reads_zeros() {
    let mut volume = Volume::new(5);
    volume.write(32, 1, 0, &pattern(1, 10_000)).unwrap();
    volume.truncate(32, 1, 5001).unwrap();
    volume.truncate(32, 1, 20_000).unwrap();
    volume.verify();
    volume.write(32, 1, 15_000, b"end").unwrap();
    volume.verify();
    volume.truncate(32, 1, 0).unwrap();
    volume.write(32, 1, 100, b"x").unwrap();
    volume.verify();
}

#[test]
fn cutting_a_file_of_many_extents_goes_in_steps() {
    let volume = Volume::with(testing::sim_env(6), data::Options::default(), true);
    let owner = volume.owner(32);
    let mut batch = Batch::new();
    // Every second page, so that no two extents join.
    let count = 5000_u64;
    for page in 0..count {
        let mut one = Batch::new();
        let at = page * 8192;
        let bytes = [page as u8; 4096];
        let freed = volume.data.write(&*volume.store, FILE, at, &bytes, owner, &mut one).unwrap();
        let token = volume.store.commit(&one).unwrap();
        volume.data.reclaim_after(freed, token);
    }
    let size = count * 8192;
    let cut = volume.data.truncate(&*volume.store, FILE, (size, 4096), owner, &mut batch).unwrap();
    assert!(cut.size > 4096 && cut.size < size, "{}", cut.size);
    assert!(batch.check().is_ok());
    let token = volume.store.commit(&batch).unwrap();
    volume.data.reclaim_after(cut.freed, token);
    let mut steps = 0;
    loop {
        let mut batch = Batch::new();
        let cut = volume.data.release_all(&*volume.store, FILE, owner, &mut batch).unwrap();
        let token = volume.store.commit(&batch).unwrap();
        volume.data.reclaim_after(cut.freed, token);
        steps += 1;
        if !cut.more {
            break;
        }
    }
    assert_eq!(steps, 2);
    assert!(extents(&volume, 0).is_empty());
    assert!(check_records(&volume.store));
    volume.clean(true).unwrap();
    assert!(volume.data.disk_bytes().unwrap() < 100_000);
}

#[test]
fn a_page_shared_by_two_views_is_freed_with_the_last() {
    let mut volume = Volume::new(7);
    volume.write(32, 1, 0, &pattern(1, 4096)).unwrap();
    volume.write(32, 1, 1000, &pattern(2, 1500)).unwrap();
    volume.verify();
    volume.punch(32, 1, (2500, 4096)).unwrap();
    assert!(check_records(&volume.store));
    volume.clean(true).unwrap();
    volume.verify();
    volume.punch(32, 1, (0, 1000)).unwrap();
    assert!(check_records(&volume.store));
    volume.clean(true).unwrap();
    volume.verify();
}

#[test]
fn a_clone_keeps_what_its_source_overwrites_and_appends() {
    let mut volume = Volume::new(8);
    volume.write(32, 1, 0, &pattern(1, 50_000)).unwrap();
    let clone = volume.clone_tree(32).unwrap();
    // Both append behind the same last page: neither may use its rest.
    volume.write(32, 1, 50_000, &pattern(2, 3000)).unwrap();
    volume.write(clone, 1, 50_000, &pattern(3, 3000)).unwrap();
    volume.write(32, 1, 10_000, &pattern(4, 20_000)).unwrap();
    volume.truncate(clone, 1, 30_000).unwrap();
    volume.clean(true).unwrap();
    volume.verify();
    volume.drop_tree(32).unwrap();
    volume.collect().unwrap();
    volume.verify();
    assert!(check_records(&volume.store));
}
