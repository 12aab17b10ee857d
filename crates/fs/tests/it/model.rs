//! Random operations, snapshots and clones among them, on a volume and on the model. Every answer
//! and, from time to time, the complete contents must be the same.

use fs::Engine;
use store::Durability;
use testing::SimDevice;
use testing::model::{Comparison, Driver, Generator};

use crate::script::{SNAPSHOTS, options, scale};
use crate::subject::{Base, FsSubject};

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run(base: &Base, seeds: u64) {
    for seed in 0..seeds {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut subject = FsSubject::format(&device, &options(Durability::Async), base);
        let driver = Driver::new(&mut subject, SNAPSHOTS, seed);
        let report = driver.run(&mut Generator::new(seed), 300, Comparison { every: 30 });
        assert!(report.succeeded > 50, "seed {seed}: only {} succeed", report.succeeded);
    }
}

#[test]
fn random_operations_on_the_engine_agree_with_the_model() {
    run(&Base::Engine(Engine::Btree), scale(12, 400));
}

#[test]
fn random_operations_on_the_log_structured_engine_agree_with_the_model() {
    run(&Base::Engine(Engine::Lsm), scale(12, 400));
}

#[test]
fn random_operations_on_value_logs_agree_with_the_model() {
    run(&Base::Column, scale(6, 400));
}

/// Clones of clones, snapshots and roll-backs of directories with subvolumes in one another, which
/// are inherited. Requests and changes cause the inherited ones to be copied at every moment.
#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run_nested(engine: Engine) {
    for seed in 0..scale(12, 400) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let base = Base::Engine(engine);
        let mut subject = FsSubject::format(&device, &options(Durability::Async), &base);
        let driver = Driver::new(&mut subject, SNAPSHOTS, seed);
        let report = driver.run(&mut Generator::nested(seed), 200, Comparison { every: 100 });
        assert!(report.succeeded > 30, "seed {seed}: only {} succeed", report.succeeded);
        crate::support::assert_whole(subject.fs());
    }
}

#[test]
fn random_copies_of_nested_subvolumes_agree_with_the_model() {
    run_nested(Engine::Btree);
}

#[test]
fn random_copies_of_nested_subvolumes_on_the_log_structured_engine_agree_with_the_model() {
    run_nested(Engine::Lsm);
}
