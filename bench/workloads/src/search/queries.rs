//! The queries: their attributes are drawn from existing files, so that they follow the same
//! distributions (Magellan, 5.3).

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fs::FileSystem;
use inode::NodeId;
use search::cluster::Fields;
use search::query::{Expr, Glob, Letters, Test};
use search::{Attribute, Request, Start};

use super::fill::{Sample, SampleRow};
use super::place::BenchVolume;
use super::timed::{failed, timed};
use crate::name_query::Everybody;
use crate::volume::{broken, caller};
use program::failure::Result;

/// The sets of the paper's Table 4, and the queries for plocate.
pub(super) const SETS: [&str; 5] = ["1", "2", "3", "name", "substring"];

const HOUR: i64 = 3600 * 1_000_000_000;
/// How near "near this time" is, to either side: an hour, a day, a week.
const NEAR: [i64; 3] = [HOUR, 24 * HOUR, 168 * HOUR];
/// Letters of a substring.
const LETTERS: std::ops::RangeInclusive<usize> = 4..=10;

/// One query.
pub(super) struct Query {
    directories: Vec<String>,
    expr: Expr,
}

/// The result of one query.
pub(super) struct Asked {
    pub(super) took: Duration,
    pub(super) matched: u64,
    pub(super) clusters: u64,
    pub(super) clusters_read: u64,
}

impl Asked {
    /// The fraction of the clusters that was read.
    pub(super) fn fraction(&self) -> f64 {
        (self.clusters_read as f64 / self.clusters.max(1) as f64 * 10_000.0).round() / 10_000.0
    }
}

fn within(attribute: Attribute, least: i128, greatest: i128) -> Expr {
    Expr::Test(Test::Within(attribute, least, greatest))
}

fn owner(row: &SampleRow) -> Expr {
    within(Attribute::Uid, row.uid.into(), row.uid.into())
}

impl Query {
    /// Draws a query of a set.
    pub(super) fn draw(set: &str, sample: &Sample, random: &mut fastrand::Rng) -> Result<Query> {
        let row = &sample.rows[random.usize(..sample.rows.len())];
        let glob = |glob: std::result::Result<Glob, _>| {
            glob.map(|glob| Expr::Test(Test::Name(glob)))
                .map_err(|error| failed("a name is no pattern", error))
        };
        let name = || glob(Glob::literal(row.name.as_bytes()));
        let mut directories = Vec::new();
        let expr = match set {
            "1" => Expr::All(vec![name()?, owner(row)]),
            "2" => {
                let depth = random.usize(1..=row.directories.len().max(1));
                directories.extend(row.directories.iter().take(depth).cloned());
                Expr::All(vec![name()?, owner(row)])
            }
            "3" => {
                let near = NEAR[random.usize(..NEAR.len())];
                let least = i128::from(row.mtime - near);
                Expr::All(vec![
                    owner(row),
                    within(Attribute::Mtime, least, i128::from(row.mtime + near)),
                    within(Attribute::Size, row.size.into(), u64::MAX.into()),
                ])
            }
            "name" => name()?,
            _ => {
                let length = random.usize(LETTERS).min(row.name.len());
                let from = random.usize(..=row.name.len() - length);
                let part = &row.name.as_bytes()[from..from + length];
                glob(Glob::containing(part, false, Letters::Bytes))?
            }
        };
        Ok(Query { directories, expr })
    }

    /// Runs the query, and takes all matches.
    pub(super) fn ask(&self, place: &BenchVolume) -> Result<Asked> {
        let (asked, took) = timed(|| self.answer(place));
        Ok(Asked { took, ..asked? })
    }

    /// Finds the directory and all matches below it.
    fn answer(&self, place: &BenchVolume) -> Result<Asked> {
        let fs = place.fs();
        let who = caller();
        let mut node = NodeId::ROOT;
        let mut path = String::new();
        for name in &self.directories {
            let found = fs.lookup(&who, node, name.as_bytes()).map_err(broken)?.node;
            if node != NodeId::ROOT {
                fs.forget(node, 1);
            }
            node = found;
            path.push('/');
            path.push_str(name);
        }
        let (subvolume, directory) = fs.search_place(node).map_err(broken)?;
        let path = if path.is_empty() { "/" } else { &path };
        let start = Start { subvolume, directory, path: path.as_bytes(), depth: 0 };
        let cancel = AtomicBool::new(false);
        let request = Request {
            start,
            expr: &self.expr,
            prune: None,
            alone: false,
            caller: &who,
            min_depth: 0,
            max_depth: None,
            contents_first: false,
            order: None,
            limit: None,
            fields: Fields::NONE,
            accounts: &Everybody,
            cancel: &cancel,
        };
        let mut bytes = 0;
        let outcome = fs.search(&request, &mut |found| {
            bytes += found.path.len();
            ControlFlow::Continue(())
        });
        std::hint::black_box(bytes);
        if node != NodeId::ROOT {
            fs.forget(node, 1);
        }
        let outcome = outcome.map_err(|error| failed("a query failed", error))?;
        let (matched, clusters) = (outcome.matched, outcome.clusters);
        let took = Duration::ZERO;
        Ok(Asked { took, matched, clusters, clusters_read: outcome.clusters_read })
    }
}
