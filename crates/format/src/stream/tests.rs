//! Tests of the encoding of streams.

use super::*;

fn samples() -> Vec<Record<'static>> {
    let origin = Origin { volume: [7; 16], snapshot: 300 };
    let attributes = Attributes {
        mode: 0o4755,
        uid: 1,
        gid: 2,
        atime: -3,
        mtime: 4,
        ctime: 5,
        btime: 6,
        xattrs: vec![(b"user.a", b""), (b"user.b", b"value")],
    };
    vec![
        Record::Head(Head {
            created: -1,
            skipped: 3,
            bytes: 4,
            changes: 5,
            name: b"monday",
            origins: vec![origin],
            bases: vec![origin, Origin { snapshot: 1, ..origin }],
        }),
        Record::Remove { path: b"a/b", is_directory: true },
        Record::Park { path: b"a", number: 9, keeps_name: true },
        Record::Place { path: b"", number: 9, keeps_parked: false },
        Record::Make { path: b"l", kind: NewKind::Symlink, device: 0, target: b"to" },
        Record::Open { path: b"\xff\n" },
        Record::Data { offset: 1 << 40, bytes: &[1; 300] },
        Record::Hole { offset: 5, length: u64::MAX },
        Record::Size { size: 7 },
        Record::Link { path: b"new", target: b"old" },
        Record::Attr { path: b"x", attributes },
        Record::Resume { path: b"x" },
        Record::End { records: 1, bytes: 2, digest: [3; 16] },
    ]
}

#[test]
fn records_round_trip_and_no_part_of_a_frame_is_one() {
    for record in samples() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let decoded = decode_frame(&bytes).expect("it was encoded");
        assert_eq!(decoded, Some((record.clone(), bytes.len())), "{record:?}");
        for length in 0..bytes.len() {
            assert_eq!(decode_frame(&bytes[..length]), Ok(None), "{record:?}: {length} bytes");
        }
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let found = decode_frame(&other);
            assert!(!matches!(found, Ok(Some(_))), "{record:?}: bit {bit} is not checked");
        }
        let payload = &bytes[FRAME_HEAD_BYTES..];
        for length in 0..payload.len() {
            assert!(decode(bytes[8], &payload[..length]).is_err(), "{record:?}: {length}");
        }
    }
}

#[test]
fn a_preamble_of_another_version_is_refused_with_its_number() {
    decode_preamble(&preamble()).expect("it is this version's");
    let mut other = preamble();
    other[8] = 2;
    let refused = decode_preamble(&other).expect_err("it is another version's").to_string();
    assert!(refused.contains("version 2"), "{refused}");
    assert!(decode_preamble(b"#!/bin/sh\nls").is_err());
}
