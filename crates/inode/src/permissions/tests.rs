//! Rules of permission, as tables.

use device::Timestamp;

use super::{Owned, without_set_id};
use crate::{Caller, Enforce, FsError, Kind, SetAttr, SetTime};

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.to_vec(), enforce: Enforce::Here }
}

fn file(mode: u32) -> Owned {
    Owned { kind: Kind::File, uid: 10, gid: 20, mode }
}

fn directory(mode: u32) -> Owned {
    Owned { kind: Kind::Directory, ..file(mode) }
}

#[test]
fn the_first_class_that_fits_decides() {
    let owner = caller(10, 99, &[]);
    let group = caller(11, 20, &[]);
    let supplementary = caller(11, 99, &[7, 20]);
    let other = caller(11, 99, &[7]);
    let root = caller(0, 0, &[]);
    for (who, mode, mask, allowed) in [
        (&owner, 0o600, 6, true),
        (&owner, 0o077, 4, false),
        (&owner, 0o100, 1, true),
        (&group, 0o040, 4, true),
        (&group, 0o707, 4, false),
        (&supplementary, 0o060, 6, true),
        (&supplementary, 0o707, 4, false),
        (&other, 0o004, 4, true),
        (&other, 0o770, 1, false),
        (&other, 0o006, 7, false),
        (&root, 0o000, 6, true),
        (&root, 0o000, 1, false),
        (&root, 0o001, 1, true),
    ] {
        assert_eq!(file(mode).allows(who, mask), allowed, "{who:?} {mode:o} {mask}");
    }
    assert!(directory(0).allows(&root, 7), "root searches any directory");
}

#[test]
fn the_kernel_may_have_checked_the_bits() {
    let trusted = Caller { enforce: Enforce::Kernel, ..caller(11, 99, &[]) };
    assert!(file(0).check(&trusted, 7).is_ok());
    assert!(!file(0).allows(&trusted, 4));
    let sticky = directory(0o1777);
    assert!(matches!(sticky.check_removal(&trusted, 12), Err(FsError::NotPermitted(_))));
}

#[test]
fn a_sticky_directory_guards_names() {
    for (uid, victim, mode, allowed) in [
        (11, 11, 0o1777, true),
        (11, 12, 0o1777, false),
        (11, 12, 0o0777, true),
        (10, 12, 0o1777, true),
        (0, 12, 0o1777, true),
        (11, 11, 0o1755, false),
    ] {
        let result = directory(mode).check_removal(&caller(uid, 99, &[]), victim);
        assert_eq!(result.is_ok(), allowed, "uid {uid} removes {victim} in {mode:o}");
    }
}

#[test]
fn attributes_change_for_those_who_may() {
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let uid = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
    let gid = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
    let size = SetAttr { size: Some(1), ..SetAttr::default() };
    let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let at = SetAttr { mtime: Some(SetTime::At(Timestamp(1))), ..SetAttr::default() };
    let owner = caller(10, 30, &[40]);
    let member = caller(10, 20, &[]);
    let other = caller(11, 99, &[]);
    let root = caller(0, 0, &[]);
    // Who, before, change, mode after; `None`: refused.
    for (who, before, change, after) in [
        (&owner, 0o644, mode(0o600), Some(0o600)),
        (&owner, 0o644, mode(0o2755), Some(0o755)),
        (&member, 0o644, mode(0o2755), Some(0o2755)),
        (&other, 0o666, mode(0o600), None),
        (&root, 0o644, mode(0o7777), Some(0o7777)),
        (&owner, 0o6755, uid(10), Some(0o755)),
        (&owner, 0o644, uid(11), None),
        (&root, 0o6755, uid(11), Some(0o755)),
        (&root, 0o6745, uid(11), Some(0o2745)),
        (&owner, 0o644, gid(40), Some(0o644)),
        (&owner, 0o644, gid(50), None),
        (&other, 0o644, gid(99), None),
        (&owner, 0o6755, size, Some(0o755)),
        (&root, 0o6755, size, Some(0o6755)),
        (&other, 0o644, size, None),
        (&other, 0o646, now, Some(0o646)),
        (&other, 0o644, now, None),
        (&other, 0o666, at, None),
        (&owner, 0o444, at, Some(0o444)),
    ] {
        let result = file(before).change(who, &change);
        assert_eq!(result.ok().map(|owned| owned.mode), after, "{who:?} {before:o} {change:?}");
    }
    assert!(directory(0o6755).change(&root, &uid(3)).is_ok_and(|owned| owned.mode == 0o6755));
    assert!(matches!(directory(0o755).change(&root, &size), Err(FsError::IsDirectory)));
}

#[test]
fn set_group_id_without_execution_is_a_lock_and_stays() {
    assert_eq!(without_set_id(0o6755), 0o755);
    assert_eq!(without_set_id(0o6745), 0o2745);
}
