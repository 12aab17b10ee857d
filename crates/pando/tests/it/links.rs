//! A symbolic link with an absolute target as the last name of a path. Each verb that takes a path
//! acts on the link itself or follows it. Below a mount it does so as every other program does, and
//! in `VOLDIR:/path` from the root of the volume.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use crate::world::{NOBODY, World, answer, is_root};

/// A mounted volume, with a directory and a file of these names at its root, and a link to each.
/// `here` points to it for a path below the mount, `there` for `VOLDIR:/path`. `out` leads out of
/// the volume for the one, and for the other to a directory of the volume.
fn linked() -> Option<World> {
    let world = World::on("btree");
    if !is_root() || !world.mount() {
        return None;
    }
    let outside = world.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "outside").unwrap();
    let inside = world.below_mount(outside.to_str().unwrap());
    for directory in [&world.below_mount("dir"), &inside] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("f"), "inside").unwrap();
    }
    symlink(world.below_mount("dir"), world.below_mount("here")).unwrap();
    symlink("/dir", world.below_mount("there")).unwrap();
    symlink(&outside, world.below_mount("out")).unwrap();
    symlink(world.below_mount("dir/f"), world.below_mount("file here")).unwrap();
    symlink("/dir/f", world.below_mount("file there")).unwrap();
    Some(world)
}

/// Verbs that follow a link at the end, in an order in which each can succeed. `{}` is the path of
/// the link, and `{new}` a path that does not exist.
const FOLLOW: &[&[&str]] = &[
    &["ls", "{}"],
    &["du", "{}"],
    &["summary", "{}"],
    &["find", "-H", "{}"],
    &["export", "{}", "{new}"],
    &["clone", "{}", "{clone}"],
    &["snapshot", "create", "{}", "one"],
    &["snapshot", "list", "{}"],
    &["snapshot", "rename", "{}", "one", "two"],
    &["snapshot", "hold", "{}", "two", "kept"],
    &["snapshot", "release", "{}", "two", "kept"],
    &["snapshot", "schedule", "{}", "@hourly"],
    &["snapshot", "schedule", "{}"],
    &["snapshot", "prune", "{}", "--keep", "1h", "--dry-run"],
    &["snapshot", "schedule", "{}", "--off"],
    &["ls", "{}@two"],
    &["find", "{}@two"],
    &["cat", "{}@two/f"],
    &["diff", "{}@two", "{}"],
    &["dump", "{}@two"],
    &["send", "{}@two", "--dry-run"],
    &["rollback", "{}", "two"],
    &["snapshot", "delete", "{}", "two"],
    &["quota", "set", "{}", "--inodes", "100"],
    &["quota", "get", "{}"],
    &["quota", "set", "{}", "--unlimited"],
    &["trash", "on", "{}"],
    &["trash", "empty", "{}"],
    &["trash", "off", "{}"],
    &["search", "flush", "{}"],
];

/// Verbs for which the link itself is the subject.
const ITSELF: &[&[&str]] = &[
    &["stat", "{}"],
    &["info", "{}"],
    &["ls", "-l", "{}"],
    &["ls", "-d", "{}"],
    &["find", "{}"],
    &["history", "{}"],
];

/// New names, which must not exist.
const NEW: &[&[&str]] = &[&["clone", "{dir}", "{}"], &["subvolume", "create", "{}"]];

fn words(world: &World, verb: &[&str], path: &str, number: usize) -> Vec<String> {
    let new = world.path().join(format!("new{number}"));
    let clone = world.at(&format!("/clone{number}"));
    let fill = |word: &&str| {
        let word = word.replace("{new}", new.to_str().unwrap()).replace("{clone}", &clone);
        word.replace("{dir}", &world.at("/dir")).replace("{}", path)
    };
    verb.iter().map(fill).collect()
}

fn below(world: &World, name: &str) -> String {
    world.below_mount(name).to_str().unwrap().to_owned()
}

#[test]
fn verbs_that_follow_a_link_begin_at_the_root_of_what_the_path_is_in() {
    let Some(world) = linked() else { return };
    let (mounted, volume) = (below(&world, "here"), world.at("/there"));
    let mut number = 0;
    for path in [&mounted, &volume] {
        for verb in FOLLOW {
            number += 1;
            let done = world.run(&words(&world, verb, path, number));
            assert_eq!(done.code, 0, "{verb:?} {path}: {done:?}");
        }
    }
    for verb in [&["ls", "{}"][..], &["find", "-H", "{}", "-name", "f"]] {
        for path in [&mounted, &volume] {
            let listed = world.ok(&words(&world, verb, path, 0));
            assert!(listed.trim_end().ends_with('f'), "{verb:?} {path}: {listed}");
        }
    }
    for path in [below(&world, "file here"), world.at("/file there")] {
        assert_eq!(world.ok(&["cat", &path]), "inside", "{path}");
    }
    // A link outside of the volume leads in, too.
    let beside = world.path().join("beside");
    symlink(world.below_mount("dir"), &beside).unwrap();
    assert_eq!(world.ok(&["ls", beside.to_str().unwrap()]), "f\n");
    for end in ["/", "/.", "/../dir"] {
        let shown = world.json(&["stat", &below(&world, &format!("here{end}"))]);
        assert_eq!(shown[0]["kind"], "directory", "{end}: {shown:?}");
    }
}

#[test]
fn a_link_that_leads_out_of_the_mounted_volume_is_refused_by_every_verb() {
    let Some(world) = linked() else { return };
    let before = world.json(&["find", &world.at("/")]).len();
    for verb in FOLLOW {
        let printed = world.fails(3, &words(&world, verb, &below(&world, "out"), 0));
        let why = "which is not below a mounted volume";
        assert!(printed.contains(why) && printed.contains("VOLDIR:/path"), "{verb:?}: {printed}");
    }
    // Where it leads on this machine nothing exists, although something does in the volume.
    let dangling = below(&world, "there");
    for verb in FOLLOW.iter().filter(|verb| verb[0] != "du" && verb[0] != "find") {
        if verb == &&["ls", "{}"][..] {
            assert!(world.ok(&words(&world, verb, &dangling, 0)).ends_with("there\n"));
            continue;
        }
        let printed = world.fails(3, &words(&world, verb, &dangling, 0));
        assert!(printed.contains("which does not exist"), "{verb:?}: {printed}");
    }
    assert_eq!(world.json(&["du", &dangling])[0]["bytes"], 4, "the link itself");
    assert_eq!(world.ok(&["find", "-H", &dangling]), format!("{dangling}\n"));
    assert_eq!(world.json(&["find", &world.at("/")]).len(), before);
    // In the volume's own spelling it points to the directory in the volume, and to nothing.
    assert_eq!(world.ok(&["cat", &world.at("/out/f")]), "inside");
    assert_eq!(world.ok(&["ls", &world.at("/out")]), "f\n");
    world.fails(3, &["snapshot", "create", &world.at("/here"), "one"]);
}

#[test]
fn verbs_on_a_name_act_on_the_link_in_both_spellings() {
    let Some(world) = linked() else { return };
    for path in ["here", "there", "out"] {
        for path in [below(&world, path), world.at(&format!("/{path}"))] {
            for verb in ITSELF {
                let shown = world.json(&words(&world, verb, &path, 0));
                assert_eq!(shown.len(), 1, "{verb:?} {path}: {shown:?}");
                let text = shown[0].to_string();
                assert!(verb[0] == "history" || text.contains("symlink"), "{verb:?}: {text}");
            }
            for verb in NEW {
                world.fails(6, &words(&world, verb, &path, 0));
            }
        }
    }
    for path in &[below(&world, "here"), world.at("/out")] {
        world.ok(&["trash", "on", world.mnt()]);
        world.ok(&["rmr", path]);
        assert_eq!(world.json(&["trash", "list", path]).len(), 1);
        world.ok(&["restore", path]);
        let name = Path::new(path.rsplit(['/', ':']).next().unwrap());
        assert!(world.below_mount(name.to_str().unwrap()).is_symlink());
        world.ok(&["trash", "off", world.mnt()]);
        world.ok(&["rmr", path]);
        assert!(!world.below_mount(name.to_str().unwrap()).is_symlink());
    }
    assert_eq!(fs::read_to_string(world.below_mount("dir/f")).unwrap(), "inside");
    assert_eq!(fs::read_to_string(world.path().join("outside/f")).unwrap(), "outside");
}

/// Another user's link in a directory like `/tmp` misdirects no verb, neither at the end of a path
/// nor on the way, in both spellings.
#[test]
fn a_link_of_another_user_in_a_shared_directory_is_not_followed() {
    let Some(world) = linked() else { return };
    let shared = world.below_mount("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
    fs::create_dir(world.below_mount("dir/old")).unwrap();
    for (name, target) in [("trap", world.below_mount("dir")), ("trap in", "/dir".into())] {
        symlink(target, shared.join(name)).unwrap();
        std::os::unix::fs::lchown(shared.join(name), Some(NOBODY), None).unwrap();
    }
    for path in [below(&world, "shared/trap"), world.at("/shared/trap in")] {
        for verb in [
            &["snapshot", "create", "{}", "one"][..],
            &["rmr", "{}/old"],
            &["du", "{}/"],
            &["clone", "{}", "{clone}"],
            &["cat", "{}/f"],
            &["rollback", "{}", "one"],
        ] {
            let printed = world.fails(4, &words(&world, verb, &path, 0));
            assert!(printed.contains("trap"), "{verb:?} {path}: {printed}");
        }
        // The owner of the link may follow it.
        let words = ["--reuid", "65534", "--clear-groups", crate::world::PANDO, "ls", &path];
        let done = std::process::Command::new("setpriv").args(words).output().unwrap();
        assert_eq!(answer(&done).out, "f\nold\n", "{:?}", answer(&done));
    }
    assert!(world.below_mount("dir/old").is_dir());
    chown(world.below_mount("dir"), Some(0), Some(0)).unwrap();
}

/// `..` leads from a directory, and from nothing else: what is behind it is not acted on.
#[test]
fn a_step_up_needs_a_directory_before_it() {
    let Some(world) = linked() else { return };
    fs::create_dir_all(world.below_mount("closed/in")).unwrap();
    fs::set_permissions(world.below_mount("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    for (code, path) in [(3, "nosuch/../dir"), (6, "dir/f/../../dir"), (3, "there/../dir")] {
        for verb in [&["rmr", "{}"][..], &["ls", "{}"], &["clone", "{dir}", "{}/new"]] {
            world.fails(code, &words(&world, verb, &below(&world, path), 0));
        }
    }
    assert!(world.below_mount("dir/f").exists() && !world.below_mount("dir/new").exists());
    assert_eq!(world.ok(&["ls", &below(&world, "here/../dir/../dir")]), "f\n");
    let closed = below(&world, "closed/in/../../dir");
    assert_eq!(world.ok(&["ls", &closed]), "f\n");
    let words = ["--reuid", "65534", "--clear-groups", crate::world::PANDO, "ls", &closed];
    let done = std::process::Command::new("setpriv").args(words).output().unwrap();
    assert_eq!(answer(&done).code, 4, "{:?}", answer(&done));
}

#[test]
fn a_snapshot_of_a_link_is_one_of_what_the_kernel_finds_there() {
    let Some(world) = linked() else { return };
    let climbing = Path::new("..").join(Path::new(world.mnt()).file_name().unwrap()).join("dir");
    symlink("here", world.below_mount("chain")).unwrap();
    symlink(climbing, world.below_mount("climbing")).unwrap();
    fs::create_dir(world.below_mount("sub")).unwrap();
    symlink("../here", world.below_mount("sub/up")).unwrap();
    let beside = world.path().join("beside");
    symlink(world.below_mount("chain"), &beside).unwrap();
    world.ok(&["snapshot", "create", &below(&world, "dir"), "one"]);
    fs::write(world.below_mount("dir/f"), "newer").unwrap();
    let links = ["chain", "climbing", "sub/up", "sub/../chain"].map(|name| below(&world, name));
    for (number, link) in links.iter().map(String::as_str).chain(beside.to_str()).enumerate() {
        assert_eq!(world.ok(&["cat", &format!("{link}@one/f")]), "inside", "{link}");
        assert_eq!(world.ok(&["ls", &format!("{link}@one/")]), "f\n", "{link}");
        for verb in [
            &["send", "{}@one", "--dry-run"][..],
            &["diff", "{}@one", "{}"],
            &["stat", "{}@one"],
            &["clone", "{}@one", "{clone}"],
        ] {
            world.ok(&words(&world, verb, link, number));
        }
        let copy = world.below_mount(&format!("clone{number}/f"));
        assert_eq!(fs::read_to_string(copy).unwrap(), "inside", "{link}");
    }
    // A directory that is really called so has precedence, for what is not in it too.
    fs::create_dir(world.below_mount("here@one")).unwrap();
    fs::write(world.below_mount("here@one/own"), "literal").unwrap();
    assert_eq!(world.ok(&["cat", &below(&world, "here@one/own")]), "literal");
    world.fails(3, &["cat", &below(&world, "here@one/f")]);
    // The snapshot of the mount itself, by its path and by a link to it.
    world.ok(&["snapshot", "create", world.mnt(), "all"]);
    let mount = world.path().join("to mount");
    symlink(world.mnt(), &mount).unwrap();
    for path in [world.mnt(), mount.to_str().unwrap()] {
        assert_eq!(world.ok(&["cat", &format!("{path}@all/dir/f")]), "newer", "{path}");
    }
}

#[test]
fn a_path_has_at_most_40_links() {
    let Some(world) = linked() else { return };
    symlink(world.below_mount("dir"), world.below_mount("l1")).unwrap();
    for number in 2..=41 {
        let target = world.below_mount(&format!("l{}", number - 1));
        symlink(target, world.below_mount(&format!("l{number}"))).unwrap();
    }
    fs::create_dir(world.below_mount("dir/old")).unwrap();
    assert_eq!(world.ok(&["ls", &below(&world, "l40")]), "f\nold\n");
    for verb in [
        &["cat", "{}/f"][..],
        &["rmr", "{}/old"],
        &["du", "{}"],
        &["clone", "{}", "{clone}"],
        &["clone", "{dir}", "{}/new"],
        &["snapshot", "create", "{}", "one"],
    ] {
        let printed = world.fails(1, &words(&world, verb, &below(&world, "l41"), 0));
        assert!(printed.contains("Too many levels of symbolic links"), "{verb:?}: {printed}");
    }
    assert_eq!(fs::read_dir(world.below_mount("dir")).unwrap().count(), 2);
    world.ok(&["rmr", &below(&world, "l40/old")]);
    world.ok(&["rmr", &below(&world, "l41")]);
}

/// Verbs on a name do not follow a link for the slash behind it, as rmdir(2), rename(2) and
/// mkdir(2) do not. Those that show it do, as lstat(2).
#[test]
fn a_slash_behind_a_link_leads_no_verb_on_a_name_to_its_target() {
    let Some(world) = linked() else { return };
    symlink(world.below_mount("made"), world.below_mount("dangling")).unwrap();
    for end in ["/", "//", "/."] {
        let at = |name: &str| below(&world, &format!("{name}{end}"));
        for name in ["here", "file here", "dangling", "dir/f"] {
            let printed = world.fails(6, &["rmr", &at(name)]);
            assert!(printed.contains("Not a directory"), "{name}: {printed}");
            for verb in [&["clone", "{dir}", "{}"][..], &["subvolume", "create", "{}"]] {
                world.fails(6, &words(&world, verb, &at(name), 0));
            }
        }
        world.fails(6, &["restore", &at("here")]);
        world.fails(6, &["cat", &at("dir/f")]);
        world
            .fails(3, &["import", world.path().join("outside").to_str().unwrap(), &at("dangling")]);
        assert_eq!(world.json(&["stat", &at("here")])[0]["kind"], "directory");
        world.fails(3, &["stat", &at("dangling")]);
    }
    assert!(!world.below_mount("made").exists());
    assert_eq!(fs::read_to_string(world.below_mount("dir/f")).unwrap(), "inside");
    // A directory may be named so, and one that is made.
    world.ok(&["clone", &below(&world, "dir/"), &below(&world, "copy/")]);
    world.ok(&["rmr", &below(&world, "copy/")]);
}

/// In a user namespace, all users without a number there have the same. That does not make the link
/// of one of them a link of the directory's owner.
#[test]
fn users_without_a_number_are_not_taken_for_one() {
    let Some(world) = linked() else { return };
    let shared = world.below_mount("shared");
    fs::create_dir(&shared).unwrap();
    chown(&shared, Some(1234), None).unwrap();
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
    symlink(world.below_mount("dir"), shared.join("trap")).unwrap();
    std::os::unix::fs::lchown(shared.join("trap"), Some(1235), None).unwrap();
    let words = ["--user", "--map-root-user", crate::world::PANDO, "cat"];
    let cat = |path: &str| {
        let path = world.below_mount(path);
        answer(&std::process::Command::new("unshare").args(words).arg(path).output().unwrap())
    };
    let direct = cat("dir/f");
    if direct.err.contains("unshare") {
        return; // This machine makes no user namespaces.
    }
    assert_eq!(direct.out, "inside", "{direct:?}");
    let led = cat("shared/trap/f");
    assert!(led.code == 4 && led.err.contains("link of another user"), "{led:?}");
    // The same in a new name, which does not exist behind the link.
    let new = world.fails(4, &["subvolume", "create", &below(&world, "shared/trap/new")]);
    assert!(!new.contains("not in a mounted volume"), "{new}");
}
