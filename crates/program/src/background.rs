//! Background work of an open volume, in bounded steps: log flush, checkpoint, reclaim, pruning,
//! cleaning. The core starts no threads; these threads run its steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, SystemClock, Thread};
use fs::{Fs, FsResult};

use crate::pace::Pace;

/// Two, so that other work continues while a checkpoint is written. A step of either may take
/// long, because writing or uploading a file may take long. So the log has a thread of its own.
const WORKERS: usize = 2;

/// Records or nodes per step: a few milliseconds.
const BUDGET: usize = 1000;

/// Longest sleep, so that work that a request caused is found soon.
const NAP: Duration = Duration::from_millis(200);

/// Pause after a step that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The threads that run background work: none before [`Background::start`].
#[derive(Default)]
pub struct Background {
    shared: Arc<Shared>,
    threads: Mutex<Vec<Thread<()>>>,
}

#[derive(Default)]
struct Shared {
    ending: Mutex<bool>,
    wake: Condvar,
    done: AtomicU64,
    pace: Mutex<Pace>,
    clock: SystemClock,
}

impl Background {
    /// Starts the threads.
    pub fn start(&self, fs: &Arc<Fs>) -> std::io::Result<()> {
        let woken = Arc::downgrade(&self.shared);
        fs.set_waker(Arc::new(move || {
            if let Some(shared) = woken.upgrade() {
                shared.wake.notify_all();
            }
        }));
        for worker in 0..WORKERS {
            let (shared, fs) = (Arc::clone(&self.shared), Arc::clone(fs));
            self.drive(&format!("background-{worker}"), move || {
                let progress = fs.background_step(BUDGET)?;
                let before = shared.done.fetch_add(progress.done, Ordering::Relaxed);
                if progress.done > 0 {
                    shared.pace.lock().note(shared.clock.monotonic(), before);
                }
                Ok(if progress.more { Duration::ZERO } else { progress.due_in })
            })?;
        }
        let fs = Arc::clone(fs);
        self.drive("log", move || fs.flush_if_due())
    }

    /// Starts a thread that runs a step repeatedly, and sleeps after each step as long as the step
    /// requests.
    pub fn drive(
        &self,
        name: &str,
        step: impl Fn() -> FsResult<Duration> + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = device::spawn(name, move || work(&shared, step))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Total work done by all steps.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// How much of it was done in each of the last ten seconds.
    pub fn done_a_second(&self) -> u64 {
        self.shared.pace.lock().a_second(self.shared.clock.monotonic(), self.done())
    }

    /// Makes the threads look for work at once.
    pub fn wake(&self) {
        self.shared.wake.notify_all();
    }

    /// Ends the threads after their current step.
    pub fn end(&self) {
        *self.shared.ending.lock() = true;
        self.shared.wake.notify_all();
        for thread in self.threads.lock().drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

fn work(shared: &Shared, step: impl Fn() -> FsResult<Duration>) {
    let mut failed = false;
    loop {
        let nap = match step() {
            Ok(nap) => {
                failed = false;
                nap.min(NAP)
            }
            Err(error) => {
                // Reported once: a full disk fails every step until there is space.
                if !failed {
                    tracing::warn!(%error, "background work fails and is tried again");
                }
                failed = true;
                PAUSE_AFTER_FAILURE
            }
        };
        let mut ending = shared.ending.lock();
        if !*ending && !nap.is_zero() {
            shared.wake.wait_for(&mut ending, nap);
        }
        if *ending {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use fs::{Engine, FileSystem, FormatOptions, NewNode, OpenOptions};
    use inode::{Caller, Kind, NodeId};
    use testing::{CrashPolicy, Fault, FaultOn, SimDevice, SimEnv, sim_env};

    use super::*;

    const ROOT: NodeId = NodeId::ROOT;
    const TICK: Duration = Duration::from_millis(100);
    /// Number of ticks that a test waits for an expected event.
    const PATIENCE: u32 = 600;

    /// Without an index, and with checkpoints that are always due.
    fn options() -> OpenOptions {
        OpenOptions { checkpoint_bytes: 1, index: None, ..OpenOptions::default() }
    }

    fn make(fs: &Fs, name: &[u8]) {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        fs.mknod(&Caller::root(), ROOT, name, &new).expect("there is space");
    }

    /// Whether a file would survive a power cut.
    fn is_durable(device: &SimDevice, name: &[u8]) -> bool {
        let left = SimEnv::on(device.after_crash(CrashPolicy::LoseAll, 1), 1);
        let fs = Fs::open(left.env(), &options()).expect("it opens");
        fs.lookup(&Caller::root(), ROOT, name).is_ok()
    }

    /// However long other disk work takes, all changes are durable after the interval.
    #[test]
    fn the_log_is_written_in_time_while_all_workers_wait() {
        for (engine, below) in [(Engine::Lsm, "lsm"), (Engine::Btree, "btree")] {
            let sim = sim_env(1);
            let format = FormatOptions { engine, ..FormatOptions::default() };
            Fs::format(&sim.env(), &format).expect("an empty disk");
            let fs = Fs::open(sim.env(), &options()).expect("it was made just now");
            sim.device.hold(Fault::io(FaultOn::AnyChange, 0).below(below).forever());
            make(&fs, b"first");
            let background = Background::default();
            background.start(&fs).expect("threads");
            let held = sim.device.is_held_within(TICK * PATIENCE);
            // Time for the other worker to start waiting, too.
            SystemClock::new().sleep(TICK * 5);
            make(&fs, b"second");
            let early = is_durable(&sim.device, b"second");
            SystemClock::new().sleep(TICK * 5);
            sim.clock.advance(Duration::from_secs(5));
            let durable = (0..PATIENCE).any(|_| {
                SystemClock::new().sleep(TICK);
                is_durable(&sim.device, b"second")
            });
            sim.device.let_go();
            background.end();
            assert!(held && !early && durable, "{engine:?}: {held} {early} {durable}");
            fs.close().expect("close");
        }
    }
}
