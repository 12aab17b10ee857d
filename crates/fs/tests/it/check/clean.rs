//! The result of random work is clean: while the daemon has it open, after a crash, and closed; and
//! a check changes nothing.

use std::ops::ControlFlow;

use fs::Engine;
use store::Durability;
use testing::SimDevice;

use super::{assert_clean, check, reported};
use crate::script::{Script, Step, scale};
use crate::subject::Base;

on_each_engine!(
    what_random_work_leaves_is_clean_and_a_look_changes_nothing,
    a_check_can_be_ended_and_reports_that,
);

fn bytes_of(device: &SimDevice) -> Vec<(String, Vec<u8>)> {
    let files = device.files().into_iter();
    files.map(|(path, _)| (path.clone(), device.read_file(&path))).collect()
}

fn what_random_work_leaves_is_clean_and_a_look_changes_nothing(engine: Engine) {
    for seed in 0..scale(4, 60) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut script = Script::new(&device, seed, Durability::Async, &Base::Engine(engine));
        for step in 0..250 {
            assert_eq!(script.step(), Step::Done);
            if step % 50 == 49 {
                let mut last = (0, 0);
                let mut progress = |done, total| {
                    assert!(done >= last.0 && done <= total, "{done} of {total} after {last:?}");
                    last = (done, total);
                    ControlFlow::Continue(())
                };
                let beside = script.subject.fs().check_volume(&mut progress).unwrap();
                assert!(beside.is_clean(), "seed {seed}, step {step}:\n{}", reported(&beside));
                assert!(beside.subvolumes > 0 && last.0 > 0);
            }
        }
        script.subject.fs().sync().unwrap();
        let crashed = device.copy();
        let before = bytes_of(&crashed);
        assert_clean(&crashed, &format!("seed {seed}, with a log"));
        assert!(bytes_of(&crashed) == before, "seed {seed}: a look changed something");
        script.subject.fs().close().unwrap();
        assert_clean(&device.copy(), &format!("seed {seed}, closed"));
    }
}

fn a_check_can_be_ended_and_reports_that(engine: Engine) {
    let device = SimDevice::new(7);
    let mut script = Script::new(&device, 7, Durability::Async, &Base::Engine(engine));
    for _ in 0..60 {
        assert_eq!(script.step(), Step::Done);
    }
    script.subject.fs().close().unwrap();
    assert!(!check(&device).stopped);
    let mut stop = |_, _| ControlFlow::Break(());
    let report = fs::Fs::check_offline(&super::env_of(&device), &mut stop).unwrap();
    assert!(report.stopped && !report.is_clean());
}
