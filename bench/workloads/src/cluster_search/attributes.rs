//! A declared extended attribute of the rows of one cluster, and the cost of queries for it. The
//! rows are split by it, or not, or each row has a record of its own, as before there were columns
//! of attributes. Other queries use an index and a plain column of that attribute alone. Also the
//! cost of all other queries then, and that of disk, memory and building.
//!
//! The attribute is one of three. *Scattered*: over a tenth of all files, with one common value and
//! rare ones. Of *directories*: half of them pass theirs on to all their files. *Unique*: a
//! different value on each file, like a checksum.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, SystemClock};
use format::cluster::{ColumnId, Decoded, Extent, Head, Stored};
use format::xattr_record::XattrRecord;
use format::{cluster_names, cluster_numbers};
use search::cluster::{Cluster, ClusterBuilder, ClusterOptions, Fields};
use search::{Condition, Row, RowBuf, Searchable};
use serde_json::{Value, json};

use super::rivals::{ALL, Box, Sorted};
use super::{CLASSES, Key, QUERIES, TIMES, conditions, hash, micros, query, ratio, search};

const NAME: &[u8] = b"user.state";
const KINDS: [&str; 3] = ["scattered", "directories", "unique"];
/// Turns of attributes that are compared; 0: rows are not split by them.
const TURNS: [u8; 4] = [0, 1, 2, 3];
/// Queries of each class for the attribute: records take 10 ms each.
const ASKS: usize = 50;
/// Classes of queries for the attribute.
const ASKED: [&str; 4] = ["rare", "common", "owner", "present"];

/// The value of each row, if it has one.
type Values = Vec<Option<Vec<u8>>>;

fn values(kind: &str, rows: &[RowBuf]) -> Values {
    let mut random = fastrand::Rng::with_seed(95);
    let mut directories: BTreeMap<u64, Option<Vec<u8>>> = BTreeMap::new();
    let mut value = |(number, row): (usize, &RowBuf)| match kind {
        "scattered" => (random.u8(..10) == 0).then(|| match random.u32(..200) {
            0 => format!("lost-{number}").into_bytes(),
            1..20 => b"failed".to_vec(),
            _ => b"done".to_vec(),
        }),
        "directories" => {
            let directory = row.as_row().directory;
            let value = directories.entry(directory).or_insert_with(|| {
                // A few projects have most of the directories.
                let project = random.u32(1..41) * random.u32(1..41) / 40;
                random.bool().then(|| format!("project-{project}").into_bytes())
            });
            value.clone()
        }
        _ => Some(format!("{:016x}{:016x}", random.u64(..), random.u64(..)).into_bytes()),
    };
    rows.iter().enumerate().map(&mut value).collect()
}

/// One way to store the rows.
struct Way {
    name: String,
    cluster: Cluster,
    bytes: usize,
    finish: Duration,
}

fn built(rows: &[RowBuf], values: &Values, turn: u8) -> (Vec<u8>, Duration) {
    let clock = SystemClock::new();
    let options = ClusterOptions { attribute_turn: turn, ..ClusterOptions::new(hash()) };
    let mut best = (Vec::new(), Duration::MAX);
    for _ in 0..3 {
        let searchable = Searchable::new(vec![NAME.to_vec()]);
        let mut builder = ClusterBuilder::new(options).carrying(&searchable);
        for (row, value) in rows.iter().zip(values) {
            builder.push(&Row { xattrs: &record(value.as_deref()), ..row.as_row() });
        }
        let start = clock.monotonic();
        let bytes = builder.finish().bytes;
        let took = clock.monotonic().saturating_sub(start);
        if took < best.1 {
            best = (bytes, took);
        }
    }
    best
}

fn record(value: Option<&[u8]>) -> Vec<u8> {
    let mut record = XattrRecord::default();
    if let Some(value) = value {
        record.set(NAME, value);
    }
    record.encode()
}

fn open(bytes: Vec<u8>) -> Cluster {
    Cluster::open(Arc::new(bytes), hash()).expect("bug: what was just built opens")
}

/// The same cluster as before attributes had columns: each row with a record.
fn with_records(bytes: &[u8], values: &BTreeMap<u64, &[u8]>) -> Vec<u8> {
    let Ok(Decoded::Known(length)) = Head::claimed_length(bytes) else { return Vec::new() };
    let Ok(mut head) = Head::decode(&bytes[..length]) else { return Vec::new() };
    let rows = open(bytes.to_vec()).rows(Fields::IDENTITY).expect("bug: memory does not fail");
    let (mut lengths, mut records) = (Vec::new(), Vec::new());
    for at in 0..rows.len() {
        let record = record(values.get(&rows.get(at).ino).copied());
        lengths.push(record.len() as u64);
        records.extend_from_slice(&record);
    }
    let mut packed_lengths = Vec::new();
    cluster_numbers::encode(&mut packed_lengths, &lengths, head.block_rows);
    let packed = cluster_names::pack(&records, 3).unwrap_or_else(|| records.clone());
    let attribute = head.attributes.pop().expect("bug: rows have the attribute");
    // The columns of the attribute are cut off: they are the last.
    let kept = attribute.ranks.extent().or(attribute.values.extent());
    let kept = kept.map_or(bytes.len(), |extent| extent.offset as usize);
    let mut out = bytes[..kept].to_vec();
    let mut put = |bytes: &[u8], raw: usize| {
        let (offset, size) = (out.len() as u64, bytes.len() as u32);
        out.extend_from_slice(bytes);
        Extent { offset, length: size, raw: raw as u32, checksum: crc32c::crc32c(bytes) }
    };
    let lengths = Stored::Numbers(put(&packed_lengths, 0));
    let records = Stored::Packed(put(&packed, records.len()));
    let tags = head.columns.pop().expect("bug: names have tags");
    head.columns.extend([(ColumnId::XattrLengths, lengths), (ColumnId::Xattrs, records), tags]);
    head.bytes = out.len() as u64;
    let encoded = head.encode();
    // Two columns for two.
    assert_eq!(encoded.len(), length, "the head is as long as it was");
    out[..length].copy_from_slice(&encoded);
    out
}

/// The attribute alone: an index sorted by it, and a plain column.
struct Alone<'a> {
    keys: &'a [Key],
    sorted: Vec<(&'a [u8], u32)>,
    ranks: Vec<u64>,
    places: BTreeMap<&'a [u8], u64>,
}

impl<'a> Alone<'a> {
    fn new(keys: &'a [Key], values: &'a Values) -> Alone<'a> {
        let there = (0..).zip(values).filter_map(|(row, v)| Some((v.as_deref()?, row)));
        let mut sorted: Vec<(&[u8], u32)> = there.collect();
        sorted.sort_unstable();
        let mut distinct: Vec<&[u8]> = sorted.iter().map(|(value, _)| *value).collect();
        distinct.dedup();
        let places: BTreeMap<&[u8], u64> = distinct.into_iter().zip(1..).collect();
        let rank = |value: &Option<Vec<u8>>| value.as_deref().map_or(0, |value| places[value]);
        let ranks = values.iter().map(rank).collect();
        Alone { keys, sorted, ranks, places }
    }

    fn by_index(&self, asked: &Asked) -> usize {
        let range = match &asked.value {
            None => &self.sorted[..],
            Some(value) => {
                let from = self.sorted.partition_point(|(other, _)| *other < value.as_slice());
                let to = self.sorted.partition_point(|(other, _)| *other <= value.as_slice());
                &self.sorted[from..to]
            }
        };
        let owner = asked.bounds[0];
        let fits = |row: u32| (owner.0..=owner.1).contains(&self.keys[row as usize][0]);
        range.iter().filter(|(_, row)| fits(*row)).count()
    }

    fn by_column(&self, asked: &Asked) -> usize {
        let (least, most) = match &asked.value {
            None => (1, u64::MAX),
            Some(value) => {
                self.places.get(value.as_slice()).map_or((1, 0), |&place| (place, place))
            }
        };
        let owner = asked.bounds[0];
        let rows = self.ranks.iter().zip(self.keys);
        let fits = rows.filter(|(rank, key)| {
            (least..=most).contains(*rank) & (owner.0..=owner.1).contains(&key[0])
        });
        fits.count()
    }
}

/// A query for the attribute.
struct Asked {
    value: Option<Vec<u8>>,
    bounds: Box,
    narrow: Vec<Condition>,
}

fn asked(class: &str, rows: &[(u32, &[u8])], counts: &[(usize, &[u8])], keys: &[Key]) -> Asked {
    let (row, of_row) = rows[fastrand::usize(..rows.len())];
    let rare = &counts[..counts.len().div_ceil(2)];
    let value = match class {
        "rare" => Some(rare[fastrand::usize(..rare.len())].1),
        "common" => counts.last().map(|(_, value)| *value),
        "owner" => Some(of_row),
        _ => None,
    };
    let value = value.map(<[u8]>::to_vec);
    let mut bounds = ALL;
    if class == "owner" {
        let owner = keys[row as usize][0];
        bounds[0] = (owner, owner);
    }
    let mut narrow = vec![Condition::Xattr(NAME.to_vec(), value.clone())];
    narrow.extend(conditions(&bounds));
    Asked { value, bounds, narrow }
}

/// The times of each of several ways for each of several queries: median, 99th percentile, rows
/// found. The ways take turns, and the fastest of several runs counts.
fn in_turn(queries: usize, ways: &mut [&mut dyn FnMut(usize) -> usize]) -> Vec<(f64, f64, usize)> {
    let clock = SystemClock::new();
    let mut times = vec![Vec::new(); ways.len()];
    let mut found = vec![0; ways.len()];
    for number in 0..queries {
        let mut best = vec![Duration::MAX; ways.len()];
        for round in 0..TIMES {
            for (at, way) in ways.iter_mut().enumerate() {
                let start = clock.monotonic();
                let count = black_box(way(number));
                best[at] = best[at].min(clock.monotonic().saturating_sub(start));
                found[at] += if round == 0 { count } else { 0 };
            }
        }
        for (times, best) in times.iter_mut().zip(best) {
            times.push(best);
        }
    }
    let results = times.into_iter().zip(found).map(|(mut times, found)| {
        times.sort_unstable();
        (micros(times[queries / 2]), micros(times[queries * 99 / 100]), found)
    });
    results.collect()
}

/// One object for each way to store each attribute, and for each query and way.
pub(super) fn measure(rows: &[RowBuf], keys: &[Key], sorted: &Sorted) -> Vec<Value> {
    let mut objects = Vec::new();
    for kind in KINDS {
        let values = values(kind, rows);
        let ways = ways(rows, &values);
        objects.extend(ways.iter().map(|way| of_way(kind, way, rows.len() as u64)));
        let alone = Alone::new(keys, &values);
        let there = (0..).zip(&values).filter_map(|(row, v)| Some((row, v.as_deref()?)));
        let there: Vec<(u32, &[u8])> = there.collect();
        let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
        for (_, value) in &there {
            *counts.entry(value).or_default() += 1;
        }
        let mut counts: Vec<(usize, &[u8])> =
            counts.into_iter().map(|(value, count)| (count, value)).collect();
        counts.sort_unstable();
        for class in ASKED {
            let queries: Vec<Asked> =
                (0..ASKS).map(|_| asked(class, &there, &counts, keys)).collect();
            let narrow = |number: usize| queries[number].narrow.as_slice();
            let mut results = of_clusters(&ways, ASKS, &narrow);
            let by_index = &mut |number: usize| alone.by_index(&queries[number]);
            let by_column = &mut |number: usize| alone.by_column(&queries[number]);
            let names = ["index".to_owned(), "column".to_owned()];
            results.extend(names.into_iter().zip(in_turn(ASKS, &mut [by_index, by_column])));
            for way in ways.iter().filter(|way| ["records", "turn-1"].contains(&&*way.name)) {
                let read = &mut |number: usize| {
                    way.cluster.release();
                    search(&way.cluster, narrow(number))
                };
                let first = in_turn(ASKS, &mut [read]);
                results
                    .extend(first.into_iter().map(|first| (format!("{}, read", way.name), first)));
            }
            objects.extend(of_class(kind, class, rows.len(), results));
        }
        for class in CLASSES {
            let queries: Vec<_> = (0..QUERIES).map(|_| query(class, rows, keys, sorted)).collect();
            let narrow = |number: usize| queries[number].narrow.as_slice();
            objects.extend(of_class(kind, class, rows.len(), of_clusters(&ways, QUERIES, &narrow)));
        }
    }
    objects
}

fn ways(rows: &[RowBuf], values: &Values) -> Vec<Way> {
    let mut ways = Vec::new();
    let numbers = rows.iter().map(|row| row.as_row().ino).zip(values);
    let by_number: BTreeMap<u64, &[u8]> =
        numbers.filter_map(|(ino, value)| Some((ino, value.as_deref()?))).collect();
    for turn in TURNS {
        let (bytes, finish) = built(rows, values, turn);
        let length = bytes.len();
        if turn == 0 {
            let bytes = with_records(&bytes, &by_number);
            let length = bytes.len();
            let name = "records".to_owned();
            ways.push(Way { name, cluster: open(bytes), bytes: length, finish: Duration::ZERO });
        }
        let name = format!("turn-{turn}");
        ways.push(Way { name, cluster: open(bytes), bytes: length, finish });
    }
    ways
}

fn of_clusters<'q>(
    ways: &[Way],
    queries: usize,
    narrow: &dyn Fn(usize) -> &'q [Condition],
) -> Vec<(String, (f64, f64, usize))> {
    let mut asks: Vec<_> =
        ways.iter().map(|way| |number: usize| search(&way.cluster, narrow(number))).collect();
    let mut asks: Vec<&mut dyn FnMut(usize) -> usize> =
        asks.iter_mut().map(|ask| ask as &mut dyn FnMut(usize) -> usize).collect();
    let results = in_turn(queries, &mut asks);
    ways.iter().map(|way| way.name.clone()).zip(results).collect()
}

fn of_way(kind: &str, way: &Way, rows: u64) -> Value {
    way.cluster.release();
    let before = way.cluster.memory_bytes();
    search(&way.cluster, &[Condition::Xattr(NAME.to_vec(), Some(b"done".to_vec()))]);
    search(&way.cluster, &[Condition::Xattr(NAME.to_vec(), None)]);
    json!({
        "bench": "cluster-attributes", "rows": rows, "attribute": kind, "way": way.name,
        "bytes_per_row": ratio(way.bytes, rows), "finish_us": micros(way.finish),
        "attribute_memory_per_row": ratio(way.cluster.memory_bytes() - before, rows),
    })
}

fn of_class(
    kind: &str,
    class: &str,
    rows: usize,
    results: Vec<(String, (f64, f64, usize))>,
) -> Vec<Value> {
    let expected = results[0].1.2;
    let object = |(way, (median, p99, found)): (String, (f64, f64, usize))| {
        assert_eq!(found, expected, "{kind} {class} by {way}");
        json!({
            "bench": "cluster-attributes", "rows": rows, "attribute": kind, "query": class,
            "way": way, "matches": found, "median_us": median, "p99_us": p99,
        })
    };
    results.into_iter().map(object).collect()
}
