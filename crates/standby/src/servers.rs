//! A server that waits for volumes with others. One thread keeps its lease, and one asks which
//! server should own each volume. The caller has one for each volume ([`Standby::hold`]), which
//! serves it while this server should own it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::{Campaign, Error, Holder, Standing};
use device::sync::{Condvar, Mutex};
use device::{Clock, Thread};

use crate::warrant::Mandate;

/// How often the lease is kept, and a standby server asks.
const STEP_EVERY: Duration = Duration::from_millis(300);
/// Pause after a volume could not be opened, or was lost: others go first.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the name of this server may be that of its predecessor.
const NAME_FREE_WITHIN: Duration = Duration::from_secs(8);

/// A volume: what clients call it, and its id.
pub type Volume = (String, [u8; 16]);

/// Serves a volume until a mandate ends; a failure in its words.
type Serve<'a> = dyn FnMut(&Arc<dyn Mandate>) -> Result<(), String> + 'a;

/// Called after each step with a volume's name and the other server that should own it, if any.
type OnStep = dyn Fn(&str, Option<&Holder>) + Send + Sync;

/// A server among those that may serve the same volumes.
pub struct Standby {
    campaign: Campaign,
    clock: Arc<dyn Clock>,
    ending: AtomicBool,
    /// All volumes are closed: the lease need not live.
    ended: AtomicBool,
    /// Signalled when standings may have changed.
    stepped: (Mutex<()>, Condvar),
}

/// The threads beside those of volumes.
pub struct Threads {
    standby: Arc<Standby>,
    threads: Vec<Thread<()>>,
}

impl Standby {
    /// A server with its campaign, which has asked nothing yet.
    pub fn new(campaign: Campaign, clock: Arc<dyn Clock>) -> Arc<Standby> {
        let [ending, ended] = [(); 2].map(|()| AtomicBool::new(false));
        let stepped = (Mutex::new(()), Condvar::new());
        Arc::new(Standby { campaign, clock, ending, ended, stepped })
    }

    /// Ends it in order: [`Standby::hold`] returns when its volume is closed.
    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.stepped.1.notify_all();
    }

    /// Whether it ends.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Takes the server's name. One that ended just now may still have it; an etcd that does not
    /// answer is waited for.
    pub fn introduce(&self) -> cluster::Result<()> {
        let begun = self.clock.monotonic();
        let mut warned = false;
        while !self.is_ending() {
            match self.campaign.step() {
                Ok(()) => return Ok(()),
                Err(error @ (Error::Refused(_) | Error::Foreign(_)))
                    if self.clock.monotonic().saturating_sub(begun) >= NAME_FREE_WITHIN =>
                {
                    return Err(error);
                }
                Err(error) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(%error, "etcd does not let this server begin; trying again");
                    }
                }
            }
            self.clock.sleep(STEP_EVERY);
        }
        Ok(())
    }

    /// Wants these volumes from now on, and starts the threads.
    pub fn start(
        self: &Arc<Standby>,
        volumes: Vec<Volume>,
        on_step: Box<OnStep>,
    ) -> std::io::Result<Threads> {
        for (_, volume) in &volumes {
            self.campaign.enter(*volume);
        }
        let mut threads = Threads { standby: Arc::clone(self), threads: Vec::new() };
        let own = Arc::clone(self);
        threads.threads.push(device::spawn("campaign", move || own.keep(&volumes, &*on_step))?);
        let own = Arc::clone(self);
        threads.threads.push(device::spawn("lease", move || own.renew())?);
        Ok(threads)
    }

    /// Renews the lease, whatever the questions about volumes wait for.
    fn renew(&self) {
        while !self.ended.load(Ordering::SeqCst) {
            // (The other thread reports errors.)
            if let Err(error) = self.campaign.renew() {
                tracing::debug!(%error, "the lease is not renewed");
            }
            self.clock.sleep(STEP_EVERY);
        }
    }

    /// Keeps the lease, and reports where volumes are that are not served here.
    fn keep(&self, volumes: &[Volume], on_step: &OnStep) {
        let mut failed = None;
        // To the end of the last volume: another server would take one over while it is closed.
        while !self.ended.load(Ordering::SeqCst) {
            match self.campaign.step() {
                Ok(()) if failed.take().is_some() => tracing::info!("etcd answers again"),
                Ok(()) | Err(Error::LeaseEnded) => {}
                Err(error) => {
                    // Each kind once.
                    let kind = Some(std::mem::discriminant(&error));
                    if std::mem::replace(&mut failed, kind) != kind {
                        report(&error);
                    }
                }
            }
            self.stepped.1.notify_all();
            for (name, volume) in volumes {
                match self.campaign.standing(volume) {
                    Standing::Theirs(holder) => on_step(name, Some(&holder)),
                    Standing::Ours | Standing::Unknown => on_step(name, None),
                }
            }
            self.clock.sleep(STEP_EVERY);
        }
    }

    /// Calls `serve` whenever this server should own a volume, until the end. It serves the volume
    /// until its mandate ends; a failure is reported in its words.
    pub fn hold(self: &Arc<Standby>, (name, volume): Volume, serve: &mut Serve<'_>) {
        let mandate: Arc<dyn Mandate> = Arc::new(Candidate { standby: Arc::clone(self), volume });
        while !self.is_ending() {
            let is_ours = self.campaign.standing(&volume) == Standing::Ours;
            if !is_ours || !self.is_still_ours(&volume) {
                // (A step that is missed here is followed by the next.)
                self.stepped.1.wait_for(&mut self.stepped.0.lock(), STEP_EVERY);
                continue;
            }
            if self.is_ending() {
                break;
            }
            tracing::info!(volume = %name, "this server takes the volume");
            match serve(&mandate) {
                Err(failure) if !self.is_ending() => {
                    tracing::error!(volume = %name, %failure, "the volume is served here no more");
                }
                _ => {}
            }
            self.leave(&volume);
            if !self.is_ending() {
                self.clock.sleep(PAUSE);
                self.campaign.enter(volume);
            }
        }
        // It is wanted no more, also if another server has it.
        self.leave(&volume);
    }

    /// Asks etcd once more who should own a volume. This process may have been stopped since it
    /// asked, and its opening takes the volume from another one that lives.
    fn is_still_ours(&self, volume: &[u8; 16]) -> bool {
        if device::mutated("a volume is opened without a second question") {
            return true;
        }
        let holder = self.campaign.holder(volume);
        let holder =
            holder.inspect_err(|error| tracing::warn!(%error, "cannot ask whose a volume is"));
        holder.is_ok_and(|holder| holder.is_some_and(|holder| self.campaign.is_own(&holder)))
    }

    /// Lets others have a volume.
    fn leave(&self, volume: &[u8; 16]) {
        if let Err(error) = self.campaign.leave(volume) {
            tracing::warn!(%error, "others wait until this server's lease ends");
        }
    }
}

impl Threads {
    /// Ends them when all volumes are closed, and lets others have this server's name.
    pub fn end(self) {
        self.standby.ended.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        if let Err(error) = self.standby.campaign.end() {
            tracing::warn!(%error, "others wait until the lease of this server ends");
        }
    }
}

/// Reports why a step of the campaign failed, and what that means.
fn report(error: &Error) {
    match error {
        Error::Refused(_) => {
            tracing::error!(%error, "this server takes over nothing until its name is free");
        }
        Error::Foreign(_) => {
            let effect = "no server takes a volume over whose record in etcd cannot be read";
            tracing::error!(%error, "{effect}");
        }
        // What is served continues: the store decides whose it is.
        _ => tracing::warn!(%error, "etcd does not answer: no server takes a volume over"),
    }
}

/// The part of this server in the decision about a volume that it serves.
struct Candidate {
    standby: Arc<Standby>,
    volume: [u8; 16],
}

impl Mandate for Candidate {
    fn deposed(&self) -> Option<String> {
        match self.standby.campaign.standing(&self.volume) {
            Standing::Theirs(holder) => Some(format!("etcd gave the volume to {}", holder.server)),
            Standing::Ours | Standing::Unknown => None,
        }
    }

    fn is_ending(&self) -> bool {
        self.standby.is_ending()
    }

    fn give_up(&self) {
        self.standby.leave(&self.volume);
    }
}
