//! `pando restore --from`: files and directories come back out of snapshots, nothing is
//! overwritten, and no one gets rights by it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::export::opened;
use crate::import::{assert_same, sample};
use crate::other_users::Nobody;
use crate::world::{NOBODY, World, engines, is_root};

#[test]
fn files_and_directories_are_restored_from_snapshots() {
    for engine in engines("btree") {
        let world = World::on(engine);
        let source = world.source();
        sample(&source);
        fs::write(source.join("small"), "then").unwrap();
        world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
        world.ok(&["snapshot", "create", &world.at("/s"), "monday"]);
        world.ok(&["snapshot", "create", &world.at("/"), "all"]);
        for gone in ["small", "d", "sparse", "dangling"] {
            world.ok(&["rmr", &world.at(&format!("/s/{gone}"))]);
        }
        let restore = |path: &str| {
            world.ok(&["restore", "--from", "monday", &world.at(&format!("/s/{path}"))])
        };
        for back in ["small", "d", "sparse", "dangling"] {
            restore(back);
        }
        // The link between two of them was cut with them.
        let (ours, theirs) = (world.path().join("ours"), world.path().join("theirs"));
        world.ok(&["export", &world.at("/s"), ours.to_str().unwrap()]);
        world.ok(&["export", &world.at("/s@monday"), theirs.to_str().unwrap()]);
        for tree in [&ours, &theirs] {
            fs::remove_file(tree.join("d/e/hard")).unwrap();
            let time = fs::metadata(&source).unwrap().modified().unwrap();
            for path in ["", "d/e"] {
                let directory = opened(&tree.join(path));
                directory.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
            }
        }
        assert_same(&theirs, &ours);
        let exists = world.fails(6, &["restore", "--from", "monday", &world.at("/s/small")]);
        assert!(exists.contains("--to"), "{exists}");
        // Out of the snapshot of a directory above; and elsewhere.
        let (path, to) = (world.at("/s/small"), world.at("/again"));
        world.ok(&["restore", "--from", "all", &path, "--to", &to]);
        assert_eq!(world.ok(&["cat", &to]), "then");
        world.ok(&["rmr", &world.at("/s")]);
        world.ok(&["restore", "--from", "all", &world.at("/s")]);
        assert_eq!(world.ok(&["cat", &path]), "then");
        for (snapshot, path, reported) in
            [("all", "/s/never", "does not have it"), ("none", "/s/never", "has a snapshot none")]
        {
            let failure = world.fails(3, &["restore", "--from", snapshot, &world.at(path)]);
            assert!(failure.contains(reported), "{failure}");
        }
        world.fails(2, &["restore", "--from", "a/b", &world.at("/s/small")]);
        world.close();
        world.ok(&["fsck", world.vol()]);
    }
}

#[test]
fn a_user_restores_as_the_user() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    let source = world.path().join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    for (name, mode) in [("run", 0o6755), ("secret", 0o600), ("dir/inner", 0o644)] {
        fs::write(source.join(name), name).unwrap();
        fs::set_permissions(source.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    symlink("/etc/shadow", source.join("link")).unwrap();
    // Everybody may write here, and the directory below is root's.
    fs::set_permissions(&source, PermissionsExt::from_mode(0o777)).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    world.ok(&["snapshot", "create", &world.at("/s"), "then"]);
    for gone in ["run", "secret", "link", "dir"] {
        world.ok(&["rmr", &world.at(&format!("/s/{gone}"))]);
    }
    if !world.mount_with(&["-o", "allow_other"]) {
        return;
    }
    let restore = |name: &str| {
        let path = world.below_mount("s").join(name);
        nobody.run(&["restore", "--from", "then", path.to_str().unwrap()]).code
    };
    assert_eq!((restore("run"), restore("link")), (0, 0));
    assert_eq!((restore("secret"), restore("dir")), (4, 4));
    let run = fs::metadata(world.below_mount("s/run")).unwrap();
    assert_eq!((run.uid(), run.mode() & 0o7777), (NOBODY, 0o755));
    // What may not be read is named, and not the place where it should go.
    let (from, to) = (world.below_mount("s/secret"), world.below_mount("s/elsewhere"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let refused = nobody.run(&["restore", "--from", "then", from, "--to", to]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(
        refused.err.contains("secret") && !refused.err.contains("elsewhere"),
        "{}",
        refused.err
    );
    assert_eq!(world.names("/s"), ["link", "run"]);
    // Root gives it back to whom it was.
    let path = world.below_mount("s/secret");
    world.ok(&["restore", "--from", "then", path.to_str().unwrap()]);
    let secret = fs::metadata(&path).unwrap();
    assert_eq!((secret.uid(), secret.mode() & 0o7777), (0, 0o600));
}

/// Links neither lead out of the snapshot, nor to a different directory from the one named.
#[test]
fn a_restore_follows_no_link() {
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("real")).unwrap();
    fs::write(source.join("real/file"), "then").unwrap();
    symlink("/elsewhere", source.join("out")).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    world.ok(&["import", source.join("real").to_str().unwrap(), &world.at("/elsewhere")]);
    world.ok(&["snapshot", "create", &world.at("/s"), "then"]);
    let to = world.at("/got");
    let reported =
        world.fails(2, &["restore", "--from", "then", &world.at("/s/out/file"), "--to", &to]);
    assert!(reported.contains("symbolic link"), "{reported}");
    // The link itself is restored.
    world.ok(&["restore", "--from", "then", &world.at("/s/out"), "--to", &to]);
    // A directory of the live path became a link.
    world.ok(&["rmr", &world.at("/s/real")]);
    world.ok(&["rmr", &world.at("/elsewhere/file")]);
    let link = world.path().join("link");
    fs::create_dir(&link).unwrap();
    symlink("/elsewhere", link.join("real")).unwrap();
    world.ok(&["import", link.to_str().unwrap(), &world.at("/s")]);
    let reported = world.fails(2, &["restore", "--from", "then", &world.at("/s/real/file")]);
    assert!(reported.contains("symbolic link"), "{reported}");
    assert_eq!(world.names("/elsewhere"), Vec::<String>::new());
    let to = world.at("/file");
    world.ok(&["restore", "--from", "then", &world.at("/s/real/file"), "--to", &to]);
    assert_eq!(world.ok(&["cat", &to]), "then");
}
