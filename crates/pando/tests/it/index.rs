//! Indexes of existing trees show what `find` shows of them, however they were built, and report
//! what they could not read.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use device::Clock;
use serde_json::Value;

use crate::world::{NOBODY, PATIENCE, World, answer, is_root, signal, wait_until};

/// A path below the source (empty for the source itself), and what is shown of it.
type Shown = BTreeMap<Vec<u8>, String>;

/// The format of a path with the compared attributes.
const FORMAT: &str = "%P\\0%y %m %n %U %G %s %b %T@ %C@ %l\\0";

/// The real `find`'s output for a tree: everything but access times, which a listing changes.
fn truth(source: &Path) -> Shown {
    let found = Command::new("find").arg(source).args(["-xdev", "-printf", FORMAT]).output();
    parsed(&found.expect("find is installed").stdout)
}

/// Parses the output of a `find`.
fn parsed(printed: &[u8]) -> Shown {
    let fields: Vec<&[u8]> = printed.split(|&byte| byte == 0).collect();
    fields
        .chunks_exact(2)
        .map(|pair| {
            let text = String::from_utf8_lossy(pair[1]).into_owned();
            (pair[0].to_vec(), text.trim_end().to_owned())
        })
        .collect()
}

/// The same for an index.
fn index(world: &World) -> Shown {
    index_beside(world).expect("nothing changes it meanwhile")
}

/// The same beside a follower; `None` if a directory was removed while it was listed.
fn index_beside(world: &World) -> Option<Shown> {
    let mut shown = Shown::new();
    let root = world.json(&["stat", &world.at("/")]).remove(0);
    shown.insert(Vec::new(), line(&root));
    let listed = world.run(&["ls", "-laRU", "--json", &world.at("/")]);
    if listed.code == 3 {
        return None;
    }
    assert_eq!(listed.code, 0, "{}", listed.err);
    for entry in listed.out.lines() {
        let entry: Value = serde_json::from_str(entry).unwrap();
        let (directory, name) = (bytes(&entry, "directory"), bytes(&entry, "name"));
        let path = if directory.is_empty() { name } else { [&directory[..], b"/", &name].concat() };
        shown.insert(path, line(&entry));
    }
    Some(shown)
}

/// Waits until a follower has updated an index to match its source.
fn wait_until_same(world: &World, source: &Path) {
    wait_until("the index is what the source is", || {
        index_beside(world).is_some_and(|shown| shown == truth(source))
    });
}

fn bytes(entry: &Value, key: &str) -> Vec<u8> {
    match entry[format!("{key}_hex")].as_str() {
        Some(hex) => (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect(),
        None => entry[key].as_str().unwrap().as_bytes().to_vec(),
    }
}

fn line(entry: &Value) -> String {
    let kind = match entry["kind"].as_str().unwrap() {
        "file" => 'f',
        "directory" => 'd',
        "symlink" => 'l',
        "fifo" => 'p',
        "socket" => 's',
        "char-device" => 'c',
        "block-device" => 'b',
        other => panic!("{other}"),
    };
    let mode = u32::from_str_radix(entry["mode"].as_str().unwrap(), 8).unwrap();
    let time = |key: &str| {
        let time: jiff::Timestamp = entry[key].as_str().unwrap().parse().unwrap();
        let nanos = time.as_nanosecond();
        format!("{}.{:09}0", nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000))
    };
    let target = if kind == 'l' { bytes(entry, "target") } else { Vec::new() };
    let line = format!(
        "{kind} {mode:o} {} {} {} {} {} {} {} {}",
        entry["links"],
        entry["uid"],
        entry["gid"],
        entry["size"],
        entry["blocks"],
        time("mtime"),
        time("ctime"),
        String::from_utf8_lossy(&target),
    );
    line.trim_end().to_owned()
}

#[track_caller]
fn assert_same(world: &World, source: &Path) {
    let (got, want) = (index(world), truth(source));
    for (path, want) in &want {
        assert_eq!(got.get(path), Some(want), "{}", path.escape_ascii());
    }
    for path in got.keys() {
        assert!(want.contains_key(path), "not at the source: {}", path.escape_ascii());
    }
    // A query shows the same.
    let find = World::command(&["find", &world.at("/"), "-printf", FORMAT]).output().unwrap();
    assert_eq!(parsed(&find.stdout), want, "{}", String::from_utf8_lossy(&find.stderr));
}

#[expect(clippy::disallowed_methods, reason = "the source is no volume")]
pub(crate) fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> std::io::Result<()> {
    fs::rename(from, to)
}

fn sparse(path: &Path) -> std::io::Result<()> {
    let file = fs::File::options().create(true).truncate(true).write(true).open(path)?;
    file.set_len(1 << 30)
}

/// Random changes of a tree below `top`.
struct Changes {
    top: PathBuf,
    random: fastrand::Rng,
    /// Whether files get further names.
    links: bool,
}

impl Changes {
    #[expect(clippy::print_stdout, reason = "seeds are printed first")]
    fn new(top: &Path, seed: u64) -> Changes {
        println!("seed {seed}");
        fs::create_dir_all(top).unwrap();
        Changes { top: top.to_owned(), random: fastrand::Rng::with_seed(seed), links: true }
    }

    fn all(&self) -> Vec<PathBuf> {
        let entries = walkdir::WalkDir::new(&self.top).min_depth(1);
        entries.into_iter().map(|entry| entry.unwrap().into_path()).collect()
    }

    fn any(&mut self) -> Option<PathBuf> {
        let all = self.all();
        self.random.choice(&all).cloned()
    }

    fn directory(&mut self) -> PathBuf {
        let mut directories = self.all();
        directories.retain(|path| path.symlink_metadata().unwrap().is_dir());
        self.random.choice(&directories).cloned().unwrap_or_else(|| self.top.clone())
    }

    fn name(&mut self) -> Vec<u8> {
        let length = self.random.usize(1..5);
        (0..length).map(|_| *self.random.choice(b"abcd\xff\n ").unwrap()).collect()
    }

    fn place(&mut self) -> PathBuf {
        let name = self.name();
        self.directory().join(OsStr::from_bytes(&name))
    }

    /// Makes one change; a change that is not possible is skipped.
    fn step(&mut self) {
        let place = self.place();
        let done = match self.random.u32(..11) {
            0..=2 => fs::write(&place, vec![7; self.random.usize(..9000)]),
            3 | 4 => fs::create_dir(&place),
            5 => symlink("target/\u{e9}", &place),
            6 if self.links => self.any().map_or(Ok(()), |old| fs::hard_link(old, &place)),
            7 => self.any().map_or(Ok(()), |old| rename(old, &place)),
            8 => self.any().map_or(Ok(()), |old| {
                if old.symlink_metadata()?.is_dir() {
                    fs::remove_dir_all(old)
                } else {
                    fs::remove_file(old)
                }
            }),
            9 => sparse(&place),
            _ => self.any().map_or(Ok(()), |old| {
                if old.is_symlink() {
                    return Ok(());
                }
                let mode = 0o700 | self.random.u32(..0o100);
                fs::set_permissions(old, PermissionsExt::from_mode(mode))
            }),
        };
        if let Err(error) = done {
            let known = [
                ErrorKind::AlreadyExists,
                ErrorKind::NotFound,
                ErrorKind::IsADirectory,
                ErrorKind::NotADirectory,
                ErrorKind::DirectoryNotEmpty,
                ErrorKind::InvalidInput,
                ErrorKind::PermissionDenied,
            ];
            assert!(known.contains(&error.kind()), "{error}: {:?}", error.kind());
        }
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }
}

fn scan(world: &World, source: &Path, more: &[&str]) -> Value {
    let mut arguments = vec!["index", source.to_str().unwrap(), "--into", world.vol()];
    arguments.extend(more);
    world.json(&arguments).remove(0)
}

#[test]
fn an_index_shows_what_find_shows_and_a_second_scan_finds_nothing_new() {
    let world = World::without_volume();
    let source = world.path().join("source");
    Changes::new(&source, 1).steps(400);
    // A path far longer than any call accepts, and more names than one part holds.
    let deep = deep_tree(&source, 60, 200);
    fs::create_dir(source.join("many")).unwrap();
    for number in 0..10_000 {
        fs::write(source.join(format!("many/{number}")), b"").unwrap();
    }
    let first = scan(&world, &source, &[]);
    assert_eq!(first["changed"], true);
    assert_eq!(first["unread"], 0);
    let mut want = truth(&source);
    let shown = index(&world);
    assert_eq!(shown.len() as u64, first["names"].as_u64().unwrap());
    let depth = shown.keys().map(|path| path.split(|&byte| byte == b'/').count()).max();
    assert_eq!(depth, Some(deep));
    // Paths too long for find itself are not compared.
    want.retain(|path, _| shown.contains_key(path));
    assert!(want.iter().all(|(path, line)| shown.get(path) == Some(line)));
    assert!(want.len() > 10_000);
    // The listing may have changed the source's access times.
    scan(&world, &source, &[]);
    assert_eq!(scan(&world, &source, &[])["changed"], false);
}

/// Nested directories; returns the depth of the deepest.
pub(crate) fn deep_tree(top: &Path, levels: usize, length: usize) -> usize {
    use rustix::fs::{Mode, OFlags};
    let name = "n".repeat(length);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(top, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o755)).unwrap();
        at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    levels
}

#[test]
fn a_refresh_after_random_changes_equals_a_fresh_scan() {
    for seed in 10..13 {
        let world = World::without_volume();
        let source = world.path().join("source");
        let mut changes = Changes::new(&source, seed);
        changes.steps(150);
        scan(&world, &source, &["--threads", "3"]);
        assert_same(&world, &source);
        for _ in 0..3 {
            changes.steps(60);
            scan(&world, &source, &[]);
            assert_same(&world, &source);
        }
        world.ok(&["index", "--into", world.vol()]);
        assert_same(&world, &source);
    }
}

#[test]
fn trusted_directories_are_not_reread_and_their_names_are_right() {
    let world = World::without_volume();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("old/older")).unwrap();
    fs::create_dir_all(source.join("other/below")).unwrap();
    fs::write(source.join("old/older/file"), b"1").unwrap();
    // Directories are trusted only if they are older than any clock's tick.
    let ticked = || {
        let ctime = fs::metadata(source.join("old/older")).unwrap();
        let ctime = ctime.ctime() * 1_000_000_000 + ctime.ctime_nsec();
        device::SystemClock::new().now().0 - ctime > 2_500_000_000
    };
    wait_until("the directories are old", ticked);
    let first = scan(&world, &source, &["--refresh", "directories"]);
    assert_eq!(first["directories_read"], 5);
    // The first read may have changed the source's access time.
    scan(&world, &source, &["--refresh", "directories"]);
    let second = scan(&world, &source, &["--refresh", "directories"]);
    assert_eq!((&second["directories_read"], &second["changed"]), (&0.into(), &false.into()));
    fs::write(source.join("other/below/new"), b"").unwrap();
    rename(source.join("old/older"), source.join("other/moved")).unwrap();
    let third = scan(&world, &source, &["--refresh", "directories"]);
    assert_eq!(third["changed"], true);
    assert_eq!(third["directories_read"], 4, "old, other, other/below, other/moved");
    assert_same(&world, &source);
    // Changes that this level does not find, as its help states, and that the other level finds.
    fs::write(source.join("other/moved/file"), b"longer").unwrap();
    let size =
        |world: &World| world.json(&["stat", &world.at("/other/moved/file")])[0]["size"].clone();
    scan(&world, &source, &["--refresh", "directories"]);
    scan(&world, &source, &["--refresh", "full"]);
    assert_eq!(size(&world), 6);
    assert_same(&world, &source);
}

#[test]
fn changes_during_a_scan_are_no_failure() {
    let world = World::without_volume();
    let source = world.path().join("source");
    let mut changes = Changes::new(&source, 30);
    changes.steps(300);
    let scanning = World::command(&["index", source.to_str().unwrap(), "--into", world.vol()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    changes.steps(300);
    let scanned = answer(&scanning.wait_with_output().unwrap());
    assert_eq!(scanned.code, 0, "{}", scanned.err);
    scan(&world, &source, &[]);
    assert_same(&world, &source);
}

#[test]
fn unreadable_directories_are_reported_and_keep_their_last_state() {
    if !is_root() {
        return;
    }
    let world = World::without_volume();
    let source = world.path().join("source");
    let volume = world.path().join("of-nobody");
    fs::create_dir_all(source.join("closed/below")).unwrap();
    fs::write(source.join("closed/file"), b"").unwrap();
    fs::create_dir(&volume).unwrap();
    std::os::unix::fs::chown(&volume, Some(NOBODY), Some(NOBODY)).unwrap();
    let index = |world: &World| {
        let arguments = ["index", source.to_str().unwrap(), "--into", volume.to_str().unwrap()];
        let mut command = World::command(&arguments);
        let _ = world;
        answer(&command.uid(NOBODY).gid(NOBODY).output().unwrap())
    };
    assert_eq!(index(&world).code, 0);
    fs::set_permissions(source.join("closed"), PermissionsExt::from_mode(0o0)).unwrap();
    let refused = index(&world);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("source/closed: Permission denied"), "{}", refused.err);
    assert!(refused.err.contains("1 could not be read"), "{}", refused.err);
    let listed = world.ok(&["ls", &format!("{}:/closed", volume.display())]);
    assert_eq!(listed, "below\nfile\n");
    let mode = world.json(&["stat", &format!("{}:/closed", volume.display())]);
    assert_eq!(mode[0]["mode"], "0000");
}

#[test]
fn an_index_has_no_contents_and_accepts_no_changes() {
    let world = World::without_volume();
    let source = world.source();
    fs::write(source.join("file"), b"contents").unwrap();
    scan(&world, &source, &[]);
    let printed = world.fails(1, &["cat", &world.at("/file")]);
    assert!(printed.contains("no contents"), "{printed}");
    world.fails(7, &["subvolume", "create", &world.at("/new")]);
    let other = world.path().join("other");
    fs::create_dir(&other).unwrap();
    let printed = world.fails(6, &["index", other.to_str().unwrap(), "--into", world.vol()]);
    assert!(printed.contains("is an index of"), "{printed}");
    // A snapshot of it keeps the old state.
    world.ok(&["snapshot", "create", &world.at("/"), "before"]);
    fs::remove_file(source.join("file")).unwrap();
    scan(&world, &source, &[]);
    assert_eq!(world.names("/"), Vec::<String>::new());
    assert_eq!(world.names("/.snapshots/before"), ["file"]);
}

#[test]
fn a_volume_with_files_of_its_own_and_a_missing_source_are_refused() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/mine")]);
    let printed = world.fails(6, &["index", "/usr/share/doc", "--into", world.vol()]);
    assert!(printed.contains("holds files of its own"), "{printed}");
    world.fails(3, &["index", "/no/such/directory", "--into", world.vol()]);
    world.fails(2, &["index", "--into", world.vol()]);
    let both = ["index", "--into", world.vol(), "--watch", "--refresh", "directories"];
    assert!(world.fails(2, &both).contains("--watch reads everything first"));
    let absent = world.path().join("absent");
    world.fails(8, &["index", "--into", absent.to_str().unwrap()]);
    assert!(!absent.exists());
}

#[test]
fn a_scan_does_not_enter_the_volume_or_other_file_systems() {
    let world = World::without_volume();
    // The volume is inside its own source.
    let source = world.path();
    scan(&world, source, &[]);
    let below = world.ok(&["ls", "-a", &world.at("/volume")]);
    assert_eq!(below, "");
    assert!(world.names("/").contains(&"mnt".to_owned()));
}

#[test]
fn a_watch_of_the_file_system_follows_random_changes() {
    if is_root() {
        follow("--watch=fanotify", 40);
    }
}

#[test]
fn watches_of_directories_follow_random_changes() {
    follow("--watch=inotify", 50);
}

/// A directory gets its watch after its attributes were read. An entry created in between causes
/// no event, but changes the directory's times.
#[test]
fn directories_filled_during_a_listing_show_their_times() {
    let world = World::without_volume();
    let source = world.source();
    let mut follower = Follower::new(&world, &source, "--watch=inotify");
    let clock = device::SystemClock::new();
    // The follower waits 50 ms for more changes before it scans: these come before, during and
    // after that.
    for round in 0..3 {
        let directories: Vec<_> =
            (0..150).map(|number| source.join(format!("{round}-{number}"))).collect();
        for path in &directories {
            fs::create_dir(path).unwrap();
        }
        clock.sleep(Duration::from_millis(40));
        for path in &directories {
            clock.sleep(Duration::from_micros(200));
            fs::write(path.join("file"), b"").unwrap();
        }
        wait_until_same(&world, &source);
    }
    follower.end();
}

/// A directory that is gone when the scan wants to read it, and is back at the next check.
#[test]
fn reappearing_directories_are_read() {
    let world = World::without_volume();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("one/below")).unwrap();
    fs::write(source.join("one/below/file"), b"").unwrap();
    let mut follower = Follower::new(&world, &source, "--watch=inotify");
    let clock = device::SystemClock::new();
    let mut random = fastrand::Rng::with_seed(60);
    for _ in 0..10 {
        let ends = clock.monotonic() + Duration::from_millis(random.u64(60..200));
        while clock.monotonic() < ends {
            rename(source.join("one"), source.join("two")).unwrap();
            clock.sleep(Duration::from_micros(random.u64(..2000)));
            rename(source.join("two"), source.join("one")).unwrap();
            clock.sleep(Duration::from_micros(random.u64(..2000)));
        }
        wait_until_same(&world, &source);
    }
    follower.end();
}

/// `pando index --watch` under way, after its first scan.
pub(crate) struct Follower {
    pub(crate) process: std::process::Child,
    reader: Option<device::Thread<()>>,
}

impl Follower {
    pub(crate) fn new(world: &World, source: &Path, how: &str) -> Follower {
        let arguments = ["index", source.to_str().unwrap(), "--into", world.vol(), "--json", how];
        let mut process =
            World::command(&arguments).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut printed = std::io::BufReader::new(process.stdout.take().unwrap());
        let (first, scanned) = device::sync::channel();
        // A thread reads the output, so that the follower never blocks on it.
        let reader = device::spawn("printed", move || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut printed, &mut line).unwrap();
            first.send(line).unwrap_or_default();
            std::io::Read::read_to_string(&mut printed, &mut String::new()).unwrap();
        });
        let line = scanned.recv_timeout(PATIENCE).expect("the first scan ends");
        assert!(line.contains("\"changed\":true"), "{line}");
        Follower { process, reader: Some(reader.unwrap()) }
    }

    pub(crate) fn end(&mut self) {
        signal(self.process.id() as i32, rustix::process::Signal::INT);
        wait_until("the following ends", || self.process.try_wait().unwrap().is_some());
        assert!(self.process.wait().unwrap().success());
        self.reader.take().unwrap().join().unwrap();
    }
}

/// More than fits in a message, however few the names are.
#[test]
fn long_names_targets_and_many_directories_are_sent_in_parts() {
    let world = World::without_volume();
    let source = world.path().join("source");
    // Names and targets of several messages each.
    let many = testing::run::rounds(2500, 5000) as usize;
    let name = |number: usize| format!("{number:0>240}");
    fs::create_dir_all(source.join("wide")).unwrap();
    fs::create_dir_all(source.join("links")).unwrap();
    for number in 0..many {
        fs::write(source.join("wide").join(name(number)), b"").unwrap();
        fs::create_dir_all(source.join("directories").join(name(number))).unwrap();
    }
    for number in 0..many / 5 {
        symlink("t".repeat(2000), source.join("links").join(name(number))).unwrap();
    }
    let mut follower = Follower::new(&world, &source, "--watch=inotify");
    assert!(index(&world) == truth(&source));
    // One update that names all of them.
    for number in 0..many {
        let below = source.join("directories").join(name(number));
        fs::set_permissions(below, PermissionsExt::from_mode(0o700)).unwrap();
    }
    wait_until_same(&world, &source);
    follower.end();
    scan(&world, &source, &["--refresh", "directories"]);
    assert!(index(&world) == truth(&source));
}

/// Below a mount there is another directory, with other permissions and no contents.
#[test]
fn a_source_that_is_unmounted_ends_the_following_and_leaves_the_index() {
    if !is_root() {
        return;
    }
    let world = World::without_volume();
    let source = world.source();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&source).status();
    assert!(mounted.unwrap().success());
    fs::set_permissions(&source, PermissionsExt::from_mode(0o700)).unwrap();
    fs::write(source.join("file"), b"x").unwrap();
    let mut follower = Follower::new(&world, &source, "--watch=inotify");
    // The follower, or a process that another test starts just then, may have something of it
    // open.
    wait_until("it is unmounted", || {
        Command::new("umount").arg(&source).status().unwrap().success()
    });
    wait_until("it ends", || follower.process.try_wait().unwrap().is_some());
    assert!(!follower.process.wait().unwrap().success());
    let shown = world.ok(&["find", &world.at("/"), "-printf", "%m %f\n"]);
    assert_eq!(shown, "700 volume:/\n644 file\n");
}

/// Follows changes, and compares after some of them. The follower does not track link counts of
/// other names, so there are no hard links here.
fn follow(how: &str, seed: u64) {
    let world = World::without_volume();
    let source = world.path().join("source");
    let mut changes = Changes::new(&source, seed);
    changes.links = false;
    changes.steps(80);
    // The volume is in the same file system, and is not followed.
    let mut follower = Follower::new(&world, &source, how);
    for round in 0..6 {
        changes.steps(if round % 2 == 0 { 5 } else { 60 });
        if round == 3 {
            // A whole tree that appears at once, and keeps changing.
            fs::create_dir_all(source.join("came/a/b")).unwrap();
            fs::write(source.join("came/a/b/file"), b"x").unwrap();
            rename(source.join("came"), source.join("went")).unwrap();
            fs::write(source.join("went/a/b/file"), b"longer").unwrap();
        }
        wait_until_same(&world, &source);
    }
    follower.end();
}
