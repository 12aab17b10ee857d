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

use super::start::{MountStart, Start};
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
    /// The process that holds it has mounted it again, as requested.
    MountedAgain {
        /// That process.
        pid: u32,
    },
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
                let pid = connection.welcome().pid;
                if ask_to_leave(&start.volume, Some(start), connection, (&**clock, begin))? {
                    return Ok(Elected::MountedAgain { pid });
                }
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
            Opened::Connected(connection) => {
                ask_to_leave(volume, None, connection, (&**clock, begin))?;
            }
            Opened::Refused(failure) => return Err(failure),
            Opened::NoDaemon | Opened::Leaving => {}
        }
        if clock.monotonic().saturating_sub(begin) > PATIENCE {
            return Err(stuck(volume));
        }
        clock.sleep(Duration::from_millis(3));
    }
}

/// Asks a daemon to leave; for a mount, one that mounted the volume is asked to mount it again.
/// `true` if it did. A busy daemon is asked repeatedly for a limited time since `begin`; after that
/// its request is reported.
fn ask_to_leave(
    volume: &Path,
    start: Option<&Start>,
    mut connection: Connection,
    (clock, begin): (&dyn Clock, Duration),
) -> Result<bool> {
    let is_patient = || clock.monotonic().saturating_sub(begin) < ENGAGED_PATIENCE;
    let welcome = connection.welcome().clone();
    if let Some(mount_point) = welcome.mount_point {
        let mount_point = Path::new(OsStr::from_bytes(&mount_point.0));
        if mounts::is_here(volume, mount_point) {
            return Err(mounted_here(volume, mount_point, welcome.pid));
        }
        let why = match mounted_again(start, &mut connection)? {
            Again::Mounted => return Ok(true),
            Again::Ends => None,
            Again::Refused(why) => Some(why),
        };
        let copies = mounts::copies(volume, mount_point);
        if !copies.is_empty() {
            return Err(mounted_elsewhere(volume, &copies, why));
        }
        // Nothing shows the mount: its daemon ends as soon as it has noticed, and the last open
        // file is closed.
        if !is_patient() {
            let failure = mounts::not_ended(volume, mount_point, welcome.pid);
            return Err(with_reason(failure, why));
        }
        clock.sleep(ENGAGED_PAUSE);
        return Ok(false);
    }
    match connection.ask_briefly(Call::HandOver) {
        Ok(Answer::Nothing) => Ok(false),
        Ok(other) => Err(session::unexpected(&other)),
        // It is already leaving, as requested.
        Err(failure) if matches!(failure.kind, FailureKind::Leaving | FailureKind::Other) => {
            Ok(false)
        }
        Err(failure) if failure.kind == FailureKind::Busy && is_patient() => {
            clock.sleep(ENGAGED_PAUSE);
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

/// What a daemon does whose mount point is gone.
enum Again {
    /// It mounted the volume again.
    Mounted,
    /// It is ending.
    Ends,
    /// It serves others, and does not.
    Refused(Failure),
}

/// Asks a daemon to mount its volume again, if that is what this process is started for.
fn mounted_again(start: Option<&Start>, connection: &mut Connection) -> Result<Again> {
    let Some((start, mount)) = start.and_then(|start| Some((start, start.mount.as_ref()?))) else {
        return Ok(Again::Ends);
    };
    let shown = || fuse::mount_at(&mount.mount_point);
    let before = shown().map(|found| found.device);
    match ask_to_mount(start, mount, connection) {
        // The daemon of another user's volume may answer anything.
        Ok(Answer::Nothing) => match shown() {
            Some(found)
                if found.mount_point == mount.mount_point
                    && found.user == Some(0)
                    && before.as_ref() != Some(&found.device) =>
            {
                Ok(Again::Mounted)
            }
            _ => Err(not_there(&mount.mount_point, connection.welcome().pid)),
        },
        Ok(other) => Err(session::unexpected(&other)),
        Err(failure) if failure.kind == FailureKind::NotSupported => Ok(Again::Refused(failure)),
        Err(failure) if failure.kind == FailureKind::Leaving || connection.is_closed() => {
            Ok(Again::Ends)
        }
        // The mount point cannot be used.
        Err(failure) => Err(failure),
    }
}

fn not_there(mount_point: &Path, pid: u32) -> Failure {
    let place = mount_point.display();
    let message = format!(
        "the daemon (pid {pid}) reports a mount of its volume on {place}, and root has no such \
         mount there"
    );
    Failure::new(FailureKind::Other, message)
        .hint(format!("look at it with `ps -p {pid} -f`: if it is no daemon of PandoFS, end it"))
}

/// Asks a daemon to mount its volume again, as a process that is started to do it would.
fn ask_to_mount(start: &Start, mount: &MountStart, connection: &mut Connection) -> Result<Answer> {
    if mount.foreground {
        let why = "with --foreground a mount has a daemon of its own".to_owned();
        return Err(failure::mount(&fuse::MountError::NotAgain(why)));
    }
    let metrics = start.metrics.map(|address| address.to_string());
    connection.ask_briefly(Call::MountAgain {
        mount_point: mount.mount_point.as_os_str().as_bytes(),
        options: &mount.options.join(","),
        cache: start.cache_bytes,
        index: start.index_bytes,
        metrics: metrics.as_deref(),
        traces: start.trace.is_some(),
    })
}

/// A volume has one mount, and its daemon holds the kernel's locks and caches of that mount alone.
fn mounted_here(volume: &Path, mount_point: &Path, pid: u32) -> Failure {
    let place = mount_point.display();
    let message = format!("{} is mounted on {place} already, by process {pid}", volume.display());
    Failure::new(FailureKind::Busy, message).hint(format!(
        "`mount --bind {place} DIR` shows it in a second place, `mount --bind {place}/SUBDIR DIR` \
         a directory of it; `pando umount {place}` unmounts it"
    ))
}

/// It was unmounted here, and its daemon continues for others.
fn mounted_elsewhere(volume: &Path, copies: &[fuse::Copy], why: Option<Failure>) -> Failure {
    let named = crate::verbs::umount::named(copies);
    let message = format!("{} is mounted elsewhere: {named}", volume.display());
    let failure = Failure::new(FailureKind::Busy, message).hint(format!(
        "`pando umount --lazy {}` closes it; those mounts then fail",
        volume.display()
    ));
    with_reason(failure, why)
}

/// Adds why the daemon did not mount the volume again.
fn with_reason(mut failure: Failure, why: Option<Failure>) -> Failure {
    if let Some(why) = why {
        failure.message = format!("{}; {}", failure.message, why.message);
    }
    failure
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
