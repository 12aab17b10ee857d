//! Random operations, snapshots and clones among them, on a volume and on the model: every answer
//! and, from time to time, everything that is there must be the same.

use fs::OpenOptions;
use testing::SimDevice;
use testing::model::{Comparison, Driver, Generator};

use crate::script::{SNAPSHOTS, scale};
use crate::subject::{Base, FsSubject};

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn compare(base: &Base, seeds: u64) {
    for seed in 0..seeds {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut subject = FsSubject::format(&device, &OpenOptions::default(), base);
        let driver = Driver::new(&mut subject, SNAPSHOTS, seed);
        let report = driver.run(&mut Generator::new(seed), 300, Comparison { every: 30 });
        assert!(report.succeeded > 50, "seed {seed}: only {} succeed", report.succeeded);
    }
}

#[test]
fn random_operations_do_what_the_model_does() {
    compare(&Base::Engine, scale(12, 400));
}

#[test]
fn random_operations_over_the_oracle_do_what_the_model_does() {
    compare(&Base::Oracle(None), scale(12, 400));
}
