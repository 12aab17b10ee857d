//! A volume in an object store, by its URL: every verb, a lost host, wrong places, and what is
//! refused. The store is a directory here; servers are tested where `objects` is.

use std::path::Path;

use crate::world::{Answer, World, answer};

/// Bytes that no other seed gives.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut contents = vec![0; bytes];
    random.fill(&mut contents);
    contents
}

fn write_synced(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    let mut file =
        std::fs::File::options().write(true).create(true).truncate(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

/// Names of the objects below a directory of the store.
fn objects(world: &World, below: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(world.path().join("store").join(below)) else {
        return Vec::new();
    };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_synced_survives_the_loss_of_the_host() {
    let world = World::in_store();
    if !world.mount() {
        return;
    }
    let (small, large) = (noise(1, 10_000), noise(2, 3_000_000));
    std::fs::create_dir(world.below_mount("/project")).unwrap();
    write_synced(&world.below_mount("/project/small"), &small);
    write_synced(&world.below_mount("/project/large"), &large);
    world.ok(&["snapshot", "create", &world.at("/project"), "monday"]);
    world.ok(&["sync", world.vol()]);
    std::fs::remove_file(world.below_mount("/project/large")).unwrap();
    world.lose_host();
    assert!(world.mount(), "another host mounts it");
    assert_eq!(std::fs::read(world.below_mount("/project/small")).unwrap(), small);
    let old = world.below_mount("/project/.snapshots/monday/large");
    assert_eq!(std::fs::read(old).unwrap(), large);
    world.umount();
    world.close();
    world.lose_host();
    let checked = world.ok(&["fsck", world.vol()]);
    assert!(checked.contains("clean") || checked.contains("no problem"), "{checked}");
}

#[test]
fn verbs_take_the_url() {
    let world = World::in_store();
    let source = world.path().join("tree");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a.txt"), noise(1, 200_000)).unwrap();
    std::fs::write(source.join("b.txt"), b"short").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/tree")]);
    assert_eq!(world.names("/tree"), ["a.txt", "b.txt"]);
    assert_eq!(world.ok(&["cat", &world.at("/tree/b.txt")]), "short");
    world.ok(&["clone", &world.at("/tree"), &world.at("/copy")]);
    let found = world.ok(&["find", &world.at("/"), "-name", "a.txt"]);
    let expected = [format!("{}:/copy/a.txt", world.vol()), format!("{}:/tree/a.txt", world.vol())];
    let mut lines: Vec<&str> = found.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, expected);
    let failure = world.fails(3, &["stat", &world.at("/absent")]);
    assert!(failure.contains(&world.at("/absent")), "{failure}");
    world.ok(&["du", &world.at("/")]);
    world.ok(&["rmr", "--wait", &world.at("/copy")]);
    let status = world.status();
    assert_eq!(status["engine"], "lsm");
    assert_eq!(status["store"]["url"], world.vol());
    assert!(status["store"]["requests"]["create"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(status["store"]["changes_wait"], serde_json::Value::Null);
    let text = world.ok(&["status", world.vol()]);
    assert!(text.contains("a day"), "{text}");
    let is_measured = || world.status()["disk_bytes"].as_u64().is_some_and(|bytes| bytes > 200_000);
    crate::world::wait_until("the store's bytes are measured", is_measured);
    world.ok(&["sync", world.vol()]);
    world.ok(&["gc", world.vol()]);
    world.ok(&["umount", world.vol()]);
    for below in ["lsm", "data/sealed"] {
        assert!(!objects(&world, below).is_empty(), "{below}");
    }
}

/// The space of removed contents is reclaimed in the store.
#[test]
fn removed_contents_leave_the_store() {
    let world = World::in_store();
    let source = world.path().join("tree");
    std::fs::create_dir(&source).unwrap();
    for file in 0..20 {
        std::fs::write(source.join(format!("{file}")), noise(file, 400_000)).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/tree")]);
    world.ok(&["sync", world.vol()]);
    let bytes = || {
        let store = world.path().join("store/data/sealed");
        let entries = std::fs::read_dir(store).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    assert!(bytes() > 8_000_000);
    world.ok(&["rmr", "--wait", &world.at("/tree")]);
    world.ok(&["sync", world.vol()]);
    crate::world::wait_until("objects are deleted", || bytes() < 800_000);
}

#[test]
fn a_url_without_a_volume_is_named() {
    let world = World::without_volume();
    let store = world.path().join("store");
    let url = format!("file://{}", store.display());
    let absent = world.fails(3, &["ls", &url]);
    assert!(absent.contains(&url), "{absent}");
    std::fs::create_dir(&store).unwrap();
    let none = world.fails(3, &["mount", &url, world.mnt()]);
    assert!(none.contains("there is no volume at") && none.contains("pando format"), "{none}");
    let hosts = std::fs::read_dir(world.hosts()).map_or(0, Iterator::count);
    assert_eq!(hosts, 0, "no directory is left for it");
    for wrong in ["s3:bucket", "http://host/bucket", "s3://", "gs://bucket/x"] {
        let failure = world.fails(2, &["ls", wrong]);
        assert!(failure.contains("s3://"), "{wrong}: {failure}");
    }
}

#[test]
fn what_does_not_work_in_a_store_is_refused() {
    let world = World::in_store();
    let again = world.fails(6, &["format", world.vol()]);
    assert!(again.contains("holds a volume already"), "{again}");
    let empty = world.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let url = format!("file://{}", empty.display());
    let engine = world.fails(2, &["format", "--engine", "btree", &url]);
    assert!(engine.contains("lsm"), "{engine}");
    let log = world.path().join("log");
    let log = world.fails(2, &["format", "--log-dir", log.to_str().unwrap(), &url]);
    assert!(log.contains("--log-dir"), "{log}");
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "nothing was written");
    std::fs::write(empty.join("holiday.jpg"), b"a beach").unwrap();
    let rubbish = world.fails(6, &["format", &url]);
    assert!(rubbish.contains("holiday.jpg"), "{rubbish}");
    let store = world.path().join("store");
    let directory = world.fails(8, &["ls", &format!("{}:/", store.display())]);
    assert!(directory.contains("object store"), "{directory}");
}

/// Runs a command on another host: one with a directory of its own.
fn elsewhere(world: &World, arguments: &[&str]) -> Answer {
    let hosts = world.path().join("elsewhere");
    let output = World::command(arguments).env("PANDO_HOST_DIRECTORY", hosts).output().unwrap();
    answer(&output)
}

/// Nobody takes a volume over by accident; who does it on purpose finds what was durable, and the
/// other host adds nothing more.
#[test]
fn a_volume_that_is_open_elsewhere_is_refused_unless_it_is_taken_over() {
    // (A message has whole seconds.)
    let begun = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).unwrap();
    let world = World::in_store();
    if !world.mount() {
        return;
    }
    write_synced(&world.below_mount("/kept"), b"before");
    let fsck = ["fsck", world.vol()];
    let create = ["subvolume", "create", &world.at("/new")];
    for (verb, code) in [(&fsck[..], 6), (&create[..], 7)] {
        let refused = elsewhere(&world, verb);
        assert_eq!(refused.code, code, "{}", refused.err);
        // Which one, and since when it may be gone.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let daemon = world.daemon().unwrap();
        let named = format!("is open on host {} (user root, process {daemon}, since ", host.trim());
        assert!(refused.err.contains(&named), "{}", refused.err);
        let (_, sign) = refused.err.split_once(", last sign of life ").expect("a time");
        let (sign, _) = sign.split_once(" by its clock").unwrap();
        let format = jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S", sign).unwrap();
        let zone = jiff::tz::TimeZone::system();
        let seen = format.to_zoned(zone).unwrap().timestamp();
        let now = jiff::Timestamp::now();
        assert!((begun..=now).contains(&seen), "{sign}: {begun} to {now}");
    }
    let mount_point = world.path().join("mnt-elsewhere");
    std::fs::create_dir(&mount_point).unwrap();
    let mnt = mount_point.to_str().unwrap();
    let taken = elsewhere(&world, &["mount", "--take-over", world.vol(), mnt]);
    assert_eq!(taken.code, 0, "{}", taken.err);
    assert_eq!(std::fs::read(mount_point.join("kept")).unwrap(), b"before");
    write_synced(&mount_point.join("new"), b"after");
    let late =
        std::fs::File::options().write(true).create_new(true).open(world.below_mount("/late"));
    let late = late.and_then(|file| file.sync_all()).expect_err("the daemon was replaced");
    assert!([30, 5].contains(&late.raw_os_error().unwrap_or(0)), "{late}");
    let unmounted = elsewhere(&world, &["umount", mnt]);
    assert_eq!(unmounted.code, 0, "{}", unmounted.err);
    world.lose_host();
    assert!(world.mount());
    assert_eq!(std::fs::read(world.below_mount("/new")).unwrap(), b"after");
    assert!(!world.below_mount("/late").exists());
    world.umount();
}

/// Verbs that read see, on another host, the state that is durable now, and print its time.
/// They change nothing, and the host that has the volume open continues.
#[test]
fn another_host_reads_a_volume_that_is_open() {
    let world = World::in_store();
    if !world.mount() {
        return;
    }
    std::fs::create_dir(world.below_mount("/dir")).unwrap();
    write_synced(&world.below_mount("/dir/large"), &noise(1, 300_000));
    write_synced(&world.below_mount("/dir/small"), b"small");
    let read = |arguments: &[&str]| {
        let answer = elsewhere(&world, arguments);
        assert_eq!(answer.code, 0, "{arguments:?}: {}", answer.err);
        assert!(answer.err.contains("shows its state of"), "{arguments:?}: {}", answer.err);
        answer.out
    };
    let before = objects(&world, "lsm/manifest");
    assert_eq!(read(&["ls", &world.at("/dir")]), "large\nsmall\n");
    assert_eq!(read(&["cat", &world.at("/dir/small")]), "small");
    assert!(read(&["find", &world.at("/"), "-size", "+100k"]).contains("/dir/large"));
    read(&["du", &world.at("/")]);
    let status = elsewhere(&world, &["--json", "status", world.vol()]);
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert!(status["read_only"].as_str().unwrap().contains("is open on host"), "{status}");
    assert_eq!(objects(&world, "lsm/manifest"), before, "nothing was claimed");
    // When the daemon that read this state has left, the next one sees what is durable then.
    let hosts = world.path().join("elsewhere");
    let observed = || {
        let directories = std::fs::read_dir(&hosts).unwrap();
        directories.flatten().any(|directory| directory.path().join("observed").exists())
    };
    crate::world::wait_until("nobody reads any more", || !observed());
    write_synced(&world.below_mount("/dir/small"), b"other");
    assert_eq!(read(&["cat", &world.at("/dir/small")]), "other");
    let kept = |directory: std::fs::DirEntry| {
        let cache = std::fs::read_dir(directory.path().join("cache"));
        cache.is_ok_and(|mut cache| cache.next().is_some())
    };
    let mut directories = std::fs::read_dir(&hosts).unwrap().flatten();
    assert!(directories.any(kept), "what was read stays on this host");
    crate::world::wait_until("nobody reads any more", || !observed());
    world.umount();
    world.close();
    let closed = elsewhere(&world, &["ls", &world.at("/dir")]);
    assert!(closed.code == 0 && closed.err.is_empty(), "{}", closed.err);
}

/// A host directory that is left from another volume does not open this one.
#[test]
fn a_host_directory_of_another_volume_is_refused() {
    let world = World::in_store();
    world.ok(&["ls", world.vol()]);
    world.close();
    // The volume is replaced behind the host's back.
    let store = world.path().join("store");
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::create_dir(&store).unwrap();
    let kept = world.path().join("kept");
    rustix::fs::rename(world.hosts(), &kept).unwrap();
    world.ok(&["format", world.vol()]);
    std::fs::remove_dir_all(world.hosts()).unwrap();
    rustix::fs::rename(&kept, world.hosts()).unwrap();
    let refused = world.run(&["ls", world.vol()]);
    assert!(refused.code != 0 && refused.err.contains("belongs to volume"), "{}", refused.err);
    world.lose_host();
    world.ok(&["ls", world.vol()]);
}

/// Cache and files of the host may hold anything: contents are never wrong.
#[test]
fn rubbish_in_the_host_directory_changes_no_contents() {
    let world = World::in_store();
    let source = world.path().join("tree");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("a"), noise(1, 300_000)).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/tree")]);
    world.ok(&["sync", world.vol()]);
    let before = world.ok(&["ls", "-l", &world.at("/tree")]);
    world.close();
    for file in world.files() {
        let name = file.file_name().unwrap().to_str().unwrap();
        if !["volume.pando", "owner.lock", "owner.log"].contains(&name) {
            std::fs::write(&file, noise(9, 10_000)).unwrap();
        }
    }
    assert_eq!(world.ok(&["ls", "-l", &world.at("/tree")]), before);
    let out = world.path().join("out");
    let command = World::command(&["cat", &world.at("/tree/a")])
        .env("PANDO_HOST_DIRECTORY", world.hosts())
        .stdout(std::fs::File::options().write(true).create_new(true).open(&out).unwrap())
        .status()
        .unwrap();
    assert!(command.success());
    assert!(std::fs::read(&out).unwrap() == noise(1, 300_000), "the contents are another's");
}

/// Has the store accept nothing until this file is removed: no object can be staged.
fn stage_nothing(world: &World) -> std::path::PathBuf {
    let staged = world.path().join("store/.staged");
    std::fs::remove_dir_all(&staged).unwrap();
    std::fs::write(&staged, b"").unwrap();
    staged
}

/// While the store accepts nothing, a process that waits for it can be killed, in an `fsync` or in
/// a change, and everybody else continues.
#[test]
fn a_process_that_waits_for_the_store_can_be_killed() {
    let world = World::in_store();
    if !world.mount() {
        return;
    }
    write_synced(&world.below_mount("/before"), b"before");
    let staged = stage_nothing(&world);
    let of = format!("of={}", world.below_mount("/large").display());
    let dd = ["if=/dev/zero", &of, "bs=64k", "count=64", "conv=fsync"];
    let mut waiting: Vec<_> =
        (0..4).map(|_| std::process::Command::new("dd").args(dd).spawn().unwrap()).collect();
    let waits = || world.status()["store"]["changes_wait"]["seconds"].as_u64();
    crate::world::wait_until("changes wait", || waits().is_some_and(|seconds| seconds > 6));
    let touch = world.below_mount("/never");
    waiting.push(std::process::Command::new("touch").arg(touch).spawn().unwrap());
    assert_eq!(std::fs::read(world.below_mount("/before")).unwrap(), b"before");
    for process in &mut waiting {
        assert!(process.try_wait().unwrap().is_none(), "it waits");
        process.kill().unwrap();
    }
    for process in &mut waiting {
        crate::world::wait_until("a killed process is gone", || {
            process.try_wait().unwrap().is_some()
        });
    }
    assert!(waits().is_some(), "the store still accepts nothing");
    std::fs::remove_file(&staged).unwrap();
    write_synced(&world.below_mount("/after"), b"after");
    assert!(!world.below_mount("/never").exists());
    world.umount();
}

/// With a store that accepts nothing `umount` ends all the same, and prints what is not durable and
/// who waits. All is durable once the store accepts objects again.
#[test]
fn an_unmount_reports_that_the_store_accepts_nothing() {
    let world = World::in_store();
    if !world.mount() {
        return;
    }
    write_synced(&world.below_mount("/before"), b"before");
    let staged = stage_nothing(&world);
    std::fs::write(world.below_mount("/last"), b"last").unwrap();
    let unmounted = world.run(&["umount", world.mnt()]);
    let failure = unmounted.err;
    assert_eq!(unmounted.code, 6, "{failure}");
    let pid = world.daemon().expect("it waits");
    assert!(failure.contains("accepted nothing for"), "{failure}");
    assert!(failure.contains(&format!("kill -9 {pid}")), "{failure}");
    assert!(!world.below_mount("/before").exists(), "it is unmounted");
    std::fs::remove_file(&staged).unwrap();
    crate::world::wait_until("the daemon ends", || !crate::world::is_alive(pid));
    assert!(!world.volume.join("closing").exists());
    world.lose_host();
    assert!(world.mount());
    assert_eq!(std::fs::read(world.below_mount("/last")).unwrap(), b"last");
    world.umount();
}

/// Prices are those of the command that asks, and a host directory is of one server.
#[test]
fn settings_are_those_of_the_command_that_is_run() {
    let world = World::in_store();
    world.ok(&["ls", world.vol()]);
    let status = |prices: &str| {
        let command = World::command(&["--json", "status", world.vol()])
            .env("PANDO_HOST_DIRECTORY", world.hosts())
            .env("PANDO_OBJECT_PRICES", prices)
            .output();
        answer(&command.unwrap())
    };
    let (free, dear) = (status("0,0,0"), status("1000,1000,1000"));
    let dollars = |answer: &Answer| -> f64 {
        let status: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
        status["store"]["dollars_a_day"].as_f64().unwrap()
    };
    assert!(dollars(&free) == 0.0 && dollars(&dear) > 1.0);
    let wrong = status("much");
    assert!(wrong.code == 2 && wrong.err.contains("PANDO_OBJECT_PRICES"), "{}", wrong.err);
    world.close();
    let files = world.files();
    let server = files.iter().find(|file| file.ends_with("server")).expect("it is noted");
    assert_eq!(std::fs::read(server).unwrap(), world.vol().as_bytes());
    std::fs::write(server, format!("{} at http://elsewhere", world.vol())).unwrap();
    let refused = world.fails(2, &["ls", world.vol()]);
    assert!(refused.contains("http://elsewhere"), "{refused}");
}
