//! Creating and opening volumes: what is no volume, or is damaged, is refused by name.

use std::ops::ControlFlow;
use std::time::Duration;

use device::Device;
use fs::{FileSystem, FormatOptions, Fs, Gc, OpenError, OpenOptions};
use inode::{Caller, FsError};
use testing::{Fault, FaultOn, Op, SimEnv, sim_env};

use crate::support::ROOT;

fn open(env: &SimEnv) -> Result<(), OpenError> {
    let fs = Fs::open(env.env(), &OpenOptions::default())?;
    fs.close().expect("a volume that was just opened");
    Ok(())
}

fn put(env: &SimEnv, path: &str, bytes: &[u8]) {
    let file = env.device.create(path).expect("a new file");
    file.write_at(bytes, 0).expect("space");
    file.sync_data().expect("a sync");
}

#[test]
fn a_volume_that_was_made_opens_again_and_again() {
    let env = sim_env(1);
    let options = FormatOptions { root_mode: 0o750, root_uid: 7, ..FormatOptions::default() };
    let id = Fs::format(&env.env(), &options).expect("an empty directory");
    for name in [b"a", b"b"] {
        let fs = Fs::open(env.env(), &OpenOptions::default()).expect("a volume");
        assert_eq!(fs.status().expect("counters").id, id);
        let root = fs.getattr(&Caller::root(), ROOT).expect("the root");
        assert_eq!((root.mode, root.uid), (0o750, 7));
        fs.mkdir(&Caller::root(), ROOT, name, 0o755).expect("a directory");
        fs.close().expect("once");
        fs.close().expect("twice is nothing");
    }
    let fs = Fs::open(env.env(), &OpenOptions::default()).expect("a volume");
    assert!(fs.lookup(&Caller::root(), ROOT, b"a").is_ok());
    assert!(fs.lookup(&Caller::root(), ROOT, b"b").is_ok());
}

#[test]
fn only_an_empty_directory_is_formatted() {
    let env = sim_env(2);
    put(&env, "letter.txt", b"dear");
    let refused = Fs::format(&env.env(), &FormatOptions::default());
    assert!(matches!(refused, Err(OpenError::NotEmpty(name)) if name == "letter.txt"));
    assert!(matches!(open(&env), Err(OpenError::NotAVolume)));
    env.device.remove("letter.txt").expect("a file");
    put(&env, "owner.lock", b"");
    Fs::format(&env.env(), &FormatOptions::default()).expect("the owner's lock is no content");
    let again = Fs::format(&env.env(), &FormatOptions::default());
    assert!(matches!(again, Err(OpenError::Exists)));
    open(&env).expect("a volume");
}

/// A link to a directory on another disk, as who sees it through a device.
#[test]
fn an_empty_directory_of_the_log_is_used() {
    let env = sim_env(8);
    env.device.create_dir("log").expect("a directory");
    Fs::format(&env.env(), &FormatOptions::default()).expect("it is empty");
    open(&env).expect("a volume");
    let env = sim_env(9);
    env.device.create_dir("log").expect("a directory");
    put(&env, "log/letter.txt", b"dear");
    let refused = Fs::format(&env.env(), &FormatOptions::default());
    assert!(matches!(refused, Err(OpenError::NotEmpty(name)) if name == "log"));
    let env = sim_env(10);
    env.device.create_dir("data").expect("a directory");
    let refused = Fs::format(&env.env(), &FormatOptions::default());
    assert!(matches!(refused, Err(OpenError::NotEmpty(name)) if name == "data"));
}

#[test]
fn an_interrupted_format_starts_over() {
    let env = sim_env(3);
    Fs::format(&env.env(), &FormatOptions::default()).expect("an empty directory");
    env.device.rename("volume.pando", "volume.pando.new").expect("a file");
    assert!(matches!(open(&env), Err(OpenError::NotAVolume)));
    Fs::format(&env.env(), &FormatOptions::default()).expect("what was left is ours");
    open(&env).expect("a volume");
}

#[test]
fn damage_and_newer_formats_are_distinguished() {
    let env = sim_env(4);
    Fs::format(&env.env(), &FormatOptions::default()).expect("an empty directory");
    let files = ["volume.pando", "volume.copy"];
    let files = files.map(|path| env.device.open(path).expect("the header"));
    let put = |at: u64, byte: u8| {
        for file in &files {
            file.write_at(&[byte], at).expect("space");
        }
    };
    put(8, 9);
    let newer = open(&env);
    assert!(matches!(newer, Err(OpenError::NewerFormat { found: 9, .. })), "{newer:?}");
    put(8, 1);
    open(&env).expect("a volume");
    put(30, b'x');
    assert!(matches!(open(&env), Err(OpenError::Damaged(at)) if at.file == "volume.pando"));
    for file in &files {
        file.set_len(0).expect("an empty file");
    }
    assert!(matches!(open(&env), Err(OpenError::Damaged(_))));
}

#[test]
fn a_missing_file_of_the_engine_is_named() {
    let env = sim_env(5);
    Fs::format(&env.env(), &FormatOptions::default()).expect("an empty directory");
    env.device.remove("btree/nodes").expect("a file");
    match open(&env) {
        Err(error) => assert!(error.to_string().contains("nodes"), "{error}"),
        Ok(()) => panic!("a volume without its nodes opens"),
    }
}

#[test]
fn unknown_options_are_refused() {
    let env = sim_env(6);
    for snapshot_dir in [&b""[..], b"a/b", b"..", &[b'x'; 65]] {
        let options =
            FormatOptions { snapshot_dir: snapshot_dir.to_vec(), ..FormatOptions::default() };
        let refused = Fs::format(&env.env(), &options);
        assert!(matches!(refused, Err(OpenError::InvalidOption(_))), "{snapshot_dir:?}");
    }
    let options = FormatOptions { snapshot_dir: b".snap".to_vec(), ..FormatOptions::default() };
    Fs::format(&env.env(), &options).expect("a plain name");
    let fs = Fs::open(env.env(), &OpenOptions::default()).expect("a volume").with_virtual_dirs();
    assert!(fs.lookup(&Caller::root(), ROOT, b".snap").is_ok());
    assert!(fs.mkdir(&Caller::root(), ROOT, b".snapshots", 0o755).is_ok());
}

#[test]
fn a_volume_opened_read_only_accepts_no_changes() {
    let env = sim_env(7);
    Fs::format(&env.env(), &FormatOptions::default()).expect("an empty directory");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let fs = Fs::open(env.env(), &options).expect("a volume");
    let refused = fs.mkdir(&Caller::root(), ROOT, b"d", 0o755);
    assert!(matches!(refused, Err(FsError::ReadOnly(_))));
    assert!(fs.getattr(&Caller::root(), ROOT).is_ok());
    fs.background_step(10).expect("nothing to do");
}

/// The error claimed that the volume was opened so, although it was not.
#[test]
fn refused_changes_report_why_the_volume_is_read_only() {
    let env = sim_env(9);
    Fs::format(&env.env(), &FormatOptions::default()).expect("an empty directory");
    env.device.inject(Fault::io(FaultOn::Only(Op::Read), 0).forever().below("btree/super-1"));
    let fs = Fs::open(env.env(), &OpenOptions::default()).expect("the other is enough");
    let mut proceed = |_, _| ControlFlow::Continue(());
    let root = Caller::root();
    let refused = [
        fs.mkdir(&root, ROOT, b"a", 0o755).map(drop),
        fs.snapshot_create(&root, ROOT, b"s").map(drop),
        fs.gc(Gc::Delete { grace: Duration::ZERO }, &mut proceed).map(drop),
        fs.access(&root, ROOT, 2),
    ];
    for (at, refused) in refused.into_iter().enumerate() {
        let Err(FsError::ReadOnly(why)) = refused else { panic!("call {at}: {refused:?}") };
        assert!(why.contains("btree/super-1 could not be read"), "call {at}: {why}");
        assert!(why.contains("`pando fsck --repair`"), "call {at}: {why}");
    }
}
