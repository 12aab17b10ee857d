//! Totals when much changed since the base. They equal those of a walk, for root and for an
//! ordinary user, whatever was changed. Each change is looked up in the base once.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::{Clock, Timestamp};
use fs::{Engine, FileSystem, Fs, NewNode, RenameMode};
use inode::{Caller, Kind, NodeId, SetAttr, SetTime};
use search::aggregate::Question;
use search::query::Test;
use search::{Attribute, Start, index};
use testing::SimDevice;

use crate::script::{options_without_due_bases, scale};
use crate::search::{Everybody, Query, caller, directories};
use crate::search_counts::{check_counts, count_by};
use crate::search_totals::check_totals;
use crate::subject::{Base, FsSubject};

on_each_engine!(
    totals_are_those_of_a_walk_after_many_changes,
    totals_are_those_of_a_walk_where_changes_take_all_memory,
    what_changed_is_looked_up_once,
    counts_by_columns_look_at_no_row_that_did_not_change,
    a_directory_that_only_gained_names_is_reported_with_all_that_it_holds,
    the_largest_are_those_of_a_walk_whatever_changed,
    where_the_largest_shrank_the_next_are_reported,
    what_bases_had_is_kept_in_the_memory_for_differences,
);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
const DIRECTORIES: usize = 40;
const FILES: usize = 25;

/// A volume with directories in one another, and files in them, that changes at random.
struct Changing {
    subject: FsSubject,
    random: fastrand::Rng,
    directories: Vec<NodeId>,
    files: Vec<(NodeId, Vec<u8>)>,
    /// Directories that may be moved, by the one that they are in.
    placed: Vec<(NodeId, Vec<u8>)>,
    next: u32,
    links: bool,
}

impl Changing {
    fn new(engine: Engine, seed: u64, cache_bytes: usize, links: bool) -> Changing {
        let device = SimDevice::new(seed);
        let subject = FsSubject::format(
            &device,
            &options_without_due_bases(cache_bytes),
            &Base::Engine(engine),
        );
        let mut changing = Changing {
            subject,
            random: fastrand::Rng::with_seed(seed),
            directories: vec![NodeId::ROOT],
            files: Vec::new(),
            placed: Vec::new(),
            next: 0,
            links,
        };
        while changing.directories.len() < DIRECTORIES {
            changing.make_directory();
        }
        for _ in 0..DIRECTORIES * FILES {
            changing.make_file();
        }
        changing.subject.fs().index_flush(NodeId::ROOT).expect("a flush goes well");
        changing
    }

    fn fs(&self) -> &Fs {
        self.subject.fs()
    }

    fn name(&mut self) -> Vec<u8> {
        self.next += 1;
        let ends = ["", ".txt", ".h5", ".tar.gz", ".jpeg"];
        format!("n{}{}", self.next, ends[self.random.usize(..ends.len())]).into_bytes()
    }

    fn directory(&mut self) -> NodeId {
        self.directories[self.random.usize(..self.directories.len())]
    }

    fn file(&mut self) -> (NodeId, Vec<u8>) {
        self.files[self.random.usize(..self.files.len())].clone()
    }

    fn make_directory(&mut self) {
        let (parent, name) = (self.directory(), self.name());
        let made = self.fs().mkdir(&Caller::root(), parent, &name, 0o755);
        if let Ok(made) = made {
            self.directories.push(made.node);
            self.placed.push((parent, name));
        }
    }

    fn make_file(&mut self) {
        self.subject.clock().sleep(Duration::from_millis(10));
        let (parent, name) = (self.directory(), self.name());
        let size = Some(self.random.u64(..100_000));
        let owner = self.random.u32(998..1003);
        if let Ok(made) = self.fs().mknod(&Caller::root(), parent, &name, &FILE) {
            let set = SetAttr { size, uid: Some(owner), ..SetAttr::default() };
            self.fs().setattr(&Caller::root(), made.node, &set).expect("a file");
            self.files.push((parent, name));
        }
    }

    /// Changes one of the attributes of a file, or of a directory.
    fn set(&mut self) {
        let directory = self.random.u32(..8) == 0;
        let node = if directory {
            self.directory()
        } else {
            let (parent, name) = self.file();
            let Ok(found) = self.fs().lookup(&Caller::root(), parent, &name) else { return };
            found.node
        };
        let mut set = SetAttr::default();
        match self.random.u32(..6) {
            // The last change of all may be an earlier one.
            0 => set.ctime = Some(SetTime::At(Timestamp(self.random.i64(0..1 << 60)))),
            // One that no other user may read, mostly for a while.
            1 => set.mode = Some([0o700, 0o755, 0o755][self.random.usize(..3)]),
            2 => set.uid = Some(self.random.u32(998..1003)),
            3 => set.gid = Some(self.random.u32(998..1003)),
            4 => {
                let time = 1_700_000_000_000_000_000 + self.random.i64(0..200_000_000_000);
                set.atime = Some(SetTime::At(Timestamp(time)));
            }
            _ if directory => set.mode = Some(0o750),
            _ => set.size = Some(self.random.u64(..1 << 30)),
        }
        self.fs().setattr(&Caller::root(), node, &set).ok();
    }

    fn one(&mut self) {
        let root = Caller::root();
        self.subject.clock().sleep(Duration::from_millis(10));
        match self.random.u32(..100) {
            0..20 => self.make_file(),
            20..23 => self.make_directory(),
            23..38 => {
                let (parent, name) = self.file();
                self.fs().unlink(&root, parent, &name).ok();
            }
            38..53 => {
                let (from, to, name) = (self.file(), self.directory(), self.name());
                let moved =
                    self.fs().rename(&root, (from.0, &from.1), (to, &name), RenameMode::Replace);
                if moved.is_ok() {
                    self.files.push((to, name));
                }
            }
            53..58 if self.links => {
                let (from, to, name) = (self.file(), self.directory(), self.name());
                if let Ok(found) = self.fs().lookup(&root, from.0, &from.1)
                    && self.fs().link(&root, found.node, to, &name).is_ok()
                {
                    self.files.push((to, name));
                }
            }
            58..61 => {
                let at = self.random.usize(..self.placed.len());
                let (from, to, name) = (self.placed[at].clone(), self.directory(), self.name());
                let moved =
                    self.fs().rename(&root, (from.0, &from.1), (to, &name), RenameMode::Replace);
                if moved.is_ok() {
                    self.placed[at] = (to, name);
                }
            }
            61 if self.random.u32(..4) == 0 => {
                let (source, to, name) = (self.directory(), self.directory(), self.name());
                self.fs().clone_dir(&root, source, to, &name).ok();
            }
            62 => {
                let at = self.random.usize(..self.placed.len());
                let (parent, name) = self.placed[at].clone();
                self.fs().rmdir(&root, parent, &name).ok();
            }
            63 if self.random.u32(..6) == 0 => {
                let at = self.random.usize(..self.placed.len());
                let (parent, name) = self.placed[at].clone();
                self.fs().rmr(&root, parent, &name).ok();
            }
            64 if self.random.u32(..6) == 0 => {
                let (source, name) = (self.directory(), self.name());
                self.fs().snapshot_create(&root, source, &name).ok();
            }
            _ => self.set(),
        }
    }

    /// Changes a part of all, and compares totals.
    fn rounds(&mut self, seed: u64) {
        for (round, changes) in [3, 40, 1, 400, 2, 0, 150].into_iter().enumerate() {
            (0..changes).for_each(|_| self.one());
            let starts = directories(self.subject.fs());
            for _ in 0..8 {
                let place = format!("seed {seed}, links {}, round {round}", self.links);
                check_totals(self.subject.fs(), &mut self.random, &starts, &place);
                check_counts(self.subject.fs(), &mut self.random, &starts, &place);
                Query::random(&mut self.random, &starts).check(self.subject.fs(), &place);
            }
        }
    }
}

fn totals_are_those_of_a_walk_after_many_changes(engine: Engine) {
    for seed in 0..scale(3, 200) {
        let mut changing = Changing::new(engine, seed, 64 << 20, seed % 3 == 2);
        changing.rounds(seed);
        let looked_up = stats(changing.fs()).looked_up;
        assert!(looked_up > 100, "seed {seed}: {looked_up}");
        // A new base, and on from there.
        changing.fs().index_flush(NodeId::ROOT).expect("a flush goes well");
        changing.rounds(seed);
    }
}

/// What changed fits, but not what was there before; later not even that, and all is walked.
fn totals_are_those_of_a_walk_where_changes_take_all_memory(engine: Engine) {
    let memories = [4 << 10, 16 << 10, 48 << 10, 96 << 10, 128 << 10];
    for (seed, cache_bytes) in (100..).zip(memories).step_by(scale(2, 1) as usize) {
        Changing::new(engine, seed, cache_bytes, false).rounds(seed);
    }
}

fn stats(fs: &Fs) -> index::IndexStats {
    fs.index_stats().expect("it answers").expect("there is an index")
}

/// Totals of all.
fn ask(fs: &Fs) {
    ask_for_largest(fs, NodeId::ROOT, 0);
}

/// The same of a directory, and the largest of those in it.
fn ask_for_largest(fs: &Fs, node: NodeId, largest: usize) {
    ask_for_largest_as(fs, &Caller::root(), node, largest);
}

fn ask_for_largest_as(fs: &Fs, caller: &Caller, node: NodeId, largest: usize) {
    let (subvolume, directory) = fs.search_place(node).expect("a directory");
    let question = Question {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        caller,
        accounts: &Everybody,
        directories: None,
        largest,
        groups: true,
        cancel: &AtomicBool::new(false),
    };
    let indexed = fs.aggregate(&question).expect("totals");
    let walked = fs.aggregate_by_walking(&question).expect("totals");
    assert_eq!(indexed.total, walked.total);
    assert_eq!(indexed.largest, walked.largest);
}

fn what_changed_is_looked_up_once(engine: Engine) {
    let mut changing = Changing::new(engine, 7, 64 << 20, false);
    ask(changing.fs());
    assert_eq!(stats(changing.fs()).looked_up, 0, "nothing changed");
    (0..400).for_each(|_| changing.one());
    assert_eq!(stats(changing.fs()).looked_up, 0, "nobody asked");
    ask(changing.fs());
    let first = stats(changing.fs()).looked_up;
    assert!((200..1500).contains(&first), "{first}");
    for _ in 0..3 {
        ask(changing.fs());
    }
    assert_eq!(stats(changing.fs()).looked_up, first, "nothing changed meanwhile");
    // A file, its directory, and that is all, however layers are merged.
    for more in 1..30 {
        changing.make_file();
        ask(changing.fs());
        let looked_up = stats(changing.fs()).looked_up;
        assert!(looked_up <= first + 2 * more, "{looked_up} after {first} and {more} changes");
    }
}

/// Whatever column it is by: of all other rows it looks at that alone.
fn counts_by_columns_look_at_no_row_that_did_not_change(engine: Engine) {
    let mut changing = Changing::new(engine, 11, 64 << 20, true);
    (0..30).for_each(|_| changing.set());
    (0..10).for_each(|_| changing.make_file());
    let times = [Attribute::Atime, Attribute::Btime, Attribute::Mtime, Attribute::Ctime];
    let times = times.map(|time| Test::Within(time, 1_000_000_000_000_000_000, 1 << 64));
    let links = Test::Within(Attribute::Links, 1, 1);
    for test in times.into_iter().chain([links, Test::Within(Attribute::Size, 1, 1 << 40)]) {
        let [counted, walked] = count_by(changing.fs(), test.clone());
        assert_eq!(counted.matched, walked.matched, "{test:?}");
        assert!(counted.matched > 800, "{test:?}: {counted:?}");
        assert!(counted.rows_tested < 100, "{test:?}: {counted:?}");
    }
}

/// The directory's own row, which changes with it, is in the cluster of the directory above. In the
/// cluster of its names only the new names differ from before.
fn a_directory_that_only_gained_names_is_reported_with_all_that_it_holds(engine: Engine) {
    let (device, root) = (SimDevice::new(1), Caller::root());
    let mut options = options_without_due_bases(64 << 20);
    let index = options.index.as_mut().expect("an index");
    index.limits = index::ClusterLimits { directories: 64, rows: 2000 };
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let fs = subject.fs();
    let file = |directory, name: &str, size| {
        let made = fs.mknod(&root, directory, name.as_bytes(), &FILE).expect("space").node;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        fs.setattr(&root, made, &set).expect("a file");
    };
    let mut made = Vec::new();
    for number in 0..200 {
        let name = format!("d{number}");
        made.push(fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755).expect("space").node);
    }
    // The smallest is in a cluster with many others, not with the root.
    for (number, directory) in made.iter().enumerate() {
        let size = if number == 150 { 10 } else { 1000 };
        (0..5).for_each(|name| file(*directory, &format!("f{name}"), size));
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    ask_for_largest(fs, NodeId::ROOT, 3);
    file(made[150], "more", 1 << 20);
    for largest in [1, 3, 16, 17] {
        ask_for_largest(fs, NodeId::ROOT, largest);
    }
}

/// Clusters have more directories than are known of each, and many hold as much as others. The
/// largest get less and others more; directories come, move and go.
fn the_largest_are_those_of_a_walk_whatever_changed(engine: Engine) {
    for seed in 0..scale(2, 60) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (device, root) = (SimDevice::new(seed), Caller::root());
        let mut options = options_without_due_bases(64 << 20);
        let index = options.index.as_mut().expect("an index");
        index.limits = index::ClusterLimits { directories: 50, rows: 2000 };
        let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
        let fs = subject.fs();
        let sizes = [0, 10, 1000, 1000, 5000, 5001 + seed];
        let put = |random: &mut fastrand::Rng, directory: NodeId| {
            let name = format!("f{}", random.u32(..8));
            let made = fs.mknod(&root, directory, name.as_bytes(), &FILE).map(|made| made.node);
            let found = fs.lookup(&root, directory, name.as_bytes()).map(|found| found.node);
            let set = SetAttr { size: Some(sizes[random.usize(..6)]), ..SetAttr::default() };
            if let Ok(node) = made.or(found) {
                fs.setattr(&root, node, &set).expect("a file");
            }
        };
        let mut all = vec![(NodeId::ROOT, b"".to_vec(), NodeId::ROOT)];
        for number in 0..180 {
            let parent = all[random.usize(..all.len().min(9))].0;
            let name = format!("d{number}").into_bytes();
            let made = fs.mkdir(&root, parent, &name, 0o755).expect("space").node;
            (0..random.u32(..4)).for_each(|_| put(&mut random, made));
            all.push((parent, name, made));
        }
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        for _ in 0..12 {
            for _ in 0..random.usize(1..40) {
                let at = random.usize(1..all.len());
                let (parent, name, node) = all[at].clone();
                match random.u32(..10) {
                    0..4 => put(&mut random, node),
                    4..8 => {
                        let name = format!("f{}", random.u32(..8));
                        fs.unlink(&root, node, name.as_bytes()).ok();
                    }
                    8 => {
                        let to = all[random.usize(..all.len())].0;
                        let moved =
                            fs.rename(&root, (parent, &name), (to, &name), RenameMode::Replace);
                        if moved.is_ok() {
                            all[at].0 = to;
                        }
                    }
                    _ => {
                        let mode = Some([0o700, 0o755][random.usize(..2)]);
                        let set = SetAttr { mode, ..SetAttr::default() };
                        fs.setattr(&root, node, &set).ok();
                    }
                }
            }
            for largest in [1, 2, 5, 16, 17] {
                ask_for_largest_as(fs, &caller(&mut random), NodeId::ROOT, largest);
            }
        }
    }
}

/// The directories of a cluster that are known without reading it hold nothing any more. The others
/// did not change, and hold more than any directory of another cluster.
fn where_the_largest_shrank_the_next_are_reported(engine: Engine) {
    let (device, root) = (SimDevice::new(1), Caller::root());
    let mut options = options_without_due_bases(64 << 20);
    let index = options.index.as_mut().expect("an index");
    index.limits = index::ClusterLimits { directories: 70, rows: 2000 };
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let fs = subject.fs();
    let mut large = Vec::new();
    for (above, least) in [(&b"a"[..], 1000), (b"b", 10)] {
        let above = fs.mkdir(&root, NodeId::ROOT, above, 0o755).expect("space").node;
        for number in 0..60 {
            let name = format!("d{number}");
            let made = fs.mkdir(&root, above, name.as_bytes(), 0o755).expect("space").node;
            let file = fs.mknod(&root, made, b"f", &FILE).expect("space").node;
            let set = SetAttr { size: Some(least + number), ..SetAttr::default() };
            fs.setattr(&root, file, &set).expect("a file");
            large.push(made);
        }
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    for (shrunk, directory) in large[..60].iter().rev().enumerate() {
        fs.unlink(&root, *directory, b"f").expect("a file");
        if shrunk % 7 == 0 {
            for largest in [1, 5, 16] {
                ask_for_largest(fs, NodeId::ROOT, largest);
            }
        }
    }
}

/// However many subvolumes are requested: what is known of all, rows and what was there before.
fn what_bases_had_is_kept_in_the_memory_for_differences(engine: Engine) {
    let mut kept = 0;
    for cache_bytes in (64 << 10..=160 << 10).step_by(16 << 10) {
        let root = Caller::root();
        let mut options = options_without_due_bases(cache_bytes);
        options.index.as_mut().expect("an index").limits.rows = 1000;
        let subject = FsSubject::format(&SimDevice::new(1), &options, &Base::Engine(engine));
        let fs = subject.fs();
        let source = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).expect("space").node;
        for number in 0..200 {
            let name = format!("f{number}");
            fs.mknod(&root, source, name.as_bytes(), &FILE).expect("space");
        }
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        let mut clones = Vec::new();
        for number in 0..6 {
            let name = format!("c{number}");
            let made = fs.clone_dir(&root, source, NodeId::ROOT, name.as_bytes());
            let clone = made.expect("a clone").root;
            for number in 0..60 {
                let name = format!("f{number}");
                let file = fs.lookup(&root, clone, name.as_bytes()).expect("a file").node;
                let set = SetAttr { size: Some(number), ..SetAttr::default() };
                fs.setattr(&root, file, &set).expect("a file");
            }
            clones.push(clone);
        }
        for clone in [&clones[..], &clones[..]].concat() {
            ask_for_largest(fs, clone, 0);
            let stats = stats(fs);
            let most = cache_bytes as u64 / 4 * 3;
            assert!(stats.delta_bytes <= most, "{} of {most} bytes", stats.delta_bytes);
            kept += stats.looked_up;
        }
    }
    assert!(kept > 0, "nothing was kept");
}
