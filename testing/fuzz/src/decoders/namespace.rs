//! Keys and records of a subvolume's tree.

use fastrand::Rng;
use format::Reader;
use format::acl::Acl;
use format::candidate::CandidateKind;
use format::directory_record::{DirectoryElsewhere, DirectoryRecord};
use format::entry_record::{EntryHead, EntryRecord, Target as Leads};
use format::extent::{self, Checksums, Extent, STORED_BYTES_MAX, Stored};
use format::inode_record::{Elsewhere, FileKind, InodeRecord, LinkedRecord};
use format::key::{self, Part as Record};
use format::owner_quota::Owner;
use format::quota::Charge;
use format::retention;
use format::xattr_record::XattrRecord;

use super::again;
use crate::random::{bytes, name, number, number32, signed};
use crate::target::{Category, Target, no_checksum, seen};

pub(super) const TARGETS: &[Target] = &[
    Target {
        name: "key",
        part: Category::Decoders,
        covers: &[
            "key::ENTRY_LAYOUT",
            "key::parse",
            "key::parse_number",
            "retention::parse_hold",
            "key::parse_orphan",
            "key::parse_owner",
            "key::parse_owner_charges",
            "key::parse_quota",
            "retention::parse_schedule",
            "key::parse_snapshot_name",
            "key::parse_trash",
        ],
        make: make_key,
        repair: no_checksum,
        run: run_key,
    },
    Target {
        name: "entry-record",
        part: Category::Decoders,
        covers: &["entry_record::LAYOUT", "entry_record::decode", "entry_record::target"],
        make: make_entry,
        repair: no_checksum,
        run: run_entry,
    },
    Target {
        name: "inode-record",
        part: Category::Decoders,
        covers: &["inode_record::LAYOUT", "inode_record::LINKED_LAYOUT", "inode_record::decode"],
        make: make_linked,
        repair: no_checksum,
        run: run_linked,
    },
    Target {
        name: "directory-record",
        part: Category::Decoders,
        covers: &[
            "directory_record::LAYOUT",
            "directory_record::ELSEWHERE_LAYOUT",
            "directory_record::CHARGE_LAYOUT",
            "directory_record::decode",
        ],
        make: make_directory,
        repair: no_checksum,
        run: |bytes| {
            let Ok(record) = DirectoryRecord::decode(bytes) else { return false };
            again(&record, &record.encode(), DirectoryRecord::decode);
            true
        },
    },
    Target {
        name: "extent",
        part: Category::Decoders,
        covers: &["extent::LAYOUT", "extent::decode"],
        make: make_extent,
        repair: no_checksum,
        run: run_extent,
    },
    Target {
        name: "access-control-list",
        part: Category::Decoders,
        covers: &["acl::LAYOUT", "acl::decode"],
        make: make_acl,
        repair: no_checksum,
        run: run_acl,
    },
    Target {
        name: "xattr-record",
        part: Category::Decoders,
        covers: &["xattr_record::LAYOUT", "xattr_record::decode", "xattr_record::each"],
        make: make_xattrs,
        repair: no_checksum,
        run: run_xattrs,
    },
];

fn make_key(random: &mut Rng) -> Vec<u8> {
    let (a, b, c) = (ino(random), number(random), number(random));
    let record = [Record::Attributes, Record::Bulk, Record::Xattrs][random.usize(..3)];
    let owner = if random.bool() { Owner::User(b as u32) } else { Owner::Group(b as u32) };
    match random.u8(..14) {
        0 => key::entry(a, b, record).to_vec(),
        1 => key::linked(a, record).to_vec(),
        2 => key::back_reference(a, b, c).to_vec(),
        3 => key::extent(a, b).to_vec(),
        4 => key::subvolume(a).to_vec(),
        5 => key::snapshot_name(a, b, &name(random, 60)),
        6 => key::orphan(a & 0xfffff, ino(random)).to_vec(),
        7 => key::quota_charges(a, b).to_vec(),
        8 => key::owner_limits(owner).to_vec(),
        9 => key::owner_charges(a, owner).to_vec(),
        10 => key::trash(a, b).to_vec(),
        11 => retention::schedule_key(a, b).to_vec(),
        12 => retention::hold_key(a, &name(random, 60)),
        _ => key::candidate(CandidateKind::Segment, a, b as u32).to_vec(),
    }
}

fn run_key(bytes: &[u8]) -> bool {
    let mut understood = key::parse(bytes).is_ok() | key::parse_number(bytes).is_ok();
    if let Ok((subvolume, ino)) = key::parse_orphan(bytes) {
        assert_eq!(key::orphan(subvolume, ino)[1..], bytes[1..], "another key");
        understood = true;
    }
    if let Ok((lineage, directory, name)) = key::parse_snapshot_name(bytes) {
        let again = key::snapshot_name(lineage, directory, name);
        assert_eq!(again[1..], bytes[1..], "another key");
        understood = true;
    }
    if let Ok((domain, subvolume)) = key::parse_quota(bytes) {
        let again = subvolume.map_or(key::quota(domain).to_vec(), |subvolume| {
            key::quota_charges(domain, subvolume).to_vec()
        });
        assert_eq!(again[1..], bytes[1..], "another key");
        understood = true;
    }
    if let Ok(Some(owner)) = key::parse_owner(bytes) {
        assert_eq!(key::owner_limits(owner)[1..], bytes[1..], "another key");
        understood = true;
    }
    if let Ok((subvolume, owner)) = key::parse_owner_charges(bytes) {
        assert_eq!(key::owner_charges(subvolume, owner)[1..], bytes[1..], "another key");
        understood = true;
    }
    if let Ok((lineage, directory)) = key::parse_trash(bytes) {
        assert_eq!(key::trash(lineage, directory)[1..], bytes[1..], "another key");
        understood = true;
    }
    if let Ok((lineage, directory)) = retention::parse_schedule(bytes) {
        assert_eq!(retention::schedule_key(lineage, directory)[1..], bytes[1..], "another key");
        understood = true;
    }
    if let Ok((snapshot, name)) = retention::parse_hold(bytes) {
        assert_eq!(retention::hold_key(snapshot, name)[1..], bytes[1..], "another key");
        understood = true;
    }
    // The key of a candidate is only made.
    understood | (bytes.len() == 14)
}

/// The number of an inode: narrow, or of any home.
pub(super) fn ino(random: &mut Rng) -> u64 {
    let bound = if random.bool() { key::NARROW_INO_MAX } else { key::INO_MAX };
    number(random).min(bound)
}

fn kind(random: &mut Rng) -> FileKind {
    FileKind::decode(random.u8(1..=7)).expect("invariant: kinds are 1 to 7")
}

fn inode(random: &mut Rng, kind: FileKind) -> InodeRecord {
    let is_elsewhere = random.u8(..4) == 0;
    let has_extents = !is_elsewhere && random.bool();
    let ctime = signed(random);
    let time = |random: &mut Rng| if random.bool() { ctime } else { signed(random) };
    InodeRecord {
        kind,
        has_bulk: random.bool(),
        has_xattrs: random.bool(),
        has_extents,
        mode: random.u32(..=InodeRecord::MODE_MAX),
        uid: number32(random),
        gid: number32(random),
        rdev: if kind.is_device() { number32(random) } else { 0 },
        size: number(random) >> 1,
        allocated: if has_extents || is_elsewhere { number(random) } else { 0 },
        ctime,
        mtime: time(random),
        atime: time(random),
        btime: time(random),
        elsewhere: is_elsewhere
            .then(|| Elsewhere { device: number(random), number: number(random) }),
        charge: charge(random),
        charged_names: 0,
    }
}

fn charge(random: &mut Rng) -> Option<Charge> {
    random.bool().then(|| Charge { domain: number(random), subvolume: number(random) })
}

fn make_entry(random: &mut Rng) -> Vec<u8> {
    let name = name(random, 255);
    let target = match random.u8(..6) {
        0 => Leads::Tombstone,
        1 => Leads::Directory,
        2 => Leads::Subvolume(random.u64(..=key::SUBVOLUME_MAX)),
        3 => Leads::Linked(FileKind::File),
        _ => {
            let kind = match kind(random) {
                FileKind::Directory => FileKind::Symlink,
                kind => kind,
            };
            Leads::Embedded(inode(random, kind))
        }
    };
    let name: &[u8] = if target == Leads::Tombstone { b"" } else { &name };
    let mut out = Vec::new();
    EntryRecord { chained: random.bool(), ino: ino(random), name, target }.encode(&mut out);
    out
}

fn run_entry(bytes: &[u8]) -> bool {
    if let Ok(head) = EntryHead::decode(bytes) {
        seen(head.is_linked());
        seen(head.target());
    }
    let Ok(record) = EntryRecord::decode(bytes) else { return false };
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    again(&record, &encoded, EntryRecord::decode);
    true
}

fn make_linked(random: &mut Rng) -> Vec<u8> {
    let kind = match kind(random) {
        FileKind::Directory => FileKind::File,
        kind => kind,
    };
    let charged_names = if random.bool() { number32(random) } else { 0 };
    let inode = InodeRecord { charged_names, ..inode(random, kind) };
    let record = LinkedRecord { nlink: number32(random), inode };
    let mut out = Vec::new();
    record.encode(&mut out);
    out
}

fn run_linked(bytes: &[u8]) -> bool {
    if let Some((first, rest)) = bytes.split_first() {
        let kind = FileKind::decode(*first).unwrap_or(FileKind::BlockDevice);
        seen(InodeRecord::decode(kind, &mut Reader::new("inode", rest)));
    }
    let Ok(record) = LinkedRecord::decode(bytes) else { return false };
    seen(record.inode.charged_bytes());
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    again(&record, &encoded, LinkedRecord::decode);
    true
}

fn make_directory(random: &mut Rng) -> Vec<u8> {
    let entries = signed(random) & i64::MAX;
    let elsewhere = random.bool().then(|| DirectoryElsewhere {
        inode: Elsewhere { device: number(random), number: number(random) },
        size: number(random),
        allocated: number(random),
        nlink: number32(random),
    });
    let record = DirectoryRecord {
        entries,
        subdirectories: random.i64(0..=entries),
        mtime: signed(random),
        ctime: signed(random),
        atime: signed(random),
        btime: signed(random),
        parent: ino(random),
        parent_cookie: number(random),
        mode: random.u32(..=0o7777),
        uid: number32(random),
        gid: number32(random),
        has_xattrs: random.bool(),
        detached: random.bool(),
        elsewhere,
        charge: charge(random),
    };
    record.encode()
}

fn make_extent(random: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    if random.u8(..3) == 0 {
        extent::encode_inline(&mut out, &name(random, 500));
        return out;
    }
    let stored = random.u32(1..=STORED_BYTES_MAX);
    let skip = random.u32(..stored);
    let mut one = Stored {
        segment: number(random),
        page: random.u16(..),
        stored,
        skip,
        length: random.u32(1..=stored - skip),
        birth: number(random),
        reflinked: random.bool(),
        checksums: Checksums::empty(),
    };
    for _ in 0..one.chunk_count() {
        one.checksums.push(random.u32(..));
    }
    extent::encode_stored(&mut out, &one);
    out
}

fn run_extent(bytes: &[u8]) -> bool {
    let Ok(decoded) = extent::decode(bytes) else { return false };
    let mut encoded = Vec::new();
    match &decoded {
        Extent::Stored(stored) => {
            extent::encode_stored(&mut encoded, stored);
            let part = stored.part(stored.length / 2, stored.length - stored.length / 2);
            assert_eq!(part.view_end(), stored.view_end(), "a part that ends elsewhere");
            assert_eq!(part.checksums.as_slice().len() as u32, part.chunk_count(), "{part:?}");
        }
        Extent::Inline(bytes) => extent::encode_inline(&mut encoded, bytes),
    }
    again(&decoded, &encoded, extent::decode);
    true
}

fn make_acl(random: &mut Rng) -> Vec<u8> {
    let mut acl = Acl::of_mode(random.u32(..0o1000));
    if random.bool() {
        let names = |random: &mut Rng| -> Vec<(u32, u32)> {
            (0..random.usize(..4)).map(|_| (random.u32(..u32::MAX), random.u32(..8))).collect()
        };
        (acl.users, acl.groups) = (names(random), names(random));
        acl.mask = Some(random.u32(..8));
    }
    acl.encode()
}

fn run_acl(bytes: &[u8]) -> bool {
    let Ok(decoded) = Acl::decode(bytes) else { return false };
    if let Some(acl) = &decoded {
        let mut other = acl.clone();
        other.set_mode(acl.mode());
        assert_eq!(other.mode(), acl.mode(), "another mode");
        again(&decoded, &acl.encode(), Acl::decode);
    }
    true
}

fn make_xattrs(random: &mut Rng) -> Vec<u8> {
    let mut record = XattrRecord::default();
    for _ in 0..random.usize(..6) {
        record.set(&name(random, 30), &bytes(random, 200));
    }
    record.encode()
}

fn run_xattrs(bytes: &[u8]) -> bool {
    let Ok(mut record) = XattrRecord::decode(bytes) else { return false };
    again(&record, &record.encode(), XattrRecord::decode);
    let names: Vec<Vec<u8>> = record.iter().map(|(name, _)| name.to_vec()).collect();
    for name in &names {
        assert!(record.get(name).is_some() && record.remove(name), "a name that is not found");
    }
    assert!(record.is_empty(), "a name that was never there");
    true
}
