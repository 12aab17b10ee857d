//! Changed rows as rows in layers, beside the same rows as small immutable clusters: both find the
//! same. Decision 0323 has what each costs, counted by instructions:
//!
//! `PANDO_CHANGED_ROWS="layers 50 200" valgrind --tool=callgrind --callgrind-out-file=/dev/null
//! UNIT_TESTS layer_rivals`
//!
//! This makes 50 times 200 changes as layers, with three searches after each. `clusters` makes them
//! as clusters, and `nothing` the changes alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use format::inode_record::FileKind;
use inode::NameHash;

use super::layer::{Delta, Layer};
use crate::cluster::{Cluster, ClusterBuilder, ClusterOptions, Fields};
use crate::{Attribute, Condition, Row, RowBuf};

type Key = (u64, u64);
/// What is at places now.
type Changes = BTreeMap<Key, Option<RowBuf>>;

fn hash() -> NameHash {
    NameHash::new([9; 16])
}

/// A way to keep changed rows.
trait Rival {
    fn change(&mut self, changes: &Changes);
    /// The places of the rows that meet a condition.
    fn search(&self, wanted: &Condition) -> Vec<Key>;
    fn memory_bytes(&self) -> usize;
}

/// As the product keeps them.
#[derive(Default)]
struct Layers(Delta);

impl Rival for Layers {
    fn change(&mut self, changes: &Changes) {
        let mut layer = Layer::default();
        for (place, row) in changes {
            layer.push(*place, row.as_ref().map(RowBuf::as_row).as_ref());
        }
        self.0 = self.0.with(layer);
    }

    fn search(&self, wanted: &Condition) -> Vec<Key> {
        let mut found = Vec::new();
        self.0.each(&mut |row| {
            if meets(row, wanted) {
                found.push((row.directory, row.cookie));
            }
            true
        });
        found
    }

    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

/// As small clusters, merged like layers so that they are few.
#[derive(Default)]
struct Clusters(Vec<(Vec<Key>, Option<Cluster>)>);

/// As of layers.
const MERGE_FACTOR: usize = 4;

impl Clusters {
    fn built(changes: &Changes) -> (Vec<Key>, Option<Cluster>) {
        let mut builder = ClusterBuilder::new(ClusterOptions::new(hash()));
        changes.values().flatten().for_each(|row| builder.push(&row.as_row()));
        let cluster = (!builder.is_empty()).then(|| {
            Cluster::open(std::sync::Arc::new(builder.finish().bytes), hash()).expect("its own")
        });
        (changes.keys().copied().collect(), cluster)
    }

    fn rows(&self, at: usize) -> Changes {
        let (places, cluster) = &self.0[at];
        let mut changes: Changes = places.iter().map(|place| (*place, None)).collect();
        if let Some(cluster) = cluster {
            let rows = cluster.rows(Fields::ATTRIBUTES).expect("its own");
            for at in 0..cluster.len() {
                let row = rows.get(at);
                changes.insert((row.directory, row.cookie), Some(row.to_buf()));
            }
        }
        changes
    }
}

impl Rival for Clusters {
    fn change(&mut self, changes: &Changes) {
        let mut newest = changes.clone();
        while let Some((places, _)) = self.0.last()
            && places.len() < newest.len() * MERGE_FACTOR
        {
            let mut merged = self.rows(self.0.len() - 1);
            merged.append(&mut newest);
            newest = merged;
            self.0.pop();
        }
        self.0.push(Clusters::built(&newest));
    }

    fn search(&self, wanted: &Condition) -> Vec<Key> {
        let mut found = Vec::new();
        for (depth, (_, cluster)) in self.0.iter().enumerate() {
            let Some(cluster) = cluster else { continue };
            let rows = cluster.rows(Fields::ATTRIBUTES).expect("its own");
            let flow = cluster.search(std::slice::from_ref(wanted), &mut |at| {
                let row = rows.get(at);
                let place = (row.directory, row.cookie);
                let mut newer = self.0[depth + 1..].iter();
                if !newer.any(|(places, _)| places.binary_search(&place).is_ok()) {
                    found.push(place);
                }
                ControlFlow::Continue(())
            });
            assert!(flow.expect("its own").is_continue());
        }
        found
    }

    fn memory_bytes(&self) -> usize {
        let of = |(places, cluster): &(Vec<Key>, Option<Cluster>)| {
            size_of_val(&**places) + cluster.as_ref().map_or(0, Cluster::memory_bytes)
        };
        self.0.iter().map(of).sum()
    }
}

fn meets(row: &Row<'_>, wanted: &Condition) -> bool {
    match wanted {
        Condition::Within(Attribute::Size, least, greatest) => {
            (*least..=*greatest).contains(&row.size.into())
        }
        Condition::OneOf(Attribute::Uid, values) => values.contains(&row.uid.into()),
        Condition::NameEnds(end) => row.name.ends_with(end),
        other => unreachable!("it is not searched for: {other:?}"),
    }
}

fn changes(random: &mut fastrand::Rng, count: usize) -> Changes {
    let mut changes = Changes::new();
    while changes.len() < count {
        let number = random.u32(..20_000);
        let name = format!("file{number}.{}", ["c", "txt", "h5"][number as usize % 3]);
        let directory = 2 + u64::from(number) / 40;
        let cookie = hash().hash(name.as_bytes()) << 8;
        let time = 1_700_000_000_000_000_000 + random.i64(..1 << 50);
        let row = Row {
            directory,
            cookie,
            ino: 1000 + u64::from(number),
            name: name.as_bytes(),
            kind: FileKind::File,
            mode: 0o644,
            uid: 1000 + number % 50,
            gid: 100,
            nlink: 1,
            rdev: 0,
            size: random.u64(..1 << 30),
            allocated: 0,
            entries: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            subvolume: 0,
            xattrs: b"",
        };
        let row = (random.u8(..10) > 0).then(|| row.to_buf());
        changes.insert((directory, cookie), row);
    }
    changes
}

fn searches(random: &mut fastrand::Rng) -> [Condition; 3] {
    let least = i128::from(random.u64(..1 << 30));
    [
        Condition::Within(Attribute::Size, least, least + (1 << 23)),
        Condition::OneOf(Attribute::Uid, vec![i128::from(1000 + random.u32(..50))]),
        Condition::NameEnds(format!("{}.h5", random.u32(..100)).into_bytes()),
    ]
}

#[test]
fn small_clusters_find_what_layers_find() {
    let measured = std::env::var("PANDO_CHANGED_ROWS").unwrap_or_default();
    let words: Vec<&str> = measured.split(' ').collect();
    let number = |at: usize, usual| {
        words.get(at).map_or(usual, |word: &&str| word.parse::<usize>().expect("a number"))
    };
    let (steps, rows) = (number(1, 8), number(2, 50));
    let mut rivals: Vec<Box<dyn Rival>> = match words[0] {
        "layers" => vec![Box::<Layers>::default()],
        "clusters" => vec![Box::<Clusters>::default()],
        "nothing" => Vec::new(),
        _ => vec![Box::<Layers>::default(), Box::<Clusters>::default()],
    };
    let mut random = fastrand::Rng::with_seed(7);
    let mut total = 0;
    for _ in 0..steps {
        let changes = changes(&mut random, rows);
        for rival in &mut rivals {
            rival.change(&changes);
        }
        for wanted in searches(&mut random) {
            let sorted = |rival: &dyn Rival| {
                let mut found = rival.search(&wanted);
                found.sort_unstable();
                found
            };
            let found: Vec<_> = rivals.iter().map(|rival| sorted(&**rival)).collect();
            assert!(found.windows(2).all(|two| two[0] == two[1]), "{wanted:?}");
            total += found.first().map_or(0, Vec::len);
        }
    }
    assert!(rivals.is_empty() || total > 0, "the searches find something");
    if !measured.is_empty() {
        let bytes: Vec<usize> = rivals.iter().map(|rival| rival.memory_bytes()).collect();
        println!("{measured}: {total} found, {bytes:?} bytes");
    }
}
