//! The socket gives other users no more access than the mount; a mount in another namespace keeps
//! its daemon.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::other_users::Nobody;
use crate::world::{NOBODY, World, is_alive, is_root, wait_until};

#[test]
fn the_socket_admits_the_same_users_as_the_mount() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    world.ok(&["subvolume", "create", &world.at("/d")]);
    let above = world.path().join("above");
    let place = above.join("mnt");
    fs::create_dir_all(&place).unwrap();
    let mode = |mode| fs::set_permissions(&above, PermissionsExt::from_mode(mode)).unwrap();
    let place = place.to_str().unwrap();
    let asks = || nobody.run(&["ls", &world.at("/")]);
    let mount = |options: &str| world.ok(&["mount", "-o", options, world.vol(), place]);
    if crate::world::reason("SKIP_FUSE").is_some() {
        return;
    }
    let refused = |why: &str| {
        let answer = asks();
        assert_eq!(answer.code, 4, "{} {}", answer.out, answer.err);
        assert!(answer.err.contains(why), "{}", answer.err);
        let (program, new) = (world.path().join("pando"), world.at("/new"));
        let import = nobody.run(&["import", program.to_str().unwrap(), &new]);
        assert_eq!(import.code, 4, "{}", import.err);
        // Root is admitted, and the user that owns the volume's directory.
        world.ok(&["ls", &world.at("/")]);
        chown(&world.volume, Some(NOBODY), None).unwrap();
        assert_eq!(asks().code, 0);
        chown(&world.volume, Some(0), None).unwrap();
        world.ok(&["umount", place]);
    };
    mount("noallow_other");
    refused("for one user alone");
    mount("allow_other,subdir=d");
    refused("a directory of the volume is mounted");
    mode(0o700);
    mount("allow_other");
    refused(&format!("below {}, which is closed to you", above.display()));
    mode(0o711);
    mount("allow_other");
    assert_eq!(asks().out, "d\n");
    mode(0o700);
    assert_eq!(asks().code, 4, "as soon as it is closed");
    world.ok(&["umount", place]);
}

/// Regression: an import created links to files of other users, which the kernel refuses through a
/// mount where `fs.protected_hardlinks` is set.
#[test]
fn an_import_links_no_file_of_another_user() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    // In a world-writable directory like /tmp: `a`, and `b`, which does not exist yet.
    let own = world.path().join("own");
    let open = world.path().join("open");
    for (directory, mode) in [(&own, 0o755), (&open, 0o777)] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("a"), "text").unwrap();
        fs::set_permissions(directory.join("a"), PermissionsExt::from_mode(0o644)).unwrap();
        fs::set_permissions(directory, PermissionsExt::from_mode(mode)).unwrap();
    }
    let time = fs::metadata(own.join("a")).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(open.join("a")).unwrap();
    file.set_modified(time).unwrap();
    world.ok(&["import", open.to_str().unwrap(), &world.at("/open")]);
    fs::hard_link(own.join("a"), own.join("b")).unwrap();
    let imported = nobody.run(&["import", own.to_str().unwrap(), &world.at("/open")]);
    assert!(imported.err.contains("another user's file"), "{} {}", imported.out, imported.err);
    assert_eq!(world.names("/open"), ["a"]);
    // The kernel also allows a link to a file that the user nobody may read and write.
    chown(open.join("a"), Some(NOBODY), None).unwrap();
    world.ok(&["import", open.to_str().unwrap(), &world.at("/own")]);
    assert_eq!(fs::metadata(open.join("a")).unwrap().uid(), NOBODY);
    let imported = nobody.run(&["import", own.to_str().unwrap(), &world.at("/own")]);
    // The directory itself stays root's, with its mode.
    assert!(!imported.err.contains("another user's file"), "{}", imported.err);
    assert_eq!(world.names("/own"), ["a", "b"]);
}

/// A process in a namespace of its own. It ends with this, also where a test fails.
struct Container(Child);

impl Drop for Container {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().ok();
    }
}

/// Runs a script in a namespace of its own, until it sleeps.
fn sleeping(arguments: &[&str]) -> (Container, u32) {
    let container = Command::new("unshare").args(arguments).stdin(Stdio::null()).spawn().unwrap();
    let comm = format!("/proc/{}/comm", container.id());
    wait_until("it sleeps", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let pid = container.id();
    (Container(container), pid)
}

/// A container: a process in a mount namespace with a copy of the volume's mount and of no other.
fn container(world: &World) -> (Container, u32) {
    let sleeps = "leave_other_mounts \"$1\"\nexec sleep 600";
    let script = format!("{}{sleeps}", crate::world::LEAVE_OTHER_MOUNTS);
    sleeping(&["--mount", "sh", "-c", &script, "sh", world.mnt()])
}

/// Regression: `pando umount` waited for a daemon that served a container's copy of the mount, and
/// `mount` and `umount` contradicted each other afterwards.
#[test]
fn a_mount_in_another_namespace_is_named_and_can_be_ended() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/d")]);
    if !world.mount() {
        return;
    }
    let (container, pid) = container(&world);
    let held = format!("on {} for sleep (pid {pid})", world.mnt());
    let unmounted = world.run(&["umount", world.mnt()]);
    // Its daemon has other settings, or is not in the foreground of this command.
    let mount =
        |option: &[&str]| world.run(&[&["mount", world.vol(), world.mnt()], option].concat());
    let others = [
        (&["-o", "sync"][..], "'sync' differs"),
        (&["--index-cache=0"], "'--index-cache' differs"),
        (&["--foreground"], "--foreground"),
    ];
    let refused = others.map(|(option, why)| (mount(option), why));
    let by_volume = world.run(&["umount", world.vol()]);
    // It is in use there, and was not disturbed.
    let seen = fs::read_dir(format!("/proc/{pid}/root/{}", world.mnt())).unwrap().count();
    let closed = world.run(&["umount", "--lazy", world.vol()]);
    let works = mount(&["-o", "sync"]);
    let shown = world.below_mount("d").is_dir();
    drop(container);
    assert!(unmounted.code == 0 && unmounted.err.contains(&held), "{}", unmounted.err);
    for (refused, why) in refused.into_iter().chain([(by_volume, "unmount it there")]) {
        assert!(refused.code == 6 && refused.err.contains(&held), "{}", refused.err);
        assert!(refused.err.contains("umount --lazy"), "{}", refused.err);
        assert!(refused.err.contains(why), "{why}: {}", refused.err);
    }
    assert_eq!(seen, 1);
    assert_eq!(closed.code, 0, "{}", closed.err);
    assert!(works.code == 0 && shown, "{}", works.err);
}

/// Regression: a volume of which a container has a mount could not be mounted again.
#[test]
fn a_volume_is_mounted_again_beside_a_mount_in_another_namespace() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/d")]);
    if !world.mount_with(&["-o", "subdir=d"]) {
        return;
    }
    fs::write(world.below_mount("f"), "first").unwrap();
    world.ok(&["snapshot", "create", &world.at("/d"), "s"]);
    let (container, pid) = container(&world);
    let theirs = |name: &str| format!("/proc/{pid}/root/{}/{name}", world.mnt());
    let daemon = world.daemon().expect("a daemon");
    world.umount();
    fs::write(theirs("f"), "second").unwrap();
    // The root of the mount is another node since, and the same directory.
    world.ok(&["rollback", &world.at("/d"), "s"]);
    let mount = ["mount", "-o", "subdir=d", world.vol(), world.mnt()];
    // The daemon does nothing for root that this root may not do.
    let mut weak = Command::new("setpriv");
    weak.arg("--bounding-set=-sys_admin").arg(crate::world::PANDO).args(mount);
    let weak = crate::world::answer(&weak.output().unwrap());
    let again = world.json(&mount).remove(0);
    let [here, there] = [world.mnt().to_owned() + "/f", theirs("f")].map(|path| {
        let found = fs::metadata(&path).unwrap();
        (found.dev(), found.ino(), fs::read_to_string(&path).unwrap())
    });
    fs::write(theirs("new"), "from there").unwrap();
    let seen = fs::read_to_string(world.below_mount("new"));
    let twice = world.run(&mount);
    let unmounted = world.run(&["umount", world.mnt()]);
    let left = fs::read_to_string(theirs("new"));
    // At another place, which `status` shows. There it outlives the container's.
    let other = world.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let moved = world.run(&["mount", "-o", "subdir=d,noexec", world.vol(), other]);
    let status = world.status();
    drop(container);
    let last = fs::read_to_string(format!("{other}/new"));
    world.ok(&["umount", other]);
    assert!(!is_alive(daemon), "no mount is left");
    assert!(weak.code == 6 && weak.err.contains("rights that you lack"), "{}", weak.err);
    assert_eq!(again["pid"], daemon, "{again}");
    assert_eq!((here.2.as_str(), &here), ("first", &there));
    assert_eq!(seen.unwrap(), "from there");
    assert!(twice.code == 6 && twice.err.contains("already, by process"), "{}", twice.err);
    assert!(
        unmounted.code == 0 && unmounted.err.contains("mounted elsewhere"),
        "{}",
        unmounted.err
    );
    assert_eq!(left.unwrap(), "from there");
    assert_eq!(moved.code, 0, "{}", moved.err);
    assert_eq!((&status["mount_point"], &status["daemon"]["pid"]), (&other.into(), &daemon.into()));
    assert_eq!(last.unwrap(), "from there");
    assert!(world.ok(&["fsck", world.vol()]).contains("clean"));
}

/// Regression: the end of a mount of which another namespace has a copy made nothing durable.
#[test]
fn what_was_written_is_durable_when_a_mount_ends_here_and_stays_elsewhere() {
    if !is_root() {
        return;
    }
    let world = World::in_store();
    if !world.mount_with(&["-o", "commit-interval=5"]) {
        return;
    }
    let (container, _) = container(&world);
    fs::write(world.below_mount("written"), "text").unwrap();
    world.ok(&["umount", world.mnt()]);
    world.kill_daemon();
    drop(container);
    assert_eq!(world.names("/"), ["written"]);
}

/// Regression: a mount in another namespace that shows another source was taken for one that is
/// gone.
#[test]
fn a_mount_with_another_source_in_another_namespace_is_named() {
    if !is_root() || crate::world::reason("SKIP_FUSE").is_some() {
        return;
    }
    let world = World::new();
    let mounts = "leave_other_mounts\n\"$1\" mount -o fsname=mine \"$2\" \"$3\" && exec sleep 600";
    let script = format!("{}{mounts}", crate::world::LEAVE_OTHER_MOUNTS);
    let namespace = ["--mount", "--propagation=private", "sh", "-c", &script, "sh"];
    let arguments = [crate::world::PANDO, world.vol(), world.mnt()];
    let (container, pid) = sleeping(&[&namespace[..], &arguments[..]].concat());
    let unmounted = world.run(&["umount", world.vol()]);
    let mounted = world.run(&["mount", world.vol(), world.mnt()]);
    let lists = fs::read_dir(format!("/proc/{pid}/root/{}", world.mnt())).is_ok();
    drop(container);
    for refused in [unmounted, mounted] {
        let names = refused.err.contains("is mounted elsewhere: on ");
        assert!(refused.code == 6 && names, "{} {}", refused.code, refused.err);
    }
    assert!(lists, "it was not disturbed");
}

/// Regression: a name with a terminal escape sequence reached the terminal by `find -printf`.
#[test]
fn names_do_not_control_a_terminal() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/a\x1b[2Jb")]);
    for action in ["-printf '%p|%f\\n'", "-print", "-ls"] {
        let line = format!("{} find '{}' {action}", crate::world::PANDO, world.at("/"));
        let output = Command::new("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("[2Jb") && !shown.contains('\x1b'), "{action}: {shown:?}");
    }
    let (tree, gone) = (world.at("/a\x1b[2Jb"), world.at("/a\x1b[2Jb/none"));
    for verb in ["ls", "ls -l", "ls -R", "du", "summary", "info", "stat", "history", "cat", "rmr"] {
        for path in [world.at("/"), tree.clone(), gone.clone()] {
            if verb == "rmr" && path != gone {
                continue;
            }
            let line = format!("{} {verb} '{path}'", crate::world::PANDO);
            let output = Command::new("script").args(["-qec", &line, "/dev/null"]).output();
            let shown = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
            assert!(!shown.contains('\x1b'), "{verb} {path:?}: {shown:?}");
        }
    }
    // A program gets the unescaped bytes.
    let raw = world.ok(&["find", &world.at("/"), "-name", "a*", "-printf", "%f"]);
    assert_eq!(raw, "a\x1b[2Jb");
}

/// Regression: root's index showed other users what an access list, or a directory above, hid from
/// them.
#[test]
fn an_index_hides_what_the_source_hides() {
    if !is_root() {
        return;
    }
    let world = World::without_volume();
    let nobody = Nobody::new(&world);
    let source = world.path().join("above/source");
    for directory in ["listed", "open"] {
        fs::create_dir_all(source.join(directory)).unwrap();
        fs::write(source.join(directory).join("file"), "").unwrap();
    }
    // The user nobody may not; all other users may, and the mode shows that.
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, !0), (2, 0, NOBODY), (4, 5, !0), (0x10, 5, !0), (0x20, 5, !0)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let (name, flags) = ("system.posix_acl_access", rustix::fs::XattrFlags::empty());
    let has_lists = rustix::fs::setxattr(source.join("listed"), name, &list, flags);
    has_lists.expect("the tests' temporary files are on a file system with access lists");
    let index = ["index", source.to_str().unwrap(), "--into", world.vol()];
    world.ok(&index);
    assert_eq!(nobody.run(&["ls", &world.at("/open")]).out, "file\n");
    assert_eq!(nobody.run(&["ls", &world.at("/listed")]).code, 4);
    let found = nobody.run(&["find", &world.at("/"), "-name", "file"]);
    assert_eq!(found.out.lines().count(), 1, "{}", found.out);
    // Below a directory that other users may not enter.
    world.kill_daemon();
    fs::remove_dir_all(&world.volume).unwrap();
    let above = world.path().join("above");
    fs::set_permissions(&above, PermissionsExt::from_mode(0o750)).unwrap();
    let reported = world.run(&index);
    assert!(reported.err.contains("neither is the index"), "{}", reported.err);
    assert_eq!(nobody.run(&["ls", &world.at("/open")]).code, 4);
    assert_eq!(world.names("/open"), ["file"]);
    // An administrator who opens the index does so on purpose: later scans keep the mode.
    fs::set_permissions(&world.volume, PermissionsExt::from_mode(0o711)).unwrap();
    world.ok(&index);
    assert_eq!(nobody.run(&["ls", &world.at("/open")]).out, "file\n");
    // A directory that is closed after the first scan hides the index from the next one on.
    let (mode, set) = (PermissionsExt::from_mode, fs::set_permissions);
    set(&above, mode(0o755)).unwrap();
    world.ok(&index);
    // A scan that is refused closes nothing.
    let closed = world.path().join("closed");
    fs::create_dir_all(closed.join("other")).unwrap();
    set(&closed, mode(0o700)).unwrap();
    let other = closed.join("other");
    let refused = world.run(&["index", other.to_str().unwrap(), "--into", world.vol()]);
    assert!(refused.code != 0 && refused.err.contains("is an index of"), "{}", refused.err);
    assert_eq!(fs::metadata(&world.volume).unwrap().mode() & 0o777, 0o711);
    set(&above, mode(0o700)).unwrap();
    let reported = world.run(&index);
    assert!(reported.err.contains("neither is the index"), "{}", reported.err);
    assert_eq!(nobody.run(&["ls", &world.at("/open")]).code, 4);
    mounts_of_an_index_hide_it(&world, &index, &above);
}

/// Mounts on an open place, of an index whose source is hidden.
fn mounts_of_an_index_hide_it(world: &World, index: &[&str], above: &Path) {
    if crate::world::reason("SKIP_FUSE").is_some() {
        return;
    }
    let shows = || {
        let id = NOBODY.to_string();
        let mut list = Command::new("setpriv");
        list.args(["--reuid", &id, "--regid", &id, "--clear-groups", "ls"]);
        list.arg(world.below_mount("open")).output().unwrap().status.success()
    };
    let mount = |options: &[&str]| {
        let mounted = world.run(&[&["mount", world.vol(), world.mnt()], options].concat());
        assert_eq!(mounted.code, 0, "{}", mounted.err);
        let shown = shows();
        world.umount();
        (mounted.err.contains("for you alone"), shown)
    };
    assert_eq!(mount(&[]), (true, false));
    assert_eq!(mount(&["-o", "ro,allow_other"]), (false, true), "what was typed holds");
    let set = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode));
    set(&world.volume, 0o711).unwrap();
    assert_eq!(mount(&[]), (false, true), "an administrator opened the index");
    // A mount that exists when the source becomes hidden remains, and is named.
    set(above, 0o711).unwrap();
    world.ok(index);
    world.ok(&["mount", world.vol(), world.mnt()]);
    set(above, 0o700).unwrap();
    let reported = world.run(index);
    assert!(
        reported.err.contains(&format!("mounted on {} for other", world.mnt())),
        "{}",
        reported.err
    );
    assert!(shows());
    // Nor is it mounted again for others, if an open file keeps it.
    let plain = ["mount", world.vol(), world.mnt()];
    let kept = fs::File::options().read(true).open(world.below_mount("open/file")).unwrap();
    world.ok(&["umount", "--lazy", world.mnt()]);
    let again = world.run(&plain);
    assert!(again.code == 6 && again.err.contains("'allow_other' differs"), "{}", again.err);
    drop(kept);
    assert_eq!(mount(&[]), (true, false));
    world.ok(&plain);
    let kept = fs::File::options().read(true).open(world.below_mount("open/file")).unwrap();
    world.ok(&["umount", "--lazy", world.mnt()]);
    world.ok(&plain);
    assert!(!shows());
    drop(kept);
    world.umount();
}

/// Regression: it waited for two minutes for a daemon that the open file keeps, failed, and made
/// nothing durable.
#[test]
fn a_mount_that_was_made_again_is_unmounted_beside_files_that_were_open_before() {
    let world = World::new();
    if !is_root() || !world.mount() {
        return;
    }
    fs::write(world.below_mount("open"), "first").unwrap();
    let open = fs::File::options().read(true).open(world.below_mount("open")).unwrap();
    world.ok(&["umount", "--lazy", world.mnt()]);
    world.ok(&["mount", world.vol(), world.mnt()]);
    fs::write(world.below_mount("second"), "written").unwrap();
    let unmounted = world.run(&["umount", world.mnt()]);
    assert_eq!(unmounted.code, 0, "{}", unmounted.err);
    assert!(unmounted.err.contains("open before still keep its daemon"), "{}", unmounted.err);
    // It was durable when the command returned.
    world.kill_daemon();
    drop(open);
    world.ok(&["mount", world.vol(), world.mnt()]);
    assert_eq!(fs::read_to_string(world.below_mount("second")).unwrap(), "written");
    world.umount();
}
