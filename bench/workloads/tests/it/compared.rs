//! Our side of the comparison with other engines. Its package, `bench/engines`, is built apart,
//! because the other engines take longer to build than all of our code. So this file compiles and
//! runs what it calls of ours.

use std::path::Path;

use crate::engine::{Engine, Result};
use crate::ours::Ours;

/// Does once what the comparison does a million times.
fn run(mut engine: Box<dyn Engine>) -> Result<()> {
    for number in 0..100_u8 {
        engine.put(&[0, 0, 0, 0, 0, 0, 0, number / 10, number], &[number; 20])?;
    }
    engine.settle()?;
    engine.delete(&[0, 0, 0, 0, 0, 0, 0, 3, 33])?;
    engine.sync()?;
    engine.snapshot()?;
    assert!(engine.copy(0)?, "ours have clones");
    let mut value = Vec::new();
    assert!(engine.get(&[0, 0, 0, 0, 0, 0, 0, 4, 42], &mut |found| value = found.to_vec())?);
    assert_eq!(value, [42; 20]);
    let mut last = Vec::new();
    let count = engine.scan(&[0, 0, 0, 0, 0, 0, 0, 3], &mut |key, _| last = key.to_vec())?;
    assert_eq!((count, last), (9, vec![0, 0, 0, 0, 0, 0, 0, 3, 39]));
    engine.close()
}

#[test]
fn both_engines_do_what_the_comparison_asks_of_them() {
    type Create = fn(&Path) -> Result<Box<dyn Engine>>;
    let both: [Create; 2] = [
        |path| Ok(Box::new(Ours::btree(path, 1 << 20)?)),
        |path| Ok(Box::new(Ours::lsm(path, 1 << 20)?)),
    ];
    for create in both {
        let directory = tempfile::tempdir().expect("a directory");
        create(directory.path()).and_then(run).expect("the engine does it");
    }
}
