//! Volumes that earlier programs left behind (`testing/images/`, made by `scripts/image.sh`). Each
//! opens after its crash, passes the check and holds what was put into it. It takes changes, and
//! holds those after a power cut.

use std::collections::BTreeSet;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use device::{Blobs, Device, Env, Objects};
use fs::{FileSystem, Follow, Fs, NewNode, OpenOptions, RenameMode, SyncScope, Volume};
use inode::{Attr, Caller, FsError, Kind, NodeId};
use search::cluster::Fields;
use search::query::{Accounts, Expr, Glob, Letters, Test};
use search::{Request, Start};
use testing::{CrashPolicy, FarBlobs, SimDevice, SimEnv};

/// The images: the version, or an earlier state of it, and the engine.
const IMAGES: [&str; 6] = ["1-early-btree", "1-early-lsm", "1-btree", "1-lsm", COLUMN, NESTED];
/// Long values in value logs.
const COLUMN: &str = "1-column-lsm";
/// Subvolumes in copies that inherit them, a schedule, a hold, and an index that is written.
const NESTED: &str = "1-nested-btree";
/// The objects of a volume in an object store; its host is lost.
const OBJECTS: &str = "2-objects-lsm";
const BLOCK: usize = 512;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("images")
}

/// A number of a header, in octal digits.
fn octal(field: &[u8]) -> usize {
    let digits = field.iter().take_while(|digit| digit.is_ascii_digit());
    digits.fold(0, |number, digit| number * 8 + usize::from(digit - b'0'))
}

/// Passes on each directory and file of an archive (ustar); a directory has no bytes.
fn unpack(image: &str, take: &mut dyn FnMut(&str, Option<&[u8]>)) {
    let packed = std::fs::read(folder().join(format!("{image}.tar.zst"))).expect(image);
    let mut archive = Vec::new();
    zstd::Decoder::new(&packed[..]).and_then(|mut tar| tar.read_to_end(&mut archive)).expect(image);
    let mut rest = &archive[..];
    while let Some((header, after)) = rest.split_at_checked(BLOCK).filter(|(head, _)| head[0] != 0)
    {
        assert_eq!(&header[257..262], b"ustar", "{image}: a header");
        let name = header[..100].split(|&byte| byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name).expect(image).trim_start_matches("./");
        let name = name.trim_end_matches('/');
        let length = octal(&header[124..135]);
        let (bytes, padded) = after.split_at(length);
        rest = &padded[length.next_multiple_of(BLOCK) - length..];
        match header[156] {
            b'5' if name.is_empty() => {}
            b'5' => take(name, None),
            b'0' => take(name, Some(bytes)),
            other => panic!("{image}: {name} has the type {other}"),
        }
    }
}

/// Puts an image on a new disk.
fn disk(image: &str) -> SimDevice {
    let device = SimDevice::new(1);
    unpack(image, &mut |name, bytes| {
        match bytes {
            None => device.create_dir(name).expect(name),
            Some(bytes) => {
                let file = device.create(name).expect(name);
                file.write_at(bytes, 0).expect(name);
                file.sync_data().expect(name);
            }
        }
        let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
        device.sync_dir(parent).expect(name);
    });
    device
}

/// A new host of a volume in an object store, which has an empty disk.
fn new_host(far: &Arc<FarBlobs>, image: &str) -> Env {
    let env = SimEnv::on(SimDevice::new(1), 1).env();
    fs::make_host(&*env.device, &**far, "file:///store").expect(image);
    let objects = Objects::new(Arc::<FarBlobs>::clone(far), Arc::clone(&env.clock));
    Env { objects: Some(objects), ..env }
}

fn open(env: &Env, image: &str) -> Arc<Volume> {
    let fs = Fs::open(env.clone(), &OpenOptions::default());
    Arc::new(fs.unwrap_or_else(|error| panic!("{image}: {error}")).with_virtual_dirs())
}

fn node(volume: &Volume, path: &str) -> Option<(NodeId, Attr)> {
    let found = volume.resolve(&Caller::root(), path.as_bytes(), Follow::No).ok()?;
    Some((found.node, found.attr))
}

fn text(volume: &Volume, path: &str) -> String {
    let (node, attr) = node(volume, path).unwrap_or_else(|| panic!("{path} is missing"));
    let mut bytes = vec![0; attr.size as usize];
    let read = volume.read(&Caller::root(), node, 0, &mut bytes).expect(path);
    assert_eq!(read, bytes.len(), "{path}");
    String::from_utf8(bytes).expect(path)
}

/// What `scripts/image.sh` put into every image.
fn check_contents(volume: &Volume, image: &str) {
    let large = (1..=20_000).flat_map(|number: u32| [number.to_string(), "\n".to_owned()]);
    let large: String = large.collect();
    for (path, expected) in [
        ("/data/small", "changed\n"),
        ("/data/deep/second", "changed\n"),
        ("/data/.snapshots/monday/small", "small\n"),
        ("/data/.snapshots/monday/deep/second", "small\n"),
        ("/data/later", "later\n"),
        ("/data/large", &large),
        ("/data/.snapshots/monday/large", &large),
        ("/fork/large", &large),
        ("/fork/.snapshots/tuesday/later", "later\n"),
        ("/data/deep/file300", "300\n"),
    ] {
        assert_eq!(text(volume, path), expected, "{image}: {path}");
    }
    for gone in ["/fork/deep", "/fork/.snapshots/monday", "/data/.snapshots/monday/later"] {
        assert!(node(volume, gone).is_none(), "{image}: {gone}");
    }
    let (link, attr) = node(volume, "/data/deep/link").expect(image);
    assert_eq!(attr.kind, Kind::Symlink, "{image}");
    assert_eq!(volume.readlink(&Caller::root(), link).expect(image), b"../small", "{image}");
    let links = |path| node(volume, path).expect(image).1.nlink;
    assert_eq!((links("/data/small"), links("/data/later")), (2, 1), "{image}");
    let sparse = text(volume, "/data/sparse");
    assert!(sparse.len() == (1 << 20) + 4 && sparse.ends_with("\0end\n"), "{image}");
    let long = format!("/data/deep/er/{}", "n".repeat(200));
    assert_eq!(text(volume, &long), "x".repeat(200), "{image}");
    let (fork, _) = node(volume, "/fork").expect(image);
    let quota = volume.quota_get(fork).expect(image).expect(image);
    assert_eq!(quota.limits.inodes, Some(1000), "{image}");
    assert_eq!(volume.searchable().expect(image), [b"user.color"], "{image}");
    check_search(volume, image);
    if image == NESTED {
        check_nested(volume, image);
    }
}

/// Subvolumes below a directory are in its snapshot, and in copies of copies.
fn check_nested(volume: &Volume, image: &str) {
    for path in ["/copy", "/copied", "/copy/.snapshots/held"] {
        for (name, expected) in [("inner/seven", "7\n"), ("inner/below/eight", "8\n")] {
            assert_eq!(text(volume, &format!("{path}/{name}")), expected, "{image}: {path}");
        }
        let changed = node(volume, &format!("{path}/inner/nine")).is_some();
        assert_eq!(changed, path == "/copied", "{image}: {path}");
    }
    let (copy, _) = node(volume, "/copy").expect(image);
    let deleted = volume.snapshot_delete(&Caller::root(), copy, b"held");
    let is_refused = match &deleted {
        Err(FsError::Busy(_)) => true,
        Err(FsError::ReadOnly(why)) => *why == "the volume was opened so",
        _ => false,
    };
    assert!(is_refused, "{image}: {deleted:?}");
}

struct NoAccounts;

impl Accounts for NoAccounts {
    fn has_user(&self, _: u32) -> bool {
        true
    }

    fn has_group(&self, _: u32) -> bool {
        true
    }
}

/// The index, or what there is of it, finds what a walk finds.
fn check_search(volume: &Volume, image: &str) {
    let (subvolume, directory) = volume.search_place(NodeId::ROOT).expect(image);
    let glob = Glob::new(b"file1?", false, Letters::Bytes).expect(image);
    let request = Request {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        expr: &Expr::Test(Test::Name(glob)),
        prune: None,
        alone: false,
        caller: &Caller::root(),
        min_depth: 0,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields: Fields::NONE,
        accounts: &NoAccounts,
        cancel: &AtomicBool::new(false),
    };
    let mut found = BTreeSet::new();
    let outcome = volume.search(&request, &mut |row| {
        found.insert(row.path.to_vec());
        ControlFlow::Continue(())
    });
    let outcome = outcome.expect(image);
    let copies: &[&str] = if image == NESTED { &["data", "copy", "copied"] } else { &["data"] };
    let name = |copy: &&str, number| format!("/{copy}/deep/file{number}").into_bytes();
    let expected: BTreeSet<Vec<u8>> =
        copies.iter().flat_map(|copy| (10..20).map(move |number| name(copy, number))).collect();
    assert_eq!(found, expected, "{image}");
    assert_eq!(outcome.matched, 10 * copies.len() as u64, "{image}: {found:?}");
    assert!(outcome.walked == 0 || image != NESTED, "{image}: the index is not read");
}

fn check(env: &Env, volume: Option<&Volume>, image: &str) {
    let progress = &mut |_, _| ControlFlow::Continue(());
    let report = match volume {
        Some(volume) => volume.check_volume(progress).expect(image),
        None => Fs::check_offline(env, progress).expect(image),
    };
    let found: Vec<_> = report.problems.iter().map(|problem| &problem.what).collect();
    assert!(report.is_clean(), "{image}: {found:?}");
}

/// Changes of many kinds, the last of them durable.
fn change(volume: &Volume, image: &str) {
    let root = Caller::root();
    let at = |path| node(volume, path).expect(image).0;
    let (data, deep) = (at("/data"), at("/data/deep"));
    volume.rename(&root, (data, b"later"), (deep, b"later"), RenameMode::NoReplace).expect(image);
    volume.unlink(&root, data, b"sparse").expect(image);
    volume.rmr(&root, NodeId::ROOT, b"empty").expect(image);
    volume.snapshot_delete(&root, data, b"monday").expect(image);
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let made = volume.mknod(&root, data, b"new", &new).expect(image).node;
    volume.write(&root, made, 0, "new\n".repeat(2000).as_bytes()).expect(image);
    volume.write(&root, at("/data/large"), 0, b"0").expect(image);
    volume.clone_dir(&root, data, NodeId::ROOT, b"again").expect(image);
    volume.snapshot_create(&root, data, b"wednesday").expect(image);
    while volume.background_step(1000).expect(image).more {}
    volume.fsync(made, SyncScope::All).expect(image);
}

fn check_changes(volume: &Volume, image: &str) {
    for path in ["/data", "/again", "/data/.snapshots/wednesday"] {
        let new = text(volume, &format!("{path}/new"));
        assert_eq!(new, "new\n".repeat(2000), "{image}: {path}");
        assert!(text(volume, &format!("{path}/large")).starts_with("0\n2\n"), "{image}: {path}");
        assert_eq!(text(volume, &format!("{path}/deep/later")), "later\n", "{image}: {path}");
    }
    assert!(text(volume, "/fork/large").starts_with("1\n2\n"), "{image}");
    for gone in ["/empty", "/data/later", "/data/sparse", "/data/.snapshots/monday"] {
        assert!(node(volume, gone).is_none(), "{image}: {gone}");
    }
}

#[test]
fn images_open_and_work() {
    for image in IMAGES {
        let sim = SimEnv::on(disk(image), 1);
        opens_and_works(&sim.env(), image, || {
            SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1).env()
        });
    }
}

/// A volume in an object store loses its host, and another one opens it.
#[test]
fn an_image_of_an_object_store_opens_and_works() {
    let far = FarBlobs::new();
    unpack(OBJECTS, &mut |name, bytes| {
        if let Some(bytes) = bytes {
            far.create(name, bytes).expect(name);
        }
    });
    opens_and_works(&new_host(&far, OBJECTS), OBJECTS, || new_host(&far, OBJECTS));
}

/// `after_crash`: what there is once the power was cut.
fn opens_and_works(env: &Env, image: &str, after_crash: impl FnOnce() -> Env) {
    check(env, None, image);
    let volume = open(env, image);
    check(env, Some(&volume), image);
    check_contents(&volume, image);
    change(&volume, image);
    check_changes(&volume, image);
    drop(volume);
    let env = after_crash();
    check(&env, None, image);
    let volume = open(&env, image);
    check_changes(&volume, image);
    volume.close().expect(image);
    drop(volume);
    check(&env, None, image);
}

#[test]
fn images_open_for_reading_only() {
    for image in IMAGES {
        let env = SimEnv::on(disk(image), 1);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let fs = Fs::open(env.env(), &options).unwrap_or_else(|error| panic!("{image}: {error}"));
        let volume = fs.with_virtual_dirs();
        check_contents(&volume, image);
        let made = volume.mkdir(&Caller::root(), NodeId::ROOT, b"new", 0o755);
        assert!(matches!(made, Err(FsError::ReadOnly(_))), "{image}: {made:?}");
    }
}

#[test]
fn every_image_is_tested() {
    let files = std::fs::read_dir(folder()).expect("the folder");
    let names: BTreeSet<String> = files
        .map(|file| file.expect("an entry").file_name().into_string().expect("ASCII"))
        .collect();
    let tested = IMAGES.iter().chain([&OBJECTS]).map(|image| format!("{image}.tar.zst"));
    assert_eq!(names, tested.collect::<BTreeSet<String>>());
}
