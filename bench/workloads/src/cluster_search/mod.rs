//! `cluster-search`: one cluster by itself, at sizes from 500 to 200,000 rows (the paper's Fig.
//! 3): how it is built, its size, and the cost of queries beside other ways to search the same
//! rows. It prints one JSON object for each size, and one for each size, query class and way. The
//! same follows for a declared extended attribute, at two sizes.

mod attributes;
mod rivals;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock, SystemClock};
use format::cluster::{Decoded, Head};
use format::inode_record::FileKind;
use inode::NameHash;
use search::cluster::{Cluster, ClusterBuilder, ClusterOptions, Fields, Like};
use search::{Attribute, Condition, Row, RowBuf};
use serde_json::{Value, json};
use wire::{Failure, FailureKind};

use super::Run;
use super::namespace::{NOW_SECONDS, Namespace};
use program::failure::{self, Result};
use program::output::Output;
use rivals::{ALL, ATTRIBUTES, Box, Columns, KdTree, Key, Sorted};

/// Rows of the clusters: those of the paper's figure.
const SIZES: [u64; 9] = [500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000];
/// The sizes at which extended attributes are measured; the last is the usual size of clusters.
const ATTRIBUTE_SIZES: [u64; 2] = [2000, 20_000];
/// Queries per class.
const QUERIES: usize = 200;
/// Runs of each query; the fastest counts, because the others were disturbed.
const TIMES: usize = 5;

fn hash() -> NameHash {
    NameHash::new([7; 16])
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    for rows in SIZES.into_iter().filter(|&rows| rows <= run.args.files.max(SIZES[0])) {
        for object in size(run, rows)? {
            output.object(&object)?;
            output.line(&object.to_string())?;
        }
        run.check()?;
    }
    Ok(())
}

/// The rows of a namespace of this many files, as in a subvolume that was filled in one go.
fn rows(run: &Run<'_>, files: u64) -> Vec<RowBuf> {
    let namespace = Namespace::generate(run.args.profile, files, 7);
    let hash = hash();
    let mut rows = Vec::new();
    let mut numbers = 1_u64 << 20..;
    let mut ino = move || numbers.next().expect("invariant: there are enough numbers");
    let mut now = NOW_SECONDS * 1_000_000_000;
    let mut random = fastrand::Rng::with_seed(8);
    for directory in namespace.walk() {
        let inode = ino();
        let visited = namespace.files::<std::convert::Infallible>(directory as usize, |file| {
            now += random.i64(3_000..9_000);
            let row = Row {
                directory: inode,
                cookie: hash.hash(&file.name) << 8,
                ino: ino(),
                name: &file.name,
                kind: FileKind::File,
                mode: file.mode,
                uid: file.uid,
                gid: file.gid,
                nlink: 1,
                rdev: 0,
                size: file.size,
                allocated: file.size.next_multiple_of(4096),
                entries: 0,
                atime: file.atime,
                mtime: file.mtime,
                ctime: now,
                btime: now - random.i64(1_000..4_000),
                subvolume: 0,
                xattrs: b"",
            };
            rows.push(row.to_buf());
            Ok(())
        });
        match visited {
            Ok(()) => {}
        }
    }
    rows
}

fn key(row: &Row<'_>) -> Key {
    ATTRIBUTES.map(|attribute| {
        let value = attribute.of(row);
        let time = matches!(attribute, Attribute::Mtime | Attribute::Atime | Attribute::Ctime);
        u64::try_from(if time { value + (1 << 63) } else { value }).unwrap_or(0)
    })
}

fn condition(dimension: usize, (least, greatest): (u64, u64)) -> Condition {
    let attribute = ATTRIBUTES[dimension];
    let time = matches!(attribute, Attribute::Mtime | Attribute::Atime | Attribute::Ctime);
    let value = |code: u64| i128::from(code) - if time { 1 << 63 } else { 0 };
    if least == greatest {
        Condition::OneOf(attribute, vec![value(least)])
    } else {
        Condition::Within(attribute, value(least), value(greatest))
    }
}

fn conditions(query: &Box) -> Vec<Condition> {
    let bound = (0..query.len()).filter(|&n| query[n] != ALL[n]);
    bound.map(|n| condition(n, query[n])).collect()
}

/// A query of a class: a box, and a condition on the name.
struct Query {
    bounds: Box,
    narrow: Vec<Condition>,
}

/// Classes of queries.
const CLASSES: [&str; 7] =
    ["owner-mtime-size", "ranges-2", "ranges-3", "ranges-5", "one-size", "name-owner", "substring"];

fn query(class: &str, rows: &[RowBuf], keys: &[Key], sorted: &Sorted) -> Query {
    let at = fastrand::usize(..rows.len());
    let (row, key) = (rows[at].as_row(), &keys[at]);
    let mut bounds = ALL;
    let window = |bounds: &mut Box, dimension: usize, share: usize| {
        let place = sorted.range(dimension, 0, key[dimension]).len();
        let half = rows.len() / share / 2;
        let least = sorted.at(dimension, place.saturating_sub(half));
        bounds[dimension] = (least.min(key[dimension]), sorted.at(dimension, place + half));
    };
    let mut name = None;
    match class {
        "owner-mtime-size" => {
            bounds[0] = (key[0], key[0]);
            window(&mut bounds, 1, 20);
            bounds[2] = (key[2], u64::MAX);
        }
        "one-size" => window(&mut bounds, 2, 100),
        "name-owner" => {
            bounds[0] = (key[0], key[0]);
            name = Some(Condition::Name(row.name.to_vec()));
        }
        "substring" => {
            let length = row.name.len().min(5);
            let from = fastrand::usize(..=row.name.len() - length);
            name = Some(Condition::NameContains(row.name[from..from + length].to_vec()));
        }
        ranges => {
            // Attributes that differ, as the random files of the paper do, a tenth of each.
            let mut dimensions = [1, 2, 3, 6, 8, 9];
            fastrand::shuffle(&mut dimensions);
            let count = ranges.strip_prefix("ranges-").and_then(|n| n.parse().ok()).unwrap_or(2);
            for &dimension in &dimensions[..count] {
                window(&mut bounds, dimension, 10);
            }
        }
    }
    let mut narrow = conditions(&bounds);
    narrow.extend(name);
    Query { bounds, narrow }
}

/// The times of queries of a class by one way.
fn measure(queries: &[Query], mut ask: impl FnMut(&Query) -> usize) -> (Vec<Duration>, usize) {
    let clock = SystemClock::new();
    let mut found = 0;
    let mut times = Vec::new();
    for query in queries {
        let mut best = Duration::MAX;
        for _ in 0..TIMES {
            let start = clock.monotonic();
            let count = black_box(ask(query));
            best = best.min(clock.monotonic().saturating_sub(start));
            found += count;
        }
        times.push(best);
    }
    times.sort_unstable();
    (times, found / TIMES)
}

fn search(cluster: &Cluster, narrow: &[Condition]) -> usize {
    let mut found = 0;
    let flow = cluster.search(narrow, &mut |_| {
        found += 1;
        ControlFlow::Continue(())
    });
    assert!(flow.is_ok_and(|flow| flow.is_continue()), "memory does not fail");
    found
}

fn size(run: &Run<'_>, count: u64) -> Result<Vec<Value>> {
    fastrand::seed(count);
    let clock = SystemClock::new();
    let rows = rows(run, count);
    let keys: Vec<Key> = rows.iter().map(|row| key(&row.as_row())).collect();
    let timed = |work: &mut dyn FnMut()| {
        let start = clock.monotonic();
        work();
        clock.monotonic().saturating_sub(start)
    };
    let mut builder = ClusterBuilder::new(ClusterOptions::new(hash()));
    for row in &rows {
        builder.push(&row.as_row());
    }
    let balance = timed(&mut || drop(black_box(builder.balanced())));
    let mut built = None;
    let mut builder = Some(builder);
    let finish = timed(&mut || built = builder.take().map(ClusterBuilder::finish));
    let bytes = built.map(|built| built.bytes).unwrap_or_default();
    let (stored, columns_stored) = (bytes.len(), columns_per_row(&bytes, count));
    let write = write_time(&bytes)?;
    let cluster = Cluster::open(Arc::new(bytes), hash())
        .map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
    let (mut tree, mut grown) = (KdTree::new(), KdTree::new());
    let tree_balance = timed(&mut || tree = KdTree::balanced(&keys));
    let insert = timed(&mut || {
        for &key in &keys {
            grown.insert(key);
        }
    });
    let (columns, sorted) = (Columns::new(&keys), Sorted::new(&keys));
    let summary_bytes = cluster.summary().memory_bytes();
    let mut objects = Vec::new();
    for class in CLASSES {
        let queries: Vec<Query> =
            (0..QUERIES).map(|_| query(class, &rows, &keys, &sorted)).collect();
        let named = queries.iter().any(|query| conditions(&query.bounds) != query.narrow);
        let mut ways: Vec<(&str, (Vec<Duration>, usize))> =
            vec![("cluster", measure(&queries, |query| search(&cluster, &query.narrow)))];
        if !named {
            ways.push(("kd-tree", measure(&queries, |query| tree.count(&query.bounds))));
            ways.push(("kd-tree-grown", measure(&queries, |query| grown.count(&query.bounds))));
            ways.push(("columns", measure(&queries, |query| columns.count(&query.bounds))));
            ways.push(("sorted", measure(&queries, |query| sorted.count(&query.bounds))));
            ways.push(("brute", measure(&queries, |query| rivals::brute(&keys, &query.bounds))));
        }
        let expected = ways[0].1.1;
        for (way, (times, found)) in ways {
            assert_eq!(found, expected, "{class} by {way}");
            objects.push(json!({
                "bench": "cluster-search", "rows": count, "query": class, "way": way,
                "queries": QUERIES, "matches": found,
                "median_us": micros(times[QUERIES / 2]),
                "p99_us": micros(times[QUERIES * 99 / 100]),
                "mean_us": micros(times.iter().sum::<Duration>() / QUERIES as u32),
            }));
        }
    }
    objects.extend(nearest(&cluster, &rows, count));
    if ATTRIBUTE_SIZES.contains(&count) {
        objects.extend(attributes::measure(&rows, &keys, &sorted));
    }
    let all = cluster.rows(Fields::ATTRIBUTES);
    let memory = all.map(|_| cluster.memory_bytes()).unwrap_or_default();
    objects.insert(
        0,
        json!({
            "bench": "cluster-search", "rows": count,
            "balance_us": micros(balance), "finish_us": micros(finish), "write_us": micros(write),
            "kd_tree_balance_us": micros(tree_balance),
            "kd_tree_insert_ns": insert.as_nanos() as u64 / count,
            "bytes_per_row": ratio(stored, count), "memory_per_row": ratio(memory, count),
            "summary_per_row": ratio(summary_bytes, count),
            "kd_tree_memory_per_row": ratio(tree.memory_bytes(), count),
            "columns_memory_per_row": ratio(columns.memory_bytes(), count),
            "sorted_memory_per_row": ratio(sorted.memory_bytes(), count),
            "column_bytes_per_row": columns_stored,
        }),
    );
    Ok(objects)
}

/// The ten files most similar to one, by the cluster and by scanning the rows.
fn nearest(cluster: &Cluster, rows: &[RowBuf], count: u64) -> Vec<Value> {
    const WANTED: usize = 10;
    let asked: Vec<Like> =
        (0..QUERIES).map(|_| Like::new(&rows[fastrand::usize(..rows.len())].as_row())).collect();
    let clock = SystemClock::new();
    let timed = |ask: &dyn Fn(&Like) -> usize| {
        let mut times = Vec::new();
        for like in &asked {
            let start = clock.monotonic();
            black_box(ask(like));
            times.push(clock.monotonic().saturating_sub(start));
        }
        times.sort_unstable();
        times
    };
    let by_cluster = |like: &Like| {
        cluster.nearest(like, WANTED, f64::INFINITY).map_or(0, |nearest| nearest.len())
    };
    let by_brute = |like: &Like| {
        let mut all: Vec<f64> = rows.iter().filter_map(|r| like.distance(&r.as_row())).collect();
        let wanted = WANTED.min(all.len());
        all.select_nth_unstable_by(wanted - 1, f64::total_cmp);
        wanted
    };
    // Once first, for data that is read on first use.
    let _ = black_box(by_cluster(&asked[0]));
    [("cluster", timed(&by_cluster)), ("brute", timed(&by_brute))]
        .into_iter()
        .map(|(way, times)| {
            json!({
                "bench": "cluster-search", "rows": count, "query": "nearest-10", "way": way,
                "queries": QUERIES, "matches": QUERIES * WANTED,
                "median_us": micros(times[QUERIES / 2]),
                "p99_us": micros(times[QUERIES * 99 / 100]),
                "mean_us": micros(times.iter().sum::<Duration>() / QUERIES as u32),
            })
        })
        .collect()
}

/// The size of each column on disk.
fn columns_per_row(bytes: &[u8], rows: u64) -> Value {
    let mut object = serde_json::Map::new();
    let Ok(Decoded::Known(length)) = Head::claimed_length(bytes) else { return Value::Null };
    let Ok(head) = Head::decode(&bytes[..length]) else { return Value::Null };
    object.insert("head".to_owned(), json!(ratio(length, rows)));
    for (id, stored) in head.columns {
        let length = stored.extent().map_or(0, |extent| extent.length as usize);
        object.insert(format!("{id:?}").to_lowercase(), json!(ratio(length, rows)));
    }
    Value::Object(object)
}

/// How long it takes to write the bytes durably.
fn write_time(bytes: &[u8]) -> Result<Duration> {
    use std::io::Write as _;
    let path = std::env::temp_dir().join(format!("pando-cluster-{}", std::process::id()));
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).open(&path);
    let written = opened.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()
    });
    let took = clock.monotonic().saturating_sub(start);
    written
        .and_then(|()| std::fs::remove_file(&path))
        .map_err(|error| failure::io("write", &path, &error))?;
    Ok(took)
}

fn ratio(bytes: usize, rows: u64) -> f64 {
    (bytes as f64 / rows as f64 * 100.0).round() / 100.0
}

fn micros(duration: Duration) -> f64 {
    (duration.as_nanos() as f64 / 10.0).round() / 100.0
}
