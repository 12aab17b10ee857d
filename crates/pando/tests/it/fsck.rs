//! `pando fsck`: clean volumes are clean, with or without a daemon, crashed or not; damage is
//! named.

use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::world::{PANDO, World, answer, is_alive};

on_each_engine!(
    a_volume_is_clean_beside_its_daemon_and_without_one,
    damage_is_named_and_ends_with_its_own_code,
    a_repair_prints_what_it_would_do_and_then_does_it,
    a_damaged_file_is_named_with_its_path_in_every_subvolume_that_has_it,
    a_damaged_header_of_the_log_is_repaired_and_costs_nothing,
    what_a_damaged_log_costs_is_printed_before_and_after,
    a_volume_in_use_has_no_garbage_and_loses_nothing_to_a_collection,
);
on_one_engine!("lsm": a_file_beside_the_log_is_reported_and_nothing_else);
on_one_engine!("btree": the_number_of_findings_that_are_not_shown_is_printed);

/// A volume with some files and a clone, which a daemon has open.
fn filled(engine: &str) -> World {
    let world = World::on(engine);
    let source = world.source();
    for n in 0..300 {
        // Data that no engine can compress.
        let mut random = fastrand::Rng::with_seed(n);
        let bytes: Vec<u8> = (0..100).map(|_| random.u8(..)).collect();
        std::fs::write(source.join(format!("file {n}")), bytes).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/one")]);
    world.ok(&["clone", &world.at("/one"), &world.at("/two")]);
    world
}

fn a_volume_is_clean_beside_its_daemon_and_without_one(engine: &str) {
    let world = filled(engine);
    // The daemon answers, and keeps running.
    let pid = world.daemon().unwrap();
    let beside = world.json(&["fsck", world.vol()]);
    assert_eq!(beside.len(), 1, "{beside:?}");
    assert_eq!(beside[0]["clean"], true);
    assert_eq!(world.daemon().unwrap(), pid);
    // The state after a crash, with most of it in the log only.
    world.kill_daemon();
    let crashed = world.json(&["fsck", world.vol()]).remove(0);
    assert_eq!(crashed["clean"], true, "{crashed}");
    assert!(crashed["log_records"].as_u64().unwrap() > 3, "{crashed}");
    world.status();
    world.close();
    let closed = world.json(&["fsck", world.vol()]).remove(0);
    assert_eq!((&closed["clean"], &closed["log_records"]), (&true.into(), &0.into()), "{closed}");
    assert!(closed["entries"].as_u64().unwrap() > 300, "{closed}");
    assert!(closed["bytes"].as_u64().unwrap() > 30_000 && closed["lost_bytes"] == 0, "{closed}");
    assert!(world.ok(&["fsck", world.vol()]).ends_with("clean\n"));
    assert_eq!(world.names("/one").len(), 300);
}

/// Where stored data begins, if known, and a byte of it.
type Places = Vec<(Option<u64>, u64)>;

/// Places of the engine's records, by file.
fn places(world: &World) -> Vec<(String, Places)> {
    let nodes = "btree/nodes".to_owned();
    if let Ok(bytes) = std::fs::read(world.volume.join(&nodes)) {
        let starts = (0..bytes.len()).step_by(format::node::UNIT_BYTES);
        let starts = starts.filter(|&at| bytes[at..].starts_with(&format::node::MAGIC));
        return vec![(nodes, starts.map(|at| (Some(at as u64), at as u64 + 36)).collect())];
    }
    let files = std::fs::read_dir(world.volume.join("lsm")).unwrap().map(Result::unwrap);
    let runs = files.filter(|file| file.file_name().to_string_lossy().starts_with("run-"));
    runs.map(|file| {
        let start = format::run_index::BLOB_HEAD_BYTES as u64;
        let places = (start..file.metadata().unwrap().len()).step_by(2000);
        let name = format!("lsm/{}", file.file_name().display());
        (name, places.map(|place| (None, place)).collect())
    })
    .collect()
}

fn damage_is_named_and_ends_with_its_own_code(engine: &str) {
    let world = filled(engine);
    world.close();
    let mut named = 0;
    for (name, places) in places(&world) {
        let path = world.volume.join(&name);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for (start, place) in places {
            let mut old = [0];
            file.read_exact_at(&mut old, place).unwrap();
            file.write_all_at(&[old[0] ^ 4], place).unwrap();
            let answer = world.run(&["fsck", "--json", world.vol()]);
            file.write_all_at(&old, place).unwrap();
            // Damage to unreferenced data loses nothing.
            if answer.code == 0 {
                continue;
            }
            assert_eq!(answer.code, 5, "{}", answer.err);
            // Data with two copies is read from the other copy.
            let reported = ["unreadable", "one of two copies"];
            let matches = |line: &&str| reported.iter().any(|reported| line.contains(reported));
            let line = answer.out.lines().find(matches);
            let line: serde_json::Value = serde_json::from_str(line.unwrap()).unwrap();
            assert_eq!(line["file"], name.as_str());
            let offset = line["offset"].as_u64().unwrap();
            assert!(start.map_or(offset <= place, |start| offset == start), "{place}: {line}");
            // Log messages come first, as objects, too.
            let objects: Result<Vec<serde_json::Value>, _> =
                answer.err.lines().map(serde_json::from_str).collect();
            let error = objects.unwrap().pop().unwrap();
            assert_eq!(error["error"]["kind"], "damaged");
            named += 1;
        }
    }
    assert!(named >= 3, "{named} places were found damaged");
    world.ok(&["fsck", world.vol()]);
    let printed = world.fails(8, &["fsck", world.path().to_str().unwrap()]);
    assert!(printed.contains("not a volume"), "{printed}");
}

/// A superblock or the newest manifest, which has a copy.
fn copied(world: &World) -> String {
    let Ok(files) = std::fs::read_dir(world.volume.join("lsm")) else {
        return "btree/super-0".to_owned();
    };
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    format!("lsm/{}", names.filter(|name| name.starts_with("manifest-")).max().unwrap())
}

fn a_repair_prints_what_it_would_do_and_then_does_it(engine: &str) {
    let world = filled(engine);
    let before = world.names("/one");
    world.close();
    // The copy of a superblock or manifest is damaged.
    let name = copied(&world);
    let path = world.volume.join(&name);
    std::fs::write(&path, vec![7; 128]).unwrap();
    let reported = world.run(&["fsck", "--repair", "--dry-run", world.vol()]);
    assert_eq!(reported.code, 5, "{}", reported.err);
    assert!(reported.out.contains("would: recount"), "{}", reported.out);
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 128]);
    let found = world.run(&["fsck", "--json", world.vol()]);
    let line = found.out.lines().find(|line| line.contains(&name)).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["finding"], "unreadable");
    assert!(!line["remedy"].as_str().unwrap().is_empty(), "{line}");
    let repaired = world.ok(&["fsck", "--repair", world.vol()]);
    assert!(repaired.contains("clean"), "{repaired}");
    world.ok(&["fsck", world.vol()]);
    assert_eq!(world.names("/one"), before);
    // A daemon without a mount hands the volume over.
    assert!(world.daemon().is_some());
    world.ok(&["fsck", "--repair", world.vol()]);
    // The dry run requires --repair, so that it is not mistaken for a repair.
    assert_eq!(world.run(&["fsck", "--dry-run", world.vol()]).code, 2);
}

fn a_damaged_file_is_named_with_its_path_in_every_subvolume_that_has_it(engine: &str) {
    let world = World::on(engine);
    let source = world.source();
    std::fs::write(source.join("large"), vec![5; 300_000]).unwrap();
    std::fs::write(source.join("other"), vec![6; 300_000]).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/one")]);
    world.ok(&["clone", &world.at("/one"), &world.at("/two")]);
    world.close();
    // If another daemon ran in between, it is sealed.
    let mut segments = ["data/open", "data/sealed"]
        .into_iter()
        .flat_map(|dir| std::fs::read_dir(world.volume.join(dir)).unwrap());
    let path = segments.next().unwrap().unwrap().path();
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes.chunks(4096).position(|page| page == [5; 4096]).unwrap() as u64 * 4096;
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[9], at + 5000).unwrap();
    for how in [&["fsck", "--json", world.vol()][..], &["fsck", "--repair", "--json", world.vol()]]
    {
        let answer = world.run(how);
        assert_eq!(answer.code, 5, "{}", answer.err);
        let lines = answer.out.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<serde_json::Value> = lines.collect();
        let named: Vec<_> = lines.iter().filter(|line| line["finding"] == "contents").collect();
        let paths: Vec<_> = named.iter().map(|line| line["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/one/large", "/two/large"], "{lines:#?}");
        let shown = named[0]["what"].as_str().unwrap();
        assert!(shown.contains(&(at + 4096).to_string()), "{shown}");
    }
    assert!(world.run(&["cat", &world.at("/one/large")]).code != 0);
    assert_eq!(world.ok(&["cat", &world.at("/one/other")]).len(), 300_000);
}

/// The log files of a volume whose daemon was killed, in order.
fn log_files(world: &World) -> Vec<std::path::PathBuf> {
    world.kill_daemon();
    let files = std::fs::read_dir(world.volume.join("log")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension() == Some("log".as_ref())).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn flip(path: &std::path::Path, place: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut old = [0];
    file.read_exact_at(&mut old, place).unwrap();
    file.write_all_at(&[old[0] ^ 4], place).unwrap();
}

fn a_damaged_header_of_the_log_is_repaired_and_costs_nothing(engine: &str) {
    let world = filled(engine);
    flip(&log_files(&world)[0], 20);
    let found = world.run(&["fsck", world.vol()]);
    assert_eq!(found.code, 5, "{}", found.err);
    assert!(found.err.contains("`pando fsck --repair` repairs 1 of them"), "{}", found.err);
    let repaired = world.ok(&["fsck", "--repair", world.vol()]);
    assert!(repaired.contains("done: rewrite the header of that log file"), "{repaired}");
    assert!(repaired.ends_with("clean\n"), "{repaired}");
    assert_eq!(world.names("/one").len(), 300);
}

fn what_a_damaged_log_costs_is_printed_before_and_after(engine: &str) {
    let world = filled(engine);
    let files = log_files(&world);
    let whole = std::fs::read(&files[0]).unwrap();
    // One of its records: everything behind it is lost.
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    flip(&files[0], used / 2);
    for command in [&["fsck", world.vol()][..], &["fsck", "--repair", world.vol()]] {
        let found = world.run(command);
        assert_eq!(found.code, 5, "{}", found.err);
        let prints = |words: &str| found.err.contains(words);
        assert!(
            prints("`pando fsck --repair --discard-log` does that; later changes are lost"),
            "{found:?}"
        );
        assert!(!prints("`pando fsck --repair` repairs"), "{found:?}");
    }
    let vol = world.vol();
    let of = |command: &[&str], name: &str| {
        let answer = world.run(command);
        let lines = answer.out.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut lines = lines.filter_map(|line: serde_json::Value| line.get(name).cloned());
        lines.next().unwrap_or_else(|| panic!("{command:?}: {answer:?}"))
    };
    let repair = ["fsck", "--json", "--repair", vol, "--discard-log"];
    let costs = [&["fsck", "--json", vol], &repair[..4]].map(|of_| of(of_, "log_would_be_cut"));
    let dry = ["fsck", "--json", "--repair", vol, "--discard-log", "--dry-run"];
    let reported = world.run(&["fsck", "--repair", "--discard-log", "--dry-run", vol]);
    assert!(
        reported.out.contains("with --discard-log the log would end with record "),
        "{reported:?}"
    );
    assert_eq!(costs[0], costs[1]);
    assert_eq!(costs[0], of(&dry, "log_would_be_cut"));
    assert!(costs[0]["given_up_bytes"].as_u64().unwrap() > 0, "{costs:?}");
    assert_eq!(costs[0], of(&repair, "log_cut"));
    // Without its files the contents are unknown.
    for path in &files {
        std::fs::remove_file(path).unwrap();
    }
    let found = world.run(&["fsck", world.vol()]);
    assert!(found.out.contains("log/, byte 0: unreadable: the file with record "), "{found:?}");
    assert!(found.err.contains("--discard-log"), "{found:?}");
    let repaired = world.ok(&["fsck", "--repair", "--discard-log", world.vol()]);
    assert!(repaired.contains("of records, is not known"), "{repaired}");
    assert!(repaired.contains("a whole file of it is gone"), "{repaired}");
    assert!(repaired.ends_with("clean\n"), "{repaired}");
}

fn a_file_beside_the_log_is_reported_and_nothing_else(engine: &str) {
    let world = filled(engine);
    let files = log_files(&world);
    let other = filled(engine);
    let foreign = std::fs::read(&log_files(&other)[0]).unwrap();
    let copy = std::fs::read(&files[0]).unwrap();
    let stray = world.volume.join("log/0000000000000005.log");
    for bytes in [copy, foreign, Vec::new(), b"a list of things to do".to_vec()] {
        std::fs::write(&stray, &bytes).unwrap();
        let vol = world.vol();
        let checks: [&[&str]; 3] = [
            &["fsck", vol],
            &["fsck", "--repair", vol],
            &["fsck", "--repair", "--discard-log", vol],
        ];
        for command in checks {
            let found = world.run(command);
            assert_eq!(found.code, 5, "{found:?}");
            assert!(found.out.contains("nothing needs it here: move it away"), "{found:?}");
            assert!(found.err.contains("nothing is lost: move the named files"), "{found:?}");
        }
        assert_eq!(world.names("/one").len(), 300);
        world.kill_daemon();
        assert_eq!(std::fs::read(&stray).unwrap(), bytes);
    }
    std::fs::remove_file(&stray).unwrap();
    assert!(world.ok(&["fsck", world.vol()]).ends_with("clean\n"));
}

fn the_number_of_findings_that_are_not_shown_is_printed(engine: &str) {
    let world = World::on(engine);
    let source = world.source();
    for n in 0..2010 {
        std::fs::write(source.join(format!("file {n}")), vec![5; 5000]).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/one")]);
    world.close();
    for dir in ["data/open", "data/sealed"] {
        for segment in std::fs::read_dir(world.volume.join(dir)).unwrap() {
            let file = std::fs::OpenOptions::new().write(true).open(segment.unwrap().path());
            let file = file.unwrap();
            let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
            file.write_all_at(&vec![9; length.saturating_sub(8192)], 4096).unwrap();
        }
    }
    let answer = world.run(&["fsck", "--json", world.vol()]);
    assert_eq!(answer.code, 5, "{}", answer.err);
    let lines = answer.out.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<serde_json::Value> = lines.collect();
    let (total, shown) = lines.split_last().unwrap();
    let found = total["findings"].as_u64().unwrap();
    assert!(found > 2000 && shown.len() == 2000, "{found}, {}", shown.len());
    assert_eq!(total["findings_not_shown"], found - 2000);
    let repairable = shown.iter().filter(|line| line["remedy"] != "").count();
    assert_eq!(total["repairable"], repairable);
    let reported = world.run(&["fsck", world.vol()]);
    assert!(reported.out.contains(&format!("and {} more", found - 2000)), "{}", reported.err);
}

fn a_volume_in_use_has_no_garbage_and_loses_nothing_to_a_collection(engine: &str) {
    let world = filled(engine);
    let before = world.names("/one");
    for how in [&["gc", world.vol()][..], &["gc", "--delete", "--grace", "0s", world.vol()]] {
        let lines = world.json(how);
        let total = lines.last().unwrap();
        assert_eq!((&total["garbage_bytes"], &total["freed_bytes"]), (&0.into(), &0.into()));
    }
    assert!(world.ok(&["gc", world.vol()]).contains("nothing is unnamed"));
    assert_eq!(world.names("/one"), before);
    world.ok(&["fsck", world.vol()]);
    for how in [&["gc", "--grace", "1h", world.vol()][..], &["gc", "--delete", "--grace", "soon"]] {
        assert_eq!(world.run(how).code, 2);
    }
}

/// The command does not wait for space that cannot be reclaimed, and reports it with what to do.
#[test]
fn waiting_for_a_removal_ends_when_damage_keeps_the_space() {
    let world = filled("btree");
    world.ok(&["subvolume", "create", &world.at("/three")]);
    let large = world.path().join("large");
    std::fs::create_dir(&large).unwrap();
    std::fs::write(large.join("file"), vec![7; 4 << 20]).unwrap();
    world.ok(&["import", large.to_str().unwrap(), &world.at("/large")]);
    world.close();
    let (name, places) = places(&world).remove(0);
    let whole = std::fs::read(world.volume.join(&name)).unwrap();
    let saved = world.path().join("saved");
    copy_tree(&world.volume, &saved);
    let mut stuck = 0;
    for (_, place) in places {
        std::fs::remove_dir_all(&world.volume).unwrap();
        copy_tree(&saved, &world.volume);
        let mut damaged = whole.clone();
        damaged[usize::try_from(place).unwrap()] ^= 4;
        std::fs::write(world.volume.join(&name), damaged).unwrap();
        let (one, large) = (world.at("/one"), world.at("/large"));
        let arguments = ["60", PANDO, "rmr", "--wait", &one, &large];
        let removed = answer(&Command::new("timeout").args(arguments).output().unwrap());
        assert_ne!(removed.code, 124, "it waits for ever: damage at {place}");
        if removed.err.contains("cannot be reclaimed") {
            assert_eq!(removed.code, 5, "{}", removed.err);
            let hint = format!("`pando fsck {}`", world.vol());
            assert!(removed.err.contains(&hint) && removed.err.contains(&name), "{}", removed.err);
            let status = world.status();
            assert_eq!(status["stuck"]["trees"], 1, "{status}");
            // The space of what was removed beside it is free again.
            assert_eq!(status["background"]["freeing_bytes"], 0, "{status}");
            assert!(world.ok(&["status", world.vol()]).contains("STUCK"));
            // Waits only for the other tree.
            world.ok(&["rmr", "--wait", &world.at("/three")]);
            stuck += 1;
        }
        if let Some(pid) = world.daemon()
            && is_alive(pid)
        {
            world.kill_daemon();
        }
        if stuck == 2 {
            return;
        }
    }
    panic!("of no node the damage keeps the tree: {stuck}");
}

fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Regression: the check reported that a repair would repair them, and that an existing one was
/// missing.
#[test]
fn trees_that_no_superblock_points_to_are_not_reported_as_repairable() {
    let world = filled("btree");
    world.close();
    for name in ["btree/super-0", "btree/super-1"] {
        flip(&world.volume.join(name), 40);
    }
    for how in [&["fsck", world.vol()][..], &["fsck", "--repair", world.vol()]] {
        let printed = world.run(how);
        assert_eq!(printed.code, 5, "{}", printed.err);
        assert!(printed.out.contains("no superblock points to a valid state"), "{}", printed.out);
        assert!(
            !printed.out.contains("is missing") && !printed.err.contains("repairs"),
            "{printed:?}"
        );
    }
}
