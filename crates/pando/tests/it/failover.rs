//! Servers that take over from each other: real processes, a real etcd, mounts, and a store that
//! both servers reach. An acknowledged change survives, and nothing is done twice.

#![expect(clippy::disallowed_methods, reason = "the test keeps files as any program does")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock, Thread};
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;
use testing::SetAtEnd;

use crate::far::lock_of_process;
use crate::two_servers::{Cluster, may_run};
use crate::world::{PANDO, World, signal, wait_until};

/// How many kills there are.
const KILLS: &str = "PANDO_KILLS";
/// The seed of when they happen.
const SEED: &str = "PANDO_KILL_SEED";
/// Changes of a [`Writer::step`]: an append, a creation and its contents, a rename, a
/// directory that is made and one that is removed.
const CHANGES_OF_A_STEP: u64 = 6;

/// What `docs/guide/serve.md` allows until changes continue, by what happened to the server.
pub(crate) const DEAD: Duration = Duration::from_millis(8800);
pub(crate) const STORE_HANGS: Duration = Duration::from_millis(15_600);

/// Prints a wait, and in a slow run (`make soak-failover`) refuses one that is longer than the
/// budget allows. That is twice the budget, and as much again as this process was late. On a
/// machine that runs all other tests meanwhile, each step of the budget takes as long as it waits
/// for a processor. So there the time shows nothing.
pub(crate) fn check_wait(waited: Duration, budget: Duration, late: Duration) {
    let most = 2 * budget + late;
    let line = format!(
        "waited {:.1} s of {:.1} s, this process was {:.1} s late",
        waited.as_secs_f64(),
        budget.as_secs_f64(),
        late.as_secs_f64()
    );
    testing::run::print_line(&line);
    assert!(waited <= most || !testing::run::slow(), "{line}");
}

/// Measures how late this process runs, until it is stopped.
pub(crate) struct Lateness {
    ends: Arc<AtomicBool>,
    thread: Thread<Duration>,
}

impl Lateness {
    pub(crate) fn begin() -> Lateness {
        const STEP: Duration = Duration::from_millis(50);
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let thread = device::spawn("lateness", move || {
            let (clock, mut late) = (SystemClock::new(), Duration::ZERO);
            while !end.load(Ordering::SeqCst) {
                let before = clock.monotonic();
                clock.sleep(STEP);
                late += clock.monotonic().saturating_sub(before).saturating_sub(2 * STEP);
            }
            late
        });
        Lateness { ends, thread: thread.unwrap() }
    }

    pub(crate) fn end(self) -> Duration {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// Changes of which each was acknowledged; errors of any end the test.
pub(crate) struct Writer {
    directory: PathBuf,
    log: File,
    pub(crate) next: u64,
}

impl Writer {
    pub(crate) fn new(directory: &Path) -> Writer {
        fs::create_dir(directory).unwrap();
        let log = directory.join("log");
        let log = OpenOptions::new().append(true).create_new(true).open(log).unwrap();
        Writer { directory: directory.to_owned(), log, next: 0 }
    }

    fn path(&self, kind: &str, number: u64) -> PathBuf {
        self.directory.join(format!("{kind}{number}"))
    }

    /// Changes that fail, or show, if they are done twice.
    pub(crate) fn step(&mut self) {
        let number = self.next;
        self.log.write_all(format!("{number}\n").as_bytes()).unwrap();
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(self.path("new", number)).unwrap();
        file.write_all(format!("contents {number}").as_bytes()).unwrap();
        drop(file);
        fs::rename(self.path("new", number), self.path("kept", number)).unwrap();
        fs::create_dir(self.path("dir", number)).unwrap();
        if number > 0 {
            fs::remove_dir(self.path("dir", number - 1)).unwrap();
        }
        if number % 3 == 2 {
            fs::remove_file(self.path("kept", number - 1)).unwrap();
        }
        self.next += 1;
    }

    /// What was acknowledged is there, once, and nothing else.
    pub(crate) fn verify(&self, mount: &Path) {
        let directory = mount.join(self.directory.file_name().unwrap());
        let log = fs::read_to_string(directory.join("log")).unwrap();
        let lines: Vec<String> = (0..self.next).map(|number| number.to_string() + "\n").collect();
        let expected = lines.concat();
        assert_eq!(log, expected);
        let mut names: Vec<String> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let is_removed = |number: u64| number % 3 == 1 && number + 1 < self.next;
        let kept = (0..self.next).filter(|number| !is_removed(*number));
        let mut expected: Vec<String> =
            kept.clone().map(|number| format!("kept{number}")).collect();
        expected.extend(["log".to_owned(), format!("dir{}", self.next - 1)]);
        expected.sort();
        assert_eq!(names, expected);
        for number in kept {
            let contents = fs::read_to_string(directory.join(format!("kept{number}"))).unwrap();
            assert_eq!(contents, format!("contents {number}"));
        }
    }
}

/// Servers of a volume in a directory that both reach.
pub(crate) fn cluster() -> Cluster {
    let world = World::in_store();
    let url = world.url.clone().unwrap();
    Cluster::new(world, url)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn try_lock(path: &Path) -> Result<File, Errno> {
    let file = open(path);
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Two mounts that are written at once, and what stays open, locked and without a name meanwhile.
struct Work {
    mounts: [PathBuf; 2],
    writers: [Writer; 2],
    nameless: File,
    _lock: File,
    /// Locked by fcntl(2), for this process through the first mount.
    _process_lock: File,
    /// How many directories of the writers there were.
    rounds: u64,
}

impl Work {
    fn begin(cluster: &mut Cluster) -> Work {
        let mounts = [cluster.mount("one"), cluster.mount("two")];
        let mut nameless = OpenOptions::new();
        nameless.read(true).write(true).create_new(true);
        let mut nameless = nameless.open(mounts[0].join("nameless")).unwrap();
        nameless.write_all(b"still here").unwrap();
        fs::remove_file(mounts[0].join("nameless")).unwrap();
        fs::write(mounts[0].join("locked"), "").unwrap();
        let lock = try_lock(&mounts[0].join("locked")).unwrap();
        fs::write(mounts[0].join("process"), "").unwrap();
        let process_lock = open(&mounts[0].join("process"));
        lock_of_process(&process_lock).unwrap();
        let writers = Work::writers(&mounts, 0);
        Work { mounts, writers, nameless, _lock: lock, _process_lock: process_lock, rounds: 0 }
    }

    fn writers(mounts: &[PathBuf; 2], round: u64) -> [Writer; 2] {
        [0, 1].map(|number| Writer::new(&mounts[number].join(format!("work{number}-{round}"))))
    }

    /// Writes through both mounts while `happens` runs, and then until each has gone on. Returns
    /// the longest time of three changes, a step of a writer.
    fn during<T>(&mut self, happens: impl FnOnce() -> T) -> (T, Duration) {
        let stop = AtomicBool::new(false);
        let steps = [AtomicU64::new(0), AtomicU64::new(0)];
        let [one, two] = &mut self.writers;
        let (stop, steps) = (&stop, &steps);
        let write = |writer: &mut Writer, number: usize| {
            let clock = SystemClock::new();
            let mut slowest = Duration::ZERO;
            while !stop.load(Ordering::SeqCst) {
                let before = clock.monotonic();
                writer.step();
                slowest = slowest.max(clock.monotonic().saturating_sub(before));
                steps[number].fetch_add(1, Ordering::SeqCst);
                clock.sleep(Duration::from_millis(5));
            }
            slowest
        };
        std::thread::scope(|scope| {
            let one = scope.spawn(move || write(one, 0));
            let two = scope.spawn(move || write(two, 1));
            // Also if what happens fails.
            let end = SetAtEnd(stop);
            let result = happens();
            let then = [0, 1].map(|number| steps[number].load(Ordering::SeqCst));
            for number in [0, 1] {
                let continued = || steps[number].load(Ordering::SeqCst) > then[number] + 2;
                wait_until("both mounts continue", || {
                    continued() || one.is_finished() || two.is_finished()
                });
            }
            drop(end);
            let slowest = [one, two].map(|thread| thread.join().expect("no change failed"));
            (result, slowest[0].max(slowest[1]))
        })
    }

    /// What was open, locked and without a name still is.
    fn check_held(&mut self) {
        let mut contents = String::new();
        self.nameless.rewind().unwrap();
        self.nameless.read_to_string(&mut contents).unwrap();
        assert_eq!(contents, "still here");
        let refused = try_lock(&self.mounts[1].join("locked")).err();
        assert_eq!(refused, Some(Errno::WOULDBLOCK), "a lock was lost");
        // Through another mount this process is another owner.
        let refused = lock_of_process(&open(&self.mounts[1].join("process"))).err();
        assert_eq!(refused, Some(Errno::AGAIN), "a lock of a process was lost");
    }

    /// Looks through each mount at what both wrote; then removes that, and begins again.
    fn verify(&mut self) -> u64 {
        for writer in &self.writers {
            self.mounts.iter().for_each(|mount| writer.verify(mount));
        }
        self.rounds += 1;
        let fresh = Work::writers(&self.mounts, self.rounds);
        let old = std::mem::replace(&mut self.writers, fresh);
        for (number, writer) in old.iter().enumerate() {
            fs::remove_dir_all(&writer.directory).unwrap();
            let gone = self.mounts[1 - number].join(writer.directory.file_name().unwrap());
            assert!(!gone.exists(), "what one mount removed is there in the other");
        }
        old.iter().map(|writer| writer.next).sum()
    }
}

/// Kills the server that serves; in one of six times also the one that takes over, at any moment of
/// that, and starts both again. Returns the one that serves then.
fn kill_one(cluster: &mut Cluster, serving: usize, random: &mut fastrand::Rng) -> (usize, bool) {
    let clock = SystemClock::new();
    clock.sleep(Duration::from_millis(random.u64(0..700)));
    cluster.kill(serving);
    let both = random.u8(0..6) == 0;
    if !both {
        cluster.await_state(1 - serving, "serving");
        return (1 - serving, false);
    }
    clock.sleep(Duration::from_millis(random.u64(0..7000)));
    cluster.kill(1 - serving);
    cluster.start(0);
    cluster.start(1);
    let serves = |number: usize| cluster.state(number).as_deref() == Some("serving");
    wait_until("one of both serves", || serves(0) || serves(1));
    (usize::from(serves(1)), true)
}

#[test]
fn a_killed_server_is_replaced_and_nothing_is_done_twice() {
    if !may_run() {
        return;
    }
    let kills: u64 = std::env::var(KILLS).map_or(2, |kills| kills.parse().unwrap());
    let seed = std::env::var(SEED).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{SEED}={seed} {KILLS}={kills}");
    let mut random = fastrand::Rng::with_seed(seed);
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    let mut cluster = cluster();
    cluster.start_both();
    let mut work = Work::begin(&mut cluster);
    let (mut longest, mut serving, mut changes) = (Duration::ZERO, 0, 0);
    for kill in 1..=kills {
        let lateness = Lateness::begin();
        let ((now, both), slowest) = work.during(|| kill_one(&mut cluster, serving, &mut random));
        let late = lateness.end();
        let what = if both { "both servers were killed" } else { "the server was killed" };
        let line =
            format!("kill {kill}: {what}, changes again after {:.1} s", slowest.as_secs_f64());
        testing::run::print_line(&line);
        // (Of two that are dead at once one is started again, at any time.)
        if !both {
            check_wait(slowest, DEAD, late);
        }
        longest = longest.max(slowest);
        serving = now;
        work.check_held();
        if cluster.servers[1 - serving].is_none() {
            cluster.start(1 - serving);
        }
        cluster.await_state(1 - serving, "standby");
        if kill % 10 == 0 || kill == kills {
            changes += work.verify() * CHANGES_OF_A_STEP;
        }
    }
    let took = clock.monotonic().saturating_sub(begun).as_secs_f64();
    let line = format!(
        "{kills} kills in {took:.0} s ({:.0} an hour), {changes} changes, each done once; longest \
         wait {:.1} s",
        kills as f64 * 3600.0 / took,
        longest.as_secs_f64()
    );
    testing::run::print_line(&line);
}

/// What a server logs that waits for answers of the one before it, in seconds.
fn waited(log: &str) -> Vec<f64> {
    let waits = log.lines().filter(|line| line.contains("waiting for answers of the last server"));
    let seconds = waits.map(|line| serde_json::from_str::<Value>(line).unwrap());
    seconds.map(|line| line["fields"]["seconds"].as_f64().unwrap()).collect()
}

#[test]
fn a_server_that_ends_hands_over_and_is_not_waited_for() {
    if !may_run() {
        return;
    }
    let clock = SystemClock::new();
    let mut cluster = cluster();
    cluster.start_both();
    let one = cluster.mount("one");
    fs::write(one.join("locked"), "").unwrap();
    let _lock = try_lock(&one.join("locked")).unwrap();
    let mut writer = Writer::new(&one.join("work"));
    let mut serving = 0;
    for _ in 0..3 {
        // Longer than the first may have to wait for earlier grants.
        let begun = clock.monotonic();
        while clock.monotonic().saturating_sub(begun) < Duration::from_secs(4) {
            writer.step();
        }
        let signalled = clock.monotonic();
        cluster.end(serving);
        let ended = clock.monotonic();
        writer.step();
        let (ended, changed) =
            (ended.saturating_sub(signalled), clock.monotonic().saturating_sub(signalled));
        println!("ended after {ended:.1?}, changes again after {changed:.1?}");
        serving = 1 - serving;
        cluster.await_state(serving, "serving");
        let log = cluster.logged(serving);
        // A grant and a drain are 3 s.
        let waits = waited(&log);
        assert!(!waits.is_empty() && waits.iter().all(|seconds| *seconds <= 1.0), "{log}");
        assert!(!log.contains("lease of this server ended"), "{log}");
        cluster.start(1 - serving);
        cluster.await_state(1 - serving, "standby");
    }
    writer.verify(&one);
}

/// Pauses the server that serves, beyond its grant, and continues it: it changes nothing and
/// answers nothing of before.
pub(crate) fn pause_and_continue(cluster: &mut Cluster) {
    cluster.start_both();
    let one = cluster.mount("one");
    let mut writer = Writer::new(&one.join("work"));
    (0..5).for_each(|_| writer.step());
    fs::write(one.join("state"), "before").unwrap();
    // A mount that knows the paused server alone, and has asked it.
    let alone = cluster.mount_of(&format!("127.0.0.1:{}", cluster.ports[0]), "alone");
    assert_eq!(fs::read_to_string(alone.join("state")).unwrap(), "before");
    let (clock, lateness) = (SystemClock::new(), Lateness::begin());
    let stopped = clock.monotonic();
    signal(cluster.pid(0), Signal::STOP);
    // Asked while it is stopped: the answer must be the next server's.
    let (asked, path) = (device::sync::channel(), alone.join("state"));
    let (sender, heard) = asked;
    let reader = device::spawn("reader", move || sender.send(fs::read_to_string(path)).unwrap());
    writer.step();
    check_wait(clock.monotonic().saturating_sub(stopped), DEAD, lateness.end());
    cluster.await_state(1, "serving");
    fs::write(one.join("state"), "after!").unwrap();
    (0..5).for_each(|_| writer.step());
    signal(cluster.pid(0), Signal::CONT);
    cluster.await_state(0, "standby");
    let read = heard.recv_timeout(Duration::from_secs(60)).expect("an answer");
    reader.unwrap().join().unwrap();
    assert_eq!(read.unwrap(), "after!", "the server that was stopped answered");
    assert_eq!(fs::read_to_string(alone.join("state")).unwrap(), "after!");
    writer.verify(&one);
    writer.verify(&alone);
}

#[test]
fn a_paused_server_changes_and_answers_nothing() {
    if may_run() {
        pause_and_continue(&mut cluster());
    }
}

#[test]
fn etcd_may_be_gone_and_empty_and_nothing_is_lost() {
    if !may_run() {
        return;
    }
    let mut cluster = cluster();
    cluster.start(0);
    cluster.await_state(0, "serving");
    let one = cluster.mount("one");
    let mut writer = Writer::new(&one.join("work"));
    (0..5).for_each(|_| writer.step());
    cluster.stop_etcd();
    // Served volumes stay served, longer than the lease.
    for _ in 0..5 {
        writer.step();
        SystemClock::new().sleep(Duration::from_secs(1));
    }
    cluster.kill(0);
    // Another etcd, that has never heard of anybody.
    fs::remove_dir_all(cluster.etcd().join("data")).unwrap();
    cluster.start(1);
    cluster.start_etcd();
    cluster.await_state(1, "serving");
    (0..5).for_each(|_| writer.step());
    writer.verify(&one);
    // A second server of that name is refused, and the first one serves on.
    let again = Command::new(PANDO)
        .args(["serve", "--name", "server1", "--listen", "127.0.0.1:0"])
        .args(["--etcd", &format!("http://127.0.0.1:{}", cluster.etcd_port)])
        .arg(&cluster.url)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && error.contains("is called server1"), "{error}");
    writer.step();
}
