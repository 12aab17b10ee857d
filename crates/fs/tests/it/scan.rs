//! Indexes of other file systems. The index shows what a scan received. Scans that are abandoned,
//! crash, or follow one another end in the same state as a fresh one.

use std::collections::BTreeMap;

use fs::{
    Engine, FileSystem, Fs, FsResult, Listed, Names, Outside, Scan, ScanDirectory, ScanOptions,
};
use inode::{Caller, FsError, Kind, NAME_BYTES_MAX, NodeId};
use store::Durability;
use testing::SimDevice;

use crate::script::Script;
use crate::subject::Base;
use crate::support::{ROOT, Volume, refused, user, volume, weak_volume};

on_each_engine!(a_base_is_put_in_place_though_scans_swap_the_tree_while_it_is_made);

/// A file system of nodes in memory, which is indexed.
#[derive(Clone)]
struct Source {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    random: fastrand::Rng,
}

#[derive(Clone)]
struct Node {
    attr: Outside,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    children: BTreeMap<Vec<u8>, u64>,
}

/// What is compared: path to attributes (with the number at the source left out), target, and
/// extended attributes.
type Shown = BTreeMap<Vec<u8>, (Outside, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

const TOP: u64 = 1;

impl Source {
    #[expect(clippy::print_stdout, reason = "seeds are printed first")]
    fn new(seed: u64) -> Source {
        println!("seed {seed}");
        let mut source =
            Source { nodes: BTreeMap::new(), next: TOP, random: fastrand::Rng::with_seed(seed) };
        source.make(Kind::Directory);
        source
    }

    fn make(&mut self, kind: Kind) -> u64 {
        let number = self.next;
        self.next += 1;
        let random = &mut self.random;
        let mut time = || random.i64(-1_000_000_000..4_000_000_000_000_000_000);
        let (atime, mtime, ctime, btime) = (time(), time(), time(), time());
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let attr = Outside {
            kind,
            mode: random.u32(..0o10000),
            uid: random.u32(..),
            gid: random.u32(..),
            nlink: 1,
            rdev: if device { random.u32(..) } else { 0 },
            size: random.u64(..1 << 50),
            allocated: random.u64(..1 << 30) * 512,
            atime,
            mtime,
            ctime,
            btime,
            device: 7,
            number,
        };
        let target = if kind == Kind::Symlink { vec![b't'; random.usize(1..300)] } else { vec![] };
        let node = Node { attr, target, xattrs: BTreeMap::new(), children: BTreeMap::new() };
        self.nodes.insert(number, node);
        number
    }

    fn directories(&self) -> Vec<u64> {
        let directory = |node: &&Node| node.attr.kind == Kind::Directory;
        self.nodes.values().filter(directory).map(|node| node.attr.number).collect()
    }

    fn name(&mut self) -> Vec<u8> {
        let length = self.random.usize(1..6);
        (0..length).map(|_| *self.random.choice(b"abc\xff\n ").expect("not empty")).collect()
    }

    /// One random change.
    fn change(&mut self) {
        let directories = self.directories();
        let dir = *self.random.choice(&directories).expect("the top");
        let name = self.name();
        match self.random.u32(..12) {
            0..=3 => self.put(dir, name, Kind::File),
            4 => self.put(dir, name, Kind::Symlink),
            5..=6 => self.put(dir, name, Kind::Directory),
            7 => self.put(
                dir,
                name,
                *[Kind::Fifo, Kind::CharDevice, Kind::Socket].first().expect(""),
            ),
            8 => self.link(dir, name),
            9 => self.remove(dir),
            10 => self.alter(),
            _ => self.rename(dir, name),
        }
    }

    fn put(&mut self, dir: u64, name: Vec<u8>, kind: Kind) {
        let number = self.make(kind);
        self.attach(dir, name, number);
    }

    fn attach(&mut self, dir: u64, name: Vec<u8>, number: u64) {
        let node = self.nodes.get_mut(&dir).expect("a directory");
        let old = node.children.insert(name, number);
        if let Some(old) = old {
            self.drop_link(old);
        }
    }

    fn drop_link(&mut self, number: u64) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.attr.nlink -= 1;
        if node.attr.nlink == 0 {
            let children = self.nodes.remove(&number).expect("just seen").children;
            for child in children.into_values() {
                self.drop_link(child);
            }
        }
    }

    fn link(&mut self, dir: u64, name: Vec<u8>) {
        let files: Vec<u64> = self
            .nodes
            .values()
            .filter(|node| node.attr.kind != Kind::Directory)
            .map(|node| node.attr.number)
            .collect();
        if let Some(&file) = self.random.choice(&files) {
            self.nodes.get_mut(&file).expect("there").attr.nlink += 1;
            self.attach(dir, name, file);
        }
    }

    fn remove(&mut self, dir: u64) {
        let children: Vec<Vec<u8>> = self.nodes[&dir].children.keys().cloned().collect();
        if let Some(name) = self.random.choice(&children).cloned() {
            let number = self.nodes.get_mut(&dir).expect("there").children.remove(&name);
            self.drop_link(number.expect("there"));
        }
    }

    fn alter(&mut self) {
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        let number = *self.random.choice(&numbers).expect("the top");
        let (size, mode) = (self.random.u64(..1 << 40), self.random.u32(..0o10000));
        let xattr = self.random.bool();
        let value = vec![1; self.random.usize(..50)];
        let node = self.nodes.get_mut(&number).expect("there");
        node.attr.mode = mode;
        node.attr.size = size;
        if xattr {
            node.xattrs.insert(b"trusted.x".to_vec(), value);
        } else {
            node.xattrs.clear();
        }
    }

    /// Moves something out of a directory, not below itself.
    fn rename(&mut self, dir: u64, name: Vec<u8>) {
        let children: Vec<(Vec<u8>, u64)> =
            self.nodes[&dir].children.iter().map(|(name, to)| (name.clone(), *to)).collect();
        let Some((old, number)) = self.random.choice(&children).cloned() else { return };
        let directories = self.directories();
        let to = *self.random.choice(&directories).expect("the top");
        if self.reaches(number, to) || self.nodes[&to].children.get(&name) == Some(&number) {
            return;
        }
        if let Some(over) = self.nodes[&to].children.get(&name)
            && self.reaches(*over, dir)
        {
            return;
        }
        self.nodes.get_mut(&dir).expect("there").children.remove(&old);
        self.attach(to, name, number);
    }

    fn reaches(&self, from: u64, to: u64) -> bool {
        from == to || self.nodes[&from].children.values().any(|&child| self.reaches(child, to))
    }

    fn shown(&self) -> Shown {
        let mut shown = Shown::new();
        self.show(TOP, b"", &mut shown);
        shown
    }

    fn show(&self, number: u64, path: &[u8], shown: &mut Shown) {
        let node = &self.nodes[&number];
        let attr = Outside { device: 0, number: 0, ..node.attr };
        let xattrs = node.xattrs.clone().into_iter().collect();
        shown.insert(path.to_vec(), (attr, node.target.clone(), xattrs));
        for (name, child) in &node.children {
            self.show(*child, &[path, b"/", name].concat(), shown);
        }
    }
}

impl Node {
    fn listed<'a>(&'a self, name: &'a [u8]) -> Listed<'a> {
        Listed { name, attr: self.attr, target: &self.target, xattrs: self.xattrs() }
    }

    fn xattrs(&self) -> Vec<(&[u8], &[u8])> {
        self.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect()
    }
}

fn options(started: i64) -> ScanOptions {
    let (source, crosses_mounts) = (b"/data".to_vec(), false);
    ScanOptions { source, started, crosses_mounts, keeps_xattrs: true, hidden: false }
}

/// Passes a directory and everything below to a scan; stops after `budget` directories.
fn pass(
    scan: &mut Scan<'_>,
    source: &Source,
    mut dir: ScanDirectory,
    number: u64,
    budget: &mut usize,
    part: usize,
) -> FsResult<bool> {
    let node = &source.nodes[&number];
    let rows: Vec<Listed<'_>> =
        node.children.iter().map(|(name, child)| source.nodes[child].listed(name)).collect();
    let mut below = Vec::new();
    for rows in rows.chunks(part) {
        scan.names(&mut dir, rows, &mut |index, child| {
            below.push((rows[index].attr.number, child));
        })?;
    }
    scan.close(dir, Names::All)?;
    for (number, child) in below {
        if *budget == 0 {
            return Ok(false);
        }
        *budget -= 1;
        if !pass(scan, source, child, number, budget, part)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Scans; `false` when it was given up after `budget` directories.
fn scan(fs: &Fs, source: &Source, mut budget: usize, part: usize) -> bool {
    let mut scan = fs.scan_begin(&options(5)).expect("an index of this source");
    let top = &source.nodes[&TOP];
    let root = scan.root(&top.attr, &top.xattrs()).expect("a root");
    let complete = pass(&mut scan, source, root, TOP, &mut budget, part).expect("space");
    if complete {
        scan.finish(6, 0).expect("all directories were reported of");
    }
    complete
}

/// What the index shows.
/// Fills an index with directories, links and pipes; `false`: and gives the scan up half-way.
pub(crate) fn scan_random(fs: &Fs, seed: u64, whole: bool) {
    let mut source = Source::new(seed);
    for n in 0..200 {
        let directories = source.directories();
        let dir = *source.random.choice(&directories).expect("the top");
        let kind = [Kind::Directory, Kind::Symlink, Kind::Fifo][n % 3];
        source.put(dir, format!("name {n}").into_bytes(), kind);
    }
    assert_eq!(scan(fs, &source, if whole { usize::MAX } else { 40 }, 10), whole);
}

fn index(fs: &Fs) -> Shown {
    let mut shown = Shown::new();
    walk(fs, ROOT, b"", &mut shown);
    shown
}

fn walk(fs: &Fs, node: NodeId, path: &[u8], shown: &mut Shown) {
    let root = Caller::root();
    let attr = fs.getattr(&root, node).expect("a node that is there");
    let target = match attr.kind {
        Kind::Symlink => fs.readlink(&root, node).expect("a link"),
        _ => Vec::new(),
    };
    let names = fs.listxattr(&root, node).expect("a node that is there");
    let mut xattrs = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        xattrs.push((name.to_vec(), fs.getxattr(&root, node, name).expect("it is listed")));
    }
    let outside = Outside {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: attr.rdev,
        size: attr.size,
        allocated: attr.blocks * 512,
        atime: attr.atime.0,
        mtime: attr.mtime.0,
        ctime: attr.ctime.0,
        btime: attr.btime.0,
        device: 0,
        number: 0,
    };
    shown.insert(path.to_vec(), (outside, target, xattrs));
    if attr.kind != Kind::Directory {
        return;
    }
    let mut names = Vec::new();
    fs.readdir(&root, node, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        fs::WalkControl::Continue
    })
    .expect("a directory");
    for name in names {
        let entry = fs.lookup(&root, node, &name).expect("it is listed");
        walk(fs, entry.node, &[path, b"/", &name].concat(), shown);
        fs.forget(entry.node, 1);
    }
}

#[track_caller]
fn check(volume: &Fs, source: &Source) {
    let (got, want) = (index(volume), source.shown());
    for (path, want) in &want {
        assert_eq!(got.get(path), Some(want), "{}", path.escape_ascii());
    }
    assert_eq!(got.len(), want.len(), "names that the source does not hold");
    let files = volume.status().expect("counts").files;
    assert_eq!(files, source.nodes.len() as u64, "inodes counted");
}

#[test]
fn a_scan_shows_the_source_and_later_ones_the_changes() {
    for seed in 0..12 {
        let mut source = Source::new(seed);
        let Volume { fs, .. } = &volume();
        for round in 0..8 {
            for _ in 0..source.random.u32(1..150) {
                source.change();
            }
            let part = source.random.usize(1..40);
            assert!(scan(fs, &source, usize::MAX, part), "round {round}");
            check(fs, &source);
        }
    }
}

#[test]
fn names_of_one_hash_are_distinguished() {
    for seed in 100..108 {
        let mut source = Source::new(seed);
        let Volume { fs, .. } = &weak_volume(2);
        for _ in 0..6 {
            for _ in 0..100 {
                source.change();
            }
            let part = source.random.usize(1..20);
            assert!(scan(fs, &source, usize::MAX, part));
            check(fs, &source);
        }
    }
}

#[test]
fn an_aborted_scan_shows_nothing_and_the_next_one_continues() {
    for seed in 200..210 {
        let mut source = Source::new(seed);
        let volume = volume();
        let mut fs = volume.fs.clone();
        for _ in 0..100 {
            source.change();
        }
        assert!(scan(&fs, &source, usize::MAX, 10));
        for _ in 0..6 {
            let before = source.clone();
            for _ in 0..60 {
                source.change();
                if source.random.u32(..15) == 0 {
                    let budget = source.random.usize(..10);
                    if scan(&fs, &source, budget, 7) {
                        break;
                    }
                    assert!(index(&fs) == before.shown(), "a scan that was given up shows");
                    if source.random.bool() {
                        drop(fs);
                        fs = volume.reopened();
                    }
                }
            }
            assert!(scan(&fs, &source, usize::MAX, 9));
            check(&fs, &source);
        }
    }
}

#[test]
fn single_changes_agree_with_a_scan() {
    for seed in 300..310 {
        let mut source = Source::new(seed);
        let Volume { fs, .. } = &volume();
        for _ in 0..100 {
            source.change();
        }
        assert!(scan(fs, &source, usize::MAX, 10));
        for _ in 0..40 {
            let before = source.clone();
            source.change();
            follow(fs, &before, &source);
            check(fs, &source);
        }
    }
}

/// Passes the names that differ, as a watcher does.
fn follow(fs: &Fs, before: &Source, after: &Source) {
    let mut scan = fs.scan_begin(&options(5)).expect("an index of this source");
    let mut paths = BTreeMap::new();
    paths_of(after, TOP, b"", &mut paths);
    for (path, number) in paths {
        let node = &after.nodes[&number];
        let old = before.nodes.get(&number);
        let Some(mut dir) = scan.find(&path).expect("readable") else { continue };
        scan.renew(&mut dir, &node.attr, &node.xattrs());
        let mut below = Vec::new();
        for (name, child) in &node.children {
            let listed = after.nodes[child].listed(name);
            let names = std::slice::from_ref(&listed);
            scan.names(&mut dir, names, &mut |_, made| below.push((*child, made))).expect("space");
        }
        for name in old.into_iter().flat_map(|old| old.children.keys()) {
            if !node.children.contains_key(name) {
                scan.remove(&mut dir, name).expect("space");
            }
        }
        scan.close(dir, Names::Some).expect("space");
        for (number, child) in below {
            let all = child.is_new() || child.was().is_none_or(|(_, was, _)| was != number);
            if all {
                pass(&mut scan, after, child, number, &mut usize::MAX.clone(), 5).expect("space");
            } else {
                scan.close(child, Names::Some).expect("space");
            }
        }
    }
    scan.finish(6, 0).expect("all directories were reported of");
}

fn paths_of(source: &Source, number: u64, path: &[u8], paths: &mut BTreeMap<Vec<u8>, u64>) {
    let node = &source.nodes[&number];
    if node.attr.kind == Kind::Directory {
        paths.insert(path.to_vec(), number);
        for (name, child) in &node.children {
            paths_of(source, *child, &[path, b"/", name].concat(), paths);
        }
    }
}

#[test]
fn only_scans_change_an_index_and_its_files_have_no_contents() {
    let Volume { fs, .. } = &volume();
    let mut source = Source::new(1);
    source.put(TOP, b"file".to_vec(), Kind::File);
    source.put(TOP, b"dir".to_vec(), Kind::Directory);
    assert!(scan(fs, &source, usize::MAX, 10));
    let root = Caller::root();
    let file = fs.lookup(&root, ROOT, b"file").expect("it was reported");
    refused(fs.read(&root, file.node, 0, &mut [0; 10]), &FsError::Elsewhere);
    let read_only = FsError::ReadOnly(String::new());
    refused(fs.write(&root, file.node, 0, b"x"), &read_only);
    refused(fs.mkdir(&root, ROOT, b"new", 0o755), &read_only);
    refused(fs.unlink(&root, ROOT, b"file"), &read_only);
    refused(fs.rename(&root, (ROOT, b"file"), (ROOT, b"f"), fs::RenameMode::Replace), &read_only);
}

/// A list of the source is asked as one of ours: the group bits are its mask.
#[test]
fn lists_of_the_source_decide_who_sees_what() {
    use format::acl::{ACCESS, Acl};
    let Volume { fs, .. } = &volume();
    let mut source = Source::new(1);
    let top = source.nodes.get_mut(&TOP).expect("it is there");
    (top.attr.mode, top.attr.uid, top.attr.gid) = (0o755, 0, 0);
    let acl = Acl { users: vec![(11, 5)], mask: Some(5), ..Acl::of_mode(0o700) }.encode();
    for (name, kind) in [(b"dir", Kind::Directory), (b"one", Kind::File)] {
        source.put(TOP, name.to_vec(), kind);
        let node = source.nodes.values_mut().last().expect("it is there");
        (node.attr.mode, node.attr.uid, node.attr.gid) = (0o750, 10, 20);
        node.xattrs.insert(ACCESS.to_vec(), acl.clone());
    }
    let dir = source.nodes[&TOP].children[&b"dir"[..]];
    source.put(dir, b"inside".to_vec(), Kind::File);
    let plain = source.nodes.values_mut().last().expect("it is there");
    (plain.attr.mode, plain.attr.uid, plain.attr.gid) = (0o640, 10, 20);
    let minimal = Acl::of_mode(0o640).encode();
    plain.xattrs.insert(ACCESS.to_vec(), minimal);
    assert!(scan(fs, &source, usize::MAX, 10));
    check(fs, &source);
    let group = Caller { gid: 20, ..user(12) };
    for (who, sees) in [(&user(11), true), (&group, false), (&user(10), true)] {
        let dir = fs.resolve(&Caller::root(), b"/dir", fs::Follow::Yes).expect("it was reported");
        let inside = fs.lookup(who, dir.node, b"inside");
        assert_eq!(inside.is_ok(), sees, "{who:?}");
        let one = fs.lookup(&Caller::root(), ROOT, b"one").expect("it was reported");
        assert_eq!(fs.access(who, one.node, 4).is_ok(), sees, "{who:?}");
    }
    let inside = fs.resolve(&Caller::root(), b"/dir/inside", fs::Follow::Yes).expect("reported");
    assert!(fs.access(&group, inside.node, 4).is_ok(), "the mode decides");
}

#[test]
fn an_index_in_a_root_with_a_quota_is_charged_as_the_root() {
    let Volume { fs, .. } = &volume();
    let root = Caller::root();
    let limits = fs::QuotaLimits { inodes: Some(2), bytes: None };
    fs.quota_set(&root, ROOT, limits).expect("an empty directory");
    let mut source = Source::new(3);
    for _ in 0..50 {
        source.change();
    }
    for _ in 0..2 {
        assert!(scan(fs, &source, usize::MAX, 10));
        assert_eq!(fs.quota_check().expect("a count"), []);
        assert_eq!(fs.quota_get(ROOT).expect("a node").expect("a quota").inodes, 1);
    }
    refused(fs.quota_set(&root, ROOT, limits), &FsError::ReadOnly(String::new()));
}

#[test]
fn a_volume_in_use_and_another_source_are_refused() {
    let volume = volume();
    volume.file(ROOT, "mine");
    let begun = volume.fs.scan_begin(&options(1));
    assert!(matches!(begun.err(), Some(FsError::NotEmpty)));
    volume.fs.unlink(&Caller::root(), ROOT, b"mine").expect("it was made");
    let scan = volume.fs.scan_begin(&options(1)).expect("an empty volume");
    let second = volume.fs.scan_begin(&options(1));
    assert!(matches!(second.err(), Some(FsError::Busy(_))));
    drop(scan);
    let other = ScanOptions { source: b"/other".to_vec(), ..options(1) };
    assert!(matches!(volume.fs.scan_begin(&other).err(), Some(FsError::Exists)));
}

/// Regression: a name of 256 bytes was refused as a reserved one.
#[test]
fn a_name_that_no_volume_can_hold_is_refused_with_its_reason() {
    let Volume { fs, .. } = &volume();
    let mut source = Source::new(500);
    let number = source.make(Kind::Fifo);
    let (longest, longer) = ([b'n'; NAME_BYTES_MAX], [b'n'; NAME_BYTES_MAX + 1]);
    let dots = FsError::InvalidArgument("'.' and '..' are not names");
    let form = FsError::InvalidArgument("a name is 1 to 255 bytes without '/' and NUL");
    let cases: [(&[u8], &FsError); 5] = [
        (&longer, &FsError::NameTooLong),
        (b".", &dots),
        (b"..", &dots),
        (b"", &form),
        (b"a/b", &form),
    ];
    let top = source.nodes[&TOP].clone();
    for (name, error) in cases {
        let mut scan = fs.scan_begin(&options(5)).expect("an index of this source");
        let mut root = scan.root(&top.attr, &[]).expect("a root");
        let listed = [&longest[..], name].map(|name| source.nodes[&number].listed(name));
        refused(scan.names(&mut root, &listed, &mut |_, _| ()), error);
    }
    assert!(index(fs).keys().all(|path| path.is_empty()), "an abandoned scan shows nothing");
    source.attach(TOP, longest.to_vec(), number);
    assert!(scan(fs, &source, usize::MAX, 10));
    check(fs, &source);
}

#[test]
fn snapshots_of_an_index_keep_what_it_showed_and_can_be_rolled_back_to() {
    let Volume { fs, .. } = &volume();
    let mut source = Source::new(400);
    for _ in 0..80 {
        source.change();
    }
    assert!(scan(fs, &source, usize::MAX, 10));
    let old = source.shown();
    fs.snapshot_create(&Caller::root(), ROOT, b"old").expect("an index is a directory");
    for _ in 0..80 {
        source.change();
    }
    assert!(scan(fs, &source, usize::MAX, 10));
    check(fs, &source);
    fs.rollback(&Caller::root(), ROOT, b"old").expect("it was taken");
    assert!(index(fs) == old);
    assert_eq!(fs.scan_info().expect("readable").expect("an index").started, None);
    assert!(scan(fs, &source, usize::MAX, 10));
    assert!(index(fs) == source.shown());
}

/// A clone wrote its name into an index that it was made in, and so did a roll-back below its root.
#[test]
fn no_verb_writes_a_name_into_an_index() {
    let Volume { fs, .. } = &volume();
    let mut source = Source::new(7);
    for _ in 0..80 {
        source.change();
    }
    assert!(scan(fs, &source, usize::MAX, 10));
    let (root, shown) = (Caller::root(), source.shown());
    let mut names = Vec::new();
    let mut take = |entry: &fs::DirEntry<'_>| {
        if entry.kind == Kind::Directory {
            names.push(entry.name.to_vec());
        }
        fs::WalkControl::Continue
    };
    fs.readdir(&root, ROOT, 0, &mut take).expect("it lists");
    let name = names.first().expect("a directory").clone();
    let directory = fs.lookup(&root, ROOT, &name).expect("it is there").node;
    let refused = |done: Result<(), FsError>| {
        assert!(matches!(done, Err(FsError::ReadOnly(_))), "{done:?}");
    };
    fs.snapshot_create(&root, directory, b"one").expect("an index keeps what it showed");
    let snapshot = fs.snapshot_list(&root, directory).expect("a list")[0].root;
    for from in [directory, snapshot] {
        refused(fs.clone_dir(&root, from, ROOT, b"clone").map(drop));
        refused(fs.clone_dir(&root, from, directory, b"clone").map(drop));
    }
    refused(fs.subvolume_create(&root, ROOT, b"empty", 0o755).map(drop));
    refused(fs.rollback(&root, directory, b"one"));
    refused(fs.rmr(&root, ROOT, &name).map(drop));
    assert!(index(fs) == shown);
}

fn a_base_is_put_in_place_though_scans_swap_the_tree_while_it_is_made(engine: Engine) {
    let device = SimDevice::new(3);
    let script = Script::new(&device, 3, Durability::Async, &Base::Engine(engine));
    let fs = script.subject.fs();
    let mut source = Source::new(3);
    for _ in 0..200 {
        source.change();
    }
    assert!(scan(fs, &source, usize::MAX, 40));
    fs.index_request(NodeId::ROOT).expect("it is requested");
    for _ in 0..40 {
        // Fewer than a base takes: each scan leaves a tree to be removed, which goes before.
        for _ in 0..20 {
            fs.background_step(64).expect("background work goes well");
        }
        source.change();
        assert!(scan(fs, &source, usize::MAX, 40));
    }
    let mut random = fastrand::Rng::with_seed(3);
    crate::search::compare(fs, &mut random, 4, "after scans");
    let stats = fs.index_stats().expect("it answers").expect("there is an index");
    assert!(stats.bases > 0, "{stats:?}");
}
