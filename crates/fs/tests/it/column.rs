//! A column-style volume: what is stored in its runs, and what in its value logs.

use format::run_manifest::{Decoded, RunManifest};
use format::volume::VolumeHeader;
use fs::{
    Engine, FileSystem, Follow, FormatOptions, Fs, Layout, NewNode, OpenOptions, WalkControl,
};
use inode::{Caller, FsError, Kind, NodeId};
use testing::{SimEnv, noise, sim_env};

use crate::support::{ROOT, user};

const DIRECTORIES: u64 = 20;
const FILES: u64 = 10;
const CONTENTS: usize = 1000;

fn open(env: &SimEnv) -> fs::Volume {
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    Fs::open(env.env(), &options).expect("a volume").with_virtual_dirs()
}

/// The name of a file: longer than most.
fn name(file: u64) -> String {
    format!("{file:-<80}")
}

/// Directories in each other, each with files of some contents; the path of the last.
fn filled(env: &SimEnv) -> String {
    let format = FormatOptions {
        engine: Engine::Lsm,
        layout: Layout::Column,
        root_mode: 0o777,
        ..FormatOptions::default()
    };
    Fs::format(&env.env(), &format).expect("an empty directory");
    let fs = open(env);
    let (owner, mut at, mut path) = (user(7), ROOT, String::new());
    for directory in 0..DIRECTORIES {
        let made = fs.mkdir(&owner, at, format!("d{directory}").as_bytes(), 0o700).expect("mkdir");
        path.extend(["/d".to_owned(), directory.to_string()]);
        at = made.node;
        for file in 0..FILES {
            let new = NewNode { kind: Kind::File, mode: 0o600, rdev: 0 };
            let made = fs.mknod(&owner, at, name(file).as_bytes(), &new).expect("mknod");
            let contents = noise(directory << 8 | file, CONTENTS);
            fs.write(&owner, made.node, 0, &contents).expect("write");
        }
    }
    fs.close().expect("close");
    path
}

/// The files of the value logs that the newest manifest names.
fn value_logs(env: &SimEnv) -> Vec<String> {
    let files = env.device.files();
    let manifest = files.iter().rev().map(|(path, _)| path).find(|path| path.contains("manifest-"));
    let manifest = manifest.expect("the engine has one");
    let number = u64::from_str_radix(&manifest[manifest.len() - 16..], 16).expect("a number");
    let header = VolumeHeader::decode(&env.device.read_file("volume.pando")).expect("a header");
    let bytes = env.device.read_file(manifest);
    match RunManifest::decode(&bytes, header.volume_id, number) {
        Ok(Decoded::Manifest(found)) => {
            found.logs.iter().map(|log| format!("lsm/run-{:016x}", log.log)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn contents(fs: &Fs, node: NodeId) -> Result<Vec<u8>, FsError> {
    let mut buffer = vec![0; 2 * CONTENTS];
    let read = fs.read(&user(7), node, 0, &mut buffer)?;
    buffer.truncate(read);
    Ok(buffer)
}

/// Every row of the value logs is unreadable, so the runs alone must answer. A path is looked up,
/// with the permissions of every directory on it and the attributes of its target. Directories are
/// listed with the attributes of all entries. Contents are in the value logs.
#[test]
fn paths_are_looked_up_without_value_logs() {
    let env = sim_env(1);
    let path = filled(&env);
    let logs = value_logs(&env);
    assert!(!logs.is_empty(), "the contents are somewhere");
    let (owner, stranger) = (user(7), user(8));
    let file = format!("{path}/{}", name(3));
    let fs = open(&env);
    let found = fs.resolve(&owner, file.as_bytes(), Follow::Yes).expect("a file");
    assert_eq!(contents(&fs, found.node).ok(), Some(noise((DIRECTORIES - 1) << 8 | 3, CONTENTS)));
    drop(fs);
    for log in &logs {
        let length = env.device.read_file(log).len();
        env.device.overwrite(log, 40, &vec![0xa5; length - 40]);
    }
    let fs = open(&env);
    let found = fs.resolve(&owner, file.as_bytes(), Follow::Yes).expect("a file");
    assert_eq!((found.attr.size, found.attr.mode), (CONTENTS as u64, 0o600));
    let refused = fs.resolve(&stranger, file.as_bytes(), Follow::Yes);
    assert!(matches!(refused, Err(FsError::AccessDenied)), "{refused:?}");
    let above = fs.resolve(&owner, path.as_bytes(), Follow::Yes).expect("a directory");
    let mut listed = 0;
    fs.readdir(&owner, above.node, 0, &mut |entry| {
        let found = fs.stat_at(&owner, above.node, entry.name).expect("its attributes");
        assert_eq!(found.size, CONTENTS as u64);
        listed += 1;
        WalkControl::Continue
    })
    .expect("a listing");
    assert_eq!(listed, FILES);
    let unread = contents(&fs, found.node);
    assert!(matches!(unread, Err(FsError::Io(_))), "the contents are in a value log: {unread:?}");
    assert!(fs.getattr(&Caller::root(), found.node).is_ok());
}
