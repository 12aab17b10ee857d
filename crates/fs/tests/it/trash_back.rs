//! What comes back out of a trash, and what is told where nothing does.

use fs::{FileSystem, RenameMode, RestoreOptions, Restored};
use inode::{Caller, FsError};

use crate::support::{ROOT, refused, volume};
use crate::trash::{on, path, restore};

const DAY: u64 = 86_400;

/// It said that it was restored, and did nothing.
#[test]
fn an_empty_directory_whose_name_another_has_is_not_said_to_come_back() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT, DAY);
    v.dir(ROOT, "old");
    v.tick();
    let new = v.dir(ROOT, "new").node;
    v.file(new, "mine");
    v.fs.rename(&root, (ROOT, b"new"), (ROOT, b"old"), RenameMode::Replace).expect("it is empty");
    refused(restore(&v, "/old"), &FsError::Exists);
    assert_eq!(v.sorted(new), ["mine"], "nothing of it changed");
    let elsewhere = Some((ROOT, &b"elsewhere"[..]));
    let restored =
        v.fs.restore(&root, (ROOT, &path("/old")), elsewhere, &RestoreOptions::default());
    assert_eq!(restored.expect("there is room"), Restored { names: 1, left: 0 });
    assert_eq!(v.sorted(v.find(ROOT, "elsewhere").expect("it came back").node), [""; 0]);
    refused(restore(&v, "/old"), &FsError::NotFound);
}

#[test]
fn a_directory_of_which_all_came_back_has_nothing_more_in_the_trash() {
    let v = volume();
    on(&v, ROOT, DAY);
    let dir = v.dir(ROOT, "d").node;
    v.file(dir, "f");
    v.fs.unlink(&Caller::root(), dir, b"f").expect("it goes");
    assert_eq!(restore(&v, "/d").expect("it was kept"), Restored { names: 1, left: 0 });
    refused(restore(&v, "/d"), &FsError::NotFound);
}
