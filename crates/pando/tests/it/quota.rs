//! `pando quota`, on a volume that is mounted and on one that is not.

use crate::world::{World, is_root};

fn quota(world: &World) {
    world.ok(&["subvolume", "create", &world.at("/q")]);
    let (dir, volume) = (world.at("/q"), world.vol());
    assert!(world.ok(&["quota", "get", &dir]).contains("no quota"));
    assert!(world.ok(&["quota", "list", volume]).contains("no quota"));
    // One object for each; for a path without a quota, one that reports that there is none.
    assert_eq!(world.json(&["quota", "list", volume]), [] as [serde_json::Value; 0]);
    assert!(world.json(&["quota", "get", &dir])[0]["quota"].is_null());
    assert_eq!(world.run(&["quota", "set", &dir]).code, 2);
    assert_eq!(world.run(&["quota", "set", &dir, "--bytes", "many"]).code, 2);
    for fraction in ["0.1", "1.5", "0.0001K"] {
        let printed = world.run(&["quota", "set", &dir, "--bytes", fraction]);
        let names = printed.err.contains(&format!("'{fraction}'")) && printed.err.contains("whole");
        assert!(printed.code == 2 && names, "{}", printed.err);
    }
    assert!(world.ok(&["quota", "get", &dir]).contains("no quota"));
    world.ok(&["quota", "set", &dir, "--inodes", "4", "--bytes", "1K"]);
    let file = world.path().join("put");
    let import = |inner: &str, bytes: usize| {
        std::fs::write(&file, vec![b'x'; bytes]).unwrap();
        ["import".to_owned(), file.to_str().unwrap().to_owned(), world.at(inner)]
    };
    let run = |args: &[String; 3]| world.ok(&[&args[0], &args[1], &args[2]]);
    run(&import("/q/a", 1000));
    let got = world.json(&["quota", "get", &world.at("/q/a")]).remove(0);
    assert_eq!((&got["inodes"], &got["bytes"]), (&2.into(), &1000.into()));
    assert_eq!((&got["inodes_max"], &got["bytes_max"]), (&4.into(), &1024.into()));
    limits_that_are_not_named_stay(world, &[&dir]);
    let args = import("/q/b", 25);
    let refused = world.run(&args);
    assert!(refused.code != 0 && refused.err.contains("quota"), "{}", refused.err);
    run(&import("/q/b", 24));
    assert_eq!(world.json(&["quota", "list", volume])[0]["bytes"], 1024);
    world.ok(&["quota", "check", volume]);
    world.ok(&["clone", &dir, &world.at("/clone")]);
    assert_eq!(world.json(&["quota", "list", volume])[0]["bytes"], 1024, "inherited");
    world.ok(&["quota", "set", &dir, "--unlimited"]);
    run(&import("/clone/c", 5000));
    world.ok(&["rmr", "--wait", &world.at("/clone")]);
    assert_eq!(world.json(&["quota", "get", &dir])[0]["bytes"], 1024);
    assert!(world.ok(&["quota", "check", volume]).contains("match the files"));
    world.ok(&["fsck", volume]);
}

/// One limit is set, removed and set again: the other stays, and both are printed each time. The
/// quota has the limits 4 and 1K, before and afterwards.
fn limits_that_are_not_named_stay(world: &World, of: &[&str]) {
    let set = |limits: &[&str]| {
        let printed = world.json(&[&["quota", "set"], of, limits].concat()).remove(0);
        let got = world.json(&[&["quota", "get"], of].concat()).remove(0);
        for key in ["inodes_max", "bytes_max"] {
            assert_eq!(printed[key], got[key], "{limits:?}: what is printed holds");
        }
        (got["inodes_max"].as_u64(), got["bytes_max"].as_u64())
    };
    assert_eq!(set(&["--bytes", "3K"]), (Some(4), Some(3072)));
    assert_eq!(set(&["--inodes", "5"]), (Some(5), Some(3072)));
    // By both names of the option.
    assert_eq!(set(&["--files", "none"]), (None, Some(3072)));
    assert_eq!(set(&["--files", "6"]), (Some(6), Some(3072)));
    assert_eq!(set(&["--inodes", "none"]), (None, Some(3072)));
    assert_eq!(set(&["--bytes", "none"]), (None, None));
    let printed = world.ok(&[&["quota", "set"], of, &["--inodes", "4"]].concat());
    assert!(printed.contains("at most 4 inodes, no limit of bytes"), "{printed}");
    let printed = world.ok(&[&["quota", "set"], of, &["--bytes", "1K"]].concat());
    assert!(printed.contains("at most 4 inodes, at most 1.00 KiB"), "{printed}");
    assert_eq!(world.run(&[&["quota", "set"], of, &["--inodes", "many"]].concat()).code, 2);
}

#[test]
fn a_quota_is_set_shown_enforced_and_checked() {
    if !is_root() {
        return;
    }
    quota(&World::new());
}

#[test]
fn users_and_groups_have_quotas() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let volume = world.vol();
    assert!(world.ok(&["quota", "get", volume, "--user", "root"]).contains("no quota"));
    assert_eq!(
        world.run(&["quota", "set", volume, "--user", "no such user", "--inodes", "1"]).code,
        2
    );
    let both = ["quota", "set", volume, "--user", "0", "--group", "0", "--inodes", "1"];
    assert_eq!(world.run(&both).code, 2);
    world.ok(&["quota", "set", volume, "--user", "4242", "--inodes", "10", "--bytes", "1M"]);
    world.ok(&["quota", "set", volume, "--group", "4243", "--bytes", "2M"]);
    let got = world.json(&["quota", "get", volume, "--user", "4242"]).remove(0);
    assert_eq!(
        (&got["user"], &got["inodes"], &got["inodes_max"]),
        (&4242.into(), &0.into(), &10.into())
    );
    world.ok(&["quota", "set", volume, "--user", "4242", "--inodes", "4", "--bytes", "1K"]);
    limits_that_are_not_named_stay(&world, &[volume, "--user", "4242"]);
    let root = world.json(&["quota", "get", volume, "--user", "root"]).remove(0);
    assert_eq!((&root["inodes"], &root["inodes_max"]), (&1.into(), &serde_json::Value::Null));
    let listed = world.json(&["quota", "list", volume]);
    let of = |key: &str| listed.iter().filter(|quota| quota[key].is_u64()).count();
    assert_eq!((of("user"), of("group"), of("quota")), (2, 2, 0));
    assert!(world.ok(&["quota", "list", volume]).contains("user root: 1 inode of no limit"));
    for args in [["quota", "set"], ["quota", "get"], ["quota", "list"]] {
        assert!(world.ok(&[args[0], args[1], "--help"]).contains("Examples:"));
    }
    world.ok(&["quota", "set", volume, "--user", "4242", "--unlimited"]);
    world.ok(&["quota", "check", volume]);
    world.ok(&["fsck", volume]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a rename through the mount")]
fn a_quota_holds_on_a_mount_to_the_byte() {
    let world = World::new();
    if !is_root() || !world.mount() {
        return;
    }
    quota(&world);
    let dir = std::path::Path::new(world.mnt()).join("q");
    world.ok(&["quota", "set", &world.at("/q"), "--inodes", "4", "--bytes", "10K"]);
    std::fs::write(dir.join("c"), vec![1; 10 * 1024 - 1024]).unwrap();
    let edquot = Some(122);
    let refused = std::fs::write(dir.join("a"), vec![1; 1001]).unwrap_err();
    assert_eq!(refused.raw_os_error(), edquot);
    assert_eq!(std::fs::create_dir(dir.join("d")).unwrap_err().raw_os_error(), edquot);
    let out = std::path::Path::new(world.mnt()).join("b");
    assert_eq!(std::fs::rename(dir.join("b"), &out).unwrap_err().raw_os_error(), Some(18));
    std::fs::remove_file(dir.join("b")).unwrap();
    std::fs::create_dir(dir.join("d")).unwrap();
    assert!(world.ok(&["quota", "check", world.vol()]).contains("match the files"));
    world.umount();
}
