//! Permission rules, as tables.

use device::Timestamp;
use format::acl::Acl;

use super::{EXECUTE, HAS_ACL, Owned, without_set_id};
use crate::{Caller, Ends, Enforce, FsError, Kind, SetAttr, SetTime};

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid,
        groups: groups.to_vec(),
        umask: 0,
        pid: 0,
        enforce: Enforce::Here,
        ends: Ends::NONE,
    }
}

fn no_list() -> Result<Acl, FsError> {
    panic!("no list decides here")
}

fn file(mode: u32) -> Owned {
    Owned { kind: Kind::File, uid: 10, gid: 20, mode }
}

fn directory(mode: u32) -> Owned {
    Owned { kind: Kind::Directory, ..file(mode) }
}

#[test]
fn the_first_matching_class_decides() {
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
        assert_eq!(file(mode).decide(who, mask), Some(allowed), "{who:?} {mode:o} {mask}");
    }
    assert_eq!(directory(0).decide(&root, 7), Some(true), "root searches any directory");
}

#[test]
fn the_kernel_may_have_checked_the_mode() {
    let trusted = Caller { enforce: Enforce::Kernel, ..caller(11, 99, &[]) };
    assert!(file(0).check(&trusted, 7, no_list).is_ok());
    assert_eq!(file(0).decide(&trusted, 4), Some(false));
    let sticky = directory(0o1777);
    assert!(matches!(sticky.check_removal(&trusted, 12, no_list), Err(FsError::NotPermitted(_))));
}

#[test]
fn a_sticky_directory_protects_names() {
    for (uid, victim, mode, allowed) in [
        (11, 11, 0o1777, true),
        (11, 12, 0o1777, false),
        (11, 12, 0o0777, true),
        (10, 12, 0o1777, true),
        (0, 12, 0o1777, true),
        (11, 11, 0o1755, false),
    ] {
        let result = directory(mode).check_removal(&caller(uid, 99, &[]), victim, no_list);
        assert_eq!(result.is_ok(), allowed, "uid {uid} removes {victim} in {mode:o}");
    }
}

#[test]
fn attributes_change_for_permitted_callers_only() {
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let uid = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
    let gid = |gid| SetAttr { gid: Some(gid), ..SetAttr::default() };
    let size = SetAttr { size: Some(1), ..SetAttr::default() };
    let (now, then) = (Some(SetTime::Now), Some(SetTime::At(Timestamp(1))));
    let touch = SetAttr { atime: now, mtime: now, ..SetAttr::default() };
    let one = SetAttr { mtime: now, ..SetAttr::default() };
    let cut = SetAttr { size: Some(1), ..one };
    let at = SetAttr { mtime: then, ..SetAttr::default() };
    let owner = caller(10, 30, &[40]);
    let member = caller(10, 20, &[]);
    let other = caller(11, 99, &[]);
    let root = caller(0, 0, &[]);
    // Caller, mode before, change, mode after; `None`: refused.
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
        (&other, 0o646, touch, Some(0o646)),
        (&other, 0o644, touch, None),
        (&other, 0o666, one, None),
        (&owner, 0o444, one, Some(0o444)),
        (&other, 0o646, cut, Some(0o646)),
        (&other, 0o666, at, None),
        (&owner, 0o444, at, Some(0o444)),
    ] {
        let result = file(before).change(who, &change, &no_list);
        assert_eq!(result.ok().map(|owned| owned.mode), after, "{who:?} {before:o} {change:?}");
    }
    assert!(
        directory(0o6755).change(&root, &uid(3), &no_list).is_ok_and(|owned| owned.mode == 0o6755)
    );
    assert!(matches!(directory(0o755).change(&root, &size, &no_list), Err(FsError::IsDirectory)));
}

#[test]
fn set_group_id_without_execution_is_a_lock_and_stays() {
    assert_eq!(without_set_id(0o6755), 0o755);
    assert_eq!(without_set_id(0o6745), 0o2745);
}

/// The algorithm of acl(5), literally, for a caller that is not root.
fn of_the_manual(owned: &Owned, caller: &Caller, mask: u32, acl: &Acl) -> bool {
    let has = |given: u32| given & mask == mask;
    let masked = |given: u32| has(given) && acl.mask.is_none_or(has);
    if caller.uid == owned.uid {
        return has(acl.owner);
    }
    for (uid, given) in &acl.users {
        if *uid == caller.uid {
            return masked(*given);
        }
    }
    let mut matched = false;
    if caller.in_group(owned.gid) {
        matched = true;
        if masked(acl.group) {
            return true;
        }
    }
    for (gid, given) in &acl.groups {
        if caller.in_group(*gid) {
            matched = true;
            if masked(*given) {
                return true;
            }
        }
    }
    !matched && has(acl.other)
}

#[test]
fn access_lists_are_evaluated_as_documented() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..200_000 {
        let mut named = || {
            let mut list: Vec<(u32, u32)> = Vec::new();
            for id in [10, 11, 12, 20, 21, 22] {
                if random.u32(..4) == 0 {
                    list.push((id, random.u32(..8)));
                }
            }
            list
        };
        let (users, groups) = (named(), named());
        let needs_mask = !users.is_empty() || !groups.is_empty();
        let mask = (needs_mask || random.bool()).then(|| random.u32(..8));
        let mut given = || random.u32(..8);
        let acl = Acl { owner: given(), users, group: given(), groups, mask, other: given() };
        let mode = acl.mode() | if acl.is_minimal() { 0 } else { HAS_ACL };
        let kind = if random.bool() { Kind::Directory } else { Kind::File };
        let owned = Owned { kind, ..file(mode) };
        let groups: Vec<u32> = (20..23).filter(|_| random.bool()).collect();
        let who = caller(random.u32(9..13), random.u32(20..24), &groups);
        let mask = random.u32(..8);
        let answer = owned.allows(&who, mask, || Ok::<_, ()>(acl.clone())).unwrap();
        let in_doubt = mode & 0o070 == 0 && who.uid != owned.uid;
        if !in_doubt {
            let want = of_the_manual(&owned, &who, mask, &acl);
            assert_eq!(answer, want, "round {round}: {who:?} wants {mask} of {owned:?} {acl:?}");
        } else if answer {
            // An empty mask: Linux checks only the mode, and a user named in the list belongs to
            // the group or to the others.
            let bits = if who.in_group(owned.gid) { 0 } else { acl.other };
            assert_eq!(bits & mask, mask, "round {round}");
        }
        let root = Caller::root();
        let executes = kind == Kind::Directory || mode & 0o111 != 0 || mask & EXECUTE == 0;
        assert_eq!(owned.decide(&root, mask), Some(executes));
    }
}
