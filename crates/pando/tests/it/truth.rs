//! Every key that `status`, `info`, `search list` and `trash list` print, against a volume of which
//! the truth is known. A key without a row in its table fails, and so does a row without its key.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::world::{OBJECTS, World, is_root, wait_until};

/// How a key is checked.
enum Check {
    /// It has this value.
    Is(fn(&Truth) -> Value),
    /// This holds for its value.
    Holds(fn(&Truth, &Value) -> bool),
    /// It is not checked here, because of this.
    Elsewhere(&'static str),
}

use Check::{Elsewhere, Holds, Is};

/// What is known of a volume, and its status meanwhile.
struct Truth {
    world: World,
    engine: &'static str,
    format: Value,
    mounted: bool,
    begun: jiff::Timestamp,
    /// After a daemon opened it, before anything was changed.
    opened: Value,
    /// After the changes below.
    now: Value,
    /// Bytes and system calls that the daemon wrote with from its start until now.
    daemon_bytes: u64,
    daemon_writes: u64,
    /// Bytes of the daemon's files on disk: all, and those of the log.
    disk_bytes: u64,
    log_bytes: u64,
}

/// Subvolumes that are made between `opened` and `now`, each by a commit.
const MADE: u64 = 5;

fn at<'a>(value: &'a Value, key: &str) -> &'a Value {
    let found = key.split('.').try_fold(value, |value, name| value.get(name));
    found.unwrap_or(&Value::Null)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

impl Truth {
    fn opened(&self, key: &str) -> u64 {
        number(at(&self.opened, key))
    }

    fn now(&self, key: &str) -> u64 {
        number(at(&self.now, key))
    }

    fn more(&self, key: &str) -> u64 {
        self.now(key) - self.opened(key)
    }

    fn is_lsm(&self) -> bool {
        self.engine != "btree"
    }

    fn is_stored(&self) -> bool {
        self.engine == OBJECTS
    }

    /// Whether a text is a time since the test began.
    fn is_recent(&self, value: &Value) -> bool {
        let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
        time >= self.begun && time <= jiff::Timestamp::now()
    }
}

/// One number divided by another, as `status` does.
fn ratio(truth: &Truth, of: &str, by: &str) -> Value {
    json!(truth.now(of) / truth.now(by).max(1))
}

const STATUS: &[(&str, Check)] = &[
    ("path", Is(|it| json!(it.world.vol()))),
    ("volume", Is(|it| it.format["volume"].clone())),
    ("format_version", Is(|it| it.format["format_version"].clone())),
    ("engine", Is(|it| it.format["engine"].clone())),
    ("durability", Is(|it| json!(if it.is_lsm() { "sync" } else { "async" }))),
    ("created", Holds(|it, value| it.is_recent(value))),
    ("daemon.pid", Is(|it| json!(it.world.daemon()))),
    ("daemon.mount_point", Is(|it| json!(it.mounted.then(|| it.world.mnt())))),
    ("pid", Is(|it| json!(it.world.daemon()))),
    ("mount_point", Is(|it| json!(it.mounted.then(|| it.world.mnt())))),
    // The root, d, a, big, sub and b; the clone, without a root of its own; the subvolumes.
    ("inodes", Is(|_| json!(6 + 5 + MADE))),
    ("bytes", Is(|_| json!(2 * (3000 + 300_000 + 3)))),
    ("snapshots", Is(|_| json!(1))),
    ("clones", Is(|_| json!(1))),
    ("subvolumes", Is(|_| json!(1 + MADE))),
    (
        "disk_bytes",
        Holds(|it, value| {
            // Of objects it is what was last measured.
            it.is_stored() || number(value).abs_diff(it.disk_bytes) <= 64 << 10
        }),
    ),
    ("log_bytes", Holds(|it, value| it.is_stored() || number(value) == it.log_bytes)),
    (
        "log_bytes_since_checkpoint",
        Holds(|it, value| match it.now("writing.checkpoints") {
            // All records since the daemon began, and what it replayed.
            0 => number(value) >= it.now(GIVEN),
            _ => number(value) <= it.now(GIVEN),
        }),
    ),
    ("cache_bytes", Holds(|_, value| (1..1 << 30).contains(&number(value)))),
    (
        "written_bytes",
        Holds(|it, value| {
            number(value) <= it.daemon_bytes && it.more("written_bytes") >= it.more(GIVEN)
        }),
    ),
    ("writing.commits", Holds(|it, _| (MADE..3 * MADE).contains(&it.more("writing.commits")))),
    (
        "writing.writes",
        Holds(|it, value| number(value) <= it.daemon_writes && it.more("writing.writes") > 0),
    ),
    ("writing.mean_write_bytes", Is(|it| ratio(it, "written_bytes", "writing.writes"))),
    ("writing.bytes_per_commit", Is(|it| ratio(it, "written_bytes", "writing.commits"))),
    // Nothing is due yet.
    ("writing.checkpoints", Holds(|it, _| it.more("writing.checkpoints") <= 1)),
    (
        "writing.checkpoint_bytes",
        Holds(|it, value| {
            let there_are_some = it.now("writing.checkpoints") > 0;
            number(value) <= it.now("written_bytes") && (number(value) > 0) == there_are_some
        }),
    ),
    (
        "writing.checkpoint_mean_write_bytes",
        Holds(|it, value| {
            let all = it.now("writing.checkpoint_bytes");
            number(value) <= all && (number(value) > 0) == (all > 0)
        }),
    ),
    ("writing.merge_bytes", Is(|_| json!(0))),
    ("writing.ingest_bytes", Is(|_| json!(0))),
    // Records of a directory, an entry and a subvolume, and copies of some.
    (GIVEN, Holds(|it, _| (MADE * 100..MADE * 4000).contains(&it.more(GIVEN)))),
    (
        "writing.write_amplification",
        Holds(|it, value| {
            let ratio = it.now("written_bytes") as f64 / it.now(GIVEN) as f64;
            (value.as_f64().unwrap() - ratio).abs() < 1e-6
        }),
    ),
    ("merges", Holds(|it, value| !it.is_lsm() && value.is_null())),
    ("merges.ended", Is(|_| json!(0))),
    ("merges.under_way", Is(|_| Value::Null)),
    ("merges.next", Is(|_| Value::Null)),
    ("merges.depth", Holds(|_, value| (1..10).contains(&number(value)))),
    ("merges.bytes_per_second_max", Is(|_| json!(0))),
    ("merges.value_logs", Holds(|it, value| !it.is_stored() && value.is_null())),
    ("merges.value_logs.values_from_bytes", Is(|_| json!(144))),
    ("merges.value_logs.count", Holds(is_of_logs)),
    ("merges.value_logs.disk_bytes", Holds(is_of_logs)),
    ("merges.value_logs.rows_bytes", Holds(is_of_logs)),
    (
        "merges.value_logs.live_bytes",
        Holds(|it, value| number(value) <= it.now("merges.value_logs.rows_bytes")),
    ),
    ("merges.value_logs.to_empty", Is(|_| json!(0))),
    ("merges.value_logs.cleaned", Is(|_| json!(0))),
    // The volume was closed.
    ("replayed", Is(|_| json!(0))),
    ("nodes_held", Holds(|it, value| (number(value) > 0) == it.mounted)),
    ("last_checkpoint", Holds(|it, value| it.is_recent(value))),
    (
        "background.idle",
        Is(|it| {
            let busy = ["detached", "dropping", "prunes", "freeing_bytes"];
            let of = |key: &str| it.now(&format!("background.{key}"));
            let collects = at(&it.now, "background.collecting") == &json!(true);
            json!(!collects && busy.map(of) == [0; 4])
        }),
    ),
    // The removal was waited for; its nodes may be freed yet.
    ("background.detached", Is(|_| json!(0))),
    ("background.dropping", Holds(|_, value| number(value) <= 1)),
    ("background.prunes", Is(|_| json!(0))),
    ("background.freeing_bytes", Is(|_| json!(0))),
    // What was removed had no contents.
    ("background.freed_bytes", Is(|_| json!(0))),
    // It may be at it, after the removal.
    (
        "background.collecting",
        Holds(|it, value| value == &json!(false) || it.now("background.reclaimed") > 0),
    ),
    ("background.counting", Is(|_| json!(0))),
    ("background.reclaimed", Holds(|it, _| it.more("background.reclaimed") >= REMOVED)),
    (
        "background.reclaimed_a_second",
        Holds(|it, value| number(value) <= it.now("background.reclaimed")),
    ),
    ("store", Holds(|it, value| !it.is_stored() && value.is_null())),
    ("store.url", Is(|it| json!(it.world.vol()))),
    ("store.requests.create", Holds(|it, value| number(value) >= MADE && it.is_stored())),
    ("store.requests.read", Holds(|_, value| number(value) > 0)),
    ("store.requests.list", Holds(|_, value| number(value) > 0)),
    ("store.requests.head", Holds(|_, value| value.is_u64())),
    ("store.requests.delete", Holds(|_, value| value.is_u64())),
    ("store.requests.retries", Is(|_| json!(0))),
    ("store.seconds", Holds(|_, value| number(value) < 3600)),
    ("store.commits.micros", Holds(|_, value| number(value) > 0)),
    (
        "store.commits.times",
        Holds(|it, value| {
            let counts = value.as_array().unwrap().iter().map(|time| number(&time[1]));
            let counted = counts.sum::<u64>();
            counted > 0 && counted <= it.now("store.requests.create")
        }),
    ),
    ("store.content_objects", Is(|it| json!(content_objects(it)))),
    ("store.bytes_received", Holds(|it, value| number(value) <= stored_bytes(it))),
    ("store.bytes_sent", Holds(|it, value| number(value) >= it.now("written_bytes"))),
    (
        "store.cache.hits",
        Elsewhere("crates/objects/tests/it/cached.rs counts those of known reads"),
    ),
    ("store.cache.misses", Holds(|it, value| number(value) <= it.now("store.requests.read"))),
    ("store.cache.bytes", Holds(|it, value| number(value) <= stored_bytes(it))),
    ("store.unreachable", Is(|_| Value::Null)),
    ("store.changes_wait", Is(|_| Value::Null)),
    ("store.silent_seconds", Is(|_| Value::Null)),
    (
        "store.dollars_a_day",
        Elsewhere("crates/pando/src/host/prices.rs tests the price of given counts"),
    ),
    ("read_only", Is(|_| Value::Null)),
    ("damaged", Is(|_| Value::Null)),
    ("stuck", Is(|_| Value::Null)),
    ("index", Is(|_| Value::Null)),
];

const GIVEN: &str = "writing.given_bytes";

/// Files of the tree that is removed between `opened` and `now`.
const REMOVED: u64 = 40;

/// Value logs have bytes if there are some.
fn is_of_logs(truth: &Truth, value: &Value) -> bool {
    (number(value) > 0) == (truth.now("merges.value_logs.count") > 0)
}

/// Objects that segments of contents are.
fn content_objects(truth: &Truth) -> usize {
    let below = truth.world.path().join("store/data/sealed");
    fs::read_dir(below).map_or(0, |names| names.flatten().filter(is_segment).count())
}

fn is_segment(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().contains(".seg")
}

/// Bytes of all objects.
fn stored_bytes(truth: &Truth) -> u64 {
    bytes_below(&truth.world.path().join("store"), MetadataExt::size)
}

/// Sum over the files below a directory.
fn bytes_below(directory: &Path, of: fn(&fs::Metadata) -> u64) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        if found.is_dir() {
            bytes += bytes_below(&entry.path(), of);
        } else if found.is_file() {
            bytes += of(&found);
        }
    }
    bytes
}

/// All keys of an object, those within objects with theirs in front.
fn keys(value: &Value, above: &str, found: &mut BTreeMap<String, Value>) {
    for (key, value) in value.as_object().unwrap() {
        let key = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        if value.as_object().is_some_and(|object| !object.is_empty()) {
            keys(value, &key, found);
        } else {
            found.insert(key, value.clone());
        }
    }
}

/// A source of two directories and three files of known lengths.
fn source(world: &World) -> String {
    let source = world.path().join("source");
    fs::create_dir_all(source.join("d/sub")).unwrap();
    fs::write(source.join("d/a"), vec![b'a'; 3000]).unwrap();
    let big: Vec<u8> =
        (0..75_000_u32).flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    fs::write(source.join("d/big"), big).unwrap();
    fs::write(source.join("d/sub/b"), b"two").unwrap();
    let removed = source.join("removed");
    fs::create_dir(&removed).unwrap();
    for file in 0..REMOVED {
        fs::write(removed.join(format!("{file}")), b"").unwrap();
    }
    source.into_os_string().into_string().unwrap()
}

fn truth(engine: &'static str) -> Truth {
    let begun = jiff::Timestamp::now();
    let (world, format) = formatted(engine);
    let source = source(&world);
    for name in ["d", "removed"] {
        world.ok(&["import", "-q", &format!("{source}/{name}"), &world.at(&format!("/{name}"))]);
    }
    world.ok(&["snapshot", "create", &world.at("/d"), "monday"]);
    world.ok(&["clone", &world.at("/d"), &world.at("/c")]);
    wait_until("the clone is counted", || world.status()["background"]["counting"] == 0);
    world.ok(&["umount", world.vol()]);
    let durability = if engine == "btree" { "async" } else { "sync" };
    let mounted = world.mount_with(&["-o", durability]);
    let opened = world.status();
    for made in 0..MADE {
        world.ok(&["subvolume", "create", &world.at(&format!("/s{made}"))]);
    }
    world.ok(&["rmr", "--wait", &world.at("/removed")]);
    if mounted {
        assert_eq!(fs::metadata(world.below_mount("d/sub/b")).unwrap().len(), 3);
    }
    world.ok(&["sync", world.vol()]);
    let now = world.status();
    let daemon = format!("/proc/{}/io", world.daemon().unwrap());
    let daemon = fs::read_to_string(daemon).unwrap();
    let io = |name: &str| -> u64 {
        daemon.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    };
    let blocks = |found: &fs::Metadata| found.blocks() * 512;
    Truth {
        engine,
        format,
        mounted,
        begun,
        opened,
        now,
        daemon_bytes: io("wchar:"),
        daemon_writes: io("syscw:"),
        disk_bytes: bytes_below(&world.volume, blocks),
        log_bytes: bytes_below(&world.volume.join("log"), blocks),
        world,
    }
}

/// A new volume, and the output of `format`.
fn formatted(engine: &'static str) -> (World, Value) {
    if engine == OBJECTS {
        let world = World::in_store();
        let format = json!({
            "volume": world.status()["volume"],
            "format_version": 2,
            "engine": "lsm",
        });
        return (world, format);
    }
    let world = World::without_volume();
    let format = world.json(&["format", "--engine", engine, world.vol()]).remove(0);
    assert_eq!((&format["format_version"], &format["engine"]), (&json!(1), &json!(engine)));
    (world, format)
}

/// Every key of `status` on each engine, and in an object store.
#[test]
fn status_is_true_key_by_key() {
    let mut seen = BTreeMap::new();
    for engine in ["btree", "lsm", OBJECTS] {
        let truth = truth(engine);
        let mut found = BTreeMap::new();
        keys(&truth.now, "", &mut found);
        for (key, value) in &found {
            let row = STATUS.iter().find(|(name, _)| name == key);
            let (_, check) = row.unwrap_or_else(|| panic!("{key} of `status` has no check"));
            let now = &truth.now;
            match check {
                Is(expected) => assert_eq!(*value, expected(&truth), "{engine}: {key}: {now}"),
                Holds(holds) => assert!(holds(&truth, value), "{engine}: {key}: {value}: {now}"),
                Elsewhere(why) => assert!(why.len() > 20, "{key}"),
            }
        }
        seen.extend(found);
        if truth.mounted {
            truth.world.umount();
        }
    }
    let gone: Vec<_> = STATUS.iter().filter(|(key, _)| !seen.contains_key(*key)).collect();
    assert!(gone.is_empty(), "{:?}", gone.iter().map(|(key, _)| key).collect::<Vec<_>>());
}

/// Every key of `info`, `search list` and `trash list`: as on a file system beside it.
#[test]
fn info_and_lists_are_true_key_by_key() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let from = format!("{}/d", source(&world));
    let (d, a) = (world.at("/d"), world.at("/d/a"));
    std::os::unix::fs::symlink("a", format!("{from}/link")).unwrap();
    world.ok(&["import", "-q", &from, &d]);
    world.ok(&["snapshot", "create", &d, "monday"]);
    let snapshot = world.json(&["snapshot", "list", &d]).remove(0);
    let same = |path: &str, shown: &Value| {
        let found = fs::symlink_metadata(path).unwrap();
        let time = |seconds: i64, nanos: i64| {
            let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            jiff::Timestamp::from_nanosecond(nanos).unwrap()
        };
        let of = |key: &str| -> jiff::Timestamp { shown[key].as_str().unwrap().parse().unwrap() };
        assert_eq!(shown["mode"], format!("{:04o}", found.mode() & 0o7777), "{shown}");
        assert_eq!((&shown["uid"], &shown["gid"]), (&json!(found.uid()), &json!(found.gid())));
        assert_eq!(of("mtime"), time(found.mtime(), found.mtime_nsec()), "{shown}");
        assert!(of("ctime") >= of("btime") && of("btime") > of("mtime"), "{shown}");
        assert!(of("atime") >= of("mtime"), "{shown}");
    };
    let info = |path: &str| world.json(&["info", path]).remove(0);
    let both = ["atime", "blocks", "btime", "ctime", "gid", "in_snapshots", "ino", "inode", "kind"];
    let rest = [
        "links",
        "mode",
        "mtime",
        "path",
        "path_in_volume",
        "size",
        "snapshots",
        "subvolume",
        "uid",
        "volume",
        "xattrs",
    ];
    let are_known = |shown: &Value, more: &[&str]| {
        let mut known: Vec<_> = [&both[..], &rest, more].concat();
        known.sort_unstable();
        let found: Vec<_> = shown.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, known, "check the new key here");
    };
    let file = info(&a);
    are_known(&file, &[]);
    same(&format!("{from}/a"), &file);
    let expected = json!({
        "kind": "file", "links": 1, "size": 3000, "blocks": file["blocks"], "path": a,
        "path_in_volume": "/d/a", "volume": world.vol(), "xattrs": [], "snapshots": [],
    });
    assert!(expected.as_object().unwrap().iter().all(|(key, value)| file[key] == *value), "{file}");
    assert!((3000_u64.div_ceil(512)..=8).contains(&number(&file["blocks"])), "{file}");
    let stat = world.json(&["stat", &a]).remove(0);
    assert!(stat.as_object().unwrap().iter().all(|(key, value)| file[key] == *value), "{stat}");
    // `find` has the numbers from the rows of its index.
    let by_index = world.ok(&["find", &a, "-printf", "%i"]);
    assert_eq!(json!(by_index.trim().parse::<u64>().unwrap()), file["inode"]);
    assert_eq!(file["subvolume"], 1);
    assert!(number(&file["inode"]) > number(&file["ino"]), "{file}");
    let mut held = snapshot.clone();
    held["directory"] = json!("/d");
    assert_eq!(file["in_snapshots"], json!([held]));
    let directory = info(&d);
    are_known(&directory, &["entries"]);
    same(&from, &directory);
    assert_eq!((&directory["entries"], &directory["links"]), (&json!(4), &json!(3)));
    assert_eq!(directory["snapshots"], json!([snapshot]));
    let link = info(&world.at("/d/link"));
    are_known(&link, &["target"]);
    assert_eq!((&link["target"], &link["size"]), (&json!("a"), &json!(1)));
    world.ok(&["clone", &d, &world.at("/c")]);
    let copy = info(&world.at("/c"));
    are_known(&copy, &["copy_of", "entries"]);
    assert_eq!(copy["copy_of"], "/d");

    assert!(world.json(&["search", "list", world.vol()]).is_empty());
    world.ok(&["search", "declare", world.vol(), "user.b", "user.a"]);
    let declared = world.json(&["search", "list", world.vol()]);
    assert_eq!(json!(declared), json!([{ "name": "user.a" }, { "name": "user.b" }]));
    removed_files_are_listed(&world, &d, &a, &file);
}

/// What a directory's trash lists of a file, after its removal.
fn removed_files_are_listed(world: &World, d: &str, a: &str, file: &Value) {
    world.ok(&["trash", "on", d]);
    let before = jiff::Timestamp::now();
    world.ok(&["rmr", a]);
    let mut removed = world.json(&["trash", "list", d]);
    assert_eq!(removed.len(), 1, "{removed:?}");
    let time: jiff::Timestamp = removed[0]["removed"].as_str().unwrap().parse().unwrap();
    assert!(time >= before && time <= jiff::Timestamp::now(), "{removed:?}");
    removed[0]["removed"].take();
    let expected = json!({
        "removed": null, "directory": false, "size": 3000, "uid": file["uid"],
        "gid": file["gid"], "mode": file["mode"], "path": a,
    });
    assert_eq!(removed[0], expected);
}

/// Files are what is no directory, each once however many names it has; inodes are both. `import`
/// counts names.
#[test]
fn every_verb_means_the_same_by_files() {
    const DIRECTORIES: u64 = 4;
    const FILES: u64 = 5;
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("d/deep/empty")).unwrap();
    for name in ["one", "d/two"] {
        fs::write(source.join(name), name).unwrap();
    }
    fs::hard_link(source.join("one"), source.join("d/link")).unwrap();
    std::os::unix::fs::symlink("one", source.join("d/deep/soft")).unwrap();
    std::os::unix::fs::symlink("none", source.join("gone")).unwrap();
    let fifo = source.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    let root = world.at("/");
    let imported = world.json(&["import", source.to_str().unwrap(), &root]).remove(0);
    // The further name, and not the root, which was there.
    assert_eq!(imported["imported"], FILES + 1 + DIRECTORIES - 1, "{imported}");
    let both = |sums: &Value| (sums["files"].clone(), sums["directories"].clone());
    let summary = world.json(&["summary", &root]).remove(0);
    assert_eq!(both(&summary), (json!(FILES), json!(DIRECTORIES - 1)), "below it: {summary}");
    let du = world.json(&["du", "-s", &root]).remove(0);
    assert_eq!(both(&du), both(&summary), "{du}");
    let inodes = world.ok(&["du", "-s", "--inodes", &root]);
    assert!(inodes.starts_with(&format!("{}\t", FILES + DIRECTORIES)), "{inodes}");
    assert_eq!(world.status()["inodes"], FILES + DIRECTORIES);
    for how in [vec!["fsck", world.vol()], vec!["fsck", "--json", world.vol()]] {
        let checked = world.ok(&how);
        let Ok(sums) = serde_json::from_str::<Value>(checked.lines().last().unwrap()) else {
            let text = format!("{DIRECTORIES} directories, {FILES} files");
            assert!(checked.contains(&text), "{checked}");
            continue;
        };
        assert_eq!(both(&sums), (json!(FILES), json!(DIRECTORIES)), "{sums}");
    }
    let found = |kind: &[&str]| world.ok(&[&["find", &root][..], kind].concat()).lines().count();
    assert_eq!(found(&["-type", "d"]) as u64, DIRECTORIES);
    // A name each.
    assert_eq!(found(&["!", "-type", "d"]) as u64, FILES + 1);
}
