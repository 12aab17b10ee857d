//! `mount-bench --pando PROGRAM --memfs PROGRAM --scratch DIRECTORY [--rounds N] [--files N]
//! [--threads 1,4] [--server-threads N]` compares our mount, the yardstick and the disk below both.
//! They are under the same load in one run, in turn. It prints a line of JSON for each phase and
//! number of threads.
//!
//! Wall time is compared round by round and the median of the ratios is what counts. So a machine
//! that does other work too harms both alike. The order within a round rotates.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use device::{Clock, SystemClock};
use memfs::{Arguments, Layout, Load, Measured, Phase};

const SUBJECTS: usize = 3;
const OURS: usize = 0;
const YARDSTICK: usize = 1;
const DISK: usize = 2;

#[expect(clippy::print_stderr, reason = "a program that talks to people")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("mount-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// A server and where it is mounted; unmounted and ended when dropped.
struct Server {
    child: Child,
    mount_point: PathBuf,
}

impl Server {
    fn start(command: &mut Command, mount_point: &Path) -> Result<Server, String> {
        let below = device_of(mount_point)?;
        let child = command.stdout(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("{command:?}: {error}"))?;
        let mut server = Server { child, mount_point: mount_point.to_owned() };
        let clock = SystemClock::new();
        for _ in 0..1000 {
            if device_of(mount_point)? != below {
                return Ok(server);
            }
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("{command:?}: {status}"));
            }
            clock.sleep(Duration::from_millis(10));
        }
        Err(format!("{command:?}: not mounted within 10 seconds"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.mount_point).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            self.child.kill().unwrap_or_default();
        }
        self.child.wait().map(drop).unwrap_or_default();
    }
}

fn device_of(path: &Path) -> Result<u64, String> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path);
    metadata.map(|found| found.dev()).map_err(|error| format!("{}: {error}", path.display()))
}

struct Plan {
    rounds: usize,
    files: usize,
    threads: Vec<usize>,
}

fn run() -> Result<(), String> {
    let arguments = Arguments::of_process();
    let needed = |name| arguments.text(name).ok_or(format!("--{name} is needed"));
    let (ours, yardstick) = (needed("pando")?, needed("memfs")?);
    let scratch = PathBuf::from(needed("scratch")?);
    let threads = arguments.text("threads").unwrap_or("1,4").split(',');
    let plan = Plan {
        rounds: arguments.number("rounds", 9)?.max(1),
        files: arguments.number("files", 4000)?.max(1),
        threads: threads
            .map(|text| text.parse().map_err(|_| format!("--threads {text}: not a number")))
            .collect::<Result<_, _>>()?,
    };
    let server_threads = arguments.number("server-threads", 2)?.to_string();

    let directory = scratch.join(format!("mount-bench-{}", std::process::id()));
    let places = ["ours", "yardstick", "disk"].map(|name| directory.join(name));
    for place in &places {
        std::fs::create_dir_all(place).map_err(|error| error.to_string())?;
    }
    let volume = directory.join("volume");
    let formatted = Command::new(ours).arg("format").arg(&volume).stdout(Stdio::null()).status();
    if !formatted.is_ok_and(|status| status.success()) {
        return Err(format!("{ours} format failed"));
    }
    let mut command = Command::new(ours);
    command.arg("mount").arg("--foreground").args(["-o", &format!("threads={server_threads}")]);
    command.arg(&volume).arg(&places[OURS]);
    let first = Server::start(&mut command, &places[OURS])?;
    let mut command = Command::new(yardstick);
    command.arg(&places[YARDSTICK]).args(["--threads", &server_threads]);
    let second = Server::start(&mut command, &places[YARDSTICK])?;

    let servers = [Some(first.child.id()), Some(second.child.id()), None];
    let measured = measure(&plan, &places, servers);
    drop((first, second));
    let removed = std::fs::remove_dir_all(&directory);
    measured?;
    removed.map_err(|error| format!("{}: {error}", directory.display()))
}

fn measure(
    plan: &Plan,
    places: &[PathBuf; SUBJECTS],
    servers: [Option<u32>; SUBJECTS],
) -> Result<(), String> {
    for threads in &plan.threads {
        let mut rounds: Vec<[Vec<Measured>; SUBJECTS]> = Vec::new();
        // The first round warms up and is not counted.
        for round in 0..=plan.rounds {
            let mut results = [const { Vec::new() }; SUBJECTS];
            for turn in 0..SUBJECTS {
                let subject = (round + turn) % SUBJECTS;
                let load = Load {
                    directory: places[subject].clone(),
                    threads: *threads,
                    files: plan.files / threads,
                    layout: Layout::Own,
                    phases: Phase::ALL.to_vec(),
                    server: servers[subject],
                };
                let failed = |error| format!("{}: {error}", places[subject].display());
                results[subject] = load.run().map_err(failed)?;
            }
            if round > 0 {
                rounds.push(results);
            }
        }
        for phase in 0..Phase::ALL.len() {
            print_phase(*threads, phase, &rounds);
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "results go to standard output")]
fn print_phase(threads: usize, phase: usize, rounds: &[[Vec<Measured>; SUBJECTS]]) {
    let rate = |subject: usize| {
        median(rounds.iter().map(|round| round[subject][phase].per_second()).collect())
    };
    let ratios = |of: usize, to: usize| -> Vec<f64> {
        let ratio = |round: &[Vec<Measured>; SUBJECTS]| {
            round[of][phase].per_second() / round[to][phase].per_second()
        };
        rounds.iter().map(ratio).collect()
    };
    let server_us = |subject: usize| {
        median(rounds.iter().filter_map(|round| round[subject][phase].server_us).collect())
    };
    let extra_us = rounds.iter().filter_map(|round| {
        Some(round[OURS][phase].server_us? - round[YARDSTICK][phase].server_us?)
    });
    let spread = ratios(OURS, YARDSTICK);
    let line = serde_json::json!({
        "phase": Phase::ALL[phase].name(),
        "threads": threads,
        "operations": rounds[0][OURS][phase].operations,
        "rounds": rounds.len(),
        "pando_ops_per_second": rate(OURS).round(),
        "memfs_ops_per_second": rate(YARDSTICK).round(),
        "disk_ops_per_second": rate(DISK).round(),
        "ratio": rounded(median(spread.clone())),
        "ratio_min": rounded(spread.iter().copied().fold(f64::INFINITY, f64::min)),
        "ratio_max": rounded(spread.iter().copied().fold(0.0, f64::max)),
        "ratio_to_disk": rounded(median(ratios(OURS, DISK))),
        "pando_server_us": rounded(server_us(OURS)),
        "memfs_server_us": rounded(server_us(YARDSTICK)),
        "extra_server_us": rounded(median(extra_us.collect())),
    });
    println!("{line}");
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
