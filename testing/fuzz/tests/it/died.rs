//! The cases of workers that died are counted, target by target.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fuzz::supervise::Run;
use fuzz::target::Category;

/// A worker that does its work, reports nothing of it, and dies.
fn dying(place: &Path) -> std::path::PathBuf {
    let file = place.join("dying");
    let worker = env!("CARGO_BIN_EXE_pando-fuzz");
    let script = format!("#!/bin/sh\n'{worker}' \"$@\" > /dev/null\nexit 134\n");
    std::fs::write(&file, script).expect("there is space");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).expect("it is there");
    file
}

#[test]
fn cases_of_crashed_workers_are_counted_by_target() {
    let place = tempfile::tempdir().unwrap();
    let run = Run {
        part: Category::Operations,
        only: None,
        seed: 1,
        cpu_seconds: 1.0,
        jobs: 2,
        findings: place.path().join("findings"),
    };
    let outcome = run.run(&dying(place.path())).unwrap();
    assert!(outcome.deaths >= 2 && outcome.findings >= outcome.deaths);
    assert!(!outcome.given_up, "each had its time");
    let targets = fuzz::supervise::chosen(Category::Operations, None);
    for target in &targets {
        let (executions, understood) = outcome.counts[target.name];
        assert!(executions > 0, "{}: {outcome:?}", target.name);
        assert!(understood <= executions, "{}: {outcome:?}", target.name);
    }
    assert_eq!(outcome.counts.len(), targets.len());
}
