//! Random operations over the network and on the model of POSIX. Every answer and, now and then,
//! the whole state must be the same. That holds also while connections are cut, when every change
//! must be made once.

use fs::Engine;
use testing::model::{Comparison, Driver, Generator};

use crate::rig::Rig;
use crate::subject::RemoteSubject;

fn scale(quick: u64, slow: u64) -> u64 {
    if testing::run::slow() { slow } else { quick }
}

fn run(engine: Engine, seeds: std::ops::Range<u64>, cut_every: u64) {
    for seed in seeds {
        println!("seed {seed}");
        let mut rig = Rig::new(engine, seed);
        rig.cut_every = cut_every;
        let mut subject = RemoteSubject::new(rig);
        let driver = Driver::new(&mut subject, b".snapshots", seed);
        let report = driver.run(&mut Generator::new(seed), 300, Comparison { every: 100 });
        assert!(report.succeeded > 50, "seed {seed}: only {} succeed", report.succeeded);
    }
}

#[test]
fn random_operations_over_the_network_agree_with_the_model() {
    run(Engine::Btree, 0..scale(3, 100), 0);
}

#[test]
fn random_operations_on_the_log_structured_engine_agree_with_the_model() {
    run(Engine::Lsm, 100..100 + scale(3, 100), 0);
}

#[test]
fn changes_are_made_once_while_connections_are_cut() {
    run(Engine::Btree, 200..200 + scale(2, 50), 3);
    run(Engine::Lsm, 300..300 + scale(1, 50), 2);
}
