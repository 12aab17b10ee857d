//! Election of the daemon: the process that holds the lock of `owner.lock`. The kernel grants the
//! lock to one process and releases it when that process dies, so a crash leaves nothing to clean
//! up.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use client::{Connection, Opened};
use device::{Clock, Env, LocalDevice, Lock};
use wire::{Answer, Call, Failure, FailureKind};

use super::start::Start;
use crate::failure::{self, Purpose, Result};
use crate::{mounts, session};

/// The lock file in the volume directory.
pub(super) const LOCK: &str = "owner.lock";

/// How long a predecessor may take to leave, or to start, before the caller gives up: it writes
/// its buffers, or replays a predecessor's log. Commands look for a daemon for the same time.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a mount waits for a daemon that was asked to hand over and still answers others.
const HANDOVER_PATIENCE: Duration = Duration::from_secs(600);

/// How long a mount waits for a daemon with a long request under way, which continues for others.
const ENGAGED_PATIENCE: Duration = Duration::from_secs(20);

/// Pause before such a daemon is asked again.
const ENGAGED_PAUSE: Duration = Duration::from_millis(100);

/// The outcome of an election.
pub(super) enum Elected {
    /// This process holds the volume as long as this lives.
    Daemon(Box<dyn Lock>),
    /// Another process holds it, and listens.
    Taken,
}

/// Takes the lock, or finds which process has it. A mount asks a daemon without a mount to leave.
pub(super) fn elect(start: &Start, env: &Env) -> Result<Elected> {
    let clock = &env.clock;
    let begin = clock.monotonic();
    let mut patience = PATIENCE;
    loop {
        let lock = env.device.try_lock(LOCK);
        if let Some(lock) = lock.map_err(|error| failure::device(&start.volume, &error))? {
            lock.describe(&format!("{}\n", std::process::id()))
                .map_err(|error| failure::device(&start.volume, &error))?;
            return Ok(Elected::Daemon(lock));
        }
        match Connection::open(&start.volume)? {
            Opened::Connected(connection) if start.uses_alone().is_some() => {
                patience = HANDOVER_PATIENCE;
                ask_to_leave(&start.volume, connection, &**clock, begin)?;
            }
            Opened::Connected(_) => return Ok(Elected::Taken),
            Opened::Refused(failure) => return Err(failure),
            // It is starting or leaving.
            Opened::NoDaemon | Opened::Leaving => {}
        }
        if clock.monotonic().saturating_sub(begin) > patience {
            return Err(stuck(&start.volume));
        }
        clock.sleep(Duration::from_millis(3));
    }
}

/// Takes the lock for a repair, which must run alone: a daemon without a mount is asked to leave.
/// The caller holds the volume as long as the lock lives.
pub(crate) fn alone(volume: &Path, env: &Env) -> Result<Box<dyn Lock>> {
    let clock = &env.clock;
    let begin = clock.monotonic();
    let failed = |error| failure::device_for(Purpose::Check, volume, &error);
    loop {
        let lock = env.device.try_lock(LOCK).map_err(failed)?;
        if let Some(lock) = lock {
            lock.describe(&format!("{}\n", std::process::id())).map_err(failed)?;
            return Ok(lock);
        }
        match Connection::open(volume)? {
            Opened::Connected(connection) => ask_to_leave(volume, connection, &**clock, begin)?,
            Opened::Refused(failure) => return Err(failure),
            Opened::NoDaemon | Opened::Leaving => {}
        }
        if clock.monotonic().saturating_sub(begin) > PATIENCE {
            return Err(stuck(volume));
        }
        clock.sleep(Duration::from_millis(3));
    }
}

/// Asks a daemon to leave. A busy daemon is asked repeatedly for a limited time since `begin`;
/// after that its request is reported.
fn ask_to_leave(
    volume: &Path,
    mut connection: Connection,
    clock: &dyn Clock,
    begin: Duration,
) -> Result<()> {
    let welcome = connection.welcome().clone();
    if let Some(mount_point) = welcome.mount_point {
        let waited = clock.monotonic().saturating_sub(begin);
        let mount_point = Path::new(OsStr::from_bytes(&mount_point.0));
        let Some(refused) = mounted(volume, mount_point, welcome.pid) else {
            if waited >= ENGAGED_PATIENCE {
                return Err(mounts::not_ended(volume, mount_point, welcome.pid));
            }
            clock.sleep(ENGAGED_PAUSE);
            return Ok(());
        };
        return Err(refused);
    }
    match connection.ask_briefly(Call::HandOver) {
        Ok(Answer::Nothing) => Ok(()),
        Ok(other) => Err(session::unexpected(&other)),
        // It is already leaving, as requested.
        Err(failure) if matches!(failure.kind, FailureKind::Leaving | FailureKind::Other) => Ok(()),
        Err(failure)
            if failure.kind == FailureKind::Busy
                && clock.monotonic().saturating_sub(begin) < ENGAGED_PATIENCE =>
        {
            clock.sleep(ENGAGED_PAUSE);
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

/// Why a volume that its daemon mounted cannot be mounted again. `None` if nothing shows that
/// mount: its daemon ends as soon as it has noticed, and the last open file is closed.
fn mounted(volume: &Path, mount_point: &Path, pid: u32) -> Option<Failure> {
    let place = mount_point.display();
    if mounts::is_here(volume, mount_point) {
        // A volume has one mount, and its daemon holds the kernel's locks and caches of that mount
        // alone.
        let message =
            format!("{} is mounted on {place} already, by process {pid}", volume.display());
        return Some(Failure::new(FailureKind::Busy, message).hint(format!(
            "`mount --bind {place} DIR` shows it in a second place, `mount --bind {place}/SUBDIR \
             DIR` a directory of it; `pando umount {place}` unmounts it"
        )));
    }
    let copies = mounts::copies(volume, mount_point);
    if copies.is_empty() {
        return None;
    }
    // It was unmounted here, and its daemon continues for others.
    let named = crate::verbs::umount::named(&copies);
    let message = format!("{} is mounted elsewhere: {named}", volume.display());
    Some(Failure::new(FailureKind::Busy, message).hint(format!(
        "`pando umount --lazy {}` closes it; those mounts then fail",
        volume.display()
    )))
}

fn stuck(volume: &Path) -> Failure {
    let who = lock_holder(volume).map_or("another process".into(), |pid| format!("process {pid}"));
    let message = format!("{who} has {} open and neither answers nor ends", volume.display());
    Failure::new(FailureKind::Busy, message).hint("if it hangs, end it: the volume recovers")
}

/// The process ID in a lock file, if it can be read.
fn lock_holder(volume: &Path) -> Option<u32> {
    let text = LocalDevice::open(volume).and_then(|it| it.read(LOCK, 32)).ok()?;
    std::str::from_utf8(&text).ok()?.trim().parse().ok()
}
