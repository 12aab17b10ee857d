//! Clusters against a plain list of rows.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use format::cluster::{ColumnId, Decoded, Extent, HEADER_BYTES, Head, Stored};
use format::cluster_numbers;
use format::inode_record::FileKind;
use format::xattr_record::XattrRecord;
use inode::NameHash;

use super::*;
use crate::{Attribute, Condition, Error, Row, RowBuf, Searchable};

mod attributes;

fn hash() -> NameHash {
    NameHash::new([9; 16])
}

/// Values: some are empty, some long, and some differ only after eight bytes.
fn random_value(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(..9) {
        0 => Vec::new(),
        1 => vec![b'x'; 256],
        2 => [&[b'x'; 255][..], b"y"].concat(),
        3..6 => format!("12345678{}", random.u8(..4)).into_bytes(),
        _ => vec![random.u8(b'a'..b'e')],
    }
}

fn random_row(random: &mut fastrand::Rng, n: u64) -> RowBuf {
    let extensions = ["c", "H", "txt", "h5", "tar.gz", ""];
    let mut name = format!("file{}", random.u32(..500));
    if random.bool() {
        name = format!("{name}.{}", extensions[random.usize(..extensions.len())]);
    }
    let time = |random: &mut fastrand::Rng| match random.u8(..4) {
        0 => random.i64(..),
        1 => 1_700_000_000_000_000_000,
        _ => 1_700_000_000_000_000_000 + random.i64(-1 << 50..1 << 50),
    };
    let mtime = time(random);
    let other = |random: &mut fastrand::Rng| if random.bool() { mtime } else { time(random) };
    let mut xattrs = XattrRecord::default();
    if random.u8(..8) == 0 {
        xattrs.set(b"user.kind", &random_value(random));
        xattrs.set(b"user.z", b"");
    }
    if random.u8(..50) == 0 {
        xattrs.set(b"user.rare", n.to_string().as_bytes());
    }
    let bits = random.u32(1..40);
    let size = random.u64(..1 << bits);
    let collision = u64::from(random.u8(..) / 250);
    let row = Row {
        directory: 1 + random.u64(..40),
        cookie: hash().hash(name.as_bytes()) << 8 | collision,
        ino: 1000 + n,
        name: name.as_bytes(),
        kind: [FileKind::File, FileKind::Directory, FileKind::Symlink][random.usize(..3)],
        mode: [0o644, 0o755, 0o600][random.usize(..3)],
        uid: random.u32(..5) * 1000,
        gid: 100,
        nlink: 1 + random.u32(..2),
        rdev: 0,
        size,
        allocated: size.next_multiple_of(4096) + if random.u8(..9) == 0 { 512 } else { 0 },
        entries: random.u64(..3),
        atime: other(random),
        mtime,
        ctime: other(random),
        btime: other(random),
        subvolume: random.u64(..50) / 49,
        xattrs: &xattrs.encode(),
    };
    row.to_buf()
}

fn value(row: &Row<'_>, attribute: Attribute) -> i128 {
    match attribute {
        Attribute::Ino => row.ino.into(),
        Attribute::Directory => row.directory.into(),
        Attribute::Kind => row.kind.byte().into(),
        Attribute::Mode => row.mode.into(),
        Attribute::Uid => row.uid.into(),
        Attribute::Gid => row.gid.into(),
        Attribute::Links => row.nlink.into(),
        Attribute::Size => row.size.into(),
        Attribute::Allocated => row.allocated.into(),
        Attribute::Atime => row.atime.into(),
        Attribute::Mtime => row.mtime.into(),
        Attribute::Ctime => row.ctime.into(),
        Attribute::Btime => row.btime.into(),
    }
}

fn meets(row: &Row<'_>, condition: &Condition) -> bool {
    match condition {
        Condition::Within(attribute, least, greatest) => {
            (*least..=*greatest).contains(&value(row, *attribute))
        }
        Condition::OneOf(attribute, values) => values.contains(&value(row, *attribute)),
        Condition::Name(name) => row.name == name,
        Condition::NameContains(part) => row.name.windows(part.len()).any(|three| three == part),
        Condition::NameEnds(end) => row.name.ends_with(end),
        Condition::NameStarts(start) => row.name.starts_with(start),
        Condition::Xattr(name, wanted) => {
            let record = XattrRecord::decode(row.xattrs).unwrap();
            let value = record.get(name);
            value.is_some() && wanted.as_ref().is_none_or(|wanted| value == Some(wanted))
        }
        Condition::Near(..) => panic!("it is not drawn at random"),
    }
}

fn random_condition(random: &mut fastrand::Rng, rows: &[RowBuf]) -> Condition {
    let row = rows[random.usize(..rows.len())].as_row();
    let attribute = Attribute::ALL[random.usize(..Attribute::ALL.len())];
    let here = value(&row, attribute);
    let name = row.name;
    let from = random.usize(..name.len());
    let to = random.usize(from + 1..=name.len());
    let span = 1 << random.u32(1..62);
    match random.u8(..10) {
        0 => Condition::Within(attribute, here, i128::MAX),
        1 => Condition::Within(attribute, i128::MIN, here - 1),
        2 => Condition::Within(attribute, here, here + random.i128(0..span)),
        3 => Condition::OneOf(attribute, vec![here]),
        4 => {
            let mut values = vec![here, here + 1, value(&rows[0].as_row(), attribute)];
            values.sort_unstable();
            Condition::OneOf(attribute, values)
        }
        5 => Condition::Name(name.to_vec()),
        6 => Condition::NameContains(name[from..to].to_vec()),
        7 => Condition::NameEnds(name[from..].to_vec()),
        8 => Condition::NameStarts(name[..to].to_vec()),
        _ => {
            let value = random_value(random);
            match random.u8(..6) {
                0 => Condition::Xattr(b"user.kind".to_vec(), None),
                1 => Condition::Xattr(b"user.rare".to_vec(), None),
                2 => {
                    let number = random.usize(..rows.len()).to_string().into_bytes();
                    Condition::Xattr(b"user.rare".to_vec(), Some(number))
                }
                3 => Condition::Xattr(b"user.none".to_vec(), random.bool().then_some(value)),
                _ => Condition::Xattr(b"user.kind".to_vec(), Some(value)),
            }
        }
    }
}

const CARRIED: [&[u8]; 4] = [b"user.kind", b"user.none", b"user.rare", b"user.z"];

/// The same cluster as written before attributes had columns: each row has a record.
fn as_before(bytes: &[u8], rows: &[RowBuf]) -> Vec<u8> {
    let cluster = Cluster::open(Arc::new(bytes.to_vec()), hash()).unwrap();
    let access = cluster.rows(Fields::ATTRIBUTES).unwrap();
    let (mut lengths, mut records) = (Vec::new(), Vec::new());
    for at in 0..access.len() {
        let row = &rows[(access.get(at).ino - 1000) as usize];
        lengths.push(row.as_row().xattrs.len() as u64);
        records.extend_from_slice(row.as_row().xattrs);
    }
    let length = head_bytes(bytes);
    let mut head = Head::decode(&bytes[..length]).unwrap();
    let mut body = bytes[length..].to_vec();
    let mut numbers = Vec::new();
    cluster_numbers::encode(&mut numbers, &lengths, head.block_rows);
    let mut put = |bytes: &[u8]| {
        let (offset, size) = ((length + body.len()) as u64, bytes.len() as u32);
        body.extend_from_slice(bytes);
        Extent { offset, length: size, raw: size, checksum: crc32c::crc32c(bytes) }
    };
    let more = [
        (ColumnId::XattrLengths, Stored::Numbers(put(&numbers))),
        (ColumnId::Xattrs, Stored::Bytes(put(&records))),
    ];
    let tags = head.columns.pop().unwrap();
    assert_eq!(tags.0, ColumnId::NameTags);
    head.columns.extend(more);
    head.columns.push(tags);
    head.attributes.clear();
    let moved = Head::length(head.columns.len(), head.summary.len());
    for (_, stored) in &mut head.columns {
        if let Some(extent) = extent_of(stored) {
            extent.offset = extent.offset + moved as u64 - length as u64;
        }
    }
    head.bytes = (moved + body.len()) as u64;
    [head.encode(), body].concat()
}

fn extent_of(stored: &mut Stored) -> Option<&mut Extent> {
    match stored {
        Stored::Numbers(extent)
        | Stored::Difference(extent)
        | Stored::RoundedDifference(extent)
        | Stored::Packed(extent)
        | Stored::Bytes(extent) => Some(extent),
        Stored::Constant(_) => None,
    }
}

/// A row as clusters return it: without extended attributes.
fn bare(row: &RowBuf) -> RowBuf {
    Row { xattrs: b"", ..row.as_row() }.to_buf()
}

fn build(rows: &[RowBuf], block_rows: u16) -> Built {
    let mut options = ClusterOptions::new(hash());
    options.block_rows = block_rows;
    let carried = CARRIED.map(<[u8]>::to_vec);
    let mut builder = ClusterBuilder::new(options).carrying(&Searchable::new(carried.to_vec()));
    for row in rows {
        builder.push(&row.as_row());
    }
    assert_eq!(builder.len() as usize, rows.len());
    builder.finish()
}

fn open(built: Built) -> Cluster {
    let cluster = Cluster::open(Arc::new(built.bytes), hash()).unwrap();
    assert_eq!(*cluster.summary(), built.summary);
    cluster
}

fn found(cluster: &Cluster, narrow: &[Condition]) -> Result<Vec<RowBuf>, Error> {
    let rows = cluster.rows(Fields::ATTRIBUTES)?;
    let mut found = Vec::new();
    let flow = cluster.search(narrow, &mut |row| {
        found.push(rows.get(row).to_buf());
        ControlFlow::Continue(())
    })?;
    assert!(flow.is_continue());
    if !narrow
        .iter()
        .any(|condition| matches!(condition, Condition::Xattr(..) | Condition::Near(..)))
    {
        let counted = cluster.count_passing(narrow, &Sieve::yes(), &AtomicBool::new(false))?;
        assert_eq!(counted, found.len() as u64, "{narrow:?}");
    }
    if cluster.summary().all_match(narrow) {
        assert_eq!(found.len(), rows.len() as usize, "{narrow:?}");
    }
    Ok(found)
}

fn sorted(mut rows: Vec<RowBuf>) -> Vec<RowBuf> {
    rows.sort_by_key(|row| row.as_row().ino);
    rows
}

#[test]
fn all_rows_round_trip() {
    let mut random = fastrand::Rng::with_seed(41);
    for (count, block_rows) in [(1, 16), (2, 256), (17, 16), (512, 512), (3000, 100)] {
        let rows: Vec<RowBuf> = (0..count).map(|n| random_row(&mut random, n)).collect();
        let cluster = open(build(&rows, block_rows));
        assert_eq!(u64::from(cluster.len()), count);
        let bare: Vec<RowBuf> = rows.iter().map(bare).collect();
        assert_eq!(sorted(found(&cluster, &[]).unwrap()), bare);
        assert_eq!(cluster.summary().rows(), count);
        let directories = rows.iter().filter(|row| row.as_row().kind == FileKind::Directory);
        assert_eq!(cluster.summary().directories(), directories.count() as u64);
        assert_eq!(cluster.summary().size(), rows.iter().map(|row| row.as_row().size).sum());
    }
}

#[test]
fn random_searches_agree_with_a_list() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..12 {
        let count = random.u64(1..4000);
        let rows: Vec<RowBuf> = (0..count).map(|n| random_row(&mut random, n)).collect();
        let block_rows = random.u16(16..=512);
        let mut built = build(&rows, block_rows);
        if random.u8(..3) == 0 {
            built.bytes = as_before(&built.bytes, &rows);
        }
        let cluster = open(built);
        for _ in 0..150 {
            let conditions = random.usize(1..4);
            let narrow: Vec<Condition> =
                (0..conditions).map(|_| random_condition(&mut random, &rows)).collect();
            let matches = |row: &&RowBuf| narrow.iter().all(|c| meets(&row.as_row(), c));
            let expected: Vec<RowBuf> = rows.iter().filter(matches).map(bare).collect();
            assert_eq!(sorted(found(&cluster, &narrow).unwrap()), expected, "{narrow:?}");
            assert!(expected.is_empty() || cluster.summary().may_match(&narrow));
            if random.u8(..20) == 0 {
                let held = cluster.memory_bytes();
                cluster.release();
                assert!(cluster.memory_bytes() < held);
            }
        }
    }
}

#[test]
fn a_search_can_be_cancelled() {
    let mut random = fastrand::Rng::with_seed(43);
    let rows: Vec<RowBuf> = (0..1000).map(|n| random_row(&mut random, n)).collect();
    let cluster = open(build(&rows, 64));
    let mut seen = 0;
    let flow = cluster.search(&[], &mut |_| {
        seen += 1;
        if seen == 77 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(flow.unwrap().is_break());
    assert_eq!(seen, 77);
}

#[test]
fn summaries_skip_absent_values() {
    let mut random = fastrand::Rng::with_seed(44);
    let rows: Vec<RowBuf> = (0..2000).map(|n| random_row(&mut random, n)).collect();
    let cluster = open(build(&rows, 256));
    let skips = |condition| !cluster.summary().may_match(&[condition]);
    assert!(skips(Condition::Name(b"no such name".to_vec())));
    assert!(skips(Condition::NameEnds(b".docx".to_vec())));
    assert!(skips(Condition::NameContains(b"xyzzy".to_vec())));
    assert!(skips(Condition::Xattr(b"user.none".to_vec(), None)));
    assert!(!skips(Condition::Xattr(b"user.elsewhere".to_vec(), None)));
    let elsewhere = Condition::Xattr(b"user.elsewhere".to_vec(), Some(b"a".to_vec()));
    assert_eq!(found(&cluster, &[elsewhere]).unwrap().len(), 2000, "nobody knows");
    assert!(skips(Condition::OneOf(Attribute::Uid, vec![77, 999])));
    assert!(skips(Condition::Within(Attribute::Uid, 1, 60)));
    assert!(skips(Condition::Within(Attribute::Ino, 0, 999)));
    assert!(skips(Condition::Within(Attribute::Size, 1 << 60, i128::MAX)));
    assert!(!skips(Condition::Within(Attribute::Uid, 0, 5000)));
}

#[test]
fn size_and_time_ranges_skip_blocks_that_bounds_cannot() {
    let mut random = fastrand::Rng::with_seed(45);
    let mut rows: Vec<RowBuf> = Vec::new();
    for n in 0..2000 {
        let row = random_row(&mut random, n);
        let year = 365 * 86_400 * 1_000_000_000_i64;
        let mtime = if n % 2 == 0 { 0 } else { 50 * year } + random.i64(0..year / 12);
        let size = if n % 2 == 0 { 10 } else { 1 << 30 };
        rows.push(Row { size, mtime, ..row.as_row() }.to_buf());
    }
    let cluster = open(build(&rows, 256));
    let skips = |condition| !cluster.summary().may_match(&[condition]);
    let day = 86_400_000_000_000_i128;
    let mut skipped = 0;
    for year in 1..49 {
        let at = year * 365 * day;
        skipped += u32::from(skips(Condition::Within(Attribute::Mtime, at, at + day)));
        skipped += u32::from(skips(Condition::Within(Attribute::Mtime, at, at + 90 * day)));
    }
    assert!(skipped > 70, "{skipped} of 96");
    assert!(skips(Condition::Within(Attribute::Size, 100_000, 200_000)));
}

/// A checksum covers every column, the head and the summary: a read returns what was written, or an
/// error that names the file.
#[test]
fn no_flipped_bit_goes_undetected() {
    let mut random = fastrand::Rng::with_seed(46);
    let rows: Vec<RowBuf> = (0..400).map(|n| random_row(&mut random, n)).collect();
    let good = build(&rows, 64).bytes;
    for _ in 0..4000 {
        let mut bad = good.clone();
        let at = random.usize(..good.len());
        bad[at] ^= 1 << random.u8(..8);
        let cluster = Cluster::open(Arc::new(bad), hash());
        let error = cluster.and_then(|cluster| cluster.verify()).unwrap_err();
        let expected = matches!(error, Error::Damaged(_) | Error::Store(_));
        assert!(expected, "{error}");
    }
    for length in [0, 1, 63, 64, 100, good.len() / 2, good.len() - 1] {
        let cluster = Cluster::open(Arc::new(good[..length].to_vec()), hash());
        let error = cluster.and_then(|cluster| cluster.verify()).unwrap_err();
        assert!(matches!(error, Error::Damaged(_)), "{length}: {error}");
    }
}

/// Under a right checksum, any bytes must do no harm.
#[test]
fn columns_of_any_bytes_decode_or_fail_without_panic() {
    let mut random = fastrand::Rng::with_seed(47);
    let rows: Vec<RowBuf> = (0..300).map(|n| random_row(&mut random, n)).collect();
    let good = build(&rows, 64).bytes;
    let head = Head::decode(&good[..head_bytes(&good)]).unwrap();
    for _ in 0..3000 {
        let mut bad = good.clone();
        let mut changed = head.clone();
        let numbers = changed.columns.iter_mut().map(|(_, stored)| stored);
        let attributes =
            changed.attributes.iter_mut().flat_map(|one| [&mut one.ranks, &mut one.values]);
        let mut all: Vec<&mut Stored> = numbers.chain(attributes).collect();
        let column = random.usize(..all.len());
        let Some(extent) = extent_of(all[column]) else { continue };
        let (start, length) = (extent.offset as usize, extent.length as usize);
        for _ in 0..random.usize(1..6) {
            let at = start + random.usize(..length.min(200));
            bad[at] = random.u8(..);
        }
        extent.checksum = crc32c::crc32c(&bad[start..start + length]);
        extent.raw ^= u32::from(random.u8(..10) == 0) << random.u32(..32);
        let encoded = changed.encode();
        bad[..encoded.len()].copy_from_slice(&encoded);
        let cluster = Cluster::open(Arc::new(bad), hash()).unwrap();
        drop(found(&cluster, &[Condition::NameContains(b"1".to_vec())]));
        drop(found(&cluster, &[Condition::Within(Attribute::Size, 5, 1 << 20)]));
        drop(found(&cluster, &[Condition::Xattr(b"user.kind".to_vec(), None)]));
        drop(found(&cluster, &[Condition::Xattr(b"user.kind".to_vec(), Some(vec![b'a']))]));
        drop(cluster.verify());
    }
}

fn head_bytes(bytes: &[u8]) -> usize {
    match Head::claimed_length(&bytes[..64]).unwrap() {
        Decoded::Known(length) => length,
        Decoded::Newer(_) => unreachable!("just written"),
    }
}

#[test]
fn only_columns_of_the_query_are_read() {
    let mut random = fastrand::Rng::with_seed(48);
    let rows: Vec<RowBuf> = (0..5000).map(|n| random_row(&mut random, n)).collect();
    let cluster = open(build(&rows, 256));
    let empty = cluster.memory_bytes();
    let owner = Condition::Within(Attribute::Uid, 0, 0);
    assert!(cluster.search(&[owner], &mut |_| ControlFlow::Continue(())).unwrap().is_continue());
    let with_owner = cluster.memory_bytes();
    assert!(with_owner > empty && with_owner < empty + 8000);
    cluster.rows(Fields::ATTRIBUTES).unwrap();
    assert!(cluster.memory_bytes() > empty + 100_000);
    cluster.release();
    assert_eq!(cluster.memory_bytes(), empty);
}

#[test]
fn a_cluster_in_memory_counts_its_encoded_bytes() {
    let mut random = fastrand::Rng::with_seed(50);
    let rows: Vec<RowBuf> = (0..3000).map(|n| random_row(&mut random, n)).collect();
    let built = build(&rows, 256);
    let length = built.bytes.len();
    let cluster = open(built);
    assert!(cluster.memory_bytes() > length, "{} of {length}", cluster.memory_bytes());
}

#[test]
fn nearest_rows_equal_those_of_a_sorted_list() {
    let mut random = fastrand::Rng::with_seed(49);
    let rows: Vec<RowBuf> = (0..3000).map(|n| random_row(&mut random, n)).collect();
    let cluster = open(build(&rows, 64));
    let access = cluster.rows(Fields::ATTRIBUTES).unwrap();
    for _ in 0..60 {
        let like = Like::new(&rows[random.usize(..rows.len())].as_row());
        let count = random.usize(1..40);
        let mut expected: Vec<f64> =
            rows.iter().filter_map(|row| like.distance(&row.as_row())).collect();
        expected.sort_unstable_by(f64::total_cmp);
        let within = if random.bool() { f64::INFINITY } else { expected[count / 2] };
        expected.retain(|&distance| distance < within);
        expected.truncate(count);
        let got = cluster.nearest(&like, count, within).unwrap();
        let distances: Vec<f64> = got.iter().map(|&(distance, _)| distance).collect();
        assert_eq!(distances, expected);
        let most = units(expected.last().copied().unwrap_or(0.5));
        let near = found(&cluster, &[Condition::Near(like, most)]).unwrap();
        for row in &rows {
            // A row that is near except for its extension may be found as well.
            let distance = like.distance(&row.as_row());
            assert!(distance.is_none_or(|d| units(d) > most) || near.contains(&bare(row)));
        }
        assert!(near.len() < rows.len(), "{most}");
        for (distance, row) in got {
            assert_eq!(like.distance(&access.get(row)), Some(distance));
        }
        let least = cluster.summary().least_distance(&like);
        assert!(expected.first().is_none_or(|&nearest| least <= nearest));
    }
}

/// Bytes in memory that record the largest read request.
struct Asked(Vec<u8>, AtomicUsize);

impl Source for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        self.1.fetch_max(buffer.len(), Ordering::Relaxed);
        self.0.read_at(buffer, offset)
    }
}

/// A column was given as much memory as its head claims: up to 4 GiB with every checksum correct.
#[test]
fn a_false_column_length_is_refused() {
    let mut random = fastrand::Rng::with_seed(52);
    let rows: Vec<RowBuf> = (0..500).map(|n| random_row(&mut random, n)).collect();
    let good = build(&rows, 64).bytes;
    let length = match Head::claimed_length(&good[..HEADER_BYTES]).unwrap() {
        Decoded::Known(length) => length,
        Decoded::Newer(version) => panic!("version {version}"),
    };
    let mut head = Head::decode(&good[..length]).unwrap();
    head.bytes = u64::MAX;
    let names = head.columns.iter_mut().find(|(id, _)| *id == ColumnId::Names).unwrap();
    let (Stored::Packed(extent) | Stored::Bytes(extent)) = &mut names.1 else {
        panic!("names are stored as {:?}", names.1)
    };
    extent.length = u32::MAX;
    let bad = [&head.encode(), &good[length..]].concat();
    let source = Arc::new(Asked(bad, AtomicUsize::new(0)));
    let cluster = Cluster::open(Arc::clone(&source) as Arc<dyn Source>, hash()).unwrap();
    let error = cluster.verify().expect_err("there is no such column");
    assert!(error.to_string().contains("of 4294967295 bytes"), "{error}");
    let most = source.1.load(Ordering::Relaxed);
    assert!(most <= 8 << 20, "{most} bytes at once");
}

/// Rows at given places, in directories with many such places and in others with one, and places
/// without a row.
#[test]
fn rows_are_found_by_position() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let block_rows = [16, 64, 256][random.usize(..3)];
        let options = ClusterOptions { block_rows, ..ClusterOptions::new(hash()) };
        let mut builder = ClusterBuilder::new(options);
        let mut model = Vec::new();
        for n in 0..random.u64(1..3000) {
            let mut row = random_row(&mut random, n);
            if random.bool() {
                row = Row { directory: 7, ..row.as_row() }.to_buf();
            }
            builder.push(&row.as_row());
            model.push(row);
        }
        let cluster = Cluster::open(Arc::new(builder.finish().bytes), hash()).unwrap();
        let rows = cluster.rows(Fields::ATTRIBUTES).unwrap();
        let share = random.usize(1..200);
        let mut places = vec![(0, 5), (7, 3), (50, 1)];
        for row in &model {
            let Row { directory, cookie, .. } = row.as_row();
            if random.usize(..share) == 0 {
                places.push((directory, cookie ^ u64::from(random.u8(..4) == 0) << 50));
            }
        }
        places.sort_unstable();
        places.dedup();
        let mut found = Vec::new();
        cluster.find_places(&places, &mut |at| found.push(rows.get(at).ino)).unwrap();
        found.sort_unstable();
        let is_there = |row: &&RowBuf| {
            let Row { directory, cookie, .. } = row.as_row();
            places.binary_search(&(directory, cookie)).is_ok()
        };
        let wanted: Vec<u64> = model.iter().filter(is_there).map(|row| row.as_row().ino).collect();
        assert_eq!(found, wanted, "seed {seed}");
    }
}
