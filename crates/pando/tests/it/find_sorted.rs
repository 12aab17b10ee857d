//! Compares `pando find --sort`, with and without `--limit`, and `--json`, with `lstat` of every
//! file: over a base and without one.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use serde_json::Value;

use crate::find::{found, tree};
use crate::world::{World, is_root};

/// A file found by a walk: its path as finders print it, and the index of its start path.
struct File {
    start: usize,
    path: Vec<u8>,
    row: fs::Metadata,
}

/// All files at and below some paths.
fn walk(root: &Path, starts: &[&str]) -> Vec<File> {
    let mut files = Vec::new();
    for (start, typed) in starts.iter().enumerate() {
        for entry in walkdir::WalkDir::new(root.join(typed)) {
            let entry = entry.unwrap();
            let row = entry.path().symlink_metadata().unwrap();
            let below = entry.path().strip_prefix(root.join(typed)).unwrap();
            let mut path = typed.as_bytes().to_vec();
            if !below.as_os_str().is_empty() {
                path.push(b'/');
                path.extend_from_slice(below.as_os_str().as_bytes());
            }
            files.push(File { start, path, row });
        }
    }
    files
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap()
}

/// The paths in an order; equal ones by their paths.
fn ordered(files: &[File], key: &str, descending: bool) -> Vec<Vec<u8>> {
    let mut files: Vec<&File> = files.iter().collect();
    files.sort_by(|one, other| {
        let (a, b) = (&one.row, &other.row);
        let by_key = match key {
            "size" => a.len().cmp(&b.len()),
            "mtime" => (a.mtime(), a.mtime_nsec()).cmp(&(b.mtime(), b.mtime_nsec())),
            "name" => name(&one.path).cmp(name(&other.path)),
            _ => one.path.cmp(&other.path),
        };
        let by_key = if descending { by_key.reverse() } else { by_key };
        by_key.then_with(|| one.path.cmp(&other.path)).then(one.start.cmp(&other.start))
    });
    files.into_iter().map(|file| file.path.clone()).collect()
}

fn find(root: &Path, words: &[&str]) -> Vec<u8> {
    let words = [&["find"], words].concat();
    let output = World::command(&words).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", output.stderr.escape_ascii());
    output.stdout
}

fn records(text: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = text.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    assert_eq!(all.pop(), Some(Vec::new()), "the last one is closed");
    all
}

fn check_orders(root: &Path, random: &mut fastrand::Rng, place: &str) {
    let show = |paths: &[Vec<u8>]| -> Vec<String> {
        paths.iter().map(|path| path.escape_ascii().to_string()).collect()
    };
    for starts in [&["."][..], &["one", "./two", "one/.", "one"]] {
        let files = walk(root, starts);
        for key in ["size", "mtime", "name", "path"] {
            for direction in ["", ":asc", ":desc"] {
                let wanted = ordered(&files, key, direction == ":desc");
                let all = wanted.len();
                // Sorted by the daemon, by the command, and without any limit.
                let limits = [0, 1, 7, all - 1, all, all + 1];
                let limit = limits[random.usize(..limits.len())];
                for limit in [limit, [1_000_000, usize::MAX][random.usize(..2)]] {
                    let (sort, count) = (format!("{key}{direction}"), limit.to_string());
                    let mut words = [starts, &["--sort", &sort]].concat();
                    if limit != usize::MAX {
                        words.extend(["--limit", &count]);
                    }
                    words.push("-print0");
                    let given = records_or_none(&find(root, &words));
                    let wanted = &wanted[..limit.min(all)];
                    assert_eq!(show(&given), show(wanted), "{place}: {words:?}");
                }
            }
        }
    }
}

fn records_or_none(text: &[u8]) -> Vec<Vec<u8>> {
    if text.is_empty() { Vec::new() } else { records(text) }
}

/// Bytes of a name in an object: those that are not UTF-8 come from the hexadecimal digits.
fn bytes_of(object: &Value, key: &str, place: &str) -> Vec<u8> {
    let text = object[key].as_str().unwrap();
    let Some(hex) = object.get(format!("{key}_hex")) else { return text.as_bytes().to_vec() };
    let hex = hex.as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    assert_eq!(
        std::str::from_utf8(&bytes).ok(),
        None,
        "{place}: digits only where they are needed"
    );
    assert_eq!(text, String::from_utf8_lossy(&bytes), "{place}");
    bytes
}

fn kind(row: &fs::Metadata) -> &'static str {
    let kind = row.file_type();
    match () {
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "char-device",
        () if kind.is_block_device() => "block-device",
        () => "file",
    }
}

fn check_json(root: &Path, place: &str) {
    let text = String::from_utf8(find(root, &[".", "--json"])).expect("JSON is UTF-8");
    let mut objects: Vec<(Vec<u8>, Value)> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .map(|object: Value| (bytes_of(&object, "path", place), object))
        .collect();
    objects.sort_by(|one, other| one.0.cmp(&other.0));
    let mut files = walk(root, &["."]);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    assert_eq!(objects.len(), files.len(), "{place}");
    let time = |object: &Value, key: &str| -> i128 {
        let text = object[key].as_str().unwrap();
        text.parse::<jiff::Timestamp>().unwrap().as_nanosecond()
    };
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let mut kinds = Vec::new();
    for ((path, object), File { path: wanted, row, .. }) in objects.iter().zip(&files) {
        assert_eq!(path, wanted, "{place}");
        let place = format!("{place}: {}: {object}", path.escape_ascii());
        let numbers = [
            ("inode", row.ino()),
            ("links", row.nlink()),
            ("uid", row.uid().into()),
            ("gid", row.gid().into()),
            ("size", row.len()),
            ("blocks", row.blocks()),
            ("depth", path.split(|byte| *byte == b'/').count() as u64 - 1),
        ];
        for (key, wanted) in numbers {
            assert_eq!(object[key].as_u64(), Some(wanted), "{key} of {place}");
        }
        let mode = format!("{:04o}", row.mode() & 0o7777);
        assert_eq!(
            (&object["kind"], &object["mode"]),
            (&kind(row).into(), &mode.into()),
            "{place}"
        );
        let born = row.created().unwrap().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        let times = ["atime", "mtime", "ctime", "btime"].map(|key| time(object, key));
        let wanted = [
            nanos(row.atime(), row.atime_nsec()),
            nanos(row.mtime(), row.mtime_nsec()),
            nanos(row.ctime(), row.ctime_nsec()),
            born as i128,
        ];
        assert_eq!(times, wanted, "{place}");
        if row.is_symlink() {
            let target = fs::read_link(root.join(PathBuf::from(OsString::from_vec(path.clone()))));
            let given = bytes_of(object, "target", &place);
            assert_eq!(given, target.unwrap().as_os_str().as_bytes(), "{place}");
        } else {
            assert_eq!(object.get("target"), None, "{place}");
        }
        let device =
            format!("{}, {}", rustix::fs::major(row.rdev()), rustix::fs::minor(row.rdev()));
        let wanted = if kind(row).ends_with("device") { device.into() } else { Value::Null };
        assert_eq!(object["device"], wanted, "{place}");
        kinds.push(kind(row));
        // Unknown fields are absent.
        let known = ["target", "target_hex", "path", "path_hex", "kind", "mode", "device"];
        let known = [&known[..], &numbers.map(|(key, _)| key)].concat();
        let more = object.as_object().unwrap().keys();
        let more: Vec<&String> =
            more.filter(|key| !known.contains(&key.as_str()) && !key.ends_with("time")).collect();
        assert!(more.is_empty(), "{more:?} of {place}");
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert!(kinds.len() >= 4, "{kinds:?}");
}

#[test]
fn sorted_output_and_objects_agree_with_lstat() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let seed = testing::run::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let root = world.below_mount("tree");
    fs::create_dir(&root).unwrap();
    for part in ["one", "two"] {
        fs::create_dir(root.join(part)).unwrap();
        tree(&root.join(part), &mut random);
    }
    // Several files share one name, one size and one time.
    for directory in ["one/same", "two/same"] {
        fs::create_dir(root.join(directory)).unwrap();
        for number in 0..4 {
            let file = fs::File::create_new(root.join(directory).join(format!("f{number}")));
            let time = UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 5);
            file.unwrap().set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        }
    }
    let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    fs::write(root.join(odd(b"a\xff\n\"b\\")), "odd").unwrap();
    symlink(odd(b"to\xfe\nnowhere"), root.join("link")).unwrap();
    symlink("caf\u{e9}\n", root.join("other")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
    if is_root() {
        for (kind, number) in [("c", "5"), ("b", "300")] {
            let mut made = Command::new("mknod");
            made.arg(root.join(kind)).args([kind, number, "70000"]);
            assert!(made.status().unwrap().success());
        }
    }
    let theirs = ["find", "."].map(std::ffi::OsStr::new);
    found(&theirs, &[], &root, 0);
    check_orders(&root, &mut random, &format!("seed {seed}, no base"));
    check_json(&root, &format!("seed {seed}, no base"));
    world.ok(&["search", "flush", world.mnt()]);
    fs::write(root.join("one/new"), "after the flush").unwrap();
    rustix::fs::rename(root.join("two/same"), root.join("one/same/moved")).unwrap();
    found(&theirs, &[], &root, 0);
    check_orders(&root, &mut random, &format!("seed {seed}, over a base"));
    check_json(&root, &format!("seed {seed}, over a base"));
    world.umount();
}
