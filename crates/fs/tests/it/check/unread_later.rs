//! A disk begins to fail while a volume is repaired, after the preceding check, or during it.
//! Nothing is removed or rebuilt because of a read error. Once the disk reads again the next repair
//! reaches the result that the first would have.

use std::ops::ControlFlow;

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::kept_twice::COPY_TREE;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use fs::{Engine, Fs, OpenError, Repair, RepairReport};
use store::{Batch, TreeId};
use testing::{Fault, FaultOn, Op, SimDevice};

use super::records::{directory, named, put_directory, put_entry, subvolumes};
use super::volume::{Made, falsified, falsify, look, made};
use super::{assert_repaired, check, env_of, repair, reported};
use crate::script::scale;

on_each_engine!(a_disk_that_fails_after_the_check_costs_nothing);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// Much is to be repaired, in several rounds, and all comes back. The copy alone has the record of
/// one subvolume. Another subvolume and a directory are marked as removed. An inode does not know
/// of contents.
fn hurt(made: &Made) -> SimDevice {
    let device = falsified(&made.device, |store, batch| {
        let clone = |(_, record): &(u64, SubvolumeRecord)| {
            !record.snapshot && record.parent.0 != 0 && record.source.0 != 0
        };
        let (id, record) = subvolumes(store).into_iter().find(clone).expect("there is one");
        let removed = SubvolumeRecord { detached: true, ..record };
        batch.put(VOLUME, &key::subvolume(id), &removed.encode());
        let ino = named(store, "deep").ino;
        let removed = DirectoryRecord { detached: true, ..directory(store, ino) };
        put_directory(batch, ino, &removed);
        let mut entry = named(store, "small 9");
        let Target::Embedded(inode) = &mut entry.target else { panic!("it has one name") };
        (inode.has_bulk, inode.size) = (false, 0);
        let cookie = entry.cookie;
        put_entry(batch, &entry, cookie);
    });
    falsify(&device, |store| {
        let snapshot = |(_, record): &(u64, SubvolumeRecord)| record.snapshot;
        let (id, record) = subvolumes(store).into_iter().find(snapshot).expect("there is one");
        let mut batch = Batch::new();
        batch.delete(VOLUME, &key::subvolume(id));
        store.commit(&batch).expect("there is space");
        let mut batch = Batch::new();
        batch.put(TreeId(COPY_TREE), &key::subvolume(id), &record.encode());
        store.commit(&batch).expect("there is space");
    });
    device
}

fn repair_of(device: &SimDevice) -> Result<RepairReport, OpenError> {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::repair(&env_of(device), Repair::Do, &mut proceed)
}

/// How many reads below a path something makes.
fn reads(hurt: &SimDevice, part: &str, run: impl Fn(&SimDevice)) -> u64 {
    let is_made = |n: u64| {
        let device = hurt.copy();
        device.inject(Fault::io(FaultOn::Only(Op::Read), n).below(part));
        run(&device);
        !device.faults_left()
    };
    let (mut least, mut most) = (0, 1);
    while is_made(most) {
        (least, most) = (most, most * 2);
    }
    while most - least > 1 {
        let middle = least.midpoint(most);
        if is_made(middle) { least = middle } else { most = middle }
    }
    most
}

fn a_disk_that_fails_after_the_check_costs_nothing(engine: Engine) {
    let made = made(engine, 67);
    let hurt = hurt(&made);
    let whole = hurt.copy();
    let before = check(&whole);
    let repaired = repair(&whole);
    assert_repaired("while all can be read", &before, &repaired);
    assert!(repaired.repaired.len() >= 4, "{:?}", repaired.repaired);
    let tree = match engine {
        Engine::Btree => "btree/",
        Engine::Lsm => "lsm/",
    };
    for part in [tree, "data/", "log/"] {
        let in_check = reads(&hurt, part, |device| {
            let mut proceed = |_, _| ControlFlow::Continue(());
            drop(Fs::check_offline(&env_of(device), &mut proceed));
        });
        let all = reads(&hurt, part, |device| drop(repair_of(device)));
        assert!(all > in_check, "{part}: {all} reads, {in_check} in the first check");
        let (mut refused, mut partly) = (0, 0);
        let step = (all - in_check).div_ceil(scale(10, 2000)).max(1) as usize;
        for n in (in_check..all).step_by(step) {
            let what = format!("{engine:?}: {part}: from read {n} of {all} on, {in_check} checked");
            let device = hurt.copy();
            device.inject(Fault::io(FaultOn::Only(Op::Read), n).below(part).forever());
            match repair_of(&device) {
                Err(_) => refused += 1,
                Ok(repaired) => {
                    assert!(!repaired.before.unread, "{what}: the check was over");
                    partly += u64::from(!repaired.after.is_clean());
                }
            }
            device.clear_faults();
            let again = repair(&device);
            assert!(again.failed.is_empty(), "{what}: {:?}", again.failed);
            assert!(again.after.is_clean(), "{what}:\n{}", reported(&again.after));
            let looked = look(&device, &made.right);
            assert!(looked.is_same(), "{what}: {looked:#?}");
        }
        println!("{engine:?}: {part}: {refused} repairs ended, {partly} left something");
        assert!(refused + partly > 0, "{part}: nothing was met");
    }
}
