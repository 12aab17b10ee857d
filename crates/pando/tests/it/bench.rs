//! `pando bench`: every workload runs and reports the promised fields.

use crate::world::World;

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

fn bench(arguments: &[&str]) -> serde_json::Value {
    let mut all = vec!["bench"];
    all.extend(arguments);
    World::without_volume().json(&all).remove(0)
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
        assert!(line["ops_per_second"].as_f64().unwrap() > 0.0, "{line}");
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
        let line = bench(&[workload, "--files", "5000", "--yardstick"]);
        assert!(line["ratio"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["yardstick_ops_per_second"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["ops"], 5000);
    }
    let world = World::without_volume();
    world.fails(2, &["bench", "clone", "--yardstick"]);
}

#[test]
fn a_volume_that_is_named_is_left_as_it_was() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/mine")]);
    let pid = world.owner().unwrap();
    let said = world.fails(6, &["bench", "stat", "--files", "10", "--volume", world.vol()]);
    assert!(said.contains("in use"), "{said}");
    crate::world::signal(pid, rustix::process::Signal::TERM);
    crate::world::wait_until("the owner leaves", || !crate::world::is_alive(pid));
    world.ok(&["bench", "stat", "--files", "10", "--volume", world.vol()]);
    assert_eq!(world.names("/"), ["mine"]);
}

#[test]
fn very_many_clones_report_a_line_a_tenth() {
    let arguments = ["bench", "clones-scale", "--clones", "200", "--files", "2000"];
    let lines = World::without_volume().json(&arguments);
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
    for part in ["index_bytes_a_clone", "index_memory_a_clone"] {
        assert!(line[part].as_f64().unwrap() < 10_000.0, "{line}");
    }
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
    let world = World::without_volume();
    for size in ["1M", "many", ""] {
        let arguments = ["bench", "stat", "--files", "1", "--cache-size", size];
        assert_eq!(world.run(&arguments).code, 2, "{size}");
    }
    bench(&["stat", "--files", "3000", "--cache-size", "16M"]);
}

#[test]
fn threads_on_one_tree_are_compared_with_threads_on_a_store_each() {
    let line = bench(&["two-threads", "--files", "2000", "--rounds", "1"]);
    for layout in ["ranges", "alternating", "trees"] {
        for work in ["insert", "update", "get", "mixed", "scan"] {
            for what in ["ratio", "per_second"] {
                let field = &line[format!("{layout}_{work}_{what}")];
                assert!(field.as_f64().is_some_and(|value| value > 0.0), "{line}");
            }
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
        for field in ["ops_per_second", "ideal_ops_per_second", "ratio", "tree_memory_bytes"] {
            assert!(line[field].as_f64().unwrap() > 0.0, "{workload}: {line}");
        }
        assert_eq!(line.get("ratio_to_base").is_some(), beside, "{line}");
        assert_eq!(line.get("memory_ops_per_second").is_some(), percent == "100", "{line}");
        let changes = workload != "rodeh-search100";
        let settled = line.get("settled_ops_per_second").and_then(serde_json::Value::as_f64);
        assert_eq!(settled.is_some(), changes, "{workload}: {line}");
        assert!(settled.is_none_or(|all| all <= line["ops_per_second"].as_f64().unwrap()));
    }
    // A different tree from the existing one.
    World::without_volume()
        .fails(2, &["bench", "rodeh-modify", "--files", "10", volume[0], volume[1]]);
}

#[test]
fn options_that_a_workload_ignores_are_refused() {
    let world = World::without_volume();
    world.fails(2, &["bench", "stat", "--in-memory-percent", "5"]);
    world.fails(2, &["bench", "rodeh-insert", "--mix", "modify"]);
    world.fails(2, &["bench", "rodeh-insert", "--yardstick"]);
    world.fails(2, &["bench", "rodeh-insert", "--cache-size", "64M"]);
    world.fails(2, &["bench", "group-commit", "--engine", "lsm"]);
    world.fails(2, &["bench", "clones-scale", "--direct"]);
    world.fails(2, &["bench", "stat", "--work", "get"]);
    world.fails(2, &["bench", "stat", "--rounds", "3"]);
    world.fails(2, &["bench", "rodeh-insert", "--rounds", "3"]);
    for workload in ["checkpoint-stall", "clones-scale", "group-commit"] {
        world.fails(2, &["bench", workload, "--cache-size", "64M"]);
        world.fails(2, &["bench", workload, "--threads", "2"]);
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
        let line = bench(&[&[workload][..], &small, rounds].concat());
        assert_eq!(line["engine"], "lsm", "{workload}: {line}");
    }
    let clones = [&["clones-scale", "--clones", "100"][..], &small].concat();
    assert_eq!(bench(&clones)["engine"], "lsm");
    let past_the_page_cache = ["--direct", "--operations", "500", "--cache-size", "16M"];
    let line = bench(&[&["stat"][..], &small, &past_the_page_cache].concat());
    assert_eq!((&line["engine"], &line["ops"]), (&"lsm".into(), &500.into()), "{line}");
    let rodeh = [&["rodeh-search80", "--operations", "500"][..], &small].concat();
    let line = bench(&rodeh);
    assert_eq!(line["engine"], "lsm");
    assert!(line["leaves"].as_u64().unwrap() > 0, "{line}");
}

#[test]
fn a_volume_of_another_engine_is_refused() {
    let world = World::without_volume();
    world.ok(&["format", world.vol(), "--engine", "lsm"]);
    world
        .fails(2, &["bench", "stat", "--files", "9", "--volume", world.vol(), "--engine", "btree"]);
    let arguments = ["bench", "stat", "--files", "9", "--volume", world.vol()];
    assert_eq!(world.json(&arguments)[0]["engine"], "lsm");
}

#[test]
fn create_latencies_are_separated_by_concurrent_work() {
    for engine in ["btree", "lsm"] {
        let arguments = ["create-latency", "--engine", engine, "--files", "5000", "--rounds", "1"];
        let line = bench(&arguments);
        assert_eq!((&line["engine"], &line["files"]), (&engine.into(), &5000.into()), "{line}");
        assert_eq!(line["normal"]["creates"], 5000, "{line}");
        for state in ["normal", "checkpoint", "snapshot"] {
            for field in ["creates", "mean_us", "p99_us", "p999_us", "max_us", "meter_max_us"] {
                assert!(line[state][field].as_f64().unwrap() > 0.0, "{state} {field}: {line}");
            }
        }
        assert!(line["index_bytes_per_file"].as_f64().unwrap() > 10.0, "{line}");
        assert!(line["p99_within_bound"].is_boolean());
    }
}

#[test]
fn scattered_creates_clones_and_openings_are_measured_on_both_engines() {
    for engine in ["btree", "lsm"] {
        let common = ["--engine", engine, "--rounds", "2"];
        let scattered = ["create-scattered", "--files", "3000", "--directories", "20"];
        let line = bench(&[&scattered[..], &common].concat());
        assert_eq!(line["engine"], engine);
        for field in ["sequential_per_second", "scattered_per_second", "ratio"] {
            assert!(line[field].as_f64().unwrap() > 0.0, "{field}: {line}");
        }
        let clones = ["clone-lookups", "--entries", "2000", "--clones", "250"];
        let line = bench(&[&clones[..], &common].concat());
        assert_eq!((&line["engine"], &line["clones"]), (&engine.into(), &250.into()));
        for state in ["before", "cloned", "written", "merged"] {
            assert!(line[state]["clones_ratio"].as_f64().unwrap() > 0.0, "{state}: {line}");
        }
        let line = bench(&["reopen", "--files", "2000", "--engine", engine]);
        assert_eq!((&line["engine"], &line["replayed"]), (&engine.into(), &0.into()));
        assert!(line["open_ms"].as_f64().unwrap() > 0.0, "{line}");
    }
}
