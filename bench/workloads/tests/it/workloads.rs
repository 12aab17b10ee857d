//! Every workload runs, and reports the promised fields, which agree with each other.

use device::Env;
use fs::{Engine, FileSystem, FormatOptions, Fs, OpenOptions};
use inode::{Caller, NodeId};

use crate::program::{bench, do_not_fall, fails, is_about, lines, number};

const FIELDS: [&str; 14] = [
    "workload",
    "files",
    "threads",
    "engine",
    "durability",
    "seconds",
    "ops",
    "ops_per_second",
    "p50_us",
    "p99_us",
    "max_us",
    "bytes_on_disk",
    "bytes_written",
    "rss_bytes",
];

/// The rate and the latencies of a line.
fn agrees(line: &serde_json::Value) {
    let operations = number(line, "ops");
    is_about(line, "ops_per_second", operations / number(line, "seconds"));
    do_not_fall(line, &["p50_us", "p99_us"]);
}

#[test]
fn every_workload_reports_its_fields() {
    for workload in [
        "create-flat",
        "create-deep",
        "lookup",
        "stat",
        "list",
        "rename",
        "unlink",
        "clone",
        "recover",
    ] {
        let alone = matches!(workload, "clone" | "recover");
        let threads: &[&str] = if alone { &[] } else { &["--threads", "2"] };
        let line = bench(&[&[workload, "--files", "3000"], threads].concat());
        let mut fields: Vec<&str> = FIELDS.to_vec();
        if workload == "clone" {
            fields.extend(["clone_us", "first_write_us", "thousandth_write_us"]);
        }
        let mut found: Vec<&String> = line.as_object().unwrap().keys().collect();
        found.sort();
        fields.sort_unstable();
        assert_eq!(found, fields, "{workload}");
        assert_eq!(line["workload"], workload);
        assert_eq!(line["engine"], "btree");
        agrees(&line);
        do_not_fall(&line, &["p99_us", "max_us"]);
        match workload {
            "clone" => assert_eq!(line["ops"], 9),
            "recover" => assert!(line["ops"].as_u64().unwrap() >= 3000, "{line}"),
            _ => assert_eq!(line["ops"], 3000, "{line}"),
        }
    }
}

#[test]
fn the_baseline_does_the_same_in_the_same_run() {
    for workload in ["create-deep", "stat", "list", "rename", "unlink"] {
        // With one round, the ratio is that of the two rates, except that each is of its own sum.
        let line = bench(&[workload, "--files", "5000", "--yardstick", "--rounds", "1"]);
        let rates = number(&line, "ops_per_second") / number(&line, "yardstick_ops_per_second");
        is_about(&line, "ratio", rates);
        assert_eq!(line["ops"], 5000);
    }
    fails(2, &["clone", "--yardstick"]);
}

/// A volume of an engine with one directory, closed.
fn volume(engine: Engine) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::system(directory.path()).unwrap();
    Fs::format(&env, &FormatOptions { engine, ..FormatOptions::default() }).unwrap();
    let fs = Fs::open(env, &OpenOptions::default()).unwrap();
    fs.mkdir(&Caller::root(), NodeId::ROOT, b"mine", 0o755).unwrap();
    fs.close().unwrap();
    directory
}

#[test]
fn a_volume_that_is_named_is_left_as_it_was() {
    let directory = volume(Engine::Btree);
    let arguments = ["stat", "--files", "10", "--volume", directory.path().to_str().unwrap()];
    let env = Env::system(directory.path()).unwrap();
    let lock = env.device.try_lock("owner.lock").unwrap().unwrap();
    let message = fails(6, &arguments);
    assert!(message.contains("in use"), "{message}");
    drop(lock);
    assert_eq!(bench(&arguments)["ops"], 10);
    let fs = Fs::open(env, &OpenOptions::default()).unwrap();
    let root = fs.getattr(&Caller::root(), NodeId::ROOT).unwrap();
    assert_eq!(root.nlink, 3, "`mine` alone is in the root");
    fs.lookup(&Caller::root(), NodeId::ROOT, b"mine").unwrap();
    fs.close().unwrap();
}

#[test]
fn very_many_clones_report_a_line_a_tenth() {
    let lines = lines(&["clones-scale", "--clones", "200", "--files", "2000"]);
    let phases: Vec<&str> = lines.iter().map(|line| line["phase"].as_str().unwrap()).collect();
    for phase in ["create", "write", "write-source", "drop"] {
        assert_eq!(phases.iter().filter(|found| **found == phase).count(), 10, "{phases:?}");
    }
    assert_eq!(phases.last(), Some(&"reclaim"));
    assert_eq!(lines[9]["trees"], 201);
    let last = &lines[40];
    assert_eq!((&last["trees"], &last["dropping"]), (&1.into(), &0.into()), "{last}");
}

#[test]
fn clones_with_a_change_each_take_less_than_ten_kilobytes_of_the_index() {
    let arguments = ["search-clones", "--clones", "200", "--files", "3000"];
    let line = bench(&arguments);
    // On disk, one base has them all; in memory, each has its change.
    assert!(number(&line, "index_bytes_a_clone") < 10_000.0, "{line}");
    assert!((100.0..10_000.0).contains(&number(&line, "index_memory_a_clone")), "{line}");
    assert_eq!(line["clones"], 200);
}

#[test]
fn the_postmark_workload_leaves_no_files() {
    let line = bench(&["postmark", "--files", "500", "--directories", "50"]);
    // 50 created and removed, 500 created in two calls, 100 transactions of three or four calls,
    // the rest.
    assert!((1700..2100).contains(&line["operations"].as_u64().unwrap()), "{line}");
    assert_eq!((&line["transactions"], &line["index"]), (&100.into(), &true.into()), "{line}");
}

#[test]
fn a_cache_too_small_to_work_is_wrong_usage() {
    for size in ["1M", "many", ""] {
        fails(2, &["stat", "--files", "1", "--cache-size", size]);
    }
    assert_eq!(bench(&["stat", "--files", "3000", "--cache-size", "16M"])["ops"], 3000);
}

#[test]
fn threads_on_one_tree_are_compared_with_threads_on_a_store_each() {
    let line = bench(&["two-threads", "--files", "2000", "--rounds", "1"]);
    for layout in ["ranges", "alternating", "trees"] {
        for work in ["insert", "update", "get", "mixed", "scan"] {
            // These fields are of one round.
            let field = |what: &str| format!("{layout}_{work}_{what}");
            do_not_fall(
                &line,
                &["ratio_min", "ratio", "ratio_max"].map(field).each_ref().map(String::as_str),
            );
            assert_eq!(line[field("ratio_min")], line[field("ratio_max")], "{line}");
            // Both threads, none slower than the shortest of all.
            let seconds = 4000.0 / number(&line, &field("per_second"));
            assert!(seconds * 1e3 > number(&line, "shortest_ms") - 1.0, "{line}");
        }
    }
    assert_eq!(line["threads"], 2);
    let line = bench(&["two-threads", "--files", "2000", "--rounds", "2", "--work", "insert,get"]);
    let ratio = |what: &str| line[format!("trees_insert_ratio{what}")].as_f64().unwrap();
    assert!(ratio("_min") <= ratio("") && ratio("") <= ratio("_max"), "{line}");
    assert!(line.get("trees_get_ratio").is_some(), "{line}");
    assert!(line.get("trees_update_ratio").is_none(), "{line}");
}

#[test]
fn the_experiments_of_the_paper_report_an_ideal_and_a_ratio() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let base = place.path().join("base");
    let common = ["--files", "3000", "--operations", "500", "--threads", "2"];
    let volume = ["--volume", base.to_str().unwrap()];
    for (workload, percent, beside) in [
        ("rodeh-search100", "20", false),
        ("rodeh-search100", "100", false),
        ("rodeh-search80", "20", false),
        ("rodeh-modify", "20", false),
        ("rodeh-insert", "20", false),
        ("rodeh-remove", "20", false),
        ("rodeh-append", "20", false),
        ("rodeh-checkpoint", "20", true),
        ("rodeh-clones2", "100", true),
        ("rodeh-clones256", "20", false),
    ] {
        let mut arguments = vec![workload, "--in-memory-percent", percent];
        arguments.extend(common.iter().chain(&volume));
        let line = bench(&arguments);
        assert_eq!(line["workload"], workload);
        assert_eq!((&line["entries"], &line["ops"]), (&3000.into(), &500.into()), "{line}");
        agrees(&line);
        let ideal = number(&line, "ideal_ops_per_second");
        is_about(&line, "ratio", number(&line, "ops_per_second") / ideal);
        // A leaf has 16 KiB at most, and an entry 16 bytes.
        assert!(number(&line, "leaves") >= 3000.0 * 16.0 / 16384.0, "{workload}: {line}");
        assert_eq!(line.get("ratio_to_base").is_some(), beside, "{line}");
        assert_eq!(line.get("memory_ops_per_second").is_some(), percent == "100", "{line}");
        let changes = workload != "rodeh-search100";
        let settled = line.get("settled_ops_per_second").and_then(serde_json::Value::as_f64);
        assert_eq!(settled.is_some(), changes, "{workload}: {line}");
        assert!(settled.is_none_or(|all| all <= line["ops_per_second"].as_f64().unwrap()));
    }
    // A different tree from the existing one.
    fails(2, &["rodeh-modify", "--files", "10", volume[0], volume[1]]);
}

#[test]
fn options_that_a_workload_ignores_are_refused() {
    fails(2, &["stat", "--in-memory-percent", "5"]);
    fails(2, &["rodeh-insert", "--mix", "modify"]);
    fails(2, &["rodeh-insert", "--yardstick"]);
    fails(2, &["rodeh-insert", "--cache-size", "64M"]);
    fails(2, &["group-commit", "--engine", "lsm"]);
    fails(2, &["clones-scale", "--direct"]);
    fails(2, &["stat", "--work", "get"]);
    fails(2, &["stat", "--rounds", "3"]);
    fails(2, &["rodeh-insert", "--rounds", "3"]);
    for workload in ["checkpoint-stall", "clones-scale", "group-commit"] {
        fails(2, &[workload, "--cache-size", "64M"]);
        fails(2, &[workload, "--threads", "2"]);
    }
}

#[test]
fn every_workload_with_a_store_runs_on_the_other_engine() {
    let small = ["--engine", "lsm", "--files", "3000"];
    for workload in ["create-flat", "create-deep", "lookup", "list", "rename", "unlink", "clone"] {
        let line = bench(&[&[workload][..], &small].concat());
        assert_eq!(line["engine"], "lsm", "{workload}: {line}");
    }
    let once: &[&str] = &["--rounds", "1"];
    for (workload, rounds) in [
        ("recover", &[][..]),
        ("recover-scattered", &[][..]),
        ("checkpoint-stall", once),
        ("two-threads", once),
    ] {
        // It changes files until a checkpoint is due, however few there are.
        if workload == "recover-scattered" && std::env::var_os("PANDO_SLOW").is_none() {
            continue;
        }
        let line = bench(&[&[workload][..], &small, rounds].concat());
        assert_eq!(line["engine"], "lsm", "{workload}: {line}");
    }
    let clones = lines(&[&["clones-scale", "--clones", "100"][..], &small].concat());
    assert!(clones.iter().all(|line| line["engine"] == "lsm"), "{clones:?}");
    assert_eq!(clones.len(), 41);
    let past_the_page_cache = ["--direct", "--operations", "500", "--cache-size", "16M"];
    let line = bench(&[&["stat"][..], &small, &past_the_page_cache].concat());
    assert_eq!((&line["engine"], &line["ops"]), (&"lsm".into(), &500.into()), "{line}");
    let rodeh = [&["rodeh-search80", "--operations", "500"][..], &small].concat();
    let line = bench(&rodeh);
    assert_eq!(line["engine"], "lsm");
    assert_eq!(line["entries"], 3000, "{line}");
    // A leaf has 16 KiB at most.
    assert!(number(&line, "leaves") >= 3000.0 * 16.0 / 16384.0, "{line}");
}

#[test]
fn a_volume_of_another_engine_is_refused() {
    let directory = volume(Engine::Lsm);
    let arguments = ["stat", "--files", "9", "--volume", directory.path().to_str().unwrap()];
    fails(2, &[&arguments[..], &["--engine", "btree"]].concat());
    assert_eq!(bench(&arguments)["engine"], "lsm");
}

#[test]
fn create_latencies_are_separated_by_concurrent_work() {
    for engine in ["btree", "lsm"] {
        let arguments = ["create-latency", "--engine", engine, "--files", "5000", "--rounds", "1"];
        let line = bench(&arguments);
        assert_eq!((&line["engine"], &line["files"]), (&engine.into(), &5000.into()), "{line}");
        assert_eq!(line["normal"]["creates"], 5000, "{line}");
        for state in ["normal", "checkpoint", "snapshot"] {
            let state = &line[state];
            is_about(state, "ops_per_second", number(state, "creates") / number(state, "seconds"));
            do_not_fall(state, &["p50_us", "p99_us", "p999_us", "max_us"]);
            assert!(number(state, "mean_us") <= number(state, "max_us"), "{line}");
            let meter = ["meter_p50_us", "meter_p99_us", "meter_p999_us", "meter_max_us"];
            do_not_fall(state, &meter);
        }
        assert!(line["index_bytes_per_file"].as_f64().unwrap() > 10.0, "{line}");
        let bound = number(&line, "p99_bound_us");
        let within = |state: &str| number(&line[state], "p99_us") <= bound;
        assert_eq!(line["p99_within_bound"], within("checkpoint") && within("snapshot"), "{line}");
    }
}

#[test]
fn scattered_creates_clones_and_openings_are_measured_on_both_engines() {
    for engine in ["btree", "lsm"] {
        let common = ["--engine", engine, "--rounds", "2"];
        let scattered = ["create-scattered", "--files", "3000", "--directories", "20"];
        let line = bench(&[&scattered[..], &common].concat());
        assert_eq!(line["engine"], engine);
        do_not_fall(&line, &["ratio_min", "ratio", "ratio_max"]);
        // The rates are those of all rounds, of which the ratio is in the middle.
        let rates = number(&line, "scattered_per_second") / number(&line, "sequential_per_second");
        let (least, most) = (number(&line, "ratio_min"), number(&line, "ratio_max"));
        assert!((least * 0.99..=most * 1.01).contains(&rates), "{rates}: {line}");
        let clones = ["clone-lookups", "--entries", "2000", "--clones", "250"];
        let line = bench(&[&clones[..], &common].concat());
        assert_eq!((&line["engine"], &line["clones"]), (&engine.into(), &250.into()));
        for state in ["before", "cloned", "written", "merged"] {
            for what in ["tree", "clones"] {
                let found = &line[state];
                let micros = number(found, &format!("{what}_us")) / number(found, "alone_us");
                let ratio = number(found, &format!("{what}_ratio"));
                // Means and medians of two rounds, on a machine that does other work.
                assert!((0.2..5.0).contains(&(ratio / micros)), "{state} {what}: {line}");
            }
        }
        let line = bench(&["reopen", "--files", "2000", "--engine", engine]);
        assert_eq!((&line["engine"], &line["replayed"]), (&engine.into(), &0.into()));
        for field in ["open_ms", "first_lookup_ms", "open_warm_ms", "first_lookup_warm_ms"] {
            assert!((0.000_1..60_000.0).contains(&number(&line, field)), "{field}: {line}");
        }
    }
}

#[test]
fn churn_has_a_line_for_each_pattern() {
    for engine in ["btree", "lsm"] {
        let all = lines(&["churn", "--files", "300", "--engine", engine]);
        assert_eq!(all.len(), 11, "{engine}");
        for line in &all {
            assert_eq!((&line["workload"], &line["engine"]), (&"churn".into(), &engine.into()));
            let rate = number(line, "ops") / number(line, "seconds");
            is_about(line, "ops_per_second", rate);
            // The first and the last tenth are parts of the whole; each number is rounded to 0.01.
            let tenths = number(line, "first_cpu_us") + number(line, "last_cpu_us");
            let whole = 10.0 * number(line, "cpu_us");
            assert!(0.0 < tenths && tenths <= whole + 0.07, "{tenths} of {whole} in {line}");
        }
        let names: std::collections::BTreeSet<String> =
            all.iter().map(|line| line["pattern"].to_string()).collect();
        assert_eq!(names.len(), all.len(), "{engine}: {names:?}");
    }
    let two = lines(&["churn", "--files", "50", "--pattern", "queue,direct-writes"]);
    let named: Vec<_> = two.iter().map(|line| line["pattern"].as_str().unwrap()).collect();
    assert_eq!(named, ["queue", "direct-writes"]);
    fails(2, &["stat", "--pattern", "queue"]);
}
