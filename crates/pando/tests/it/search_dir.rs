//! Queries as directories: `.search/QUERY` at the root of a mount.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use crate::world::{NOBODY, World, is_root};

/// Names and targets of the links of a query, in the order of names.
fn links(world: &World, query: &str) -> Vec<(String, String)> {
    let directory = world.below_mount("/.search").join(query);
    let mut found: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let target = fs::read_link(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), target.to_str().unwrap().to_owned())
        })
        .collect();
    found.sort();
    found
}

fn pair(name: &str, target: &str) -> (String, String) {
    (name.to_owned(), target.to_owned())
}

#[test]
fn a_query_is_a_directory_of_links_and_always_fresh() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let root = world.below_mount("/");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/one.h5"), "12345").unwrap();
    fs::write(root.join("a/b/one.h5"), "1234567890").unwrap();
    let both = [pair("one.h5", "../../a/b/one.h5"), pair("one.h5~2", "../../a/one.h5")];
    assert_eq!(links(&world, "*.h5"), both);
    assert_eq!(links(&world, "*.h5 size:>7"), both[..1]);
    let link = world.below_mount("/.search/*.h5 size:>7/one.h5");
    assert_eq!(fs::read_to_string(&link).unwrap(), "1234567890");
    assert_eq!(
        fs::metadata(&link).unwrap().ino(),
        fs::metadata(root.join("a/b/one.h5")).unwrap().ino()
    );
    fs::write(root.join("a/two.h5"), "").unwrap();
    fs::remove_file(root.join("a/one.h5")).unwrap();
    let now = [pair("one.h5", "../../a/b/one.h5"), pair("two.h5", "../../a/two.h5")];
    assert_eq!(links(&world, "*.h5"), now);
    // Looked up by name, without a listing before.
    assert_eq!(
        fs::read_link(world.below_mount("/.search/two.h5/two.h5")).unwrap(),
        Path::new("../../a/two.h5")
    );
    let other = fs::read_link(world.below_mount("/.search/two.h5/one.h5")).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::NotFound);
    world.umount();
}

/// A program that reads a directory takes a different change time at the end for a change
/// meanwhile.
#[test]
fn times_of_a_query_stay_while_it_is_read() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    fs::create_dir(world.below_mount("/a")).unwrap();
    fs::write(world.below_mount("/a/one.h5"), "12345").unwrap();
    let directory = world.below_mount("/.search/*.h5");
    let all = [world.below_mount("/.search"), directory.clone(), directory.join("one.h5")];
    let times = || {
        all.each_ref().map(|path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.ctime(), found.ctime_nsec(), found.size())
        })
    };
    let before = times();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    assert_eq!(times(), before);
    let mut tar = Command::new("tar");
    tar.arg("chf").arg(world.path().join("h5.tar")).arg("-C").arg(&directory).arg(".");
    let tar = tar.output().unwrap();
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    world.umount();
}

/// A mount of a directory has queries too, which show only what the mount shows.
#[test]
fn a_mount_of_a_directory_searches_what_it_shows() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let root = world.below_mount("/");
    fs::create_dir_all(root.join("work/deep/er")).unwrap();
    for (file, text) in [("a.h5", "above"), ("work/b.h5", "first"), ("work/deep/er/c.h5", "2nd")] {
        fs::write(root.join(file), text).unwrap();
    }
    world.umount();
    assert!(world.mount_with(&["-o", "subdir=work"]));
    assert_eq!(
        links(&world, "*.h5"),
        [pair("b.h5", "../../b.h5"), pair("c.h5", "../../deep/er/c.h5")]
    );
    assert_eq!(links(&world, "path:*work*"), []);
    let link = world.below_mount("/.search/c.h5/c.h5");
    assert_eq!(fs::read_to_string(link).unwrap(), "2nd");
    rustix::fs::rename(root.join("deep"), root.join("moved")).unwrap();
    fs::write(root.join("moved/d.h5"), "").unwrap();
    let now = ["../../b.h5", "../../moved/d.h5", "../../moved/er/c.h5"];
    let targets = || -> Vec<String> {
        let mut targets: Vec<_> = links(&world, "*.h5").into_iter().map(|(_, to)| to).collect();
        targets.sort();
        targets
    };
    assert_eq!(targets(), now);
    assert!(!root.join("deep/.search").exists(), "it is at the root alone");
    world.umount();
}

#[test]
fn queries_are_unlisted_and_read_only_and_malformed_ones_are_reported() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let root = world.below_mount("/");
    fs::write(root.join("f"), "").unwrap();
    let names: Vec<_> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
    assert_eq!(fs::read_dir(root.join(".search")).unwrap().count(), 0);
    for query in ["size:many", "owner:nosuchuser"] {
        let wrong = fs::read_dir(root.join(".search").join(query)).unwrap_err();
        assert_eq!(wrong.raw_os_error(), Some(rustix::io::Errno::INVAL.raw_os_error()));
    }
    // A mount returns no text: `pando find` has the reason.
    let reason = world.fails(2, &["find", &world.at("/"), "owner:nosuchuser"]);
    assert!(reason.contains("owner:nosuchuser: no such user"), "{reason}");
    let error = |done: std::io::Result<()>| done.unwrap_err().kind();
    assert_eq!(error(fs::write(root.join(".search/f/new"), "")), ErrorKind::PermissionDenied);
    assert_eq!(error(fs::remove_file(root.join(".search/f/f"))), ErrorKind::PermissionDenied);
    assert_eq!(error(fs::create_dir(root.join(".search"))), ErrorKind::AlreadyExists);
    let moved = Command::new("mv").arg(root.join(".search/f/f")).arg(root.join("g")).output();
    assert!(!moved.unwrap().status.success());
    assert!(root.join("f").exists());
    world.umount();
}

#[test]
fn another_user_finds_only_readable_files() {
    let world = World::new();
    if !is_root() || !world.mount_with(&["-o", "allow_other"]) {
        return;
    }
    let root = world.below_mount("/");
    for (directory, mode) in [("open", 0o755), ("closed", 0o700)] {
        fs::create_dir(root.join(directory)).unwrap();
        fs::write(root.join(directory).join(format!("{directory}.txt")), "").unwrap();
        fs::set_permissions(root.join(directory), PermissionsExt::from_mode(mode)).unwrap();
    }
    // What only a group may see.
    fs::create_dir(root.join("shared")).unwrap();
    fs::write(root.join("shared/shared.txt"), "").unwrap();
    chown(root.join("shared"), Some(0), Some(4321)).unwrap();
    fs::set_permissions(root.join("shared"), PermissionsExt::from_mode(0o750)).unwrap();
    assert_eq!(links(&world, "*.txt").len(), 3);
    let list = |groups: &str| -> Vec<String> {
        let output = Command::new("setpriv")
            .args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), groups, "ls"])
            .arg(root.join(".search/*.txt"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", output.stderr.escape_ascii());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    assert_eq!(list("--clear-groups"), ["open.txt"]);
    assert_eq!(list("--groups=4321"), ["open.txt", "shared.txt"]);
    assert_eq!(list("--clear-groups"), ["open.txt"]);
    assert_eq!(links(&world, "*.txt").len(), 3);
    let total = |groups: &str| -> String {
        let output = Command::new("setpriv")
            .args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), groups])
            .args(["getfattr", "--only-values", "-n", "user.pando.rfiles"])
            .arg(&root)
            .output();
        output.map_or_else(|_| String::new(), |output| String::from_utf8(output.stdout).unwrap())
    };
    if Command::new("getfattr").arg("--version").output().is_ok() {
        assert_eq!(total("--clear-groups"), "1");
        assert_eq!(total("--groups=4321"), "2");
    }
    world.umount();
}
