//! A symbolic link with an absolute target as the last name of a path: each verb that takes a path
//! acts on the link itself or follows it, below a mount as every other program does, and in
//! `VOLDIR:/path` from the root of the volume.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use crate::world::{NOBODY, World, answer, is_root};

/// A mounted volume, with a directory and a file of these names at its root, and a link to each:
/// `here` leads there for a path below the mount, `there` for `VOLDIR:/path`. `out` leads out of
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

/// Verbs that follow a link at the end, in an order in which each can succeed: `{}` is the path of
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

/// Another user's link in a directory like `/tmp` leads no verb elsewhere: not at the end of a
/// path, and not on the way, in both spellings.
#[test]
fn a_link_of_another_user_in_a_shared_directory_is_not_followed() {
    let Some(world) = linked() else { return };
    let shared = world.below_mount("tmp");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
    fs::create_dir(world.below_mount("dir/old")).unwrap();
    for (name, target) in [("trap", world.below_mount("dir")), ("trap in", "/dir".into())] {
        symlink(target, shared.join(name)).unwrap();
        std::os::unix::fs::lchown(shared.join(name), Some(NOBODY), None).unwrap();
    }
    for path in [below(&world, "tmp/trap"), world.at("/tmp/trap in")] {
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
