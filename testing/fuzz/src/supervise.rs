//! The supervisor: starts workers, notices when one dies or hangs, records its current case, and
//! starts another behind that case. At the end it reports how much was run.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use device::{Clock as _, SystemClock};

use crate::target::{Category, Target};
use crate::worker::{Beat, Case};

/// How long a case may take in wall-clock time: other programs use the processors too.
fn patience(part: Category) -> Duration {
    match part {
        Category::Decoders => Duration::from_secs(60),
        Category::Operations => Duration::from_secs(180),
    }
}

/// Number of dead workers after which a run is aborted.
const DEATHS_MAX: usize = 10;

/// A run.
#[derive(Debug, Clone)]
pub struct Run {
    /// Which part.
    pub part: Category,
    /// Only this target, if set.
    pub only: Option<String>,
    /// The seed.
    pub seed: u64,
    /// CPU seconds, over all workers.
    pub cpu_seconds: f64,
    /// Workers.
    pub jobs: u64,
    /// The directory of findings.
    pub findings: PathBuf,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Executions and understood inputs of each target.
    pub counts: BTreeMap<String, (u64, u64)>,
    /// Workers that died.
    pub deaths: usize,
    /// Whether so many workers died that the run was aborted before its time.
    pub given_up: bool,
    /// CPU seconds.
    pub cpu_seconds: f64,
    /// Findings of workers, and of the supervisor.
    pub findings: usize,
}

impl Outcome {
    /// All executions.
    pub fn executions(&self) -> u64 {
        self.counts.values().map(|count| count.0).sum::<u64>()
    }
}

/// The targets of a run.
pub fn chosen(part: Category, only: Option<&str>) -> Vec<Target> {
    let wanted = |target: &Target| only.is_none_or(|only| only == target.name);
    crate::targets().into_iter().filter(|one| one.part == part && wanted(one)).collect()
}

struct Worker {
    child: Child,
    heartbeat: PathBuf,
    index: u64,
    cpu_seconds: f64,
    last: Beat,
    since: Duration,
}

impl Run {
    /// Runs it, with the program `own` as worker.
    pub fn run(&self, own: &Path) -> std::io::Result<Outcome> {
        let targets = chosen(self.part, self.only.as_deref());
        let place = std::env::temp_dir().join(format!("pando-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        let ended = self.supervise(own, &targets, &place);
        std::fs::remove_dir_all(&place)?;
        ended
    }

    fn supervise(&self, own: &Path, targets: &[Target], place: &Path) -> std::io::Result<Outcome> {
        let clock = SystemClock::new();
        let mut outcome = Outcome::default();
        let share = self.cpu_seconds / self.jobs as f64;
        let mut running = Vec::new();
        for index in 0..self.jobs {
            running.push(self.start(own, place, index, (index, share), &clock)?);
        }
        while let Some(mut worker) = running.pop() {
            let (status, why) = self.wait(&mut worker, &clock)?;
            let beat = Beat::read(&worker.heartbeat).unwrap_or_default();
            let used = beat.cpu_millis as f64 / 1000.0;
            outcome.cpu_seconds += used;
            let mut text = String::new();
            if let Some(mut output) = worker.child.stdout.take() {
                output.read_to_string(&mut text)?;
            }
            if status.is_some_and(|status| status.code().is_some_and(|code| code <= 1)) {
                outcome.count(&text);
                continue;
            }
            outcome.deaths += 1;
            outcome.findings += 1;
            for (name, count) in Beat::read_counts(&worker.heartbeat, targets) {
                outcome.add(name, count);
            }
            let Some(target) = targets.get(beat.target as usize) else { break };
            let input = target.case(self.seed, beat.number);
            Case { target, seed: self.seed, number: beat.number }.keep(
                &self.findings,
                &input,
                &why,
            )?;
            let left = worker.cpu_seconds - used;
            if left <= 0.0 {
                continue;
            }
            if outcome.deaths < DEATHS_MAX {
                let first = beat.number + self.jobs;
                running.push(self.start(own, place, worker.index, (first, left), &clock)?);
            } else {
                outcome.given_up = true;
            }
        }
        Ok(outcome)
    }

    fn start(
        &self,
        own: &Path,
        place: &Path,
        index: u64,
        (first, cpu_seconds): (u64, f64),
        clock: &SystemClock,
    ) -> std::io::Result<Worker> {
        let heartbeat = place.join(index.to_string());
        // The counts that the worker before it reported.
        match std::fs::remove_file(&heartbeat) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut command = Command::new(own);
        command.arg("worker").arg("--part").arg(self.part.name());
        if let Some(only) = &self.only {
            command.arg("--only").arg(only);
        }
        command.arg("--seed").arg(self.seed.to_string());
        command.arg("--first").arg(first.to_string());
        command.arg("--stride").arg(self.jobs.to_string());
        command.arg("--cpu-seconds").arg(cpu_seconds.to_string());
        command.arg("--heartbeat").arg(&heartbeat);
        command.arg("--findings").arg(&self.findings);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let since = clock.monotonic();
        Ok(Worker { child, heartbeat, index, cpu_seconds, last: Beat::default(), since })
    }

    /// Waits until a worker ends; `None` if it hung and was killed.
    fn wait(
        &self,
        worker: &mut Worker,
        clock: &SystemClock,
    ) -> std::io::Result<(Option<ExitStatus>, String)> {
        loop {
            if let Some(status) = worker.child.try_wait()? {
                return Ok((Some(status), format!("the worker died: {status}")));
            }
            let beat = Beat::read(&worker.heartbeat).unwrap_or_default();
            if beat != worker.last {
                (worker.last, worker.since) = (beat, clock.monotonic());
            } else if clock.monotonic() > worker.since + patience(self.part) {
                worker.child.kill()?;
                worker.child.wait()?;
                let why = format!("nothing for {:?}: it hangs", patience(self.part));
                return Ok((None, why));
            }
            clock.sleep(Duration::from_millis(50));
        }
    }
}

impl Outcome {
    /// Parses a worker's output: a line for each target, and one for the findings.
    fn count(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0_u64);
            if name == "findings" {
                self.findings += number() as usize;
            } else {
                let (executions, understood) = (number(), number());
                self.add(name, (executions, understood));
            }
        }
    }

    fn add(&mut self, name: &str, (executions, understood): (u64, u64)) {
        let count = self.counts.entry(name.to_owned()).or_default();
        count.0 += executions;
        count.1 += understood;
    }
}

impl Category {
    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Category::Decoders => "decoders",
            Category::Operations => "operations",
        }
    }

    /// The part of a name.
    pub fn named(name: &str) -> Option<Category> {
        [Category::Decoders, Category::Operations].into_iter().find(|part| part.name() == name)
    }
}
