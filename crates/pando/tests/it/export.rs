//! Exports hold everything that the caller may read, as a directory and as an archive that other
//! programs read.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::import::{assert_same, sample};
use crate::other_users::Nobody;
use crate::world::{NOBODY, World, engines, is_root};

/// What [`sample`] does not have: names that are long or not UTF-8, links to them, times before
/// 1970, owners of seven digits, ACLs, a device.
pub(crate) fn odd(root: &Path) {
    let long = "l".repeat(120);
    let deep = root.join(&long);
    fs::create_dir(&deep).unwrap();
    fs::write(deep.join("m".repeat(200)), "long").unwrap();
    fs::hard_link(deep.join("m".repeat(200)), root.join("short")).unwrap();
    symlink("t".repeat(150), root.join("to a long target")).unwrap();
    fs::write(root.join(OsString::from_vec(b"not \xff\n utf-8".to_vec())), "x").unwrap();
    fs::write(deep.join(OsString::from_vec([&b"\xfe"[..], &[b'n'; 180]].concat())), "y").unwrap();
    let old = new_file(&root.join("old"));
    let time = std::time::UNIX_EPOCH - std::time::Duration::from_millis(1_500_000_500);
    old.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
    let hole = new_file(&root.join("a hole at the end"));
    std::os::unix::fs::FileExt::write_all_at(&hole, b"data", 70_000).unwrap();
    hole.set_len(3 << 20).unwrap();
    new_file(&root.join("only a hole")).set_len(1 << 20).unwrap();
    let list = |path: &Path, arguments: &[&str]| {
        let done = Command::new("setfacl").args(arguments).arg(path).status().unwrap();
        assert!(done.success(), "{}", path.display());
    };
    list(&deep, &["-m", "u:1234:r-x"]);
    list(&deep, &["-d", "-m", "g:33:rwx"]);
    list(&root.join("old"), &["-m", "u:0:rw,g:4000000:r"]);
    if is_root() {
        chown(root.join("old"), Some(3_000_000), Some(4_000_000_000)).unwrap();
        let (mode, number) = (rustix::fs::Mode::from_raw_mode(0o640), rustix::fs::makedev(10, 300));
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, root.join("device"), kind, mode, number).unwrap();
    }
}

/// A new file.
pub(crate) fn new_file(path: &Path) -> fs::File {
    fs::File::options().write(true).create_new(true).open(path).unwrap()
}

/// A directory or file, opened to set its times.
pub(crate) fn opened(path: &Path) -> fs::File {
    fs::File::options().read(true).open(path).unwrap()
}

/// The access lists of a tree, as text.
pub(crate) fn lists(root: &Path) -> String {
    let out = Command::new("getfacl").args(["-R", "-n", "."]).current_dir(root).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut parts: Vec<_> = text.split("\n\n").map(str::to_owned).collect();
    parts.sort();
    parts.join("\n\n")
}

/// A volume with a source in `/s`.
fn filled(engine: &str) -> (World, std::path::PathBuf) {
    let world = World::on(engine);
    let source = world.source();
    sample(&source);
    odd(&source);
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    (world, source)
}

fn extracted(program: &str, arguments: &[&str], archive: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    let mut command = Command::new(program);
    command.arg("-C").arg(to).args(arguments).arg("-xpf").arg(archive);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn an_exported_directory_is_the_original() {
    for engine in engines("btree") {
        let (world, source) = filled(engine);
        let copy = world.path().join("copy");
        let exported = world.json(&["export", &world.at("/s"), copy.to_str().unwrap()]);
        assert_eq!(exported[0]["failed"], 0, "{exported:?}");
        assert_same(&source, &copy);
        assert_eq!(lists(&source), lists(&copy));
        let holes = fs::metadata(copy.join("sparse")).unwrap();
        assert!(holes.blocks() < 4096, "{holes:?}");
        // Nothing that is there is written over.
        world.fails(6, &["export", &world.at("/s"), copy.to_str().unwrap()]);
        world.fails(3, &["export", &world.at("/nothing"), &format!("{}2", copy.display())]);
        assert!(!world.path().join("copy2").exists());
        let file = world.path().join("file");
        world.ok(&["export", &world.at("/s/small"), file.to_str().unwrap()]);
        assert_eq!(fs::read(&file).unwrap(), b"small");
    }
}

#[test]
fn other_programs_extract_an_exported_archive() {
    for engine in engines("lsm") {
        let (world, source) = filled(engine);
        world.ok(&["snapshot", "create", &world.at("/s"), "then"]);
        world.ok(&["rmr", &world.at("/s/d")]);
        let archive = world.path().join("archive.tar");
        let from = world.at("/s@then");
        world.ok(&["export", "--format", "tar", &from, archive.to_str().unwrap()]);
        let compared = Command::new("tar")
            .args(["--compare", "--xattrs", "--acls", "-f"])
            .arg(&archive)
            .current_dir(&source)
            .output()
            .unwrap();
        let reported = String::from_utf8_lossy(&compared.stderr).into_owned();
        assert!(compared.status.success(), "{reported}");
        assert_eq!(String::from_utf8_lossy(&compared.stdout), "", "{reported}");
        let gnu = world.path().join("gnu");
        extracted("tar", &["--xattrs", "--xattrs-include=*", "--acls"], &archive, &gnu);
        assert_same(&source, &gnu);
        assert_eq!(lists(&source), lists(&gnu));
        // bsdtar takes a time before 1970 for another one.
        let bsd = world.path().join("bsd");
        extracted("bsdtar", &["--xattrs", "--acls"], &archive, &bsd);
        for tree in [&source, &bsd] {
            fs::remove_file(tree.join("old")).unwrap();
        }
        let time = fs::metadata(&source).unwrap().modified().unwrap();
        let top = opened(&bsd);
        top.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        assert_same(&source, &bsd);
        assert_eq!(lists(&source), lists(&bsd));
    }
}

#[test]
fn a_user_exports_what_the_user_may_read() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    let source = world.path().join("source");
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::create_dir_all(source.join("open")).unwrap();
    for file in ["open/public", "open/secret", "closed/inside"] {
        fs::write(source.join(file), "text").unwrap();
    }
    fs::write(source.join("open/long secret"), vec![1; 100_000]).unwrap();
    for secret in ["open/secret", "open/long secret", "closed"] {
        fs::set_permissions(source.join(secret), PermissionsExt::from_mode(0o700)).unwrap();
    }
    // Its names may be read, and nothing below it.
    fs::create_dir(source.join("listed")).unwrap();
    fs::write(source.join("listed/inside"), "text").unwrap();
    fs::set_permissions(source.join("listed"), PermissionsExt::from_mode(0o744)).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    if !world.mount_with(&["-o", "allow_other"]) {
        return;
    }
    let to = world.path().join("of nobody");
    fs::create_dir(&to).unwrap();
    chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
    let copy = to.join("copy");
    let from = world.below_mount("s");
    let answer = nobody.run(&["export", from.to_str().unwrap(), copy.to_str().unwrap()]);
    assert_eq!(answer.code, 4, "{answer:?}");
    for left_out in ["closed", "listed", "open/secret", "open/long secret"] {
        assert!(answer.err.contains(left_out), "{answer:?}");
        assert!(!copy.join(left_out).exists());
    }
    assert_eq!(fs::read(copy.join("open/public")).unwrap(), b"text");
    let archive = to.join("archive.tar");
    let arguments = ["export", "--format", "tar"].map(OsString::from);
    let paths = [from, archive.clone()].map(std::path::PathBuf::into_os_string);
    let answer = nobody.run(&[&arguments[..], &paths].concat());
    assert_eq!(answer.code, 4, "{answer:?}");
    let listed = Command::new("tar").arg("tf").arg(&archive).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "./\n./open/\n./open/public\n");
}

#[test]
fn an_archive_that_cannot_be_written_is_a_failure() {
    let world = World::new();
    fs::write(world.path().join("file"), vec![7; 3 << 20]).unwrap();
    world.ok(&["import", world.path().join("file").to_str().unwrap(), &world.at("/f")]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let arguments = ["export", "--format", "tar", &world.at("/f"), "-"];
    let mut command = World::command(&arguments);
    let failed = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    let reported = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(7), "{reported}");
    // Without the option a dash is no directory.
    let reported = world.fails(2, &["export", &world.at("/f"), "-"]);
    assert!(reported.contains("--format tar"), "{reported}");
}

#[test]
fn sockets_are_not_in_archives() {
    let world = World::new();
    let source = world.source();
    let _socket = UnixListener::bind(source.join("socket")).unwrap();
    fs::hard_link(source.join("socket"), source.join("twice")).unwrap();
    fs::write(source.join("file"), "text").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    let archive = world.path().join("archive.tar");
    let arguments = ["export", "--format", "tar", &world.at("/s"), archive.to_str().unwrap()];
    let exported = world.json(&arguments);
    assert_eq!((&exported[0]["exported"], &exported[0]["sockets"]), (&2.into(), &2.into()));
    let copy = world.path().join("copy");
    world.ok(&["export", &world.at("/s"), copy.to_str().unwrap()]);
    assert_same(&source, &copy);
}

/// In a directory that another user can change, the user could make the export follow a link.
#[test]
fn an_export_to_where_another_user_can_write_is_refused() {
    let world = World::new();
    let source = world.source();
    fs::write(source.join("file"), "text").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    let place = world.path().join("place");
    let below = place.join("below");
    fs::create_dir_all(&below).unwrap();
    let refused = |to: &Path| {
        let reported = world.fails(4, &["export", &world.at("/s"), to.to_str().unwrap()]);
        assert!(
            reported.contains(&format!("another user can change {}", place.display())),
            "{reported}"
        );
        assert!(!to.exists());
    };
    for mode in [0o777, 0o775] {
        fs::set_permissions(&place, PermissionsExt::from_mode(mode)).unwrap();
        refused(&place.join("copy"));
        refused(&below.join("copy"));
    }
    fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
    if is_root() {
        chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
        refused(&below.join("copy"));
        chown(&place, Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(&place, PermissionsExt::from_mode(0o1777)).unwrap();
    let copy = below.join("copy");
    world.ok(&["export", &world.at("/s"), copy.to_str().unwrap()]);
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"text");
    let archive = below.join("archive");
    let words = ["export", "--format", "tar", &world.at("/s"), archive.to_str().unwrap()];
    world.ok(&words);
    assert_eq!(fs::metadata(archive).unwrap().permissions().mode() & 0o777, 0o600);
}

/// The memory for files with several names is bounded, at the command as at the daemon.
#[test]
fn names_beyond_the_memory_are_files_of_their_own() {
    const FILES: usize = 9000;
    let world = World::on("btree");
    let source = world.path().join("source");
    for directory in ["a", "b/longer"] {
        fs::create_dir_all(source.join(directory)).unwrap();
    }
    for file in 0..FILES {
        let first = source.join(format!("a/{file:05}"));
        fs::write(&first, b"").unwrap();
        fs::hard_link(first, source.join(format!("b/longer/{file:05}"))).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    for (memory, most) in [("1M", (1 << 20) / (128 + 7)), ("2M", FILES)] {
        let copy = world.path().join(memory);
        let to = copy.to_str().unwrap();
        let done = world.json(&["export", "--memory", memory, &world.at("/d"), to]).remove(0);
        assert_eq!(done["exported"].as_u64(), Some(2 * FILES as u64 + 4), "{done}");
        let linked = |directory: &str| {
            let files = fs::read_dir(copy.join(directory)).unwrap();
            files.filter(|file| file.as_ref().unwrap().metadata().unwrap().nlink() == 2).count()
        };
        assert_eq!((linked("a"), linked("b/longer")), (most, most));
        // A further name may come when there is memory again.
        let (split, own) = (done["split"].as_u64().unwrap(), (FILES - most) as u64);
        assert!((own..=2 * own).contains(&split), "{done}");
        fs::remove_dir_all(&copy).unwrap();
    }
}
