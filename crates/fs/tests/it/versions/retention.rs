//! Schedules of snapshots belong to a lineage and act with the rights of the user who set them. A
//! hold survives every way to delete a snapshot.

use fs::{FileSystem, FsResult, Keep, QuotaLimits, Schedule};
use inode::{Caller, FsError, NodeId};

use super::settle;
use crate::support::{ROOT, Volume, user, volume};

/// Asserts that something is refused with a message that contains a text.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: FsResult<T>, text: &str) {
    let error = result.expect_err(text).to_string();
    assert!(error.contains(text), "{error}");
}

fn every_hour() -> Schedule {
    let keep = Keep { hours: 24, ..Keep::default() };
    Schedule { cron: "0 * * * *".to_owned(), prefix: b"auto".to_vec(), keep }
}

fn directory_of(v: &Volume, uid: u32, name: &str) -> NodeId {
    v.fs.mkdir(&user(uid), ROOT, name.as_bytes(), 0o755).expect("a new directory").node
}

#[test]
fn a_schedule_belongs_to_a_lineage_and_outlives_a_restart() {
    let v = volume();
    let (ann, root) = (user(1000), Caller::root());
    let dir = directory_of(&v, 1000, "d");
    refused(v.fs.schedule_set(&user(1001), dir, Some(&every_hour())), "operation not permitted");
    refused(v.fs.schedule_set(&ann, dir, None), "no such file");
    v.fs.schedule_set(&ann, dir, Some(&every_hour())).expect("the owner may");
    let info = v.fs.schedule_get(dir).expect("it is read").expect("it was set");
    assert_eq!((info.uid, &info.schedule), (1000, &every_hour()));

    v.fs.snapshot_create(&ann, dir, b"before").expect("space");
    v.fs.rollback(&ann, dir, b"before").expect("a rollback");
    let dir = v.find(ROOT, "d").expect("it is there").node;
    assert_eq!(v.fs.schedule_get(dir).expect("it is read"), Some(info.clone()), "a rollback keeps");
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"c").expect("a clone").root;
    assert_eq!(v.fs.schedule_get(clone).expect("it is read"), None, "a clone has none");
    assert_eq!(v.fs.schedule_directory(&info).expect("it is found"), Some(dir));
    let again = v.reopened();
    assert_eq!(again.schedules().expect("they are read"), std::slice::from_ref(&info));

    v.fs.schedule_set(&root, dir, None).expect("root may");
    assert_eq!(v.fs.schedules().expect("they are read"), []);
}

#[test]
fn a_scheduled_snapshot_is_noted_in_its_own_commit() {
    let v = volume();
    let dir = directory_of(&v, 1000, "d");
    v.fs.schedule_set(&user(1000), dir, Some(&every_hour())).expect("the owner may");
    let info = v.fs.schedule_get(dir).expect("it is read").expect("it was set");
    v.tick();
    let at = v.fs.now();
    let taken = v.fs.snapshot_scheduled((&info, Vec::new()), dir, b"auto-1", at).expect("space");
    assert_eq!(taken.name, b"auto-1");
    let later = v.fs.schedule_get(dir).expect("it is read").expect("it is there");
    assert_eq!(later.last, at);
    // Another thread that saw it due, or one after a change, takes no second one.
    let stale = v.fs.snapshot_scheduled((&info, Vec::new()), dir, b"auto-2", at);
    assert!(matches!(stale, Err(FsError::Stale)), "{stale:?}");
    // A refused one is not noted.
    let exists = v.fs.snapshot_scheduled((&later, Vec::new()), dir, b"auto-1", v.fs.now());
    assert!(matches!(exists, Err(FsError::Exists)), "{exists:?}");
    assert_eq!(v.fs.schedule_get(dir).expect("it is read"), Some(later.clone()));
    // The directory was given to another user: the schedule's owner has no right any more.
    let given = inode::SetAttr { uid: Some(1001), ..inode::SetAttr::default() };
    v.fs.setattr(&Caller::root(), dir, &given).expect("chown");
    refused(
        v.fs.snapshot_scheduled((&later, Vec::new()), dir, b"auto-3", v.fs.now()),
        "operation not permitted",
    );
    assert_eq!(v.fs.snapshot_list(&Caller::root(), dir).expect("a list").len(), 1);
}

#[test]
fn the_schedule_of_a_removed_directory_is_forgotten() {
    let v = volume();
    let dir = directory_of(&v, 0, "d");
    v.fs.schedule_set(&Caller::root(), dir, Some(&every_hour())).expect("root may");
    let info = v.fs.schedule_get(dir).expect("it is read").expect("it was set");
    v.fs.schedule_forget(&info).expect("it is there");
    assert_eq!(v.fs.schedules().expect("they are read").len(), 1, "the directory is there");
    v.fs.forget(dir, 1);
    v.fs.rmdir(&Caller::root(), ROOT, b"d").expect("it is empty");
    assert_eq!(v.fs.schedule_directory(&info).expect("it is looked for"), None);
    v.fs.schedule_forget(&info).expect("a commit");
    assert_eq!(v.fs.schedules().expect("they are read"), []);
}

#[test]
fn schedules_of_one_user_are_bounded() {
    let v = volume();
    for number in 0..100 {
        let dir = directory_of(&v, 1000, &format!("d{number}"));
        v.fs.schedule_set(&user(1000), dir, Some(&every_hour())).expect("below the bound");
    }
    let dir = directory_of(&v, 1000, "more");
    refused(
        v.fs.schedule_set(&user(1000), dir, Some(&every_hour())),
        "a user has at most 100 schedules",
    );
    v.fs.schedule_set(&Caller::root(), dir, Some(&every_hour())).expect("root may");
    for wrong in ["", ".", "..", "a/b", "#7"] {
        let schedule = Schedule { prefix: wrong.into(), ..every_hour() };
        assert!(
            matches!(
                v.fs.schedule_set(&Caller::root(), dir, Some(&schedule)),
                Err(FsError::InvalidArgument(_) | FsError::NotFound | FsError::Exists)
            ),
            "a prefix of {wrong:?}"
        );
    }
}

/// What a snapshot keeps is charged to nobody: under a limit only root decides how long that lasts.
#[test]
fn a_user_under_a_quota_keeps_no_snapshot_from_being_deleted() {
    let v = volume();
    let (ann, root) = (user(1000), Caller::root());
    let dir = directory_of(&v, 1000, "d");
    let limits = QuotaLimits { inodes: None, bytes: Some(1 << 20) };
    v.fs.quota_set(&root, dir, limits).expect("a limit");
    let taken = v.fs.snapshot_create(&root, dir, b"auto-1").expect("root may").subvol;
    refused(v.fs.schedule_set(&ann, dir, Some(&every_hour())), "a quota applies here");
    refused(v.fs.hold(&ann, taken, b"k"), "a quota applies here");
    refused(v.fs.snapshot_rename(&ann, dir, b"auto-1", b"mine"), "a quota applies here");
    v.fs.hold(&root, taken, b"k").expect("root may");
    v.fs.release(&ann, taken, b"k").expect("it is hers to release");
}

/// A rollback of the directory above brings a removed one back, with its number.
#[test]
fn the_schedule_of_a_directory_that_may_come_back_is_not_forgotten() {
    let v = volume();
    let root = Caller::root();
    let above = directory_of(&v, 0, "above");
    let dir = v.fs.mkdir(&root, above, b"d", 0o755).expect("a new directory").node;
    v.fs.schedule_set(&root, dir, Some(&every_hour())).expect("root may");
    let info = v.fs.schedule_get(dir).expect("it is read").expect("it was set");
    v.fs.snapshot_create(&root, above, b"s").expect("space");
    v.fs.forget(dir, 1);
    v.fs.rmdir(&root, above, b"d").expect("it is empty");
    v.fs.schedule_forget(&info).expect("it may come back");
    assert_eq!(v.fs.schedules().expect("they are read"), [info]);
}

#[test]
fn no_way_to_delete_a_snapshot_passes_a_hold() {
    let v = volume();
    let (ann, root) = (user(1000), Caller::root());
    let dir = directory_of(&v, 1000, "d");
    let monday = v.fs.snapshot_create(&ann, dir, b"monday").expect("space").subvol;
    refused(v.fs.hold(&user(1001), monday, b"backup"), "operation not permitted");
    v.fs.hold(&ann, monday, b"backup").expect("the owner may");
    let twice = v.fs.hold(&ann, monday, b"backup");
    assert!(matches!(twice, Err(FsError::Exists)), "{twice:?}");
    v.fs.hold(&root, monday, b"legal").expect("root may");
    let names = |v: &Volume| -> Vec<Vec<u8>> {
        let holds = v.fs.holds_of(monday).expect("they are read");
        holds.into_iter().map(|hold| hold.name).collect()
    };
    assert_eq!(names(&v), [b"backup".to_vec(), b"legal".to_vec()]);

    refused(v.fs.snapshot_delete(&ann, dir, b"monday"), "held");
    refused(v.fs.snapshot_delete_number(&root, monday), "held");
    let snapshots = v.find(dir, ".snapshots").expect("it is there").node;
    refused(v.fs.rmdir(&ann, snapshots, b"monday"), "held");
    // A rename and a rollback change nothing of that.
    v.fs.snapshot_rename(&ann, dir, b"monday", b"tuesday").expect("a rename");
    refused(v.fs.snapshot_delete(&ann, dir, b"tuesday"), "held");
    v.fs.rollback(&ann, dir, b"tuesday").expect("a rollback");
    let dir = v.find(ROOT, "d").expect("it is there").node;
    refused(v.fs.snapshot_delete(&ann, dir, b"tuesday"), "held");
    // Nor does the removal of its directory.
    v.fs.rmr(&root, ROOT, b"d").expect("a removal");
    settle(&v);
    refused(v.fs.snapshot_delete_number(&root, monday), "held");

    v.fs.release(&root, monday, b"legal").expect("it is there");
    refused(v.fs.snapshot_delete_number(&root, monday), "held");
    let again = v.reopened();
    assert_eq!(again.holds_of(monday).expect("they are read").len(), 1);
    v.fs.release(&root, monday, b"backup").expect("it is there");
    let none = v.fs.release(&root, monday, b"backup");
    assert!(matches!(none, Err(FsError::NotFound)), "{none:?}");
    v.fs.snapshot_delete_number(&root, monday).expect("nothing holds it");
    let gone = v.fs.hold(&root, monday, b"late");
    assert!(matches!(gone, Err(FsError::NotFound)), "{gone:?}");
}
