//! Which daemon has a volume in an object store open. A daemon announces itself there, and refuses
//! a volume that another one announces, unless it is to take the volume over. What keeps two
//! daemons apart in any case is the log: this only keeps a user from replacing one by accident.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, Device, Env, Thread};
use nix::unistd::{Uid, User};
use objects::{Holder, Presence, Sign, Verdict};
use wire::{Failure, FailureKind};

use super::store::{Store, of_store};
use crate::failure::{self, Result};
use crate::output;

/// Time from one sign of life to the next. Each costs a creation and a deletion.
const PERIOD: Duration = Duration::from_secs(5);
/// File of the host directory with the id of its last opening.
const OPENING: &str = "opening";

/// Whether to open a volume that another daemon has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakeOver {
    /// Refuse it.
    No,
    /// Replace the other daemon: its changes that are not durable are lost.
    Yes,
    /// Replace it without looking whether it lives: servers have agreed who owns the volume, and
    /// answer only what is durable.
    Agreed,
}

/// The announcement of this process. A thread of its own repeats it, from before the volume is
/// opened until it is closed, both of which may take long.
pub(crate) struct Claim {
    presence: Arc<Presence>,
    ending: Arc<Ending>,
    thread: Thread<()>,
}

/// Makes the thread end.
#[derive(Default)]
struct Ending {
    ends: Mutex<bool>,
    changed: Condvar,
}

impl Claim {
    /// Announces that this process opens a volume. The caller holds the lock of the host directory.
    pub(crate) fn announce(store: &Store, env: &Env, take_over: TakeOver) -> Result<Claim> {
        let failed = |error| of_store(&store.location, &error);
        forget_last(store, env)?;
        let volume = store.volume.0;
        let before = Presence::openings(&*store.blobs).map_err(failed)?;
        let seen = match take_over {
            TakeOver::Agreed => Verdict::Nobody,
            TakeOver::No | TakeOver::Yes => {
                Presence::watch(&*store.blobs, volume, &*env.clock).map_err(failed)?
            }
        };
        match seen {
            Verdict::Alive(sign) if take_over == TakeOver::No => return Err(refused(store, &sign)),
            Verdict::Alive(sign) => tracing::warn!("taking the volume over from {}", who(&sign)),
            Verdict::Silent(sign) => {
                tracing::warn!("{} had the volume open and did not close it", who(&sign));
            }
            Verdict::Nobody => {}
        }
        let mut opening = [0; 16];
        env.random.fill(&mut opening);
        remember(&*env.device, opening).map_err(|error| of_store(&store.location, &error))?;
        let (blobs, clock) = (Arc::clone(&store.soon), Arc::clone(&env.clock));
        let holder = holder(env);
        let presence = Presence::announce(blobs, volume, opening, holder, PERIOD, clock);
        // From the first sign on the next ones follow, however long the store takes to answer what
        // is asked meanwhile.
        let claim = Claim::begin(presence.map_err(failed)?, &env.clock)?;
        match alone(store, &claim.presence, &before) {
            Ok(()) => Ok(claim),
            Err(failure) => {
                // After an error of this, too, later openings only wait.
                claim.withdraw();
                Err(failure)
            }
        }
    }

    /// Starts to repeat an announcement.
    fn begin(presence: Presence, clock: &Arc<dyn Clock>) -> Result<Claim> {
        let (presence, ending) = (Arc::new(presence), Arc::new(Ending::default()));
        let thread = device::spawn("presence", {
            let (presence, ending) = (Arc::clone(&presence), Arc::clone(&ending));
            let clock = Arc::clone(clock);
            move || repeat(&presence, &*clock, &ending)
        });
        match thread {
            Ok(thread) => Ok(Claim { presence, ending, thread }),
            Err(error) => {
                withdraw(&presence);
                Err(failure::thread(&error))
            }
        }
    }

    /// A function that returns for how long other hosts have seen no sign of this daemon, if the
    /// next one is overdue.
    pub(crate) fn overdue(&self) -> impl Fn() -> Option<Duration> + Send + Sync + use<> {
        let presence = Arc::clone(&self.presence);
        move || presence.overdue()
    }

    /// Withdraws it: the volume is closed.
    pub(crate) fn withdraw(self) {
        let Claim { presence, ending, thread } = self;
        *ending.ends.lock() = true;
        ending.changed.notify_all();
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        withdraw(&presence);
    }
}

/// Withdraws an announcement whose thread has ended.
fn withdraw(presence: &Presence) {
    if let Err(error) = presence.withdraw() {
        tracing::warn!(%error, "the next opening on another host waits some seconds");
    }
}

/// Fails if another host opens the volume at the same time. Otherwise deletes the signs of daemons
/// that are gone, which would make later openings wait.
fn alone(store: &Store, presence: &Presence, before: &BTreeSet<[u8; 16]>) -> Result<()> {
    let failed = |error| of_store(&store.location, &error);
    if !presence.is_alone(before).map_err(failed)? {
        let message = format!("another host opens {} at the same time", store.location);
        return Err(Failure::new(FailureKind::Busy, message).hint("try again in some seconds"));
    }
    presence.clear_others().map_err(failed)
}

/// Repeats an announcement until it ends: once a period, counted from the start of each.
fn repeat(presence: &Presence, clock: &dyn Clock, ending: &Ending) {
    let mut failed = false;
    let mut next = clock.monotonic() + PERIOD;
    while ending.wait_until(clock, next) {
        next = clock.monotonic() + PERIOD;
        if presence.was_cleared().unwrap_or(false) {
            tracing::warn!(
                "another host has taken the volume over: this daemon announces it no more"
            );
            return;
        }
        match presence.beat() {
            Ok(()) => failed = false,
            Err(error) if failed => tracing::debug!(%error, "cannot announce this daemon"),
            Err(error) => {
                tracing::warn!(%error, "cannot announce this daemon; trying again");
                failed = true;
            }
        }
        if let Some(silent) = presence.overdue() {
            let seconds = silent.as_secs();
            tracing::warn!(seconds, "other hosts see no sign of this daemon, and may replace it");
        }
    }
}

impl Ending {
    /// Waits; `false` if it ends before.
    fn wait_until(&self, clock: &dyn Clock, until: Duration) -> bool {
        let mut ends = self.ends.lock();
        loop {
            let left = until.saturating_sub(clock.monotonic());
            if *ends || left.is_zero() {
                return !*ends;
            }
            self.changed.wait_for(&mut ends, left);
        }
    }
}

/// Announces a check of a volume. With keys that may only read, nothing can be announced: then the
/// check is refused if another host has the volume open now.
pub(crate) fn announce_check(store: &Store, env: &Env) -> Result<Option<Claim>> {
    match Claim::announce(store, env, TakeOver::No) {
        Err(failure) if failure.kind == FailureKind::Permission => {
            refuse_open(store, env).map(|()| None)
        }
        claim => claim.map(Some),
    }
}

/// Refuses a volume that another host has open, for work that announces nothing.
fn refuse_open(store: &Store, env: &Env) -> Result<()> {
    forget_last(store, env)?;
    match Presence::watch(&*store.blobs, store.volume.0, &*env.clock) {
        Ok(Verdict::Alive(sign)) => Err(refused(store, &sign)),
        Ok(Verdict::Nobody | Verdict::Silent(_)) => Ok(()),
        Err(error) => Err(of_store(&store.location, &error)),
    }
}

/// Deletes the signs of the last daemon of this host directory: it is gone, because this process
/// has its lock.
fn forget_last(store: &Store, env: &Env) -> Result<()> {
    let Ok(file) = env.device.open(OPENING) else { return Ok(()) };
    let mut opening = [0; 16];
    if file.read_at(&mut opening, 0).is_ok_and(|read| read == opening.len()) {
        let gone = Presence::forget(&*store.blobs, &opening);
        gone.map_err(|error| of_store(&store.location, &error))?;
    }
    Ok(())
}

fn remember(device: &dyn Device, opening: [u8; 16]) -> device::Result<()> {
    let file = match device.open(OPENING) {
        Err(error) if error.is_not_found() => device.create(OPENING)?,
        file => file?,
    };
    file.write_at(&opening, 0)
}

fn holder(env: &Env) -> Holder {
    let user = User::from_uid(Uid::effective()).ok().flatten();
    Holder {
        host: host_name(),
        user: user.map_or_else(|| Uid::effective().to_string(), |user| user.name),
        pid: std::process::id(),
        started: env.clock.now(),
    }
}

/// The name of this host.
pub(super) fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Who gave a sign, and when.
fn who(sign: &Sign) -> String {
    let written = sign.written.map_or(String::new(), |time| {
        format!(", last sign of life {} by its clock", output::time_local(time.0))
    });
    match &sign.holder {
        Some(Holder { host, user, pid, started }) => {
            let started = output::time_local(started.0);
            format!("host {host} (user {user}, process {pid}, since {started}{written})")
        }
        None => "a process of a newer version".to_owned(),
    }
}

fn refused(store: &Store, sign: &Sign) -> Failure {
    let location = &store.location;
    let message = format!("{location} is open on {}", who(sign));
    Failure::new(FailureKind::Busy, message).hint(format!(
        "unmount it there; or `pando mount --take-over {location} MNT` replaces that daemon, and \
         loses its changes that are not durable"
    ))
}
