//! Who has a volume in an object store open. A daemon announces itself there, and refuses a volume
//! that another one announces, unless it is to take the volume over. What keeps two daemons apart
//! in any case is the log: this only keeps a user from replacing one by accident.

use std::sync::Arc;
use std::time::Duration;

use device::{Device, Env};
use nix::unistd::{Uid, User};
use objects::{Holder, Presence, Sign, Verdict};
use wire::{Failure, FailureKind};

use super::store::{Store, of_store};
use crate::failure::Result;
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
}

/// The announcement of this process, and when it was last repeated.
pub(crate) struct Claim {
    presence: Presence,
    last: device::sync::Mutex<Duration>,
}

impl Claim {
    /// Announces that this process opens a volume. The caller holds the lock of the host directory.
    pub(crate) fn announce(store: &Store, env: &Env, take_over: TakeOver) -> Result<Claim> {
        let failed = |error| of_store(&store.location, &error);
        forget_last(store, env)?;
        let volume = store.volume.0;
        let before = Presence::openings(&*store.blobs).map_err(failed)?;
        match Presence::watch(&*store.blobs, volume, &*env.clock).map_err(failed)? {
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
        let (blobs, clock) = (Arc::clone(&store.blobs), Arc::clone(&env.clock));
        let holder = holder(env);
        let presence = Presence::announce(blobs, volume, opening, holder, PERIOD, clock);
        let presence = presence.map_err(failed)?;
        if !presence.is_alone(&before).map_err(failed)? {
            presence.withdraw().map_err(failed)?;
            let message = format!("another host opens {} at the same time", store.location);
            return Err(Failure::new(FailureKind::Busy, message).hint("try again in some seconds"));
        }
        // Signs of daemons that are gone would make later openings wait.
        presence.clear_others().map_err(failed)?;
        let last = device::sync::Mutex::new(env.clock.monotonic());
        Ok(Claim { presence, last })
    }

    /// Repeats the announcement if it is time; returns when it is time again.
    pub(crate) fn beat(&self, now: Duration) -> fs::FsResult<Duration> {
        let mut last = self.last.lock();
        let passed = now.saturating_sub(*last);
        if passed < PERIOD {
            return Ok(PERIOD - passed);
        }
        *last = now;
        let beaten = self.presence.beat();
        beaten.map_err(|error| inode::FsError::Io(error.to_string().into()))?;
        Ok(PERIOD)
    }

    /// Withdraws it: the volume is closed.
    pub(crate) fn withdraw(self) {
        if let Err(error) = self.presence.withdraw() {
            tracing::warn!(%error, "the next opening on another host waits some seconds");
        }
    }
}

/// Refuses a volume that another host has open, for work that announces nothing.
pub(crate) fn refuse_open(store: &Store, env: &Env) -> Result<()> {
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

fn host_name() -> String {
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
