//! Searches for extended attributes equal walks, whatever is declared searchable and when, and
//! whatever part of the index is damaged. They skip clusters by what is declared.

use std::ops::ControlFlow;

use fs::{Engine, FileSystem, Fs, FsResult, NewNode, RenameMode, SetXattr};
use inode::{Caller, FsError, Kind, NodeId};
use search::cluster::Fields;
use search::query::{Expr, Glob, Letters, Test};
use search::{Attribute, Outcome};
use store::Durability;
use testing::SimDevice;

use crate::script::{Script, scale};
use crate::search::{Query, damage, directories, everything_below};
use crate::subject::Base;
use crate::support::{ROOT, refused, volume};

const NAMES: [&[u8]; 3] = [b"user.kind", b"user.tag", b"trusted.mark"];

/// Values of which two differ behind what rows carry of a value, and two behind eight bytes.
fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..8) {
        0 => vec![b'x'; 300],
        1 => [&[b'x'; 299][..], b"y"].concat(),
        2 => Vec::new(),
        3 | 4 => [&b"12345678"[..], &[random.u8(b'a'..b'c')]].concat(),
        _ => vec![random.u8(b'a'..b'd')],
    }
}

fn xattr(name: &[u8], value: Option<&[u8]>) -> Expr {
    let glob = |value| Glob::new(value, false, Letters::Bytes).expect("a pattern");
    Expr::Test(Test::Xattr(name.to_vec(), value.map(glob)))
}

fn random_test(random: &mut fastrand::Rng) -> Expr {
    let name = NAMES[random.usize(..3)];
    let test = match random.u32(..4) {
        0 => xattr(name, None),
        1 => xattr(name, Some(b"[ab]*")),
        _ => xattr(name, Some(&value(random))),
    };
    match random.u32(..5) {
        0 => Expr::Not(Box::new(test)),
        1 => Expr::Any(vec![test, random_test(random)]),
        2 => Expr::All(vec![Expr::Test(Test::Within(Attribute::Size, 0, 5000)), test]),
        _ => test,
    }
}

/// Gives a random file or directory attributes, or takes one away.
fn set(fs: &Fs, random: &mut fastrand::Rng) {
    let root = Caller::root();
    let starts = directories(fs);
    let (directory, _) = starts[random.usize(..starts.len())];
    let mut names = Vec::new();
    fs.readdir(&root, directory, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        fs::WalkControl::Continue
    })
    .expect("a directory lists");
    if names.is_empty() {
        return;
    }
    let Ok(entry) = fs.lookup(&root, directory, &names[random.usize(..names.len())]) else {
        return;
    };
    let name = NAMES[random.usize(..3)];
    // Not everything has attributes: a link has none of users, a snapshot takes none.
    let done = if random.u32(..4) == 0 {
        fs.removexattr(&root, entry.node, name)
    } else {
        fs.setxattr(&root, entry.node, name, &value(random), SetXattr::Any)
    };
    drop(done);
    fs.forget(entry.node, 1);
}

/// Makes, renames, links, removes, clones or rolls back something. Much fails, which is no matter.
fn operate(fs: &Fs, random: &mut fastrand::Rng) {
    let root = Caller::root();
    let starts = directories(fs);
    let mut directory = || starts[random.usize(..starts.len())].0;
    let (from, to) = (directory(), directory());
    let letter = |random: &mut fastrand::Rng| [random.u8(b'a'..b'h')];
    let (name, other) = (letter(random), letter(random));
    let forget = |made: FsResult<fs::Entry>| made.map(|made| fs.forget(made.node, 1)).is_ok();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    match random.u32(..12) {
        0..5 => forget(fs.mknod(&root, from, &name, &new)),
        5 => forget(fs.mkdir(&root, from, &name, 0o755)),
        6 => fs.rename(&root, (from, &name[..]), (to, &other[..]), RenameMode::Replace).is_ok(),
        7 => match fs.lookup(&root, from, &name) {
            Ok(entry) => {
                let linked = forget(fs.link(&root, entry.node, to, &other));
                fs.forget(entry.node, 1);
                linked
            }
            Err(_) => false,
        },
        8 | 9 => fs.unlink(&root, from, &name).is_ok(),
        10 => fs.clone_dir(&root, from, to, &other).is_ok(),
        _ => fs.snapshot_create(&root, from, &name).is_ok(),
    };
}

/// Declares something searchable, or takes that back.
fn declare(fs: &Fs, random: &mut fastrand::Rng) {
    let name = NAMES[random.usize(..3)].to_vec();
    if random.u32(..3) > 0 {
        fs.declare_searchable(&[name]).expect("it is declared");
    } else {
        match fs.undeclare_searchable(&[name]) {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run(seed: u64, base: &Base) {
    println!("seed {seed}");
    let device = SimDevice::new(seed);
    let script = Script::new(&device, seed, Durability::Async, base);
    let fs = script.subject.fs();
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 0..250 {
        operate(fs, &mut random);
        set(fs, &mut random);
        match random.u32(..24) {
            0 | 1 => declare(fs, &mut random),
            2 | 3 => {
                let starts = directories(fs);
                let (node, _) = starts[random.usize(..starts.len())];
                fs.index_flush(node).expect("a flush goes well");
            }
            4 => drop(fs.background_step(64).expect("background work goes well")),
            10 => damage(&device, &mut random),
            5..10 => {
                let starts = directories(fs);
                for _ in 0..3 {
                    let mut query = Query::random(&mut random, &starts);
                    query.expr = random_test(&mut random);
                    query.check(fs, &format!("seed {seed}, step {step}"));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn searches_for_attributes_equal_walks_whenever_they_are_declared() {
    for seed in 0..scale(8, 500) {
        run(seed, &Base::Engine(Engine::Btree));
    }
    for seed in 100..100 + scale(4, 200) {
        run(seed, &Base::Engine(Engine::Lsm));
    }
}

pub(crate) fn ask(fs: &Fs, expr: &Expr) -> Outcome {
    let root = Caller::root();
    let request = everything_below(fs, NodeId::ROOT, &root, (expr, Fields::ATTRIBUTES));
    fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search")
}

#[test]
fn rewritten_clusters_are_skipped_by_declared_attributes() {
    let v = volume();
    let root = Caller::root();
    for number in 0..50_u8 {
        let file = v.file_as(&root, ROOT, &format!("f{number}"), 0o600).expect("a file").node;
        let value = format!("value{number}");
        v.fs.setxattr(&root, file, b"user.tag", value.as_bytes(), SetXattr::Any).expect("space");
    }
    let fs = &v.fs;
    fs.index_flush(NodeId::ROOT).expect("a flush");
    let (there, absent) = (xattr(b"user.tag", Some(b"value7")), xattr(b"user.tag", Some(b"none")));
    // Not declared: every row is looked at.
    assert_eq!((ask(fs, &there).matched, ask(fs, &absent).matched), (1, 0));
    assert!(ask(fs, &absent).rows_tested >= 50);
    fs.declare_searchable(&[b"user.tag".to_vec(), b"user.a".to_vec()]).expect("it is declared");
    assert_eq!(fs.searchable().expect("it answers"), [b"user.a".to_vec(), b"user.tag".to_vec()]);
    // The base is older than that.
    assert_eq!((ask(fs, &there).matched, ask(fs, &absent).matched), (1, 0));
    for _ in 0..20 {
        fs.background_step(64).expect("background work goes well");
    }
    let found = ask(fs, &absent);
    assert_eq!((found.matched, found.clusters_read), (0, 0));
    let found = ask(fs, &there);
    assert_eq!((found.matched, found.clusters_read), (1, 1));
    assert!(found.rows_tested <= 2, "{found:?}");
    fs.undeclare_searchable(&[b"user.tag".to_vec()]).expect("it was declared");
    assert!(matches!(fs.undeclare_searchable(&[b"user.tag".to_vec()]), Err(FsError::NotFound)));
    assert_eq!(ask(fs, &there).matched, 1);
}

#[test]
fn impossible_attribute_names_are_not_declared() {
    let v = volume();
    let declare = |name: &[u8]| v.fs.declare_searchable(&[b"user.good".to_vec(), name.to_vec()]);
    for name in [&b"user."[..], b"other", b"user.pando.rbytes", &[b'u'; 300]] {
        let declared = declare(name);
        assert!(
            matches!(
                declared,
                Err(FsError::InvalidArgument(_) | FsError::NotSupported(_) | FsError::Range)
            ),
            "{declared:?}"
        );
    }
    let many: Vec<Vec<u8>> = (0..65).map(|n| format!("user.{n}").into_bytes()).collect();
    refused(v.fs.declare_searchable(&many), &FsError::InvalidArgument(""));
    assert!(v.fs.searchable().expect("it answers").is_empty(), "all or none");
    v.fs.declare_searchable(&many[..64]).expect("so many can be");
}

/// Gives some files of a directory attributes, and takes those of others.
fn set_some(fs: &Fs, random: &mut fastrand::Rng, directory: NodeId, count: u32) {
    let root = Caller::root();
    for _ in 0..count {
        let name = format!("f{}", random.u32(..600));
        let file = fs.lookup(&root, directory, name.as_bytes()).expect("a file").node;
        let attribute = NAMES[random.usize(..3)];
        if random.u32(..5) == 0 {
            drop(fs.removexattr(&root, file, attribute));
        } else {
            let value = value(random);
            fs.setxattr(&root, file, attribute, &value, SetXattr::Any).expect("space");
        }
        fs.forget(file, 1);
    }
}

/// A clone keeps a base from before a declaration, or from before its revocation, while its source
/// has one from after that. The reverse is tested too.
#[test]
fn clones_with_bases_of_before_and_after_a_declaration_answer_as_walks_do() {
    let v = volume();
    let (fs, root) = (&v.fs, Caller::root());
    let mut random = fastrand::Rng::with_seed(95);
    let source = v.dir(ROOT, "source").node;
    for number in 0..600 {
        let file = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = fs.mknod(&root, source, format!("f{number}").as_bytes(), &file).expect("a file");
        fs.forget(made.node, 1);
    }
    set_some(fs, &mut random, source, 300);
    fs.index_flush(NodeId::ROOT).expect("a flush");
    let clone =
        |name: &[u8]| fs.clone_dir(&root, source, NodeId::ROOT, name).expect("a clone").root;
    let before = clone(b"before");
    let mut compare = |places: &[NodeId], when: &str| {
        let starts: Vec<_> = places.iter().map(|&node| (node, b"/mnt".to_vec())).collect();
        for _ in 0..60 {
            let mut query = Query::random(&mut random, &starts);
            query.expr = random_test(&mut random);
            query.check(fs, when);
        }
        for &place in &places[1..] {
            set_some(fs, &mut random, place, 20);
        }
    };
    let two = [NodeId::ROOT, source, before];
    compare(&two, "nothing is declared");
    fs.declare_searchable(&[b"user.tag".to_vec(), b"user.kind".to_vec()]).expect("declared");
    compare(&two, "no base has them");
    fs.index_flush(NodeId::ROOT).expect("a flush");
    compare(&two, "the base of the source has them");
    let three = [NodeId::ROOT, source, before, clone(b"behind")];
    compare(&three, "a clone begins with columns of them");
    fs.index_flush(before).expect("a flush");
    compare(&three, "all bases have them");
    fs.undeclare_searchable(&[b"user.kind".to_vec()]).expect("it was declared");
    fs.declare_searchable(&[b"trusted.mark".to_vec()]).expect("declared");
    compare(&three, "one is taken back, and another declared");
    fs.index_flush(NodeId::ROOT).expect("a flush");
    compare(&three, "the base of the source has the others");
    let four = [&three[..], &[clone(b"last")]].concat();
    for &place in &four[2..] {
        fs.index_flush(place).expect("a flush");
    }
    compare(&four, "all bases have the others");
}
