//! Quotas of users and groups against a model that knows nothing of records. Several users do
//! random operations; each answer and all charges must equal the model's.

use std::collections::BTreeMap;

use format::quota::NAME_BYTES;
use fs::{Engine, FileSystem, Fs, FsResult, NewNode, Owner, QuotaLimits, RenameMode};
use inode::{Caller, Ends, Enforce, FsError, Kind, NodeId, SetAttr};
use store::Durability;
use testing::SimDevice;

use crate::script::{options, scale};
use crate::subject::{Base, FsSubject};

/// Longest contents that are kept beside the name; up to there holes are bytes.
const SMALL: usize = 4096;
const USERS: [u32; 4] = [0, 31, 32, 33];

/// Contents: which bytes use space.
#[derive(Clone)]
enum Body {
    Directory(BTreeMap<String, usize>),
    Link(usize),
    Small(usize),
    Large(Vec<bool>),
}

#[derive(Clone)]
struct Object {
    body: Body,
    uid: u32,
    gid: u32,
    /// Whether it is charged to its owners: it was made here, or changed since it was inherited.
    charged: bool,
    names: u32,
    /// Names beyond the first that were made here, and are charged with it.
    further: u32,
}

impl Object {
    fn bytes(&self) -> i64 {
        let contents = match &self.body {
            Body::Directory(_) => 0,
            Body::Link(bytes) | Body::Small(bytes) => *bytes as i64,
            Body::Large(bytes) => bytes.iter().filter(|byte| **byte).count() as i64,
        };
        contents + i64::from(self.further) * NAME_BYTES as i64
    }
}

type Charges = BTreeMap<Owner, (i64, i64)>;

struct Model {
    objects: Vec<Option<Object>>,
    limits: BTreeMap<Owner, (Option<i64>, Option<i64>)>,
    /// Snapshots by the name of their directory.
    snapshots: BTreeMap<String, usize>,
    /// Whether a limit was set: before that an inherited file that changes stays inherited.
    counted: bool,
}

impl Model {
    fn charges(&self) -> Charges {
        let mut charges = Charges::new();
        for object in self.objects.iter().flatten().filter(|object| object.charged) {
            for owner in [Owner::User(object.uid), Owner::Group(object.gid)] {
                let (files, bytes) = charges.entry(owner).or_default();
                (*files, *bytes) = (*files + 1, *bytes + object.bytes());
            }
        }
        charges
    }

    /// Whether a user may change one object (or create it), by the limits.
    fn allows(&self, caller: &Caller, at: Option<usize>, after: &Object) -> bool {
        if caller.uid == 0 || !after.charged {
            return true;
        }
        let before = at.and_then(|at| self.objects[at].as_ref()).filter(|object| object.charged);
        let charges = self.charges();
        let fits = |owner: Owner, was: Option<(Owner, i64)>| {
            let had = was.filter(|(before, _)| *before == owner).map(|(_, bytes)| bytes);
            let files = i64::from(had.is_none());
            let bytes = after.bytes() - had.unwrap_or(0);
            let (has_files, has_bytes) = charges.get(&owner).copied().unwrap_or_default();
            let (max_files, max_bytes) = self.limits.get(&owner).copied().unwrap_or_default();
            let space = |has: i64, more: i64, max: Option<i64>| {
                more <= 0 || max.is_none_or(|max| has + more <= max)
            };
            space(has_files, files, max_files) && space(has_bytes, bytes, max_bytes)
        };
        let was = |owner: fn(u32) -> Owner, id: fn(&Object) -> u32| {
            before.map(|object| (owner(id(object)), object.bytes()))
        };
        fits(Owner::User(after.uid), was(Owner::User, |object| object.uid))
            && fits(Owner::Group(after.gid), was(Owner::Group, |object| object.gid))
    }

    fn entries(&mut self, dir: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.objects[dir].as_mut().expect("it is there").body {
            Body::Directory(entries) => entries,
            _ => panic!("not a directory"),
        }
    }

    fn has(&self, dir: usize, name: &str) -> bool {
        matches!(&self.object(dir).body, Body::Directory(entries) if entries.contains_key(name))
    }

    fn object(&self, at: usize) -> &Object {
        self.objects[at].as_ref().expect("it is there")
    }

    fn make(&mut self, caller: &Caller, dir: usize, name: &str, body: Body) -> Result<usize, ()> {
        let (uid, gid) = (caller.uid, caller.gid);
        let object = Object { body, uid, gid, charged: true, names: 1, further: 0 };
        if !self.allows(caller, None, &object) {
            return Err(());
        }
        self.objects.push(Some(object));
        let at = self.objects.len() - 1;
        self.entries(dir).insert(name.to_owned(), at);
        Ok(at)
    }

    /// The initial contents of a clone: all of its source, charged to no one.
    fn copy(&mut self, at: usize, known: &mut BTreeMap<usize, usize>) -> usize {
        if let Some(copy) = known.get(&at) {
            self.objects[*copy].as_mut().expect("it is there").names += 1;
            return *copy;
        }
        let mut object = Object { charged: false, names: 1, further: 0, ..self.object(at).clone() };
        self.objects.push(None);
        let copy = self.objects.len() - 1;
        known.insert(at, copy);
        if let Body::Directory(entries) = &mut object.body {
            for below in entries.values_mut() {
                *below = self.copy(*below, known);
            }
        }
        self.objects[copy] = Some(object);
        copy
    }

    /// Takes a name of a object away, with all below.
    fn remove(&mut self, at: usize) {
        let object = self.objects[at].as_mut().expect("it is there");
        object.names -= 1;
        object.further = object.further.saturating_sub(1);
        if object.names == 0 {
            let object = self.objects[at].take().expect("it is there");
            if let Body::Directory(entries) = object.body {
                for below in entries.into_values() {
                    self.remove(below);
                }
            }
        }
    }
}

/// The states that a write goes through: each is committed if it is allowed.
fn written(object: &Object, offset: usize, length: usize, counted: bool) -> Vec<Object> {
    let end = offset + length;
    let charged = object.charged || counted;
    let large = |bytes| Object { body: Body::Large(bytes), charged, ..object.clone() };
    match &object.body {
        Body::Small(size) if end.max(*size) <= SMALL => {
            vec![Object { body: Body::Small(end.max(*size)), charged, ..object.clone() }]
        }
        Body::Small(size) => {
            let mut bytes = vec![true; *size];
            let mut steps = Vec::new();
            if offset > *size && *size > 0 {
                steps.push(large(bytes.clone()));
            }
            bytes.resize(bytes.len().max(end), false);
            bytes[offset..end].fill(true);
            steps.push(large(bytes));
            steps
        }
        Body::Large(bytes) => {
            let mut bytes = bytes.clone();
            bytes.resize(bytes.len().max(end), false);
            bytes[offset..end].fill(true);
            vec![large(bytes)]
        }
        _ => panic!("not a file"),
    }
}

/// What a new length makes of it.
fn cut(object: &Object, size: usize, counted: bool) -> Object {
    let mut after = object.clone();
    match &mut after.body {
        Body::Small(length) if *length == size => {}
        Body::Small(length) if size <= SMALL => {
            after.charged |= counted && size > *length;
            *length = size;
        }
        Body::Small(length) => {
            // An empty file has nothing to move, so that nothing of it changes but its length.
            after.charged |= counted && *length > 0;
            let mut bytes = vec![true; *length];
            bytes.resize(size, false);
            after.body = Body::Large(bytes);
        }
        Body::Large(bytes) if bytes.len() == size => {}
        Body::Large(bytes) => {
            // Cut off or with a hole behind it: nothing comes.
            bytes.resize(size, false);
            if size == 0 {
                after.body = Body::Small(0);
            }
        }
        _ => panic!("not a file"),
    }
    after
}

struct Run<'a> {
    fs: &'a Fs,
    model: Model,
    random: fastrand::Rng,
    /// Answers that were refused for a quota.
    refused: u32,
}

fn caller(uid: u32) -> Caller {
    let groups = if uid == 0 { Vec::new() } else { vec![900, 901] };
    Caller { uid, gid: uid, groups, umask: 0, pid: 0, enforce: Enforce::Here, ends: Ends::NONE }
}

impl Run<'_> {
    /// A random directory: its object, and the names that point there.
    fn directory(&mut self) -> (usize, Vec<String>) {
        let (mut at, mut path) = (0, Vec::new());
        while self.random.u32(..3) != 0 {
            let Body::Directory(entries) = &self.model.object(at).body else { break };
            let below: Vec<(String, usize)> = entries
                .iter()
                .filter(|(_, at)| matches!(self.model.object(**at).body, Body::Directory(_)))
                .map(|(name, at)| (name.clone(), *at))
                .collect();
            let Some((name, next)) = self.random.choice(below) else { break };
            path.push(name);
            at = next;
        }
        (at, path)
    }

    fn node(&self, path: &[String]) -> NodeId {
        let mut at = NodeId::ROOT;
        for name in path {
            let found = self.fs.lookup(&Caller::root(), at, name.as_bytes()).expect("it is there");
            self.forget(at);
            at = found.node;
        }
        at
    }

    fn forget(&self, node: NodeId) {
        if node != NodeId::ROOT {
            self.fs.forget(node, 1);
        }
    }

    /// A random name in a directory that points to the requested kind.
    fn pick(&mut self, dir: usize, wanted: fn(&Body) -> bool) -> Option<(String, usize)> {
        let Body::Directory(entries) = &self.model.object(dir).body else { return None };
        let fits: Vec<(String, usize)> = entries
            .iter()
            .filter(|(_, at)| wanted(&self.model.object(**at).body))
            .map(|(name, at)| (name.clone(), *at))
            .collect();
        self.random.choice(fits)
    }

    fn agree<T: std::fmt::Debug>(&mut self, answer: FsResult<T>, allowed: bool) -> Option<T> {
        match (answer, allowed) {
            (Ok(answer), true) => Some(answer),
            (Err(FsError::QuotaExceeded), false) => {
                self.refused += 1;
                None
            }
            (answer, allowed) => panic!("allowed: {allowed}, and the answer is {answer:?}"),
        }
    }

    fn step(&mut self) {
        let (dir, path) = self.directory();
        let node = self.node(&path);
        let who = caller(USERS[self.random.usize(..USERS.len())]);
        let name = format!("n{}", self.random.u32(..8));
        let file = |body: &Body| matches!(body, Body::Small(_) | Body::Large(_));
        match self.random.u32(..20) {
            0..4 if !self.model.has(dir, &name) => self.make(&who, (dir, node), &name),
            4..10 => {
                if let Some((name, at)) = self.pick(dir, file) {
                    self.change(&who, node, &name, at);
                }
            }
            10..12 => {
                if let Some((name, at)) = self.pick(dir, |_| true) {
                    self.give(&who, node, &name, at);
                }
            }
            12 | 13 => {
                if let Some((name, at)) = self.pick(dir, |body| !matches!(body, Body::Directory(_)))
                {
                    self.fs.unlink(&Caller::root(), node, name.as_bytes()).expect("it goes");
                    self.model.entries(dir).remove(&name);
                    self.model.remove(at);
                }
            }
            14 => {
                if let Some((old, at)) = self.pick(dir, |body| !matches!(body, Body::Directory(_)))
                    && !self.model.has(dir, &name)
                {
                    let link =
                        self.fs.lookup(&who, node, old.as_bytes()).expect("it is there").node;
                    let answer = self.fs.link(&who, link, node, name.as_bytes());
                    let mut after = self.model.object(at).clone();
                    // A name makes an inherited file a charged one, as contents do.
                    after.charged |= self.model.counted;
                    after.further += u32::from(after.charged);
                    after.names += 1;
                    let allowed = self.model.allows(&who, Some(at), &after);
                    if self.agree(answer, allowed).is_some() {
                        self.fs.forget(link, 1);
                        self.model.entries(dir).insert(name, at);
                        self.model.objects[at] = Some(after);
                    }
                    self.fs.forget(link, 1);
                }
            }
            15 => {
                if let Some((old, at)) = self.pick(dir, file) {
                    let over = self.model.entries(dir).get(&name).copied();
                    if over.is_some_and(|over| !file(&self.model.object(over).body) || over == at) {
                        return self.forget(node);
                    }
                    let (from, to) = ((node, old.as_bytes()), (node, name.as_bytes()));
                    let done = self.fs.rename(&Caller::root(), from, to, RenameMode::Replace);
                    done.expect("a rename charges nobody");
                    self.model.entries(dir).remove(&old);
                    self.model.entries(dir).insert(name, at);
                    if let Some(over) = over {
                        self.model.remove(over);
                    }
                }
            }
            16..18 => self.whole(dir, node, &path, &name),
            _ => {
                let owner = [31, 32, 33, 900, 901][self.random.usize(..5)];
                let owner = if owner < 900 { Owner::User(owner) } else { Owner::Group(owner) };
                let files = self.random.bool().then(|| self.random.u64(..20));
                let bytes = self.random.bool().then(|| self.random.u64(..60_000));
                let limits = QuotaLimits { inodes: files, bytes };
                self.fs.owner_quota_set(&Caller::root(), owner, limits).expect("a limit is set");
                let as_signed = |max: Option<u64>| max.map(|max| max as i64);
                self.model.limits.insert(owner, (as_signed(files), as_signed(bytes)));
                self.model.counted = true;
            }
        }
        self.forget(node);
    }

    fn make(&mut self, who: &Caller, (dir, node): (usize, NodeId), name: &str) {
        let (answer, body) = match self.random.u32(..4) {
            0 => {
                let body = Body::Directory(BTreeMap::new());
                (self.fs.mkdir(who, node, name.as_bytes(), 0o777), body)
            }
            1 => (self.fs.symlink(who, node, name.as_bytes(), &[b't'; 99]), Body::Link(99)),
            _ => {
                let new = NewNode { kind: Kind::File, mode: 0o666, rdev: 0 };
                (self.fs.mknod(who, node, name.as_bytes(), &new), Body::Small(0))
            }
        };
        let allowed = self.model.make(who, dir, name, body).is_ok();
        if let Some(made) = self.agree(answer, allowed) {
            self.fs.forget(made.node, 1);
        }
    }

    /// Changes the contents of a file.
    fn change(&mut self, who: &Caller, dir: NodeId, name: &str, at: usize) {
        let node = self.fs.lookup(who, dir, name.as_bytes()).expect("it is there").node;
        let before = self.model.object(at).clone();
        let (answer, steps) = if self.random.u32(..4) == 0 {
            let size = self.random.usize(..20_000);
            let changes = SetAttr { size: Some(size as u64), ..SetAttr::default() };
            (
                self.fs.setattr(who, node, &changes).map(drop),
                vec![cut(&before, size, self.model.counted)],
            )
        } else {
            let (offset, length) = (self.random.usize(..16_000), self.random.usize(1..9000));
            let offset = if self.random.bool() { 0 } else { offset };
            let answer = self.fs.write(who, node, offset as u64, &vec![7; length]);
            (answer, written(&before, offset, length, self.model.counted))
        };
        let mut allowed = true;
        for step in steps {
            allowed = allowed && self.model.allows(who, Some(at), &step);
            if allowed {
                self.model.objects[at] = Some(step);
            }
        }
        self.agree(answer, allowed);
        self.fs.forget(node, 1);
    }

    /// Gives something to others: root to anybody, a user to a group of its own.
    fn give(&mut self, who: &Caller, dir: NodeId, name: &str, at: usize) {
        let object = self.model.object(at).clone();
        let (who, uid, gid) = if who.uid == object.uid && who.uid != 0 {
            (who.clone(), None, Some([who.gid, 900, 901][self.random.usize(..3)]))
        } else {
            let pick = |random: &mut fastrand::Rng| USERS[random.usize(..USERS.len())];
            let (user, group) = (pick(&mut self.random), pick(&mut self.random));
            (Caller::root(), Some(user), Some(group))
        };
        let node = self.fs.lookup(&who, dir, name.as_bytes()).expect("it is there").node;
        let changes = SetAttr { uid, gid, ..SetAttr::default() };
        let answer = self.fs.setattr(&who, node, &changes);
        let (uid, gid) = (uid.unwrap_or(object.uid), gid.unwrap_or(object.gid));
        let after = Object { uid, gid, ..object };
        let allowed = self.model.allows(&who, Some(at), &after);
        if allowed {
            self.model.objects[at] = Some(after);
        }
        self.agree(answer, allowed);
        self.fs.forget(node, 1);
    }

    /// A clone, a snapshot, a roll-back, a removal of a whole directory.
    fn whole(&mut self, dir: usize, node: NodeId, path: &[String], name: &str) {
        let root = Caller::root();
        let Some(own) = path.last().filter(|_| self.model.objects.len() < 3000) else { return };
        let (above, own) = (self.node(&path[..path.len() - 1]), own.clone());
        let above_dir =
            path[..path.len() - 1].iter().fold(0, |at, name| self.model.entries(at)[name]);
        match self.random.u32(..4) {
            0 if !self.model.has(above_dir, name) => {
                self.fs.clone_dir(&root, node, above, name.as_bytes()).expect("a clone");
                let copy = self.model.copy(dir, &mut BTreeMap::new());
                self.model.entries(above_dir).insert(name.to_owned(), copy);
            }
            1 if path.len() == 1 && !self.model.snapshots.contains_key(&own) => {
                self.fs.snapshot_create(&root, node, b"s").expect("a snapshot");
                let copy = self.model.copy(dir, &mut BTreeMap::new());
                self.model.snapshots.insert(own, copy);
            }
            2 if path.len() == 1 && self.model.snapshots.contains_key(&own) => {
                self.fs.rollback(&root, node, b"s").expect("a roll-back");
                let snapshot = self.model.snapshots[&own];
                let copy = self.model.copy(snapshot, &mut BTreeMap::new());
                let old = self.model.entries(0).insert(own, copy).expect("it was there");
                self.model.remove(old);
            }
            3 if !self.model.snapshots.contains_key(&own) => {
                self.fs.rmr(&root, above, own.as_bytes()).expect("it goes");
                self.model.entries(above_dir).remove(&own);
                self.model.remove(dir);
            }
            _ => {}
        }
        self.forget(above);
    }

    fn compare(&self) {
        while self.fs.background_step(256).expect("background work").more {}
        let listed = self.fs.owner_quota_list(&Caller::root()).expect("a list");
        let listed: Charges = listed
            .into_iter()
            .map(|quota| (quota.owner, (quota.inodes as i64, quota.bytes as i64)))
            .filter(|(_, used)| *used != (0, 0))
            .collect();
        let mut expected = self.model.charges();
        expected.retain(|_, used| *used != (0, 0));
        assert_eq!(listed, expected);
    }
}

fn run(seed: u64, engine: Engine) -> u32 {
    let device = SimDevice::new(seed);
    let options = options(Durability::Async);
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let fs = subject.fs();
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    fs.setattr(&Caller::root(), NodeId::ROOT, &open).expect("root");
    let body = Body::Directory(BTreeMap::new());
    let top = Object { body, uid: 0, gid: 0, charged: true, names: 1, further: 0 };
    let model = Model {
        objects: vec![Some(top)],
        limits: BTreeMap::new(),
        snapshots: BTreeMap::new(),
        counted: false,
    };
    let mut run = Run { fs, model, random: fastrand::Rng::with_seed(seed), refused: 0 };
    // Some work before anything is counted.
    let first = run.random.usize(..60);
    for step in 0..400 {
        run.step();
        // What is removed is charged until its space is freed.
        while fs.background_step(256).expect("background work").more {}
        if step >= first && step % 10 == 0 {
            let limits = QuotaLimits { inodes: None, bytes: Some(1 << 40) };
            fs.owner_quota_set(&Caller::root(), Owner::User(0), limits).expect("a limit");
            run.model.counted = true;
            run.compare();
        }
    }
    assert_eq!(fs.quota_check().expect("a count"), []);
    run.refused
}

#[test]
fn every_user_is_charged_and_refused_as_in_the_model() {
    let mut refused = 0;
    for seed in 0..scale(6, 400) {
        for engine in Engine::ALL {
            println!("seed {seed}, {engine:?}");
            refused += run(seed, engine);
        }
    }
    println!("{refused} were refused");
    assert!(refused > 50, "limits were hardly ever met: {refused}");
}
