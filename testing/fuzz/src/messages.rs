//! Messages of the control socket, and the items in them.

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use wire::remote::{Asked, FsAnswer, FsFailure, RemoteHello, RemoteWelcome};
use wire::{
    Call, ExportItem, Hello, Item, Items, Reply, Request, ScanItem, Welcome, decode, encode,
    read_frame,
};

use crate::target::{Category, Target, no_checksum};
use crate::values::Values;

type Answer<'a> = Result<FsAnswer<'a>, FsFailure>;

#[expect(clippy::redundant_closure, reason = "the function alone is of too few lifetimes")]
pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "request",
        part: Category::Decoders,
        covers: &[],
        make: |random| made(random, request),
        repair: no_checksum,
        run: run_request,
    },
    Target {
        name: "reply",
        part: Category::Decoders,
        covers: &[],
        make: |random| made(random, reply),
        repair: no_checksum,
        run: |bytes| decode::<Reply>(bytes).is_ok(),
    },
    Target {
        name: "hello",
        part: Category::Decoders,
        covers: &[],
        make: |random| made(random, welcome),
        repair: no_checksum,
        run: |bytes| decode::<Hello>(bytes).is_ok() | decode::<Welcome>(bytes).is_ok(),
    },
    Target {
        name: "items-of-an-import",
        part: Category::Decoders,
        covers: &[],
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
        covers: &[],
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
        covers: &[],
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
        covers: &[],
        make: |random| made(random, |values, out| one::<Asked<'_>>(values, out)),
        repair: no_checksum,
        run: |bytes| twice::<Asked<'_>>(bytes),
    },
    Target {
        name: "remote-answer",
        part: Category::Decoders,
        covers: &[],
        make: |random| made(random, |values, out| one::<Answer<'_>>(values, out)),
        repair: no_checksum,
        run: |bytes| twice::<Answer<'_>>(bytes),
    },
    Target {
        name: "remote-hello",
        part: Category::Decoders,
        covers: &[],
        make: |random| made(random, |values, out| one::<RemoteHello>(values, out)),
        repair: no_checksum,
        run: |bytes| {
            let body = wire::remote::split_head(bytes).map_or(bytes, |(_, _, body)| body);
            twice::<RemoteHello>(body) | decode::<RemoteWelcome>(body).is_ok()
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
