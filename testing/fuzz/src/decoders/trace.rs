//! Traces: the header, and a block with its events, which are also taken as a replay takes them.

use fastrand::Rng;
use format::trace::{
    BLOCK_BYTES, BlockHead, BlockKind, Call, CallField, Decoded, Ended, Event, Events, Header,
    Listed, Shown, Writing, encode_block,
};
use trace::{Anonymiser, Claims, Expected, Keep, Names, Summary};

use super::{again, put_sum};
use crate::random::{bytes, id, name, number, number32, signed};
use crate::target::{Category, Target, seen};

const ID: [u8; 16] = [5; 16];

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "trace-header",
        part: Category::Decoders,
        covers: &["trace::LAYOUT", "trace::decode"],
        make: |random| {
            let (anonymised, generated, opens) = (random.bool(), random.bool(), random.bool());
            let (started, root) = (signed(random), number(random));
            Header { id: id(random), started, root, anonymised, generated, opens }.encode()
        },
        repair: |bytes| put_sum(bytes, 12, &[(0, 12), (16, 64)]),
        run: |bytes| {
            let Ok(decoded) = Header::decode(bytes) else { return false };
            if let Decoded::Header(header) = decoded {
                again(&decoded, &header.encode(), Header::decode);
            }
            true
        },
    },
    Target {
        name: "trace-block",
        part: Category::Decoders,
        covers: &["trace::BLOCK_LAYOUT", "trace::decode", "trace::open"],
        make: |random| {
            let writing = make_events(random);
            let place = (number(random) >> 2, number(random) >> 2);
            encode_block(&ID, place, BlockKind::Events, writing.parts()).unwrap_or_default()
        },
        repair: |bytes| {
            let sum = crc32c::crc32c_append(crc32c::crc32c(&ID), bytes.get(4..).unwrap_or(&[]));
            if let Some(slot) = bytes.get_mut(..4) {
                slot.copy_from_slice(&sum.to_le_bytes());
            }
        },
        run: run_block,
    },
    // Damage to a compressed payload rarely reaches the events behind it.
    Target {
        name: "trace-events",
        part: Category::Decoders,
        covers: &["trace::decode"],
        make: |random| {
            let writing = make_events(random);
            let (count, payload) = writing.parts();
            [&count.to_le_bytes()[..], payload].concat()
        },
        repair: |_| {},
        run: |bytes| {
            let Some((count, payload)) = bytes.split_first_chunk() else { return false };
            run_events(payload, u32::from_le_bytes(*count))
        },
    },
];

fn shown(random: &mut Rng) -> Shown {
    Shown {
        node: random.u64(..9),
        kind: random.u8(..7),
        mode: number32(random),
        uid: number32(random),
        gid: number32(random),
        size: number(random),
    }
}

/// Events on few inodes and names, so that they meet.
fn make_events(random: &mut Rng) -> Writing {
    let names: Vec<Vec<u8>> = (0..4).map(|_| name(random, 3)).collect();
    let mut writing = Writing::default();
    // Most are valid: damage to them then reaches everything.
    let has_any_bytes = random.u8(..20) == 0;
    for _ in 0..random.usize(1..20) {
        let call = Call::ALL[random.usize(..Call::ALL.len())];
        let done = random.u8(..4) > 0;
        let ended = if done { Ended::Done } else { Ended::ALL[random.usize(..Ended::ALL.len())] };
        let pick = |random: &mut Rng| names[random.usize(..names.len())].as_slice();
        let mut event = Event { ended, ..Event::new(call) };
        (event.at, event.took) = (number(random), number(random));
        (event.uid, event.gid, event.pid) = (number32(random), number32(random), random.u32(..3));
        (event.node, event.other) = (random.u64(..9), random.u64(..9));
        (event.name, event.other_name) = (pick(random), pick(random));
        (event.offset, event.length) = (number(random), number(random));
        (event.how, event.mode) = (number32(random), number32(random));
        (event.atime, event.mtime) = (signed(random), signed(random));
        (event.returned, event.found) = (number(random), shown(random));
        for _ in 0..random.usize(..3) {
            let (name, shown) = (pick(random), shown(random));
            event.entries.push(Listed { name, shown, with_attributes: random.bool() });
        }
        let mut fields = Vec::new();
        event.put_fields(&mut fields);
        if has_any_bytes && random.u8(..4) == 0 {
            fields = bytes(random, 30);
        }
        writing.push(&event, &fields);
    }
    writing
}

fn run_block(bytes: &[u8]) -> bool {
    let Ok(head) = BlockHead::decode(bytes) else { return false };
    let Ok(payload) = head.open(&ID, bytes) else { return false };
    assert!(bytes.len() >= BLOCK_BYTES && payload.len() == head.payload as usize);
    run_events(&payload, head.events)
}

/// Takes all events as the verbs do. What was read is read again.
fn run_events(payload: &[u8], count: u32) -> bool {
    let (mut expected, mut names) = (Expected::default(), Names::default());
    let mut anonymiser = Anonymiser::new([1; 16], Keep { lengths: true, extensions: true });
    let mut summary = Summary::within(1 << 20);
    let mut writing = Writing::default();
    let mut events = Vec::new();
    for event in Events::new(payload, count) {
        let Ok(event) = event else { return false };
        expected.add(&event);
        seen(Claims::of(&event, &names));
        names.apply(&event);
        summary.add(&event);
        anonymiser.event(&event, |event| seen(event.name.len()));
        let text = trace::json::of_event(&event).to_string();
        let line = trace::json::Line::parse(1, &text).expect("JSON that was written");
        assert_eq!(line.event().expect("an event that was written"), event);
        let mut fields = Vec::new();
        event.put_fields(&mut fields);
        writing.push(&event, &fields);
        events.push(event);
    }
    let (count, payload) = writing.parts();
    let second: Vec<_> = Events::new(payload, count).collect::<Result<_, _>>().expect("again");
    assert_eq!(events, second);
    seen(events.iter().any(|event| event.call.fields().has(CallField::Found)));
    true
}
