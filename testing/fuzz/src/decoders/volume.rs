//! The volume's header, segments of contents, and the records of the volume's own tree.

use fastrand::Rng;
use format::base_record::BaseRecord;
use format::cluster_limits::ClusterLimitsRecord;
use format::detached_record::DetachedRecord;
use format::extent::CHUNK_BYTES;
use format::inherited_record::{Home, InheritedRecord};
use format::kept_twice::{Features, RootCounter};
use format::owner_quota::{OwnerLimits, OwnerState};
use format::quota::{Charged, QuotaRecord};
use format::retention::{HoldRecord, Keep, ScheduleRecord};
use format::scan_record::ScanRecord;
use format::segment::{MAP_BYTES, MAP_PAGE_BYTES, MARK_BYTES, Mark, MarkKind, PAGES_MAX, PageMap};
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use format::trash::TrashRecord;
use format::volume::{self, EngineKind, VolumeHeader};
use format::{candidate, key, usage};

use super::namespace::ino;
use super::{again, put_sum};
use crate::random::{bytes, id, name, number, signed};
use crate::target::{Category, Target, no_checksum};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "volume-header",
        part: Category::Decoders,
        covers: &["volume::LAYOUT", "volume::decode"],
        make: make_header,
        repair: |bytes| put_sum(bytes, 12, &[(16, usize::MAX)]),
        run: |bytes| {
            let Ok(header) = VolumeHeader::decode(bytes) else { return false };
            again(&header, &header.encode(), VolumeHeader::decode);
            true
        },
    },
    Target {
        name: "segment-mark",
        part: Category::Decoders,
        covers: &["segment::LAYOUT", "segment::decode"],
        make: make_mark,
        repair: |bytes| put_sum(bytes, MARK_BYTES - 4, &[(0, MARK_BYTES - 4)]),
        run: run_mark,
    },
    Target {
        name: "segment-map",
        part: Category::Decoders,
        covers: &["segment::decode"],
        make: make_map,
        repair: repair_map,
        run: run_map,
    },
    Target {
        name: "subvolume-record",
        part: Category::Decoders,
        covers: &[
            "subvolume_record::LAYOUT",
            "subvolume_record::USAGE_LAYOUT",
            "subvolume_record::decode",
        ],
        make: make_subvolume,
        repair: no_checksum,
        run: run_subvolume,
    },
    Target {
        name: "small-volume-records",
        part: Category::Decoders,
        covers: &[
            "base_record::LAYOUT",
            "base_record::decode",
            "candidate::LAYOUT",
            "candidate::decode",
            "detached_record::LAYOUT",
            "detached_record::INODES_LAYOUT",
            "detached_record::decode",
            "inherited_record::LAYOUT",
            "inherited_record::decode",
            "kept_twice::LAYOUT",
            "kept_twice::decode",
            "usage::LAYOUT",
            "usage::decode",
        ],
        make: make_small,
        repair: no_checksum,
        run: run_small,
    },
    Target {
        name: "quota",
        part: Category::Decoders,
        covers: &[
            "quota::LAYOUT",
            "quota::CHARGED_LAYOUT",
            "quota::decode",
            "quota::decode_change",
            "owner_quota::LAYOUT",
            "owner_quota::STATE_LAYOUT",
            "owner_quota::decode",
        ],
        make: make_quota,
        repair: no_checksum,
        run: run_quota,
    },
    Target {
        name: "trash",
        part: Category::Decoders,
        covers: &["trash::LAYOUT", "trash::decode"],
        make: |random| TrashRecord { keep_seconds: number(random) }.encode(),
        repair: no_checksum,
        run: |bytes| {
            let Ok(record) = TrashRecord::decode(bytes) else { return false };
            again(&record, &record.encode(), TrashRecord::decode);
            true
        },
    },
    Target {
        name: "schedule",
        part: Category::Decoders,
        covers: &["retention::LAYOUT", "retention::decode", "retention::HOLD_LAYOUT"],
        make: |random| {
            let mut count = || random.u16(..);
            let keep = Keep {
                hours: count(),
                days: count(),
                weeks: count(),
                months: count(),
                years: count(),
            };
            let (uid, gid, last) = (random.u32(..), random.u32(..), random.i64(..));
            let (cron, prefix) = ("0 * * * *".to_owned(), b"auto".to_vec());
            ScheduleRecord { uid, gid, last, keep, cron, prefix }.encode()
        },
        repair: no_checksum,
        run: |bytes| {
            if let Ok(hold) = HoldRecord::decode(bytes) {
                again(&hold, &hold.encode(), HoldRecord::decode);
            }
            let Ok(record) = ScheduleRecord::decode(bytes) else { return false };
            again(&record, &record.encode(), ScheduleRecord::decode);
            true
        },
    },
    Target {
        name: "cluster-limits",
        part: Category::Decoders,
        covers: &["cluster_limits::LAYOUT", "cluster_limits::decode"],
        make: |random| {
            let (directories, rows) = (random.u32(1..=1_000_000), random.u32(10..=1_000_000));
            ClusterLimitsRecord { directories, rows, since: number(random) }.encode()
        },
        repair: no_checksum,
        run: |bytes| {
            let Ok(record) = ClusterLimitsRecord::decode(bytes) else { return false };
            again(&record, &record.encode(), ClusterLimitsRecord::decode);
            true
        },
    },
    Target {
        name: "scan-record",
        part: Category::Decoders,
        covers: &["scan_record::LAYOUT", "scan_record::decode"],
        make: make_scan,
        repair: no_checksum,
        run: |bytes| {
            let Ok(record) = ScanRecord::decode(bytes) else { return false };
            again(&record, &record.encode(), ScanRecord::decode);
            true
        },
    },
];

fn make_header(random: &mut Rng) -> Vec<u8> {
    let header = VolumeHeader {
        volume_id: id(random),
        engine: if random.bool() { EngineKind::Btree } else { EngineKind::Lsm },
        hash_key: id(random),
        created: signed(random),
        snapshot_dir: name(random, 64),
        home: match random.u8(..3) {
            0 => volume::Home::Directory,
            1 => volume::Home::Objects,
            _ => volume::Home::Host("s3://bucket/".to_owned() + &"p".repeat(random.usize(..900))),
        },
        inode_home: if random.bool() { 0 } else { random.u16(..=key::INODE_HOME_MAX as u16) },
    };
    header.encode()
}

fn mark(random: &mut Rng, kind: MarkKind, pages: u32) -> Mark {
    Mark { kind, generation: random.u32(..), volume: id(random), segment: number(random), pages }
}

fn make_mark(random: &mut Rng) -> Vec<u8> {
    let kind = [MarkKind::Header, MarkKind::Footer, MarkKind::Rewritten][random.usize(..3)];
    let pages = random.u32(..=PAGES_MAX);
    let mut out = Vec::new();
    mark(random, kind, pages).encode(&mut out);
    out
}

fn run_mark(bytes: &[u8]) -> bool {
    let Ok(mark) = Mark::decode(bytes) else { return false };
    let mut encoded = Vec::new();
    mark.encode(&mut encoded);
    again(&mark, &encoded, Mark::decode);
    true
}

fn make_map(random: &mut Rng) -> Vec<u8> {
    let kept: Vec<bool> = (0..PAGES_MAX).map(|_| random.u8(..3) == 0).collect();
    let map = PageMap::new(&|page| kept.get(page as usize).copied().unwrap_or(false));
    map.encode(&mark(random, MarkKind::Rewritten, map.count()))
}

/// The mark stores how many pages the map keeps: that is corrected too.
fn repair_map(bytes: &mut [u8]) {
    if bytes.len() < MAP_PAGE_BYTES {
        return;
    }
    let bits = &bytes[MARK_BYTES..MARK_BYTES + MAP_BYTES];
    let count: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
    bytes[40..44].copy_from_slice(&count.to_le_bytes());
    put_sum(bytes, MARK_BYTES - 4, &[(0, MARK_BYTES - 4)]);
    let end = MARK_BYTES + MAP_BYTES;
    put_sum(bytes, end, &[(MARK_BYTES, end)]);
}

fn run_map(bytes: &[u8]) -> bool {
    let Ok((mark, map)) = PageMap::decode(bytes) else { return false };
    assert!(mark.pages <= PAGES_MAX, "more pages than a segment has");
    for page in [0, 1, PAGES_MAX - 1, PAGES_MAX, u32::MAX / CHUNK_BYTES, u32::MAX] {
        assert!(map.rank(page).is_none_or(|rank| rank < map.count()), "a rank above the count");
        let (_, length) = map.run(page, 40);
        assert!((1..=40).contains(&length), "a run of {length} pages");
    }
    true
}

fn make_subvolume(random: &mut Rng) -> Vec<u8> {
    if random.u8(..6) == 0 {
        let (files, bytes) = (signed(random), signed(random));
        return UsageRecord { files, bytes, counted: random.bool() }.encode();
    }
    let record = SubvolumeRecord {
        tree: number(random).max(key::FIRST_TREE),
        root: ino(random),
        lineage: number(random),
        parent: (number(random) & 0xfffff, ino(random), number(random)),
        source: (number(random) & 0xfffff, ino(random)),
        created: signed(random),
        last_clone_epoch: number(random),
        first_own_ino: number(random),
        read_only: random.bool(),
        snapshot: random.bool(),
        pruned: random.bool(),
        detached: random.bool(),
        index: random.bool(),
        inherits: random.bool(),
        name: bytes(random, 255),
        base: if random.bool() { 0 } else { number(random) },
        maker: if random.bool() { 0 } else { random.u32(..) },
    };
    record.encode()
}

fn run_subvolume(bytes: &[u8]) -> bool {
    let usage = UsageRecord::decode(bytes).inspect(|usage| {
        again(usage, &usage.encode(), UsageRecord::decode);
    });
    let Ok(record) = SubvolumeRecord::decode(bytes) else { return usage.is_ok() };
    // A base of 0 means no base, in any encoding.
    if record.base != 0 || record.encode().len() == bytes.len() {
        again(&record, &record.encode(), SubvolumeRecord::decode);
    }
    true
}

fn make_small(random: &mut Rng) -> Vec<u8> {
    match random.u8(..6) {
        0 => BaseRecord {
            complete: random.bool(),
            subvolume: number(random),
            root: number(random),
            commit: number(random),
            created: signed(random),
            rows: number(random),
        }
        .encode(),
        1 => candidate::encode(signed(random)),
        2 => {
            let (number, directory) = (number(random) & 0xfffff, ino(random));
            let record = match random.u8(..3) {
                0 => DetachedRecord::Directory {
                    subvolume: number,
                    directory,
                    kept_while_held: random.bool(),
                },
                1 => DetachedRecord::Subvolume { subvolume: number },
                _ => DetachedRecord::Tree { tree: number },
            };
            record.encode()
        }
        3 => {
            let home = |random: &mut Rng| Home {
                subvolume: (number(random) & 0xfffff).max(1),
                same_lineage: random.bool(),
            };
            let homes = (0..random.usize(1..4)).map(|_| home(random)).collect();
            InheritedRecord { homes }.encode()
        }
        4 => RootCounter {
            subvolume: number(random),
            copies: random.bool(),
            features: Features {
                makers: random.bool(),
                inheritance: random.bool(),
                wide_inodes: random.bool(),
                answers: random.bool(),
                unreached: random.bool(),
            },
        }
        .encode(),
        _ => (number(random) >> 1).to_le_bytes().to_vec(),
    }
}

fn run_small(bytes: &[u8]) -> bool {
    let mut understood = false;
    if let Ok(record) = BaseRecord::decode(bytes) {
        again(&record, &record.encode(), BaseRecord::decode);
        understood = true;
    }
    if let Ok(since) = candidate::decode(bytes) {
        again(&since, &candidate::encode(since), candidate::decode);
        understood = true;
    }
    if let Ok(record) = DetachedRecord::decode(bytes) {
        understood |= DetachedRecord::decode(&record.encode()).is_ok();
    }
    if let Ok(record) = InheritedRecord::decode(bytes) {
        again(&record, &record.encode(), InheritedRecord::decode);
        understood = true;
    }
    if let Ok(root) = RootCounter::decode(bytes) {
        again(&root, &root.encode(), RootCounter::decode);
        understood = true;
    }
    understood | usage::decode(bytes).is_ok_and(|pages| pages >= 0)
}

fn make_quota(random: &mut Rng) -> Vec<u8> {
    if random.bool() {
        let (files, bytes) = (signed(random) & i64::MAX, signed(random) & i64::MAX);
        return Charged { inodes: files, bytes }.encode();
    }
    if random.bool() {
        let limits = OwnerLimits { inodes_max: number(random), bytes_max: number(random) };
        return if random.bool() { limits.encode() } else { vec![random.u8(..4)] };
    }
    let record = QuotaRecord {
        subvolume: (number(random) & 0xf_ffff).max(1),
        directory: ino(random),
        inodes_max: number(random),
        bytes_max: number(random),
        adopting_from: random.bool().then(|| number(random)),
    };
    record.encode()
}

fn run_quota(bytes: &[u8]) -> bool {
    let mut understood = false;
    if let Ok(record) = QuotaRecord::decode(bytes) {
        again(&record, &record.encode(), QuotaRecord::decode);
        understood = true;
    }
    if let Ok(charged) = Charged::decode(bytes) {
        again(&charged, &charged.encode(), Charged::decode);
        understood = true;
    }
    if let Ok(change) = Charged::decode_change(bytes) {
        again(&change, &change.encode(), Charged::decode_change);
    }
    if let Ok(limits) = OwnerLimits::decode(bytes) {
        again(&limits, &limits.encode(), OwnerLimits::decode);
        understood = true;
    }
    // The kind and the number of an owner are checked with the keys.
    if let Ok(state) = OwnerState::decode(bytes) {
        again(&state, &state.encode(), OwnerState::decode);
        understood = true;
    }
    understood
}

fn make_scan(random: &mut Rng) -> Vec<u8> {
    let record = ScanRecord {
        pending: number(random),
        started: signed(random),
        ended: signed(random),
        unread: number(random),
        files: signed(random),
        subvolume: number(random),
        crosses_mounts: random.bool(),
        keeps_xattrs: random.bool(),
        hidden: random.bool(),
        source: bytes(random, 300),
    };
    record.encode()
}
