//! `search`: query sets 1 to 3 of the paper (Table 4), exact names and substrings, on a volume of
//! a made-up namespace (`namespace`).
//!
//! The volume is filled through the file system, one file after the other; then the index builds
//! its base. With `--volume` both are kept, and the next run only queries: `VOLDIR.sample.json`
//! has the sample from which the queries are drawn. One JSON object for the filling, one for each
//! set.

mod queries;
mod fill;
mod place;
mod picture;
mod timed;

use std::time::Duration;

use serde_json::{Value, json};

use super::{Run, memory};
use fill::Sample;
use place::BenchVolume;
use program::failure::Result;
use program::output::Output;
use queries::{Asked, Query, SETS};

/// An answer with up to this many matches counts as a whole; of longer ones the time per match
/// counts.
const MATCHES_MAX: u64 = 1000;

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    if let Some(path) = &run.args.search.list {
        return fill::list(run, path);
    }
    let place = BenchVolume::open(run.args)?;
    // A sample beside a newly created volume belongs to an earlier volume.
    let kept = if place.is_fresh() { None } else { Sample::read(place.path())? };
    let sample = if let Some(sample) = kept {
        sample
    } else {
        let (sample, object) = fill::fill(run, &place)?;
        report(output, &object)?;
        sample
    };
    run.bar.finish_and_clear();
    let result = SETS.into_iter().try_for_each(|set| {
        let measured = ask_all(run, &place, &sample, set)?;
        report(output, &measured.object(run, &place, &sample, set)?)?;
        picture::lines(&measured.times()).iter().try_for_each(|line| output.line(line))
    });
    result.and_then(|()| place.close())
}

fn report(output: &mut Output, object: &Value) -> Result<()> {
    output.object(object)?;
    output.line(&object.to_string())
}

/// The times of the queries of a set.
struct Measured {
    asked: Vec<Asked>,
}

fn ask_all(run: &Run<'_>, place: &BenchVolume, sample: &Sample, set: &str) -> Result<Measured> {
    let mut random = fastrand::Rng::with_seed(11);
    let queries = (0..run.args.search.queries)
        .map(|_| Query::draw(set, sample, &mut random))
        .collect::<Result<Vec<_>>>()?;
    let mut asked = Vec::new();
    // One extra round for data that is read on first use, unless that is measured.
    for round in 0..2 {
        if run.args.search.cold && round == 0 {
            continue;
        }
        asked.clear();
        for query in &queries {
            if run.args.search.cold {
                place.reopen_cold()?;
            }
            asked.push(query.ask(place)?);
            run.check()?;
        }
    }
    Ok(Measured { asked })
}

impl Measured {
    /// Times of the answers that are short enough, ascending.
    fn times(&self) -> Vec<Duration> {
        let short = self.asked.iter().filter(|asked| asked.matched <= MATCHES_MAX);
        let mut times: Vec<Duration> = short.map(|asked| asked.took).collect();
        times.sort_unstable();
        times
    }

    fn object(
        &self,
        run: &Run<'_>,
        place: &BenchVolume,
        sample: &Sample,
        set: &str,
    ) -> Result<Value> {
        let times = self.times();
        let at = |share: f64| {
            let place = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len().max(1));
            times.get(place - 1).copied().map(micros)
        };
        let long: Vec<&Asked> =
            self.asked.iter().filter(|asked| asked.matched > MATCHES_MAX).collect();
        let matches: u64 = long.iter().map(|asked| asked.matched).sum();
        let took: Duration = long.iter().map(|asked| asked.took).sum();
        let mut counts: Vec<u64> = self.asked.iter().map(|asked| asked.matched).collect();
        counts.sort_unstable();
        let share = |of: fn(&Asked) -> u64| {
            let clusters: u64 = self.asked.iter().map(|asked| asked.clusters).sum();
            let part: u64 = self.asked.iter().map(of).sum();
            (part as f64 / clusters.max(1) as f64 * 10_000.0).round() / 10_000.0
        };
        // The paper's Fig. 8.
        let mut fractions: Vec<f64> = self.asked.iter().map(Asked::fraction).collect();
        fractions.sort_unstable_by(f64::total_cmp);
        let fraction = |percent: usize| {
            let last = fractions.len().saturating_sub(1);
            fractions.get(last * percent / 100).copied()
        };
        let stats = place.index_stats()?;
        let per_file = stats.disk_bytes as f64 / sample.files as f64;
        let mut object = json!({
            "bench": "search", "set": set, "files": sample.files, "profile": sample.profile,
            "queries": self.asked.len(), "mode": if run.args.search.cold { "cold" } else { "warm" },
            "median_us": at(0.5), "p99_us": at(0.99), "max_us": at(1.0),
            "cdf_us": (0..=100).map(|percent| at(f64::from(percent) / 100.0)).collect::<Vec<_>>(),
            "clusters_fraction": share(|asked| asked.clusters_read),
            "clusters_cdf": (0..=100).map(fraction).collect::<Vec<_>>(),
            "matches_median": counts.get(counts.len() / 2),
            "matches_max": counts.last(),
            "rss_bytes": memory::resident_bytes(),
            "index_bytes": stats.disk_bytes,
            "index_bytes_per_file": (per_file * 10.0).round() / 10.0,
            "index_memory_bytes": stats.base_bytes + stats.cluster_bytes + stats.delta_bytes,
            "index_budget_bytes": place.index_budget(),
            "clusters": stats.clusters,
        });
        if !long.is_empty() {
            object["long_queries"] = json!(long.len());
            object["long_ns_per_match"] = json!(took.as_nanos() as u64 / matches);
        }
        Ok(object)
    }
}

fn micros(duration: Duration) -> f64 {
    (duration.as_nanos() as f64 / 10.0).round() / 100.0
}
