//! `latches`: lock coupling beside our latches (decision 0006), in one tree in memory of which
//! nothing else differs (`latched_tree`).
//!
//! A round goes through each layout of the keys, with a tree a thread and with one tree, and each
//! way of latching alternately. Two threads insert, then change, then look up, in random orders.
//! Once a round one thread does so alone. The ratio of a round is the rate of two threads in one
//! tree over that of two with a tree each. Who comes first changes from round to round. The first
//! round only warms up.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::USAGE;
use crate::engine::Result;
use crate::keys::{self, Kind, Shuffle};
use crate::latched_tree::{Scheme, Tree, key_of};

/// What is requested.
#[derive(Clone, Copy)]
struct Options {
    /// Entries of a thread.
    entries: u64,
    /// Changes and look-ups of a thread.
    operations: u64,
    rounds: u64,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options> {
        let mut options = Options { entries: 1_000_000, operations: 2_000_000, rounds: 9 };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let value = rest.next().ok_or(USAGE)?.parse()?;
            match argument.as_str() {
                "--entries" => options.entries = value,
                "--operations" => options.operations = value,
                "--rounds" => options.rounds = value,
                _ => return Err(USAGE.into()),
            }
        }
        let least = options.entries.min(options.operations).min(options.rounds);
        if least == 0 { Err(USAGE.into()) } else { Ok(options) }
    }
}

/// Which threads work, on what, and how their keys are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    Ranges,
    RangesApart,
    Alternating,
    AlternatingApart,
    Alone,
}

impl Set {
    const ALL: [Set; 5] =
        [Set::Ranges, Set::RangesApart, Set::Alternating, Set::AlternatingApart, Set::Alone];

    fn name(self) -> &'static str {
        match self {
            Set::Ranges => "ranges",
            Set::RangesApart => "ranges_apart",
            Set::Alternating => "alternating",
            Set::AlternatingApart => "alternating_apart",
            Set::Alone => "alone",
        }
    }

    fn threads(self) -> u64 {
        if self == Set::Alone { 1 } else { 2 }
    }

    fn trees(self) -> u64 {
        if matches!(self, Set::RangesApart | Set::AlternatingApart) { 2 } else { 1 }
    }

    /// The same work with a tree a thread.
    fn with_trees_apart(self) -> Option<Set> {
        match self {
            Set::Ranges => Some(Set::RangesApart),
            Set::Alternating => Some(Set::AlternatingApart),
            _ => None,
        }
    }

    /// The number of a thread's `n`th entry.
    fn number(self, thread: u64, n: u64, entries: u64) -> u64 {
        match self {
            Set::Alternating | Set::AlternatingApart => 2 * n + thread,
            _ => thread * entries + n,
        }
    }
}

/// What is done, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Insert,
    Update,
    Get,
}

const WORKS: [(Work, &str); 3] =
    [(Work::Insert, "insert"), (Work::Update, "update"), (Work::Get, "get")];

/// One thread's share of a work.
struct Share<'a> {
    tree: &'a dyn Tree,
    set: Set,
    thread: u64,
    round: u64,
    options: Options,
}

impl Share<'_> {
    fn run(&self, work: Work) {
        let Options { entries, operations, .. } = self.options;
        let count = if work == Work::Insert { entries } else { operations };
        let seed = self.round << 8 | self.thread << 4 | work as u64;
        let order = Shuffle::new(entries.max(2), seed);
        let mut sum = 0_u64;
        for at in 0..count {
            let n = order.at(at % entries);
            let number = self.set.number(self.thread, n, entries);
            let key = key_of(&keys::key(number, Kind::There));
            if work == Work::Get {
                sum += u64::from(self.tree.get(&key).expect("what was put is there"));
            } else {
                self.tree.put(&key, &keys::value(number + at));
            }
        }
        black_box(sum);
    }
}

/// Runs the shares at once; returns operations a second of all until the last has ended.
fn rate(shares: &[Share<'_>], work: Work) -> f64 {
    let together = &Barrier::new(shares.len());
    let times = std::thread::scope(|scope| {
        let run = |share: &'_ Share<'_>| {
            together.wait();
            let start = Instant::now();
            share.run(work);
            (start, Instant::now())
        };
        let threads: Vec<_> = shares.iter().map(|share| scope.spawn(move || run(share))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        joined.collect::<Vec<_>>()
    });
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    let seconds = end.zip(start).map_or(0.0, |(end, start)| (end - start).as_secs_f64());
    let Options { entries, operations, .. } = shares[0].options;
    let count = if work == Work::Insert { entries } else { operations };
    (count * shares.len() as u64) as f64 / seconds.max(1e-9)
}

/// Rates of all rounds.
type Rates = BTreeMap<(Set, Work, Scheme), Vec<f64>>;

fn round(options: Options, number: u64, rates: &mut Rates) {
    let (mut sets, mut schemes) = (Set::ALL, Scheme::ALL);
    schemes.rotate_left(number as usize % Scheme::ALL.len());
    if number % 2 == 1 {
        sets.reverse();
    }
    for set in sets {
        for scheme in schemes {
            let entries = options.entries * set.threads() / set.trees();
            let trees: Vec<_> = (0..set.trees()).map(|_| scheme.make(entries)).collect();
            let shares: Vec<_> = (0..set.threads())
                .zip(trees.iter().cycle())
                .map(|(thread, tree)| Share { tree: &**tree, set, thread, round: number, options })
                .collect();
            for (work, _) in WORKS {
                let rate = rate(&shares, work);
                if number > 0 {
                    rates.entry((set, work, scheme)).or_default().push(rate);
                }
            }
        }
    }
}

/// The median, the least and the greatest.
#[derive(Clone, Copy)]
struct Spread([f64; 3]);

impl Spread {
    fn of(all: impl Iterator<Item = f64>) -> Spread {
        let mut all: Vec<f64> = all.collect();
        all.sort_by(f64::total_cmp);
        let count = all.len();
        let median = f64::midpoint(all[count / 2], all[(count - 1) / 2]);
        Spread([median, all[0], all[count - 1]])
    }

    fn json(self, digits: i32) -> Value {
        let scale = 10_f64.powi(digits);
        let [median, least, greatest] = self.0.map(|value| (value * scale).round() / scale);
        json!({ "median": median, "least": least, "greatest": greatest })
    }

    fn text(self, unit: f64) -> String {
        let [median, least, greatest] = self.0.map(|value| value / unit);
        format!("{median:.2} ({least:.2} to {greatest:.2})")
    }
}

/// Measures, and prints one line of JSON and tables.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let mut rates = Rates::new();
    for number in 0..=options.rounds {
        round(options, number, &mut rates);
    }
    let spread = |set, work, scheme| Spread::of(rates[&(set, work, scheme)].iter().copied());
    let ratio = |set: Set, work, scheme| {
        let apart = &rates[&(set.with_trees_apart()?, work, scheme)];
        let together = rates[&(set, work, scheme)].iter();
        Some(Spread::of(together.zip(apart).map(|(one, two)| one / two)))
    };
    let mut object = Map::new();
    for (name, value) in [
        ("entries_per_thread", options.entries),
        ("operations_per_thread", options.operations),
        ("rounds", options.rounds),
    ] {
        object.insert(name.into(), json!(value));
    }
    for (set, (work, what), scheme) in all() {
        let name = format!("{}_{what}_{}", set.name(), scheme.name());
        object.insert(format!("{name}_per_second"), spread(set, work, scheme).json(0));
        if let Some(ratio) = ratio(set, work, scheme) {
            object.insert(format!("{name}_ratio"), ratio.json(3));
        }
    }
    println!("{}\n", json!({ "workload": "latches", "results": object }));
    let millions = |set, work, scheme| Some(spread(set, work, scheme).text(1e6));
    print_table("millions of operations a second, all threads", millions);
    print_table("one tree to a tree each", |set, work, scheme| {
        ratio(set, work, scheme).map(|ratio| ratio.text(1.0))
    });
    println!("Median (least to greatest) of {} rounds, alternately.", options.rounds);
    Ok(())
}

fn all() -> impl Iterator<Item = (Set, (Work, &'static str), Scheme)> {
    Set::ALL.into_iter().flat_map(|set| {
        let works = WORKS.into_iter();
        works.flat_map(move |work| Scheme::ALL.map(|scheme| (set, work, scheme)))
    })
}

fn print_table(title: &str, cell: impl Fn(Set, Work, Scheme) -> Option<String>) {
    println!("| {title} | coupling | coupling, shared above the leaf | ours |");
    println!("|---|---:|---:|---:|");
    for set in Set::ALL {
        for (work, what) in WORKS {
            let cells: Option<Vec<_>> =
                Scheme::ALL.into_iter().map(|scheme| cell(set, work, scheme)).collect();
            if let Some(cells) = cells {
                println!("| {what}, {} | {} |", set.name().replace('_', ", "), cells.join(" | "));
            }
        }
    }
    println!();
}
