//! Checking and repairing: the result of random work is clean, every broken relation is found and
//! repaired, and no damage of the disk goes unnoticed.

mod campaign;
mod claims;
mod clean;
mod exchanged;
mod garbage;
mod garbage_unread;
mod kept;
mod many;
mod records;
mod refused;
mod relations;
mod salvaged;
mod shared;
mod spared;
mod two_names;
mod unread_later;
pub(crate) mod volume;

use std::ops::ControlFlow;
use std::sync::Arc;

use device::Env;
use fs::{Fs, Repair, RepairReport, VolumeReport};
use testing::SimDevice;

/// The environment of a simulated disk, with a stopped clock.
pub(crate) fn env_of(device: &SimDevice) -> Env {
    let sim = testing::sim_env(1);
    Env { device: Arc::new(device.clone()), ..sim.env() }
}

pub(crate) fn check(device: &SimDevice) -> VolumeReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::check_offline(&env_of(device), &mut proceed).expect("the disk answers")
}

pub(crate) fn repair(device: &SimDevice) -> RepairReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    Fs::repair(&env_of(device), Repair::Do, &mut proceed).expect("the disk answers")
}

/// Checks that nothing is wrong any more, and that all announced repairs were made.
pub(crate) fn assert_repaired(what: &str, before: &VolumeReport, repaired: &RepairReport) {
    assert!(
        repaired.after.is_clean() && repaired.failed.is_empty(),
        "{what}: before:\n{}after:\n{}failed: {:?}",
        reported(before),
        reported(&repaired.after),
        repaired.failed
    );
}

/// The problems in words, one a line.
pub(crate) fn reported(report: &VolumeReport) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let path = String::from_utf8_lossy(&problem.path);
        let (kind, file, offset) = (problem.kind.name(), &problem.file, problem.offset);
        let (subvolume, ino, what) = (problem.subvolume, problem.ino, &problem.what);
        let remedy = problem.remedy().unwrap_or_else(|| "nothing repairs it".to_owned());
        let line = format!(
            "{kind}: {file}@{offset} subvolume {subvolume} {path} inode {ino}: {what} ({remedy})\n"
        );
        text.push_str(&line);
    }
    text
}

#[track_caller]
pub(crate) fn assert_clean(device: &SimDevice, place: &str) {
    let report = check(device);
    assert!(report.is_clean(), "{place}:\n{}", reported(&report));
}
