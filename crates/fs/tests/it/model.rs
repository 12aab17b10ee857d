//! Random operations, snapshots and clones among them, on a volume and on the model: every answer
//! and, from time to time, everything that is there must be the same.

use store::Durability;
use testing::SimDevice;
use testing::model::{Comparison, Driver, Generator};

use crate::script::{SNAPSHOTS, options, scale};
use crate::subject::{Base, FsSubject};

#[test]
fn random_operations_on_the_engine_do_what_the_model_does() {
    for seed in 0..scale(24, 400) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine);
        let driver = Driver::new(&mut subject, SNAPSHOTS, seed);
        let report = driver.run(&mut Generator::new(seed), 300, Comparison { every: 30 });
        assert!(report.succeeded > 50, "seed {seed}: only {} succeed", report.succeeded);
    }
}
