//! Streams of snapshots, and the record of what was received.

use fastrand::Rng;
use format::received_record::ReceivedRecord;
use format::stream::{self, Attributes, FRAME_HEAD_BYTES, Head, NewKind, Origin, Record};

use super::{again, put_sum};
use crate::random::{bytes, name, number, signed};
use crate::target::{Category, Target, no_checksum};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "stream-preamble",
        part: Category::Decoders,
        covers: &["stream::LAYOUT", "stream::decode_preamble"],
        make: |_| stream::preamble().to_vec(),
        repair: no_checksum,
        run: |bytes| stream::decode_preamble(bytes).is_ok(),
    },
    Target {
        name: "stream-frame",
        part: Category::Decoders,
        covers: &[
            "stream::FRAME_LAYOUT",
            "stream::HEAD_LAYOUT",
            "stream::ORIGIN_LAYOUT",
            "stream::ATTR_LAYOUT",
            "stream::END_LAYOUT",
            "stream::decode_frame",
            "stream::decode",
        ],
        make: make_frame,
        repair: repair_frame,
        run: run_frame,
    },
    Target {
        name: "received-record",
        part: Category::Decoders,
        covers: &["received_record::LAYOUT", "received_record::decode"],
        make: |random| {
            let (is_complete, applied) = (random.bool(), number(random));
            ReceivedRecord { is_complete, applied, origins: origins(random) }.encode()
        },
        repair: no_checksum,
        run: |bytes| {
            let Ok(record) = ReceivedRecord::decode(bytes) else { return false };
            again(&record, &record.encode(), ReceivedRecord::decode);
            true
        },
    },
];

fn origins(random: &mut Rng) -> Vec<Origin> {
    (0..random.usize(..4))
        .map(|_| Origin { volume: [random.u8(..); 16], snapshot: number(random) })
        .collect()
}

fn make_frame(random: &mut Rng) -> Vec<u8> {
    let (path, other) = (name(random, 60), name(random, 60));
    let (path, other) = (&path[..], &other[..]);
    let (number, flag) = (number(random), random.bool());
    let contents = bytes(random, 300);
    let record = match random.u8(..13) {
        0 => Record::Head(Head {
            created: signed(random),
            skipped: number,
            bytes: random.u64(..),
            changes: random.u64(..),
            name: path,
            origins: origins(random),
            bases: origins(random),
        }),
        1 => Record::Remove { path, is_directory: flag },
        2 => Record::Park { path, number, keeps_name: flag },
        3 => Record::Place { path, number, keeps_parked: flag },
        4 => {
            let kinds = [NewKind::File, NewKind::Directory, NewKind::Symlink, NewKind::BlockDevice];
            let kind = kinds[random.usize(..4)];
            Record::Make { path, kind, device: random.u32(..), target: other }
        }
        5 => Record::Open { path },
        6 => Record::Data { offset: number, bytes: &contents },
        7 => Record::Hole { offset: number, length: random.u64(..) },
        8 => Record::Size { size: number },
        9 => Record::Link { path, target: other },
        10 => {
            let attributes = Attributes {
                mode: random.u32(..0o10000),
                uid: random.u32(..),
                gid: random.u32(..),
                atime: signed(random),
                mtime: signed(random),
                ctime: signed(random),
                btime: signed(random),
                xattrs: if flag { vec![(other, &contents)] } else { Vec::new() },
            };
            Record::Attr { path, attributes }
        }
        11 => Record::Resume { path },
        _ => Record::End { records: number, bytes: random.u64(..), digest: [random.u8(..); 16] },
    };
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

/// Gives the frame its length and its checksum.
fn repair_frame(bytes: &mut [u8]) {
    let Some(length) = bytes.len().checked_sub(FRAME_HEAD_BYTES) else { return };
    if let Some(slot) = bytes.get_mut(..4) {
        slot.copy_from_slice(&(length as u32).to_le_bytes());
    }
    put_sum(bytes, 4, &[(0, 4), (8, usize::MAX)]);
}

fn run_frame(bytes: &[u8]) -> bool {
    let Ok(Some((record, length))) = stream::decode_frame(bytes) else { return false };
    assert!(length <= bytes.len(), "more than there is");
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    let again = stream::decode_frame(&encoded).expect("it was encoded just now");
    assert_eq!(again, Some((record, encoded.len())), "read once more it is something else");
    true
}
