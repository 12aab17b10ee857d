//! The traces of this repository can be read and replayed. A replay obeys its options: memory,
//! time, the report by call, and traces that ended early.

use std::fs;
use std::path::PathBuf;

use crate::world::World;

fn shipped() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench/traces");
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "trace")).collect()
}

#[test]
fn the_traces_of_the_repository_are_whole() {
    let world = World::new();
    let traces = shipped();
    assert!(traces.len() >= 5, "{traces:?}");
    for trace in traces {
        let name = trace.to_str().unwrap();
        let info = world.json(&["trace", "info", name]).pop().unwrap();
        assert_eq!((&info["end"], &info["anonymised"]), (&"whole".into(), &true.into()), "{info}");
        assert_eq!(info["dropped"], 0, "{name}: {info}");
        assert!(info["events"].as_u64() > Some(10_000), "{name}: {info}");
        for call in ["lookup", "getattr", "mknod", "write"] {
            assert!(info["calls"][call]["count"].as_u64() > Some(0), "{name}: {call}: {info}");
        }
        let bytes = fs::metadata(&trace).unwrap().len();
        assert!(bytes < 1 << 20, "{name}: {bytes} bytes");
    }
}

#[test]
fn a_replay_keeps_within_its_memory() {
    let world = World::new();
    let trace = world.path().join("made.trace");
    let trace = trace.to_str().unwrap();
    let words = ["trace", "generate", "--mix", "hp", "--operations", "20000", "--seed", "1", trace];
    world.ok(&words);
    let dir = world.path().join("dir");
    let to = dir.to_str().unwrap();
    let refused = world.fails(1, &["replay", "--prepare", "--memory", "1M", trace, to]);
    assert!(refused.contains("1048576 bytes of memory"), "{refused}");
    assert!(refused.contains("give more by --memory"), "{refused}");
    assert!(!dir.exists(), "nothing is made");
    let words = ["replay", "--prepare", "--memory", "64M", "--strict", trace, to];
    let report = world.json(&words).pop().unwrap();
    let by_call = |call: &str| report["by_call"][call]["count"].as_u64().unwrap_or_default();
    let sum: u64 = ["lookup", "getattr", "mknod", "read", "write"].map(by_call).iter().sum();
    assert!(by_call("lookup") > 100 && sum <= report["calls"].as_u64().unwrap(), "{report}");
    let lookup = &report["by_call"]["lookup"];
    assert!(lookup["p50_us"].as_f64() <= lookup["max_us"].as_f64(), "{lookup}");
    // The histogram has each call once; the longest is in the last bucket.
    let buckets = lookup["histogram"].as_array().unwrap();
    let counted: u64 = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    assert_eq!(counted, by_call("lookup"), "{lookup}");
    let below: Vec<f64> =
        buckets.iter().map(|bucket| bucket["below_us"].as_f64().unwrap()).collect();
    assert!(below.is_sorted_by(|one, next| one < next), "{lookup}");
    let most = lookup["max_us"].as_f64().unwrap();
    assert!((0.5..1.0).contains(&(most / below[below.len() - 1])), "{lookup}");
    let info = world.json(&["trace", "info", trace]).pop().unwrap();
    let buckets = info["calls"]["lookup"]["histogram"].as_array().unwrap().iter();
    let counted: u64 = buckets.map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), info["calls"]["lookup"]["count"].as_u64(), "{info}");
}

#[test]
fn anonymising_keeps_within_its_memory() {
    let world = World::without_volume();
    let path = |name: &str| world.path().join(name).to_str().unwrap().to_owned();
    let (trace, to) = (path("made.trace"), path("new.trace"));
    let words = ["trace", "generate", "--mix", "hp", "--operations", "50000", "--seed", "1"];
    world.ok(&[&words[..], &["--files", "20000", &trace]].concat());
    let words = ["trace", "anonymise", "--memory"];
    let refused = world.fails(1, &[&words[..], &["1M", &trace, &to]].concat());
    assert!(refused.contains("1048576 bytes of memory"), "{refused}");
    assert!(refused.contains("give more by --memory"), "{refused}");
    assert_eq!(fs::read_dir(world.path()).unwrap().count(), 2, "the trace, and a mount point");
    world.ok(&[&words[..], &["64M", &trace, &to]].concat());
    let events = |trace: &str| world.json(&["trace", "info", trace]).remove(0)["events"].clone();
    assert_eq!(events(&to), events(&trace));
}

#[test]
fn a_trace_that_reached_its_limit_is_replayed_with_a_remark() {
    let world = World::new();
    let trace = world.path().join("short.trace");
    let trace = trace.to_str().unwrap();
    if !world.mount_with(&["--trace", trace, "--trace-limit", "64k"]) {
        return;
    }
    for number in 0..5000 {
        fs::create_dir(world.below_mount(&format!("directory-{number}"))).unwrap();
    }
    world.umount();
    let info = world.json(&["trace", "info", trace]).pop().unwrap();
    assert_eq!(info["end"], "disk-full", "{info}");
    assert!(fs::metadata(trace).unwrap().len() <= 65_536, "{info}");
    assert!(info["events"].as_u64() < Some(10_000), "{info}");
    let dir = world.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let words = ["replay", trace, dir.to_str().unwrap()];
    let replayed = world.run(&words);
    assert_eq!(replayed.code, 0, "{}", replayed.err);
    assert!(replayed.err.contains("ended early"), "{}", replayed.err);
}

/// How late each call was that has a time is measured, and only then.
#[test]
fn lateness_is_reported() {
    let world = World::new();
    let trace = world.path().join("made.trace");
    let trace = trace.to_str().unwrap();
    if !world.mount_with(&["--trace", trace]) {
        return;
    }
    for number in 0..50 {
        fs::create_dir(world.below_mount(&format!("d{number}"))).unwrap();
    }
    world.umount();
    for (timing, is_measured) in [("as-recorded", true), ("fast", false)] {
        let dir = world.path().join(timing);
        fs::create_dir(&dir).unwrap();
        let words = ["replay", "--timing", timing, trace, dir.to_str().unwrap()];
        let report = world.json(&words).pop().unwrap();
        let late = report["late"]["count"].as_u64().unwrap();
        assert_eq!(late > 0, is_measured, "{report}");
        assert_eq!(report["by_call"]["mkdir"]["count"], 50, "{report}");
    }
}
