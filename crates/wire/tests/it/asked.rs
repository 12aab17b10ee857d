//! A request that is read in two parts is the request, and none hides what its call is.

use wire::remote::{Asked, Asker, FsCall, LockKind, LockRange, Node, is_looked_into, split_asked};
use wire::{DecodeError, decode, encode};

fn calls() -> Vec<(FsCall<'static>, bool)> {
    let node = Node { slot: 3, ino: u64::MAX };
    let kind = LockKind::Exclusive;
    let lock = LockRange { owner: 1, pid: 2, kind, start: 0, end: u64::MAX, whole: false };
    let (name, untimed) = (&b"a name"[..], false);
    vec![
        (FsCall::GetAttr { node }, false),
        (FsCall::Create { parent: node, name, mode: 0o644, flags: 3 }, false),
        (FsCall::ReadLink { node, untimed }, false),
        (FsCall::Read { node, offset: 0, length: 1 << 20, untimed }, true),
        (FsCall::Write { node, offset: 0, flags: 0, bytes: &[14; 300] }, false),
        (FsCall::SyncAll, false),
        (FsCall::List { directory: node, cookie: 0, attributes: true, bytes: 9 }, true),
        (FsCall::Space { node }, false),
        (FsCall::GetXattr { node, name }, true),
        (FsCall::ListXattr { node }, true),
        (FsCall::SetXattr { node, name, value: name, how: 0 }, false),
        (FsCall::Release { node }, false),
        (FsCall::Lock { node, lock, wait: true }, true),
        (FsCall::TestLock { node, lock }, false),
        (FsCall::Unlock { node, owner: 1, whole: true }, false),
    ]
}

#[test]
fn a_request_in_two_parts_is_the_request() {
    let who = Asker { uid: 1000, groups: vec![7, 1 << 31], ends: 3, ..Asker::default() };
    for (call, is_long) in calls() {
        let acknowledged = vec![1, u64::MAX];
        let asked =
            Asked { acknowledged, once: 300, done: 7, who: who.clone(), call: call.clone() };
        let mut body = Vec::new();
        encode(&asked, &mut body);
        let (head, rest) = split_asked(&body).unwrap();
        assert_eq!(is_looked_into(rest), is_long, "{call:?}");
        assert_eq!(head.with(decode(rest).unwrap()), asked);
        for end in 0..body.len() {
            let cut = split_asked(&body[..end]).and_then(|(_, rest)| decode::<FsCall<'_>>(rest));
            assert!(matches!(cut, Err(DecodeError::Malformed(_))), "{call:?}: {end}");
        }
    }
}

#[test]
fn no_encoding_of_a_call_hides_what_it_is() {
    let mut usual = Vec::new();
    encode(&FsCall::ListXattr { node: Node::ROOT }, &mut usual);
    // The same number, in two bytes.
    let unusual = [&[usual[0] | 0x80, 0], &usual[1..]].concat();
    assert_eq!(decode::<FsCall<'_>>(&unusual), decode::<FsCall<'_>>(&usual));
    assert!(is_looked_into(&unusual) && is_looked_into(&[]));
}

#[test]
fn what_waits_of_a_request_keeps_no_long_lists() {
    let long = vec![1; 100_000];
    let who = Asker { groups: long.iter().map(|_| 1).collect(), ..Asker::default() };
    let call = FsCall::SyncAll;
    let mut body = Vec::new();
    encode(&Asked { acknowledged: long.clone(), once: 0, done: 0, who, call }, &mut body);
    let (mut head, _) = split_asked(&body).unwrap();
    assert_eq!(head.shorten(1024), long);
    assert_eq!((head.acknowledged.capacity(), head.who.groups.len()), (0, 1025));
    assert!(head.who.groups.capacity() < 2 * 1025, "{}", head.who.groups.capacity());
}
