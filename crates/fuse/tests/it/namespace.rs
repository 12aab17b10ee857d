//! The real namespace through the kernel: changes by commands behind a mount are visible at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Env;
use fs::{FileSystem, FormatOptions, Fs, OpenOptions};
use fuse::{Mount, mount};
use inode::{Caller, NodeId};
use tempfile::TempDir;

use crate::rig::{PATIENCE, options_at, places};

/// A mounted volume.
struct Volume {
    fs: Arc<fs::Volume>,
    mount: Mount,
    _directory: TempDir,
}

fn volume() -> Option<Volume> {
    let directory = places()?;
    let env = Env::system(&directory.path().join("volume")).unwrap();
    Fs::format(&env, &FormatOptions::default()).unwrap();
    let fs = Fs::open(env, &OpenOptions::default()).unwrap();
    let fs = Arc::new(fs.with_virtual_dirs());
    let shared: Arc<dyn FileSystem> = Arc::<fs::Volume>::clone(&fs);
    let mount = mount(shared, &options_at(directory.path(), "")).unwrap();
    Some(Volume { fs, mount, _directory: directory })
}

impl Volume {
    fn path(&self, below: &str) -> PathBuf {
        self.mount.mount_point().join(below)
    }

    fn node(&self, below: &str) -> NodeId {
        let mut node = NodeId::ROOT;
        for part in Path::new(below) {
            let name = part.as_encoded_bytes();
            node = self.fs.lookup(&Caller::root(), node, name).unwrap().node;
        }
        node
    }

    fn write(&self, below: &str, text: &str) {
        std::fs::write(self.path(below), text).unwrap();
    }

    fn read(&self, below: &str) -> String {
        std::fs::read_to_string(self.path(below)).unwrap_or_else(|error| error.to_string())
    }

    fn names(&self, below: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(below)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn settle(&self) {
        assert!(self.mount.settle(PATIENCE), "invalidations are stuck");
    }
}

#[test]
fn snapshots_are_taken_read_and_deleted_through_the_mount() {
    let Some(volume) = volume() else { return };
    std::fs::create_dir(volume.path("d")).unwrap();
    volume.write("d/f", "then");
    std::fs::create_dir(volume.path("d/.snapshots/first")).unwrap();
    volume.write("d/f", "now, and longer");
    volume.write("d/g", "new");
    assert_eq!(volume.names("d"), ["f", "g"], "the snapshots are not listed");
    assert_eq!(volume.names("d/.snapshots"), ["first"]);
    assert_eq!(volume.names("d/.snapshots/first"), ["f"]);
    assert_eq!(volume.read("d/.snapshots/first/f"), "then");
    assert_eq!(volume.read("d/f"), "now, and longer");
    let error = std::fs::write(volume.path("d/.snapshots/first/f"), "no").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    std::fs::remove_dir(volume.path("d/.snapshots/first")).unwrap();
    assert!(!volume.path("d/.snapshots/first").exists());
    assert_eq!(volume.names("d/.snapshots"), [""; 0]);
}

#[test]
fn snapshots_taken_by_a_command_are_visible_at_once() {
    let Some(volume) = volume() else { return };
    std::fs::create_dir(volume.path("d")).unwrap();
    volume.write("d/f", "then");
    assert_eq!(volume.names("d/.snapshots"), [""; 0]);
    assert!(!volume.path("d/.snapshots/s").exists());
    let d = volume.node("d");
    volume.fs.snapshot_create(&Caller::root(), d, b"s").unwrap();
    volume.settle();
    assert_eq!(volume.names("d/.snapshots"), ["s"]);
    assert_eq!(volume.read("d/.snapshots/s/f"), "then");
    volume.fs.snapshot_rename(&Caller::root(), d, b"s", b"t").unwrap();
    volume.settle();
    assert_eq!(volume.names("d/.snapshots"), ["t"]);
    assert!(!volume.path("d/.snapshots/s").exists());
    volume.fs.snapshot_delete(&Caller::root(), d, b"t").unwrap();
    volume.settle();
    assert_eq!(volume.names("d/.snapshots"), [""; 0]);
    assert!(!volume.path("d/.snapshots/t").exists());
}

#[test]
fn a_directory_that_is_rolled_back_shows_its_past_at_once() {
    let Some(volume) = volume() else { return };
    std::fs::create_dir_all(volume.path("d/e")).unwrap();
    volume.write("d/f", "then");
    volume.write("d/e/g", "then");
    volume.fs.snapshot_create(&Caller::root(), volume.node("d"), b"s").unwrap();
    volume.write("d/f", "now");
    volume.write("d/h", "now");
    volume.write("d/e/g", "now");
    let held = std::fs::File::open(volume.path("d/f")).unwrap();
    assert_eq!((volume.read("d/f"), volume.read("d/e/g")), ("now".into(), "now".into()));
    volume.fs.rollback(&Caller::root(), volume.node("d"), b"s").unwrap();
    volume.settle();
    assert_eq!((volume.read("d/f"), volume.read("d/e/g")), ("then".into(), "then".into()));
    assert_eq!(volume.names("d"), ["e", "f"]);
    assert_eq!(std::io::read_to_string(&held).unwrap(), "now", "an open file keeps the old tree");
}

#[test]
fn a_volume_that_is_rolled_back_shows_its_past_at_once() {
    let Some(volume) = volume() else { return };
    std::fs::create_dir(volume.path("d")).unwrap();
    volume.write("d/f", "then");
    volume.fs.snapshot_create(&Caller::root(), NodeId::ROOT, b"s").unwrap();
    for round in 0..2 {
        volume.write("d/f", "now");
        volume.write("new", "now");
        assert_eq!(volume.read("d/f"), "now", "round {round}");
        assert_eq!(volume.names(""), ["d", "new"]);
        volume.fs.rollback(&Caller::root(), NodeId::ROOT, b"s").unwrap();
        volume.settle();
        assert_eq!(volume.names(""), ["d"], "round {round}");
        assert_eq!(volume.read("d/f"), "then", "round {round}");
        assert!(!volume.path("new").exists());
    }
}

#[test]
fn clones_and_removed_trees_are_visible_at_once() {
    let Some(volume) = volume() else { return };
    std::fs::create_dir_all(volume.path("d/e")).unwrap();
    volume.write("d/e/f", "source");
    assert!(!volume.path("c").exists());
    assert_eq!(volume.names(""), ["d"]);
    let d = volume.node("d");
    volume.fs.clone_dir(&Caller::root(), d, NodeId::ROOT, b"c").unwrap();
    volume.settle();
    assert_eq!(volume.names(""), ["c", "d"]);
    volume.write("c/e/f", "copy");
    assert_eq!((volume.read("d/e/f"), volume.read("c/e/f")), ("source".into(), "copy".into()));
    volume.fs.rmr(&Caller::root(), NodeId::ROOT, b"d").unwrap();
    volume.settle();
    assert_eq!(volume.names(""), ["c"]);
    assert!(!volume.path("d/e/f").exists());
    assert_eq!(volume.read("c/e/f"), "copy");
}
