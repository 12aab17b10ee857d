//! Declared extended attributes as columns of a cluster, and as dimensions of its order.

use std::sync::Arc;

use format::cluster::{Head, Stored};
use format::xattr_record::XattrRecord;

use super::*;

fn blocks_read(cluster: &Cluster, narrow: &[Condition]) -> usize {
    scan::Scan::of(cluster, narrow).unwrap().map_or(0, |(_, blocks)| blocks.len())
}

#[test]
fn blocks_are_skipped_by_declared_attributes() {
    let mut random = fastrand::Rng::with_seed(53);
    let mut rows: Vec<RowBuf> = Vec::new();
    for n in 0..20_000 {
        let mut xattrs = XattrRecord::default();
        if n % 10 == 0 {
            let value = if n % 1000 == 0 { format!("12345678-{n}") } else { "same".to_owned() };
            xattrs.set(b"user.kind", value.as_bytes());
        }
        let row = random_row(&mut random, n);
        rows.push(Row { xattrs: &xattrs.encode(), ..row.as_row() }.to_buf());
    }
    let cluster = open(build(&rows, 256));
    let (name, all) = (b"user.kind".to_vec(), 20_000_usize.div_ceil(256));
    let has = [Condition::Xattr(name.clone(), None)];
    assert!((8..=10).contains(&blocks_read(&cluster, &has)), "2,000 rows are 8 blocks");
    assert_eq!(found(&cluster, &has).unwrap().len(), 2000);
    let rare = [Condition::Xattr(name.clone(), Some(b"12345678-5000".to_vec()))];
    assert!((1..=10).contains(&blocks_read(&cluster, &rare)), "none of those without it");
    assert_eq!(found(&cluster, &rare).unwrap().len(), 1);
    let absent = [Condition::Xattr(name, Some(b"12345678-".to_vec()))];
    assert_eq!(blocks_read(&cluster, &absent), 0);
    assert_eq!(blocks_read(&cluster, &[]), all);
    // Older clusters answer the same queries, with all rows.
    let before = as_before(&build(&rows, 256).bytes, &rows);
    let before = Cluster::open(Arc::new(before), hash()).unwrap();
    assert_eq!(blocks_read(&before, &has), all);
    for narrow in [&has, &rare, &absent] {
        let (old, new) = (found(&before, narrow).unwrap(), found(&cluster, narrow).unwrap());
        assert_eq!(sorted(old), sorted(new), "{narrow:?}");
    }
}

/// An attribute that is not declared, or that no row has, costs nothing: no bytes and no change of
/// order.
#[test]
fn a_cluster_without_attributes_keeps_the_old_format() {
    let mut random = fastrand::Rng::with_seed(54);
    let rows: Vec<RowBuf> = (0..3000).map(|n| bare(&random_row(&mut random, n))).collect();
    let built = |turn: u8, carried: &[&[u8]]| {
        let options = ClusterOptions { attribute_turn: turn, ..ClusterOptions::new(hash()) };
        let carried = carried.iter().map(|name| name.to_vec()).collect();
        let mut builder = ClusterBuilder::new(options).carrying(&Searchable::new(carried));
        for row in &rows {
            builder.push(&row.as_row());
        }
        builder.finish().bytes
    };
    let (never, first) = (built(0, &[]), built(1, &[]));
    assert!(never == first, "the order differs");
    let (without, with) = (built(0, &CARRIED), built(1, &CARRIED));
    assert!(without == with, "the order differs");
    let names: usize = CARRIED.iter().map(|name| name.len() + 1).sum();
    assert_eq!(with.len() - first.len(), names, "the list of names, which was there before");
    let head = Head::decode(&with[..head_bytes(&with)]).unwrap();
    assert!(head.attributes.is_empty());
}

/// Ranks without a value, and columns of attributes that are not listed, are damage.
#[test]
fn mismatched_attribute_columns_are_damage() {
    let mut random = fastrand::Rng::with_seed(55);
    let rows: Vec<RowBuf> = (0..2000).map(|n| random_row(&mut random, n)).collect();
    let good = build(&rows, 64).bytes;
    let head = Head::decode(&good[..head_bytes(&good)]).unwrap();
    assert_eq!(head.attributes.len(), 3);
    let changed = |change: &dyn Fn(&mut Head<'_>)| {
        let mut changed = head.clone();
        change(&mut changed);
        let mut bad = good.clone();
        let encoded = changed.encode();
        assert_eq!(encoded.len(), head_bytes(&good));
        bad[..encoded.len()].copy_from_slice(&encoded);
        Cluster::open(Arc::new(bad), hash())
    };
    changed(&|_| ()).unwrap().verify().unwrap();
    let error = changed(&|head| head.attributes[2].place = 4).map(drop).unwrap_err();
    assert!(error.to_string().contains("attribute 4 of 4"), "{error}");
    // user.z has one value, so that all rows would have the second of one.
    let error = changed(&|head| head.attributes[2].ranks = Stored::Constant(2));
    let error = error.unwrap().verify().unwrap_err();
    assert!(error.to_string().contains("place 2 of 1"), "{error}");
    let swapped = changed(&|head| head.attributes[0].values = head.attributes[2].values).unwrap();
    let error = swapped.verify().unwrap_err().to_string();
    assert!(error.contains("place 11 of 1"), "{error}");
    let error = changed(&|head| head.attributes[1].values = Stored::Constant(1)).map(drop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("ranks and their values"), "{error}");
    // The bytes are no values: a request for one returns an error.
    let others = changed(&|head| head.attributes[1].values = head.columns[0].1).unwrap();
    let rare = |value| [Condition::Xattr(b"user.rare".to_vec(), value)];
    let error = others.verify().unwrap_err().to_string();
    assert!(error.contains("bytes of a bounded length"), "{error}");
    let has = |row: &RowBuf| XattrRecord::decode(row.as_row().xattrs).unwrap();
    let value = rows.iter().find_map(|row| has(row).get(b"user.rare").map(<[u8]>::to_vec));
    let error = found(&others, &rare(value)).unwrap_err().to_string();
    assert!(error.contains("bytes of a bounded length"), "{error}");
    assert!(!found(&others, &rare(None)).unwrap().is_empty());
}

/// Whatever is carried, and however rows are ordered by it, a search finds the same as a list.
/// Values are both shorter and longer than a column carries.
#[test]
fn searches_by_any_number_of_attributes_agree_with_a_list() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let declared: Vec<Vec<u8>> =
            (0..[1, 2, 7, 64][random.usize(..4)]).map(|n| format!("user.{n}").into()).collect();
        let searchable = Searchable::new(declared.clone());
        let share = [1, 2, 10, 500][random.usize(..4)];
        let value = |random: &mut fastrand::Rng| match random.u8(..6) {
            0 => Vec::new(),
            1 => [&[b'x'; 256][..], &[random.u8(b'a'..b'd')]].concat(),
            2 => vec![b'x'; random.usize(254..258)],
            3 => random.u16(..).to_le_bytes().to_vec(),
            _ => vec![random.u8(..4)],
        };
        let options = ClusterOptions {
            block_rows: [16, 64, 512][random.usize(..3)],
            attribute_turn: random.u8(..5),
            ..ClusterOptions::new(hash())
        };
        let mut builder = ClusterBuilder::new(options).carrying(&searchable);
        let mut rows = Vec::new();
        for n in 0..random.u64(1..1500) {
            let mut xattrs = XattrRecord::default();
            for name in &declared {
                if random.u32(..share) == 0 {
                    xattrs.set(name, &value(&mut random));
                }
            }
            xattrs.set(b"user.other", b"z");
            let picked = searchable.pick(&xattrs);
            let row = Row { xattrs: &picked, ..random_row(&mut random, n).as_row() }.to_buf();
            builder.push(&row.as_row());
            rows.push(row);
        }
        let cluster = open(builder.finish());
        cluster.verify().unwrap();
        for _ in 0..60 {
            let narrow: Vec<Condition> = (0..random.usize(1..4))
                .map(|_| {
                    if random.u8(..3) == 0 {
                        return random_condition(&mut random, &rows);
                    }
                    let name = declared[random.usize(..declared.len())].clone();
                    let mut wanted = value(&mut random);
                    wanted.truncate(256);
                    Condition::Xattr(name, random.bool().then_some(wanted))
                })
                // A cluster knows nothing of attributes that are not declared.
                .filter(|condition| match condition {
                    Condition::Xattr(name, _) => declared.contains(name),
                    _ => true,
                })
                .collect();
            let matches = |row: &&RowBuf| narrow.iter().all(|c| meets(&row.as_row(), c));
            let expected: Vec<RowBuf> = rows.iter().filter(matches).map(bare).collect();
            assert_eq!(sorted(found(&cluster, &narrow).unwrap()), expected, "seed {seed}");
        }
    }
}
