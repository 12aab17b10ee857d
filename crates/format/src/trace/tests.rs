//! Round trips of random events, and every damage to a small trace.

#![expect(clippy::as_conversions, reason = "random numbers of any length")]

use super::*;

fn shown(random: &mut fastrand::Rng) -> Shown {
    Shown {
        node: random.u64(..) >> random.u32(..64),
        kind: random.u8(..7),
        mode: random.u32(..0o10000),
        uid: random.u32(..) >> random.u32(..32),
        gid: random.u32(..) >> random.u32(..32),
        size: random.u64(..) >> random.u32(..64),
    }
}

/// An event with something in each field that its call has.
fn event<'a>(random: &mut fastrand::Rng, names: &'a [Vec<u8>]) -> Event<'a> {
    let call = Call::ALL[random.usize(..Call::ALL.len())];
    let ended = Ended::ALL[random.usize(..Ended::ALL.len())];
    let fields = call.fields();
    let mut event = Event { ended, ..Event::new(call) };
    event.at = random.u64(..) >> random.u32(..64);
    event.took = random.u64(..) >> random.u32(..64);
    (event.uid, event.pid) = (random.u32(..3), random.u32(..3));
    event.gid = if random.bool() { UNKNOWN_CALLER } else { 5 };
    let number = |random: &mut fastrand::Rng, field| {
        if fields.has(field) { random.u64(..) >> random.u32(..64) } else { 0 }
    };
    event.node = number(random, CallField::Node);
    event.other = number(random, CallField::Other);
    event.offset = number(random, CallField::Offset);
    event.other_offset = number(random, CallField::OtherOffset);
    event.length = number(random, CallField::Length);
    event.mode = number(random, CallField::Mode) as u32;
    event.device = number(random, CallField::Device) as u32;
    event.how = number(random, CallField::How) as u32;
    event.new_uid = number(random, CallField::Uid) as u32;
    event.new_gid = number(random, CallField::Gid) as u32;
    event.atime = number(random, CallField::Atime) as i64;
    event.mtime = (number(random, CallField::Mtime) as i64).wrapping_neg();
    let pick = |random: &mut fastrand::Rng| names[random.usize(..names.len())].as_slice();
    if fields.has(CallField::Name) {
        event.name = pick(random);
    }
    if fields.has(CallField::OtherName) {
        event.other_name = pick(random);
    }
    if ended == Ended::Done {
        event.returned = number(random, CallField::Returned);
        if fields.has(CallField::Found) {
            event.found = shown(random);
        }
    }
    if fields.has(CallField::Entries) {
        for _ in 0..random.usize(..4) {
            let with_attributes = random.bool();
            let mut shown = shown(random);
            if !with_attributes {
                shown = Shown { node: shown.node, kind: shown.kind, ..Shown::default() };
            }
            event.entries.push(Listed { name: pick(random), shown, with_attributes });
        }
    }
    event
}

fn names(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    (0..8).map(|_| (0..random.usize(..20)).map(|_| random.u8(..)).collect()).collect()
}

const ID: [u8; 16] = [9; 16];

fn write(events: &[Event<'_>]) -> Writing {
    let mut writing = Writing::default();
    for event in events {
        let mut fields = Vec::new();
        event.put_fields(&mut fields);
        writing.push(event, &fields);
    }
    writing
}

/// Reads a block at the start of `bytes`.
fn read(bytes: &[u8]) -> Result<(BlockHead, Vec<u8>), Malformed> {
    let head = BlockHead::decode(bytes)?;
    let payload = head.open(&ID, bytes)?;
    Ok((head, payload))
}

#[test]
fn random_events_round_trip() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..300 {
        let names = names(&mut random);
        let count = random.usize(1..40);
        let events: Vec<_> = (0..count).map(|_| event(&mut random, &names)).collect();
        let writing = write(&events);
        let block = encode_block(&ID, (7, 3), BlockKind::Events, writing.parts()).unwrap();
        let (head, payload) = read(&block).unwrap();
        assert_eq!((head.number, head.dropped, head.events as usize), (7, 3, count));
        assert_eq!(payload, writing.parts().1);
        let again: Vec<_> = Events::new(&payload, head.events).collect::<Result<_, _>>().unwrap();
        assert_eq!(again, events);
    }
}

#[test]
fn header_round_trips_and_every_flipped_bit_is_found() {
    for bits in 0..8 {
        let header = Header {
            id: ID,
            started: -5,
            root: 1,
            anonymised: bits & 1 != 0,
            generated: bits & 2 != 0,
            opens: bits & 4 != 0,
        };
        let good = header.encode();
        assert_eq!(good.len(), HEADER_BYTES);
        assert_eq!(Header::decode(&good), Ok(Decoded::Header(header)));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(Header::decode(&good[..length]).is_err());
        }
    }
}

#[test]
fn every_flipped_bit_and_cut_of_a_block_is_found() {
    let mut random = fastrand::Rng::with_seed(3);
    let names = names(&mut random);
    let events: Vec<_> = (0..20).map(|_| event(&mut random, &names)).collect();
    let good = encode_block(&ID, (0, 0), BlockKind::Events, write(&events).parts()).unwrap();
    assert!(read(&good).is_ok());
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&bad).is_err(), "bit {bit}");
    }
    for length in 0..good.len() {
        assert!(read(&good[..length]).is_err(), "{length} bytes");
    }
    let other = encode_block(&[8; 16], (0, 0), BlockKind::Events, write(&events).parts()).unwrap();
    assert!(read(&other).is_err(), "the block of another trace");
}

#[test]
fn a_payload_with_more_or_fewer_events_than_stated_is_refused() {
    let mut random = fastrand::Rng::with_seed(4);
    let names = names(&mut random);
    let events: Vec<_> = (0..9).map(|_| event(&mut random, &names)).collect();
    let writing = write(&events);
    let (count, payload) = writing.parts();
    for stated in [1, count - 1, count + 1, u32::MAX] {
        assert!(Events::new(payload, stated).any(|event| event.is_err()), "{stated}");
    }
}

#[test]
fn numbers_are_those_of_the_list() {
    for (number, call) in Call::ALL.iter().enumerate() {
        assert_eq!((usize::from(call.number()), Call::of(number as u8)), (number, Some(*call)));
    }
    for (number, ended) in Ended::ALL.iter().enumerate() {
        assert_eq!((usize::from(ended.number()), Ended::of(number as u8)), (number, Some(*ended)));
    }
    assert_eq!(Call::of(Call::ALL.len() as u8), None);
}

#[test]
fn a_name_that_is_too_long_is_cut() {
    let long = vec![b'a'; NAME_BYTES_MAX + 5];
    let event = Event { other_name: &long, ..Event::new(Call::Readlink) };
    let writing = write(&[event]);
    let (count, payload) = writing.parts();
    let read = Events::new(payload, count).next().unwrap().unwrap();
    assert_eq!(read.other_name.len(), NAME_BYTES_MAX);
}
