//! Arbitrary bytes, and messages with flipped bits, decode to something or to an error.

use wire::{
    Body, Bytes, Call, Hello, Item, Items, ListEntry, Reply, Request, Welcome, decode, encode,
    read_frame,
};

const ROUNDS: u64 = 20_000;

/// The seed of a run, printed: `PANDO_TEST_SEED` repeats one.
#[expect(clippy::print_stdout, reason = "a run prints its seed")]
fn seed() -> u64 {
    let given = std::env::var("PANDO_TEST_SEED").ok();
    let given = given.map(|seed| seed.parse().expect("PANDO_TEST_SEED is a number"));
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("PANDO_TEST_SEED={seed}");
    seed
}

fn decode_as_everything(bytes: &[u8]) {
    drop(decode::<Request<'_>>(bytes));
    drop(decode::<Reply>(bytes));
    drop(decode::<Hello>(bytes));
    drop(decode::<Welcome>(bytes));
    let mut rest = bytes;
    while let Some(item) = Items::next(&mut rest) {
        drop(item);
    }
    drop(decode::<Vec<ListEntry>>(bytes));
    let mut buffer = Vec::new();
    drop(read_frame(&mut std::io::Cursor::new(bytes), &mut buffer));
}

#[test]
fn arbitrary_bytes_never_panic() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = Vec::new();
    for _ in 0..ROUNDS {
        bytes.clear();
        let length = random.usize(..200);
        // Small numbers reach deeper: they are what tags and lengths look like.
        let small = random.bool();
        bytes.extend((0..length).map(|_| if small { random.u8(..24) } else { random.u8(..) }));
        decode_as_everything(&bytes);
    }
}

#[test]
fn damaged_messages_never_panic() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut items = Items::default();
    items.push(&Item::Begin { name: b"name" });
    items.push(&Item::Data { offset: 9, bytes: b"bytes" });
    let request = Request { id: 1, call: Call::Import { items: items.as_bytes() } };
    let reply =
        Reply { id: 3, body: Body::Entries { directory: Bytes(vec![1]), entries: Vec::new() } };
    let mut messages = [Vec::new(), Vec::new()];
    encode(&request, &mut messages[0]);
    encode(&reply, &mut messages[1]);
    for _ in 0..ROUNDS {
        let mut bytes = messages[random.usize(..messages.len())].clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 << random.u32(..8);
        }
        bytes.truncate(random.usize(..=bytes.len()));
        decode_as_everything(&bytes);
    }
}
