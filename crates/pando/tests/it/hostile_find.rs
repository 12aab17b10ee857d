//! Searches of trees that are made to be hard to search: deep chains, long targets, wide fields.
//! Neither the command nor the daemon ends because of them, and other users learn nothing that
//! they may not know.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::index::deep_tree;
use crate::other_users::Nobody;
use crate::world::{World, answer, engines, is_root, wait_until};

/// The peak memory of a volume's daemon, in KiB.
fn peak(world: &World) -> u64 {
    let daemon = world.daemon().unwrap();
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Creates an empty directory at the root of a volume.
fn directory(world: &World, name: &str) {
    let source = world.path().join(name);
    fs::create_dir(&source).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at(&format!("/{name}"))]);
}

#[test]
fn a_deep_chain_takes_no_memory_for_the_paths_above() {
    const LEVELS: usize = 1000;
    let world = World::without_volume();
    let source = world.source();
    deep_tree(&source, LEVELS, 250);
    world.ok(&["index", source.to_str().unwrap(), "--into", world.vol()]);
    world.ok(&["find", &world.at("/"), "-count"]);
    let before = peak(&world);
    let bottom = world.ok(&["find", &world.at("/"), "-mindepth", &LEVELS.to_string()]);
    assert_eq!(bottom.trim_end().len(), world.at("/").len() - 1 + LEVELS * 251);
    for verb in [&["du"][..], &["ls", "-R"]] {
        let mut all = World::command(&[verb, &[&world.at("/")]].concat());
        assert!(all.stdout(Stdio::null()).status().unwrap().success(), "{verb:?}");
    }
    // All paths together are 125 megabytes.
    let more = peak(&world).saturating_sub(before) / 1024;
    assert!(more < 50, "{more} MiB more");
}

/// A daemon keeps the rows of a sorted search in bounded memory, however long their paths are. The
/// order is still right, from the index and by walking.
#[test]
fn sorting_long_paths_takes_bounded_memory() {
    const LEVELS: usize = 1600;
    const WANTED: usize = 1500;
    let world = World::without_volume();
    let source = world.source();
    deep_tree(&source, LEVELS, 250);
    world.ok(&["index", source.to_str().unwrap(), "--into", world.vol()]);
    for index_cache in ["256M", "0"] {
        world.kill_daemon();
        let find = |arguments: &[&str]| {
            let mut command = World::command(&["find", &world.at("/")]);
            command.args(arguments).env("PANDO_INDEX_CACHE", index_cache);
            answer(&command.output().unwrap())
        };
        assert_eq!(find(&["-count"]).out, format!("{}\n", LEVELS + 1));
        let before = peak(&world);
        let limit = WANTED.to_string();
        let found = find(&["--sort", "path:desc", "--limit", &limit, "-printf", "%d\n"]);
        assert_eq!(found.code, 0, "{}", found.err);
        let depths: Vec<usize> = found.out.lines().map(|line| line.parse().unwrap()).collect();
        assert!(depths.iter().copied().eq((LEVELS + 1 - WANTED..=LEVELS).rev()), "{depths:?}");
        // Their paths, which are also the sort key, take six hundred megabytes.
        let more = peak(&world).saturating_sub(before) / 1024;
        assert!(more < 300, "{more} MiB more with {index_cache} for the index");
    }
}

#[test]
fn too_long_a_path_is_reported_and_ends_nothing() {
    let world = World::without_volume();
    let source = world.source();
    deep_tree(&source, 2300, 250);
    fs::write(source.join("other"), "").unwrap();
    fs::create_dir(source.join("beside")).unwrap();
    world.ok(&["index", source.to_str().unwrap(), "--into", world.vol()]);
    let answer = world.run(&["find", &world.at("/"), "-mindepth", "2300"]);
    assert!(answer.err.contains("a path of 57"), "{}", answer.err);
    assert_eq!((answer.out.as_str(), answer.code == 0), ("", false));
    assert_eq!(world.ok(&["find", &world.at("/"), "-name", "other"]), world.at("/other\n"));
    let listed = world.run(&["ls", "-R", &world.at("/")]);
    assert!(listed.code != 0 && listed.err.contains("too long"), "{}", listed.err);
    assert!(listed.out.lines().any(|line| line == "other"));
    let counted = world.run(&["du", &world.at("/")]);
    assert!(counted.code != 0 && counted.err.contains("too long to report"), "{}", counted.err);
    let ends = |end: String| counted.out.lines().any(|line| line.ends_with(&end));
    assert!(ends(world.at("/beside")) && ends(format!("\t{}", world.at("/"))));
}

/// Creates directories in one another on a mount, and snapshots of the deepest one. Each `apart`th
/// one has a directory beside the next one, of which a file was removed into the trash.
fn deep_trash(world: &World, levels: usize, apart: usize, snapshots: usize) {
    use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
    let name = "n".repeat(250);
    // A daemon that another test starts meanwhile must not hold it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o755);
    let mut at = rustix::fs::open(world.mnt(), flags, Mode::empty()).unwrap();
    for level in 0..levels {
        if level % apart == 0 {
            mkdirat(&at, "beside", mode).unwrap();
            openat(&at, "beside/file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, mode)
                .unwrap();
            unlinkat(&at, "beside/file", AtFlags::empty()).unwrap();
        }
        mkdirat(&at, &name, mode).unwrap();
        at = openat(&at, &name, flags, Mode::empty()).unwrap_or_else(|e| panic!("{level}: {e}"));
    }
    for number in 0..snapshots {
        mkdirat(&at, format!(".snapshots/{number}"), mode).unwrap();
    }
}

/// Paths were kept whole for each directory that waited to be listed, and for each snapshot. A path
/// that no message holds ended the list, for root too.
#[test]
fn lists_of_deep_trees_take_bounded_memory_and_show_the_rest() {
    /// Counts the lines of a list, and those of which only the end is shown.
    const COUNTED: &str =
        "\"$1\" trash list --json \"$2\" | awk '/a path of/ {l++} END {print NR, l}'";
    const LEVELS: usize = 1100;
    const SNAPSHOTS: usize = 200;
    let apart = testing::run::rounds(2, 1) as usize;
    // What lists paths is above the engines.
    for engine in engines("btree") {
        let world = World::on(engine);
        world.ok(&["trash", "on", &world.at("/")]);
        world.ok(&["snapshot", "create", &world.at("/"), "mine"]);
        if !world.mount() {
            return;
        }
        deep_trash(&world, LEVELS, apart, SNAPSHOTS);
        // The kernel closes what the test had open a little later.
        wait_until("nothing holds it", || world.run(&["umount", world.mnt()]).code == 0);
        world.ok(&["find", &world.at("/"), "-count"]);
        let before = peak(&world);
        let all = world.ok(&["snapshot", "list", "--json", &world.at("/"), "--all"]);
        assert_eq!(all.lines().count(), SNAPSHOTS + 1);
        assert!(all.contains("\"mine\"") && all.len() < SNAPSHOTS * 1000, "{}", all.len());
        let history = format!("/{}", "n/".repeat(1000));
        world.fails(3, &["history", &world.at(&history)]);
        let refused = world.fails(2, &["history", &world.at(&"/n".repeat(5000))]);
        assert!(refused.contains("more than 4096 names"), "{refused}");
        // 150 megabytes of paths, or half of them.
        let mut counted = std::process::Command::new("sh");
        let at = world.at("/");
        let counted = counted.args(["-c", COUNTED, "sh", crate::world::PANDO, &at]);
        let counted = answer(
            &counted.env("PANDO_IDLE_SECONDS", crate::world::IDLE_SECONDS).output().unwrap(),
        );
        let removed = || (0..LEVELS).step_by(apart);
        let long = removed().filter(|level| *level > (256 << 10) / 251).count();
        assert_eq!(counted.out, format!("{} {long}\n", removed().count()), "{}", counted.err);
        let more = peak(&world).saturating_sub(before) / 1024;
        assert!(more < 60, "{more} MiB more with {engine}");
    }
}

#[test]
fn long_targets_are_sent_in_bounded_messages() {
    let world = World::new();
    let source = world.source();
    for number in 0..1000 {
        symlink("t".repeat(4000), source.join(format!("{number}"))).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/")]);
    let found = world.ok(&["find", &world.at("/"), "-type", "l", "-printf", "%l\n"]);
    assert_eq!(found.lines().filter(|line| line.len() == 4000).count(), 1000);
}

#[test]
fn unprintable_widths_end_no_command() {
    let world = World::new();
    for format in ["%.65535d", "%.65536d", "%.65536S", "%65536p"] {
        world.fails(2, &["find", &world.at("/"), "-printf", format]);
    }
    let wide = world.ok(&["find", &world.at("/"), "-maxdepth", "0", "-printf", "%.32767d"]);
    assert_eq!(wide.len(), 32_767);
    world.ok(&["find", &world.at("/"), "-printf", "%#.32767S"]);
}

#[test]
fn read_counts_of_a_search_are_reported_to_root_only() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    directory(&world, "open");
    let find = ["find", &world.at("/"), "-name", "secret", "--stats", "--json"];
    let reported = world.run(&find).err;
    assert!(!reported.contains("\"rows_tested\":0"), "{reported}");
    let reported = nobody.run(&find).err;
    assert!(
        reported.contains("\"rows_tested\":0") && reported.contains("\"clusters\":0"),
        "{reported}"
    );
    // A walk, because no index has such an order.
    let find = ["find", &world.at("/"), "-depth", "-name", "secret", "--stats", "--json"];
    let reported = world.run(&find).err;
    assert!(reported.contains("\"walked\":1"), "{reported}");
    let reported = nobody.run(&find).err;
    assert!(reported.contains("\"walked\":0"), "{reported}");
}
