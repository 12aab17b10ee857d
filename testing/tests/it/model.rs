//! Tests of the model itself: it must agree with a second model, and meet a few basic properties.

use device::Timestamp;
use inode::{Caller, Kind};

use testing::model::{
    Comparison, Driver, Dump, Effect, ErrorKind, FsModel, Generator, Op, Target, Verdict,
};

const SNAPSHOTS: &[u8] = b".snapshots";

fn path(text: &str) -> Vec<Vec<u8>> {
    text.split('/').filter(|name| !name.is_empty()).map(|name| name.as_bytes().to_vec()).collect()
}

fn root(model: &mut FsModel, op: &Op) -> Verdict {
    model.apply(Timestamp(5), &Caller::root(), op)
}

#[test]
fn model_agrees_with_a_second_model_under_random_operations() {
    for seed in 0..20 {
        let mut twin = FsModel::new(Timestamp(1_700_000_000_000_000_000), SNAPSHOTS);
        let driver = Driver::new(&mut twin, SNAPSHOTS, seed);
        let mut generator = Generator::new(seed);
        let report = driver.run(&mut generator, 400, Comparison { every: 50 });
        assert!(report.succeeded > 80, "only {} of 400 succeed: {seed}", report.succeeded);
    }
}

#[test]
fn a_snapshot_keeps_its_state() {
    let mut model = FsModel::new(Timestamp(1), SNAPSHOTS);
    let file = path("d/f");
    let write = |seed| Op::Write { target: Target::Path(path("d/f")), offset: 0, length: 9, seed };
    for op in [
        Op::Mkdir { path: path("d"), mode: 0o755 },
        Op::Mknod { path: file.clone(), kind: Kind::File, mode: 0o644 },
        write(1),
        Op::SnapshotCreate { directory: path("d"), name: b"one".to_vec() },
        write(2),
    ] {
        assert!(root(&mut model, &op).is_ok(), "{op:?}");
    }
    let read = |at: &str| Op::Read { target: Target::Path(path(at)), offset: 0, length: 100 };
    let old = root(&mut model, &read("d/.snapshots/one/f"));
    assert_eq!(old, Verdict::Ok(Effect::Bytes(Op::write_bytes(9, 1))));
    let new = root(&mut model, &read("d/f"));
    assert_eq!(new, Verdict::Ok(Effect::Bytes(Op::write_bytes(9, 2))));
    let unlink = Op::Unlink { path: path("d/.snapshots/one/f") };
    assert_eq!(root(&mut model, &unlink), Verdict::Fail(vec![ErrorKind::ReadOnly]));
    let rollback = Op::Rollback { directory: path("d"), name: b"one".to_vec() };
    assert!(root(&mut model, &rollback).is_ok());
    assert_eq!(root(&mut model, &read("d/f")), old);
}

#[test]
fn dumps_report_where_two_volumes_differ() {
    let mut one = FsModel::new(Timestamp(1), SNAPSHOTS);
    let mut two = one.clone();
    assert!(root(&mut two, &Op::Mkdir { path: path("d"), mode: 0o755 }).is_ok());
    let left = Dump::collect(&mut one, SNAPSHOTS);
    let right = Dump::collect(&mut two, SNAPSHOTS);
    assert_eq!(left.differences(&left), Vec::<String>::new());
    assert_eq!(left.differences(&right).len(), 2, "the root and the new directory");
}
