//! Messages of the control socket and of served volumes, and the items in them.
//!
//! A test checks whether each type that `wire` decodes is part of a target's message. The compiler
//! checks whether each kind of frame has a decoder here.

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use wire::remote::{
    Asked, FrameKind, FsAnswer, FsCall, FsFailure, Reclaim, RemoteHello, RemoteWelcome, put_head,
    split_asked, split_head,
};
use wire::{
    Call, ExportItem, Failure, Hello, Item, Items, Reply, Request, ScanItem, Welcome, decode,
    encode, read_frame,
};

use crate::target::{Category, Target, no_checksum};
use crate::values::Values;

type Answer<'a> = Result<FsAnswer<'a>, FsFailure>;

#[expect(clippy::redundant_closure, reason = "the function alone is of too few lifetimes")]
pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "request",
        part: Category::Decoders,
        covers: &["wire::Request"],
        make: |random| made(random, request),
        repair: no_checksum,
        run: run_request,
    },
    Target {
        name: "reply",
        part: Category::Decoders,
        covers: &["wire::Reply"],
        make: |random| made(random, reply),
        repair: no_checksum,
        run: |bytes| decode::<Reply>(bytes).is_ok(),
    },
    Target {
        name: "hello",
        part: Category::Decoders,
        covers: &["wire::Hello", "wire::Welcome"],
        make: |random| made(random, welcome),
        repair: no_checksum,
        run: |bytes| decode::<Hello>(bytes).is_ok() | decode::<Welcome>(bytes).is_ok(),
    },
    Target {
        name: "items-of-an-import",
        part: Category::Decoders,
        covers: &["wire::Item"],
        make: |random| {
            made(random, |values, out| {
                let item = Item::deserialize(values).ok()?;
                let mut items = Items::default();
                items.push(&item);
                out.extend_from_slice(items.as_bytes());
                Some(())
            })
        },
        repair: no_checksum,
        run: |bytes| {
            let mut rest = bytes;
            let mut understood = false;
            while let Some(item) = Items::next(&mut rest) {
                if item.is_err() {
                    return false;
                }
                understood = true;
            }
            understood
        },
    },
    Target {
        name: "items-of-an-export",
        part: Category::Decoders,
        covers: &["wire::ExportItem"],
        make: |random| {
            made(random, |values, out| {
                ExportItem::deserialize(values).ok()?.push(out);
                Some(())
            })
        },
        repair: no_checksum,
        run: |bytes| {
            let mut rest = bytes;
            let mut understood = false;
            while let Some(item) = ExportItem::next(&mut rest) {
                if item.is_err() {
                    return false;
                }
                understood = true;
            }
            understood
        },
    },
    Target {
        name: "items-of-a-scan",
        part: Category::Decoders,
        covers: &["wire::ScanItem"],
        make: |random| {
            made(random, |values, out| {
                let item = ScanItem::deserialize(values).ok()?;
                wire::push_scan_item(&item, out);
                Some(())
            })
        },
        repair: no_checksum,
        run: |bytes| {
            let mut rest = bytes;
            let mut understood = false;
            while let Some(item) = wire::next_scan_item(&mut rest) {
                if item.is_err() {
                    return false;
                }
                understood = true;
            }
            understood
        },
    },
    Target {
        name: "remote-request",
        part: Category::Decoders,
        covers: &["wire::Asked", "wire::AskedHead"],
        make: |random| made(random, |values, out| one::<Asked<'_>>(values, out)),
        repair: no_checksum,
        run: |bytes| {
            let whole = twice::<Asked<'_>>(bytes);
            // As a server reads it: in two parts, of which the first is shortened.
            let parts = split_asked(bytes).is_ok_and(|(mut head, call)| {
                head.shorten(8);
                decode::<FsCall<'_>>(call).is_ok()
            });
            assert_eq!(whole, parts, "in two parts it is something else");
            whole
        },
    },
    Target {
        name: "remote-answer",
        part: Category::Decoders,
        covers: &["wire::FsAnswer", "wire::FsFailure"],
        make: |random| made(random, |values, out| one::<Answer<'_>>(values, out)),
        repair: no_checksum,
        run: |bytes| twice::<Answer<'_>>(bytes),
    },
    Target {
        name: "remote-hello",
        part: Category::Decoders,
        covers: &["wire::RemoteHello", "wire::RemoteWelcome"],
        make: |random| made(random, |values, out| one::<RemoteHello>(values, out)),
        repair: no_checksum,
        run: |bytes| {
            let body = split_head(bytes).map_or(bytes, |(_, _, body)| body);
            twice::<RemoteHello>(body) | decode::<RemoteWelcome>(body).is_ok()
        },
    },
    Target {
        name: "remote-claims",
        part: Category::Decoders,
        covers: &["wire::Reclaim"],
        make: |random| made(random, |values, out| one::<Reclaim>(values, out)),
        repair: no_checksum,
        run: |bytes| twice::<Reclaim>(bytes),
    },
    Target {
        name: "remote-ping",
        part: Category::Decoders,
        covers: &[],
        make: |random| made(random, |values, out| one::<Vec<u64>>(values, out)),
        repair: no_checksum,
        run: |bytes| twice::<Vec<u64>>(bytes),
    },
    Target {
        name: "remote-frame",
        part: Category::Decoders,
        covers: &["wire::Failure"],
        make: remote_frame,
        repair: no_checksum,
        run: |bytes| {
            split_head(bytes).is_some_and(|(kind, number, body)| {
                let mut again = Vec::new();
                put_head(kind, number, &mut again);
                assert_eq!(again, bytes[..again.len()], "a head becomes another one");
                is_body(kind, body)
            })
        },
    },
    Target {
        name: "frame",
        part: Category::Decoders,
        covers: &[],
        make: |random| {
            let message = crate::random::bytes(random, 200);
            let mut out = Vec::new();
            wire::write_frame(&mut out, &message).expect("invariant: short messages are taken");
            out
        },
        repair: no_checksum,
        run: |bytes| {
            let mut buffer = Vec::new();
            read_frame(&mut std::io::Cursor::new(bytes), &mut buffer).is_ok()
        },
    },
];

/// Kinds of frames, those that a client sends first.
const KINDS: [FrameKind; 12] = [
    FrameKind::Hello,
    FrameKind::Request,
    FrameKind::Ping,
    FrameKind::Tunnel,
    FrameKind::Cancel,
    FrameKind::Bye,
    FrameKind::Reclaim,
    FrameKind::Welcome,
    FrameKind::Reply,
    FrameKind::Pong,
    FrameKind::Refused,
    FrameKind::Moved,
];

/// Whether the body of a frame is understood by the side that gets it.
fn is_body(kind: FrameKind, body: &[u8]) -> bool {
    match kind {
        FrameKind::Hello => twice::<RemoteHello>(body),
        FrameKind::Request => twice::<Asked<'_>>(body),
        FrameKind::Ping => twice::<Vec<u64>>(body),
        FrameKind::Reclaim => twice::<Reclaim>(body),
        FrameKind::Welcome => twice::<RemoteWelcome>(body),
        FrameKind::Reply => twice::<Answer<'_>>(body),
        FrameKind::Refused => twice::<Failure>(body),
        FrameKind::Moved => std::str::from_utf8(body).is_ok(),
        // The bytes of a control connection, which has frames of its own.
        FrameKind::Tunnel => {
            let mut message = Vec::new();
            let mut stream = std::io::Cursor::new(body);
            while read_frame(&mut stream, &mut message).is_ok() {
                crate::target::seen(decode::<Hello>(&message).is_ok() || run_request(&message));
            }
            true
        }
        // What follows the number is ignored.
        FrameKind::Cancel | FrameKind::Bye | FrameKind::Pong => true,
    }
}

/// A frame of any kind, with a body of that kind.
#[expect(clippy::redundant_closure, reason = "the function alone is of too few lifetimes")]
fn remote_frame(random: &mut Rng) -> Vec<u8> {
    let kind = KINDS[random.usize(..KINDS.len())];
    let mut out = Vec::new();
    put_head(kind, random.u64(..) >> random.u8(..64), &mut out);
    let body = match kind {
        FrameKind::Hello => made(random, |values, out| one::<RemoteHello>(values, out)),
        FrameKind::Request => made(random, |values, out| one::<Asked<'_>>(values, out)),
        FrameKind::Ping => made(random, |values, out| one::<Vec<u64>>(values, out)),
        FrameKind::Reclaim => made(random, |values, out| one::<Reclaim>(values, out)),
        FrameKind::Welcome => made(random, |values, out| one::<RemoteWelcome>(values, out)),
        FrameKind::Reply => made(random, |values, out| one::<Answer<'_>>(values, out)),
        FrameKind::Refused => made(random, |values, out| one::<Failure>(values, out)),
        FrameKind::Moved => b"files1.example.org:7440".to_vec(),
        FrameKind::Tunnel => {
            let mut stream = Vec::new();
            for make in [welcome, request] {
                let message = made(random, make);
                wire::write_frame(&mut stream, &message)
                    .expect("invariant: short messages are taken");
            }
            stream
        }
        FrameKind::Cancel | FrameKind::Bye | FrameKind::Pong => Vec::new(),
    };
    out.extend_from_slice(&body);
    out
}

/// Makes values until its type accepts one.
fn made(random: &mut Rng, make: fn(Values<'_, '_>, &mut Vec<u8>) -> Option<()>) -> Vec<u8> {
    let pool = crate::random::bytes(random, 200);
    let pool = if pool.is_empty() { b"/a/b".to_vec() } else { pool };
    let mut out = Vec::new();
    for _ in 0..64 {
        out.clear();
        if make(Values { random, pool: &pool, depth: 0 }, &mut out).is_some() {
            break;
        }
    }
    out
}

fn one<'p, T: Deserialize<'p> + Serialize>(
    values: Values<'p, '_>,
    out: &mut Vec<u8>,
) -> Option<()> {
    encode(&T::deserialize(values).ok()?, out);
    Some(())
}

fn request(values: Values<'_, '_>, out: &mut Vec<u8>) -> Option<()> {
    one::<Request<'_>>(values, out)
}

fn reply(values: Values<'_, '_>, out: &mut Vec<u8>) -> Option<()> {
    one::<Reply>(values, out)
}

fn welcome(values: Values<'_, '_>, out: &mut Vec<u8>) -> Option<()> {
    one::<Welcome>(values, out)
}

/// What is understood is understood again after it was encoded.
fn twice<'a, T: Deserialize<'a> + Serialize>(bytes: &'a [u8]) -> bool {
    let Ok(message) = decode::<T>(bytes) else { return false };
    let mut encoded = Vec::new();
    encode(&message, &mut encoded);
    // (Numbers have longer encodings, too.)
    assert!(encoded.len() <= bytes.len(), "it became longer");
    true
}

fn run_request(bytes: &[u8]) -> bool {
    let Ok(request) = decode::<Request<'_>>(bytes) else { return false };
    let mut encoded = Vec::new();
    encode(&request, &mut encoded);
    match decode::<Request<'_>>(&encoded) {
        Ok(again) => assert!(again == request, "read once more it is something else"),
        Err(error) => panic!("what was read is not read once more: {error}"),
    }
    if let Call::Find(find) = &request.call {
        crate::queries::ask(&find.expr);
    }
    true
}
