//! Every key that `status` prints, against a volume of which the truth is known. A key without a
//! row in its table fails, and so does a row without its key. (`truth_info.rs` has those of
//! `info`.)

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use format::run_manifest::{Decoded, RunManifest};
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
    /// Its memory at its highest, in bytes.
    daemon_memory: u64,
    /// Seconds from `begun` to `now`, and from the removal below.
    seconds: u64,
    removed_for: f64,
    /// Seconds from when the daemon answered first until shortly before `now`.
    answers_for: f64,
    /// Bytes of the daemon's files on disk: all, and those of the log.
    disk_bytes: u64,
    log_bytes: u64,
    /// Objects in the store, before the daemon opened the volume and with `now`.
    objects: [u64; 2],
    /// Runs of the deepest tree, by the manifest of the engine that compacts, with `now`.
    depth: u64,
}

/// Subvolumes that are made between `opened` and `now`, each by a commit.
const MADE: u64 = 5;

/// Bytes of a file that no compression makes smaller. Of a volume in an object store, it is read
/// between `opened` and `now`, with nothing of it on the host.
const BIG: u64 = 300_000;

fn at<'a>(value: &'a Value, key: &str) -> &'a Value {
    let found = key.split('.').try_fold(value, |value, name| value.get(name));
    found.unwrap_or(&Value::Null)
}

pub(crate) fn number(value: &Value) -> u64 {
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
    ("bytes", Is(|_| json!(2 * (3000 + BIG + 3)))),
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
    ("cache_bytes", Holds(|it, value| (1..it.daemon_memory).contains(&number(value)))),
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
    // A file has all runs of a checkpoint, so there may be more runs than files. (In an object
    // store the log names runs, too, and at most 24 may be in a tree.)
    ("merges.depth", Holds(is_depth)),
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
    // All of it was waited for.
    ("background.idle", Is(|_| json!(true))),
    ("background.detached", Is(|_| json!(0))),
    ("background.dropping", Is(|_| json!(0))),
    ("background.prunes", Is(|_| json!(0))),
    ("background.freeing_bytes", Is(|_| json!(0))),
    // What was removed had no contents.
    ("background.freed_bytes", Is(|_| json!(0))),
    ("background.collecting", Is(|_| json!(false))),
    ("background.counting", Is(|_| json!(0))),
    ("background.reclaimed", Holds(|it, _| it.more("background.reclaimed") >= REMOVED)),
    (
        "background.reclaimed_a_second",
        // That of the last ten seconds.
        Holds(|it, value| {
            let is_recent = it.removed_for < 9.0;
            number(value) <= it.now("background.reclaimed")
                && (!is_recent || number(value) >= REMOVED / 12)
        }),
    ),
    ("store", Holds(|it, value| !it.is_stored() && value.is_null())),
    ("store.url", Is(|it| json!(it.world.vol()))),
    (
        "store.requests.create",
        // An object that was not there before was created, and each commit is an object.
        Holds(|it, value| {
            let [before, now] = it.objects;
            it.is_stored() && number(value) >= MADE.max(now.saturating_sub(before))
        }),
    ),
    ("store.requests.read", Holds(|it, value| number(value) > 0 && is_of_few(it, value))),
    ("store.requests.list", Holds(|it, value| number(value) > 0 && is_of_few(it, value))),
    ("store.requests.head", Holds(|it, value| number(value) > 0 && is_of_few(it, value))),
    (
        "store.requests.delete",
        // An object that was created and is not there was deleted, except for signs of life under
        // way.
        Holds(|it, value| {
            let [before, now] = it.objects;
            number(value) + now + 2 >= before + it.now("store.requests.create")
                && is_of_few(it, value)
        }),
    ),
    ("store.requests.retries", Is(|_| json!(0))),
    (
        "store.seconds",
        Holds(|it, value| {
            let seconds = number(value);
            (1..=it.seconds).contains(&seconds) && seconds as f64 + 1.0 >= it.answers_for
        }),
    ),
    ("store.commits.micros", Holds(is_of_commit_times)),
    (
        "store.commits.times",
        Holds(|it, value| {
            let counts = value.as_array().unwrap().iter().map(|time| number(&time[1]));
            let counted = counts.sum::<u64>();
            counted > 0 && counted <= it.now("store.requests.create")
        }),
    ),
    ("store.content_objects", Is(|it| json!(content_objects(it)))),
    ("store.bytes_received", Holds(|it, value| (BIG..=stored_bytes(it)).contains(&number(value)))),
    ("store.bytes_sent", Holds(|it, value| number(value) >= it.now("written_bytes"))),
    (
        "store.cache.hits",
        Elsewhere("crates/objects/tests/it/cached.rs counts those of known reads"),
    ),
    (
        "store.cache.misses",
        Holds(|it, value| (1..=it.now("store.requests.read")).contains(&number(value))),
    ),
    ("store.cache.bytes", Holds(|it, value| (BIG..=stored_bytes(it)).contains(&number(value)))),
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

/// Requests of an opening, a few commits, and a sign of life each second at most. One for each file
/// that was removed would be more.
fn is_of_few(truth: &Truth, value: &Value) -> bool {
    number(value) < REMOVED + truth.seconds
}

/// Microseconds that are those of the numbers of commits up to so many milliseconds.
fn is_of_commit_times(truth: &Truth, value: &Value) -> bool {
    let (mut least, mut most, mut up_to) = (0, 0, 0);
    for time in at(&truth.now, "store.commits.times").as_array().unwrap() {
        let count = number(&time[1]);
        least += count * up_to * 1000;
        up_to = time[0].as_u64().unwrap_or(truth.seconds * 1000);
        // (Counted in whole milliseconds.)
        most += count * (up_to + 1) * 1000;
    }
    number(value) > 0 && (least..=most).contains(&number(value))
}

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

/// Files below a directory whose path has a part.
fn files_with(directory: &Path, part: &str) -> u64 {
    let mut found = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found += files_with(&path, part);
        } else if path.to_string_lossy().contains(part) {
            found += 1;
        }
    }
    found
}

fn is_depth(truth: &Truth, value: &Value) -> bool {
    let depth = number(value);
    if truth.is_stored() { (1..=24).contains(&depth) } else { depth > 0 && depth == truth.depth }
}

/// Runs of the deepest tree in the newest manifest below a directory; 0: there is none.
fn depth(directory: &Path, status: &Value) -> u64 {
    let mut left = vec![directory.to_owned()];
    let mut newest = None;
    while let Some(path) = left.pop() {
        let entries = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
        let (below, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
        left.extend(below);
        let numbered = files.into_iter().filter_map(|file| {
            let name = file.file_name()?.to_str()?.strip_prefix("manifest-")?.to_owned();
            Some((u64::from_str_radix(&name, 16).ok()?, file))
        });
        newest = numbered.chain(newest).max();
    }
    let Some((number, file)) = newest else { return 0 };
    let id = status["volume"].as_str().unwrap().replace('-', "");
    let id = u128::from_str_radix(&id, 16).unwrap().to_be_bytes();
    match RunManifest::decode(&fs::read(file).unwrap(), id, number) {
        Ok(Decoded::Manifest(manifest)) => {
            manifest.stacks.iter().map(Vec::len).max().unwrap_or_default() as u64
        }
        other => panic!("{other:?}"),
    }
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
pub(crate) fn source(world: &World) -> String {
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
    let store = world.path().join("store");
    let objects = files_with(&store, "");
    if engine == OBJECTS {
        world.close();
        world.lose_host();
    }
    let mounted = world.mount_with(&["-o", durability]);
    let opened = world.status();
    let answered = jiff::Timestamp::now();
    if engine == OBJECTS {
        let mut cat = World::command(&["cat", &world.at("/d/big")]);
        let big = cat.env("PANDO_HOST_DIRECTORY", world.hosts()).output().unwrap().stdout;
        assert_eq!(big.len() as u64, BIG);
    }
    for made in 0..MADE {
        world.ok(&["subvolume", "create", &world.at(&format!("/s{made}"))]);
    }
    let removing = jiff::Timestamp::now();
    world.ok(&["rmr", "--wait", &world.at("/removed")]);
    if mounted {
        assert_eq!(fs::metadata(world.below_mount("d/sub/b")).unwrap().len(), 3);
    }
    world.ok(&["sync", world.vol()]);
    let (mut now, mut asked) = (Value::Null, answered);
    wait_until("nothing is left to do", || {
        asked = jiff::Timestamp::now();
        now = world.status();
        // (Of a daemon that just began, any number of whole seconds would be 0.)
        now["background"]["idle"] == true && now["store"]["seconds"] != 0
    });
    let passed = |since: jiff::Timestamp| {
        (jiff::Timestamp::now() - since).total(jiff::Unit::Second).unwrap()
    };
    let of_daemon = |file: &str| {
        fs::read_to_string(format!("/proc/{}/{file}", world.daemon().unwrap())).unwrap()
    };
    let (io, memory) = (of_daemon("io"), of_daemon("status"));
    let found = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let blocks = |found: &fs::Metadata| found.blocks() * 512;
    Truth {
        engine,
        format,
        mounted,
        begun,
        opened,
        now,
        daemon_bytes: found(&io, "wchar:"),
        daemon_writes: found(&io, "syscw:"),
        daemon_memory: found(&memory, "VmHWM:") << 10,
        seconds: passed(begun) as u64 + 1,
        removed_for: passed(removing),
        answers_for: (asked - answered).total(jiff::Unit::Second).unwrap(),
        objects: [objects, files_with(&store, "")],
        depth: depth(&world.volume, &world.status()),
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
    // What a snapshot of a removed directory holds: a name of the linked file, `two` and `soft`.
    world.ok(&["snapshot", "create", &world.at("/d"), "s"]);
    world.ok(&["rmr", &world.at("/d")]);
    let held = world.json(&["snapshot", "list", world.vol(), "--removed"]).remove(0);
    assert_eq!(held["files"], 3, "{held}");
    let held = world.ok(&["snapshot", "list", world.vol(), "--removed"]);
    assert!(held.contains("(3 files, "), "{held}");
}

/// Where there is one of something, its noun is in the singular.
#[test]
fn one_of_anything_is_counted_in_the_singular() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("f"), "1").unwrap();
    let (source, top, volume) = (source.to_str().unwrap(), world.at("/d"), world.vol());
    let index = world.path().join("index");
    let index = index.to_str().unwrap();
    let (file, snapshot) = (world.at("/d/f"), world.at("/d@s"));
    let commands: [&[&str]; 19] = [
        &["import", source, &top],
        &["snapshot", "create", &top, "s"],
        &["history", &file],
        &["summary", &top],
        &["du", &top],
        &["ls", "-l", &top],
        &["info", &top],
        &["find", &top, "-name", "f", "--stats"],
        &["quota", "set", &top, "--inodes", "1", "--bytes", "1"],
        &["quota", "get", &top],
        &["send", "--dry-run", &snapshot],
        &["search", "limits", volume, "--directories", "1", "--inodes", "10"],
        &["status", volume],
        &["fsck", volume],
        &["rmr", "--wait", &top],
        &["snapshot", "list", volume, "--removed"],
        &["index", source, "--into", index],
        &["status", index],
        &["fsck", index],
    ];
    let mut wrong = Vec::new();
    for command in commands {
        let answer = world.run(command);
        assert_eq!(answer.code, 0, "{command:?}: {}", answer.err);
        let printed = format!("{}{}", answer.out, answer.err);
        for line in printed.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            for pair in words.windows(2) {
                let noun = pair[1].trim_end_matches(|c: char| !c.is_alphanumeric());
                let is_plural = noun.ends_with('s') && !["is", "was", "s", "ms"].contains(&noun);
                if pair[0].trim_start_matches('(') == "1" && is_plural {
                    wrong.push((command, line.to_owned()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
