//! `pando diff`, end to end: on both engines, mounted and not, and as another user.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::other_users::Nobody;
use crate::world::{World, is_root};

/// Writes a file below the mount.
fn put(world: &World, inner: &str, contents: &str) {
    fs::write(world.below_mount(inner), contents).unwrap();
}

/// A mounted volume with a directory, a snapshot `old` of it, and changes since. `None`: nothing
/// can be mounted here.
fn changed(engine: &str) -> Option<World> {
    let world = World::on(engine);
    if !world.mount() {
        return None;
    }
    let at = |inner: &str| world.below_mount(inner);
    for directory in ["d", "d/src", "d/closed", "other"] {
        fs::create_dir(at(directory)).unwrap();
    }
    let lines: String =
        (0..30).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n") + "\n";
    put(&world, "d/src/main.c", &lines);
    put(&world, "d/src/tool.c", "tool\n");
    put(&world, "d/mode", "mode\n");
    put(&world, "d/gone", "gone\n");
    put(&world, "d/binary", "\0\u{1}");
    put(&world, "d/closed/secret", "1\n");
    put(&world, "other/outside", "1\n");
    world.ok(&["snapshot", "create", at("d").to_str().unwrap(), "old"]);
    put(&world, "d/src/main.c", &lines.replace("line 15\n", "line fifteen\n"));
    rustix::fs::rename(at("d/src/tool.c"), at("d/tool.c")).unwrap();
    fs::set_permissions(at("d/mode"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::remove_file(at("d/gone")).unwrap();
    put(&world, "d/binary", "\0\u{2}");
    put(&world, "d/closed/secret", "22\n");
    put(&world, "d/new", "new\n");
    fs::hard_link(at("d/new"), at("d/new too")).unwrap();
    put(&world, "other/outside", "2\n");
    fs::set_permissions(at("d/closed"), PermissionsExt::from_mode(0o700)).unwrap();
    Some(world)
}

const LINES: &str = "\
M ./ (size)
M binary (contents)
M closed/ (mode)
M closed/secret (contents, size)
- gone
M mode (mode)
+ new
+ new too
M src/ (size)
M src/main.c (contents, size)
R src/tool.c -> tool.c (ctime)
";

/// Lines without a field that depends on the moment: a rename may set no other time.
fn check(world: &World, old: &str, new: &str) {
    let lines = world.ok(&["diff", old, new]);
    assert_eq!(
        lines.replace("tool.c (ctime)", "tool.c"),
        LINES.replace("tool.c (ctime)", "tool.c")
    );
    assert_eq!(world.ok(&["diff", "--exit-code", old, old]), "");
    let differs = world.run(&["diff", "--exit-code", "--stat", old, new]);
    assert_eq!((differs.code, &*differs.err), (1, ""));
    let stat = "2 created, 1 removed, 1 renamed, 7 modified; 14 B added, 5 B removed\n";
    assert_eq!(differs.out, stat);
    let sums = &world.json(&["diff", "--stat", old, new])[0];
    assert_eq!((&sums["created"], &sums["renamed"]), (&Value::from(2), &Value::from(1)));
    let objects = world.json(&["diff", old, new]);
    assert_eq!(objects.len(), LINES.lines().count());
    let main = &objects[9];
    assert_eq!((&main["change"], &main["new"]["path"]), (&"modified".into(), &"src/main.c".into()));
    let sizes = ["old", "new"].map(|side| main[side]["attributes"]["size"].as_u64().unwrap());
    assert_eq!(sizes, [230, 235]);
    assert_eq!(objects[4]["new"], Value::Null);
    assert_eq!(objects[10]["old"]["path"], "src/tool.c");
    let patch = world.ok(&["diff", "-p", old, new]);
    for part in [
        "M src/main.c (contents, size)\n--- a/src/main.c\n+++ b/src/main.c\n@@ -13,7 +13,7 @@\n",
        "\n-line 15\n+line fifteen\n",
        "- gone\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n",
        "+ new\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n",
        "binary files a/binary and b/binary differ\n",
    ] {
        assert!(patch.contains(part), "{part}\nis not in\n{patch}");
    }
}

fn diff_reports_what_changed_since_a_snapshot(engine: &str) {
    let Some(world) = changed(engine) else { return };
    let d = world.below_mount("d");
    let d = d.to_str().unwrap();
    check(&world, &format!("{d}@old"), d);
    check(&world, &format!("{d}/.snapshots/old"), d);
    world.ok(&["clone", &format!("{d}@old"), &format!("{}/clone", world.mnt())]);
    check(&world, &format!("{}/clone", world.mnt()), d);
    // What is no pair of states of one directory.
    let other = format!("{}/other", world.mnt());
    let message = world.fails(2, &["diff", d, &other]);
    assert!(message.contains("not two states of one directory"), "{message}");
    assert!(message.contains("diff -r"), "{message}");
    world.fails(6, &["diff", &format!("{d}/mode"), d]);
    world.fails(3, &["diff", &format!("{d}@never"), d]);
    let another = World::new();
    world.fails(2, &["diff", d, &another.at("/")]);
    if is_root() {
        let nobody = Nobody::new(&world);
        let seen = nobody.run(&["diff", &format!("{d}@old"), d]);
        assert_eq!(seen.code, 0, "{}", seen.err);
        let want = LINES.replace("M closed/secret (contents, size)", "- closed/secret");
        assert_eq!(seen.out.replace("tool.c (ctime)", "tool.c"), want.replace(" (ctime)", ""));
    }
    world.umount();
    check(&world, &world.at("/d@old"), &world.at("/d"));
}

#[test]
fn diff_reports_what_changed_on_the_b_tree() {
    diff_reports_what_changed_since_a_snapshot("btree");
}

#[test]
fn diff_reports_what_changed_on_the_log_structured_engine() {
    diff_reports_what_changed_since_a_snapshot("lsm");
}
