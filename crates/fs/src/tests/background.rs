//! Which step of background work comes when.

use std::sync::atomic::Ordering;

use inode::{Caller, Kind, NodeId};
use testing::{SimDevice, SimEnv};

use crate::Fs;
use opening::create::FormatOptions;
use vfs::{FileSystem, NewNode};
use volume::OpenOptions;

/// If checkpoints were due at every other step, the steps between them would all be of one
/// kind, perhaps only those that begin with removals.
#[test]
fn a_checkpoint_skips_no_background_step() {
    let env = SimEnv::on(SimDevice::new(1), 1).env();
    Fs::format(&env, &FormatOptions::default()).expect("an empty disk");
    let options = OpenOptions { checkpoint_bytes: 24 << 10, ..OpenOptions::default() };
    let fs = Fs::open(env, &options).expect("it was made just now");
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let mut number = 0;
    while !fs.store.checkpoint_due() {
        let name = format!("f{number}");
        let made = fs.mknod(&Caller::root(), NodeId::ROOT, name.as_bytes(), &new);
        made.expect("space");
        number += 1;
        assert!(number < 10_000, "a checkpoint is never due");
    }
    let turn = fs.turn.load(Ordering::Relaxed);
    assert!(fs.background_step(64).expect("there is space").more);
    assert!(!fs.store.checkpoint_due(), "it was made");
    assert_eq!(fs.turn.load(Ordering::Relaxed), turn);
}
