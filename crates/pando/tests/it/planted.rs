//! Files that a user plants in the directory of their volume, for root to open. Nothing of root's
//! is given away or overwritten, and no verb of root's blocks on it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode};

use crate::other_users::Nobody;
use crate::world::{NOBODY, PANDO, World, is_root};

/// Seconds after which a verb of root's counts as hanging.
const HANGS: &str = "30";

#[derive(Debug, Clone, Copy)]
enum Plant {
    HardLink,
    Symlink,
    Fifo,
    Device,
    /// A file of the volume's user.
    File,
}

impl Plant {
    const ALL: [Plant; 5] =
        [Plant::HardLink, Plant::Symlink, Plant::Fifo, Plant::Device, Plant::File];

    /// Whether it is tried in place of a name: a hard link everywhere, a file where there is none.
    /// The others are tried at the top level.
    fn is_for(self, name: &Path, volume: &Path) -> bool {
        match self {
            Plant::HardLink => true,
            Plant::File => !name.is_file(),
            _ => name.parent() == Some(volume),
        }
    }

    fn put(self, at: &Path, secret: &Path) {
        let node = |kind| {
            let number = rustix::fs::makedev(1, 3);
            rustix::fs::mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), number).unwrap();
        };
        match self {
            Plant::HardLink => fs::hard_link(secret, at).unwrap(),
            Plant::Symlink => symlink(secret, at).unwrap(),
            Plant::Fifo => node(FileType::Fifo),
            Plant::Device => node(FileType::CharacterDevice),
            Plant::File => {
                fs::write(at, "theirs").unwrap();
                chown(at, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
    }
}

fn moved(from: &Path, to: &Path) {
    assert!(Command::new("mv").args([from, to]).status().unwrap().success());
}

fn root_runs(arguments: &[&str]) -> i32 {
    let output = Command::new("timeout")
        .args([HANGS, PANDO])
        .args(arguments)
        .env("PANDO_IDLE_SECONDS", "0")
        .output()
        .unwrap();
    output.status.code().unwrap_or(-1)
}

fn ok(nobody: &Nobody, arguments: &[&str]) {
    let answer = nobody.run(arguments);
    assert_eq!(answer.code, 0, "{arguments:?}: {}", answer.err);
}

/// Another user's volume with a subvolume, which no daemon has.
fn nobodys_volume(engine: &str) -> (World, Nobody) {
    let world = World::without_volume();
    let nobody = Nobody::new(&world);
    fs::create_dir(&world.volume).unwrap();
    chown(&world.volume, Some(NOBODY), Some(NOBODY)).unwrap();
    ok(&nobody, &["format", "--engine", engine, world.vol()]);
    ok(&nobody, &["subvolume", "create", &world.at("/d")]);
    world.kill_daemon();
    (world, nobody)
}

#[test]
fn root_files_are_not_given_away_or_overwritten_through_another_users_volume() {
    if !is_root() {
        return;
    }
    for engine in ["btree", "lsm"] {
        let (world, nobody) = nobodys_volume(engine);
        let secret = world.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let mut names = world.files();
        // What is there and no file, and what is only opened if it is there.
        let socket = world.volume.join("control.sock");
        assert!(
            socket.symlink_metadata().unwrap().file_type().is_socket(),
            "the daemon was killed"
        );
        names.push(socket.clone());
        names.extend(["observed", "volume.pando.new"].map(|name| world.volume.join(name)));
        for expected in ["owner.lock", "owner.log"] {
            assert!(names.iter().any(|name| name.ends_with(expected)), "{expected}: {names:?}");
        }
        // The files of one engine were all tried with the rest of them.
        names.retain(|name| engine == "btree" || name.starts_with(world.volume.join(engine)));
        assert!(!names.is_empty(), "{engine}");
        let (copy, mut used) = (world.path().join("copy"), 0);
        for name in &names {
            let at_top = name.parent() == Some(&world.volume);
            let is_for = |plant: &Plant| plant.is_for(name, &world.volume);
            for plant in Plant::ALL.into_iter().filter(is_for) {
                // The other verbs repair missing files: the volume is restored after each.
                let copied = Command::new("cp").arg("-a").args([&world.volume, &copy]).status();
                assert!(copied.unwrap().success());
                if name.symlink_metadata().is_ok() {
                    fs::remove_file(name).unwrap();
                }
                plant.put(name, &secret);
                for verb in [&["status", world.vol()][..], &["fsck", "--repair", world.vol()]] {
                    if !at_top && verb.len() == 2 {
                        continue;
                    }
                    let code = root_runs(verb);
                    assert_ne!(code, 124, "{name:?} {plant:?}: {verb:?} hangs");
                    // A daemon makes its socket.
                    let is_served = *name != socket || code == 0;
                    assert!(is_served, "{name:?} {plant:?}: {verb:?} ends with {code}");
                }
                let found = secret.metadata().unwrap();
                let state = (found.uid(), found.mode() & 0o7777);
                assert_eq!(state, (0, 0o600), "{name:?} {plant:?}");
                assert_eq!(fs::read(&secret).unwrap(), b"secret", "{name:?} {plant:?}");
                used += 1;
                moved(&world.volume, &world.path().join(format!("used-{used}")));
                moved(&copy, &world.volume);
            }
        }
        assert!(world.ok(&["fsck", world.vol()]).contains("clean"));
        ok(&nobody, &["ls", &world.at("/d")]);
    }
}

/// In place of each directory of the volume: a link to a directory of root's, a FIFO, a file.
#[test]
fn roots_directories_are_not_given_away_or_filled_through_another_users_volume() {
    if !is_root() {
        return;
    }
    for engine in ["btree", "lsm"] {
        let (world, _) = nobodys_volume(engine);
        let secret = world.path().join("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("file"), "secret").unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o700)).unwrap();
        let below = |directory: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
            entries.filter(|path| path.is_dir()).collect()
        };
        let mut directories = below(&world.volume);
        directories.extend(below(&world.volume.join("data")));
        for expected in ["data", "data/open", "data/sealed", engine] {
            assert!(directories.iter().any(|path| path.ends_with(expected)), "{directories:?}");
        }
        // Those of one engine were all tried with the rest of them.
        directories.retain(|path| engine == "btree" || path.ends_with(engine));
        let (copy, mut used) = (world.path().join("copy"), 0);
        for directory in &directories {
            for plant in [Plant::Symlink, Plant::Fifo] {
                let copied = Command::new("cp").arg("-a").args([&world.volume, &copy]).status();
                assert!(copied.unwrap().success());
                fs::remove_dir_all(directory).unwrap();
                plant.put(directory, &secret);
                for verb in [
                    &["status", world.vol()][..],
                    &["fsck", "--repair", world.vol()],
                    &["gc", "--delete", world.vol()],
                    &["snapshot", "create", &world.at("/d"), "s"],
                ] {
                    let code = root_runs(verb);
                    assert_ne!(code, 124, "{directory:?} {plant:?}: {verb:?} hangs");
                }
                let found = secret.metadata().unwrap();
                let state = (found.uid(), found.mode() & 0o7777);
                assert_eq!(state, (0, 0o700), "{directory:?} {plant:?}");
                let held: Vec<_> = fs::read_dir(&secret).unwrap().flatten().collect();
                assert_eq!(held.len(), 1, "{directory:?} {plant:?}: {held:?}");
                let file = secret.join("file");
                assert_eq!(fs::read(&file).unwrap(), b"secret", "{directory:?} {plant:?}");
                assert_eq!(file.metadata().unwrap().uid(), 0, "{directory:?} {plant:?}");
                used += 1;
                moved(&world.volume, &world.path().join(format!("used-{used}")));
                moved(&copy, &world.volume);
            }
        }
    }
}

/// What root and nobody do, in a mount namespace where every user may open the device. Nobody
/// mounts a volume of their own as root's, `$volume`, and root runs verbs on paths below it.
const FORGED: &str = r#"
mount --bind "$place/fuse" /dev/fuse
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
refused() {
  code=0; timeout 60 "$pando" "$@" 2> "$place/err" || code=$?
  cat "$place/err"
  [ "$code" = 4 ] || { echo "not refused, $code: $*"; exit 1; }
  grep -q "no daemon of that volume confirms it" "$place/err" || { echo "no reason: $*"; exit 1; }
}
export theirs=$place/theirs
nobody "$pando" format "$theirs/v"
nobody "$pando" mount -o "fsname=$volume" "$theirs/v" "$theirs/m"
grep -q " fuse.pando $volume rw,user_id=65534" /proc/self/mountinfo
refused rmr "$theirs/m/x"
refused snapshot create "$theirs/m/x" s
refused status "$theirs/m"
# With a daemon of root's, too, and one that has a mount.
"$pando" ls "$volume:/"
refused rmr "$theirs/m/x"
"$pando" mount "$volume" "$place/mnt"
refused rmr "$theirs/m/x"
timeout 60 "$pando" sync "$volume"
"$pando" umount "$place/mnt"
timeout 60 "$pando" umount "$theirs/m"
# Nor does a mount in a namespace where nobody is root name the volume. Its daemon stays for a file.
setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user --map-root-user \
  --mount --propagation=private sh -euc '
  while read -r _ at type _; do
    [ "$type" != fuse.pando ] || umount -l "$at" 2> /dev/null || true
  done < /proc/self/mounts
  "$pando" mount -o "fsname=$volume" "$theirs/v" "$theirs/m"
  touch "$theirs/is-mounted"
  exec sleep 600' > "$theirs/err" 2>&1 &
container=$!
trap 'kill $container $(cat "$theirs/v/owner.lock") || true' EXIT
for _ in $(seq 600); do [ -e "$theirs/is-mounted" ] || sleep 0.1; done
# (There that user is 0, and so the kernel shows it.)
grep -q " fuse.pando $volume rw,user_id=0" /proc/$container/mountinfo
"$pando" mount "$volume" "$place/mnt"
exec 5< "$place/mnt"
"$pando" umount --lazy "$place/mnt"
code=0; timeout 60 "$pando" umount "$volume" 2> "$place/err" || code=$?
cat "$place/err"
[ "$code" = 6 ] && grep -q "files are open" "$place/err"
exec 5<&-
kill $container "$(cat "$theirs/v/owner.lock")"
trap - EXIT
wait $container || true
# One with a true answer is believed.
nobody "$pando" mount "$theirs/v" "$theirs/m"
nobody "$pando" subvolume create "$theirs/m/mine"
"$pando" rmr "$theirs/m/mine"
timeout 60 "$pando" umount "$theirs/m"
"$pando" ls "$volume:/" > "$place/left"
"#;

/// Regression: a user's own FUSE mount that showed root's volume as its source directed verbs of
/// root's on paths below it into that volume.
#[test]
fn another_users_mount_counts_only_if_its_daemon_confirms_it() {
    if !is_root() || crate::world::reason("SKIP_FUSE").is_some() {
        return;
    }
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/x")]);
    let program = world.path().join("pando");
    crate::world::copy_program(&program);
    let theirs = world.path().join("theirs");
    fs::create_dir_all(theirs.join("m")).unwrap();
    for path in [theirs.clone(), theirs.join("m")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let device = world.path().join("fuse");
    let (kind, mode) = (FileType::CharacterDevice, Mode::from_raw_mode(0o666));
    rustix::fs::mknodat(CWD, &device, kind, mode, rustix::fs::makedev(10, 229)).unwrap();
    fs::set_permissions(&device, PermissionsExt::from_mode(0o666)).unwrap();
    let leaves = crate::world::LEAVE_OTHER_MOUNTS;
    let script = format!("{leaves}leave_other_mounts\n{FORGED}");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-euc", &script])
        .env("place", world.path())
        .env("volume", &world.volume)
        .env("pando", &program)
        .env("PANDO_IDLE_SECONDS", "1")
        .output()
        .unwrap();
    let answer = crate::world::answer(&output);
    assert_eq!(answer.code, 0, "{} {}", answer.out, answer.err);
    assert_eq!(fs::read_to_string(world.path().join("left")).unwrap(), "x\n");
}

/// Regression: a link in place of the socket directed requests for one volume to the daemon of
/// another.
#[test]
fn a_socket_of_another_volume_is_not_used() {
    let world = World::new();
    let other = World::new();
    for world in [&world, &other] {
        world.ok(&["subvolume", "create", &world.at("/x")]);
    }
    let socket = other.volume.join("control.sock");
    let planted = world.volume.join("control.sock");
    for link in [symlink::<&Path, &Path>, |from: &Path, to: &Path| fs::hard_link(from, to)] {
        world.kill_daemon();
        fs::remove_file(&planted).unwrap();
        link(&socket, &planted).unwrap();
        world.ok(&["subvolume", "create", &world.at("/y")]);
        assert_eq!(other.names("/"), ["x"]);
        world.ok(&["rmr", &world.at("/y")]);
    }
}
