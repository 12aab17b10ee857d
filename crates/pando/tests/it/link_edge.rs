//! The last name that a file may have, on a mount. The test does not create a million names; it
//! sets the count in the record. `scripts/posix/limits.sh full` creates them.

use std::fs::{hard_link, remove_file};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use device::Env;
use format::inode_record::LinkedRecord;
use format::key::{self, Part};
use fs::{FileSystem, Fs, OpenOptions};
use inode::{Caller, NodeId};
use store::{Batch, Store, TreeId};

use crate::world::{World, is_alive, wait_until};

on_each_engine!(the_last_name_is_made_and_the_next_is_refused);

/// The limit in `docs/limits.md`.
const NAMES_MAX: u32 = 1 << 20;
/// The tree of a volume's root.
const ROOT_TREE: TreeId = TreeId(32);

/// Sets the number of names in the record of a file of the root.
fn set_names(volume: &Path, name: &[u8], names: u32) {
    let mut captured: Option<Arc<dyn Store>> = None;
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    let fs = Fs::open_through(Env::system(volume).unwrap(), &options, |store| {
        captured = Some(Arc::clone(&store));
        store
    });
    let (fs, store) = (fs.unwrap(), captured.unwrap());
    let file = fs.lookup(&Caller::root(), NodeId::ROOT, name).unwrap().node;
    let key = key::linked(file.ino().0, Part::Attributes);
    let record = store.get(ROOT_TREE, &key).unwrap().expect("it has names");
    let record = LinkedRecord { nlink: names, ..LinkedRecord::decode(&record).unwrap() };
    let (mut batch, mut bytes) = (Batch::new(), Vec::new());
    record.encode(&mut bytes);
    batch.put(ROOT_TREE, &key, &bytes);
    store.commit(&batch).unwrap();
    fs.forget(file, 1);
    fs.close().unwrap();
}

fn the_last_name_is_made_and_the_next_is_refused(engine: &str) {
    let world = World::on(engine);
    if !world.mount() {
        return;
    }
    let at = |name: &str| world.below_mount(name);
    std::fs::write(at("one"), "contents").unwrap();
    hard_link(at("one"), at("two")).unwrap();
    let pid = world.daemon().unwrap();
    world.umount();
    wait_until("the daemon leaves", || !is_alive(pid));
    set_names(&world.volume, b"one", NAMES_MAX - 1);

    assert!(world.mount());
    let names = || u32::try_from(std::fs::metadata(at("one")).unwrap().nlink()).unwrap();
    let refused = || {
        let error = hard_link(at("one"), at("more")).expect_err("one more");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MLINK.raw_os_error()), "{error}");
        assert!(!at("more").exists());
        assert_eq!(names(), NAMES_MAX);
    };
    assert_eq!(names(), NAMES_MAX - 1);
    hard_link(at("one"), at("last")).unwrap();
    refused();
    // One name is renamed, and one is removed.
    rustix::fs::rename(at("last"), at("other")).unwrap();
    refused();
    remove_file(at("other")).unwrap();
    assert_eq!(names(), NAMES_MAX - 1);
    hard_link(at("two"), at("last")).unwrap();
    refused();
    assert_eq!(std::fs::read_to_string(at("last")).unwrap(), "contents");
    let pid = world.daemon().unwrap();
    world.umount();
    wait_until("the daemon leaves", || !is_alive(pid));

    // The count in the record was wrong.
    assert_eq!(world.run(&["fsck", world.vol()]).code, 5);
    world.ok(&["fsck", "--repair", world.vol()]);
    assert!(world.mount());
    assert_eq!(names(), 3);
    world.umount();
}
