//! `pando umount`: unmounts a volume and waits until its daemon has closed it. A mount in use
//! stays, unless requested otherwise: a process that continues would write to the directory below
//! the mount.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::{Connection, Opened};
use device::{Clock, SystemClock};
use fuse::{InUse, MountError, MountInfo, Unmounted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use serde_json::json;
use wire::{Call, Failure, FailureKind, Session};

use crate::cli::UmountArgs;
use crate::failure::{self, Result};
use crate::host;
use crate::mounts;
use crate::output::Output;
use crate::place::VolumePath;
use crate::verbs::session;

/// How long to wait for a daemon to write its buffers, and for an import of the caller.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long to wait for imports of other users.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(20);

/// How long to wait for a daemon whose object store accepts nothing.
const PATIENCE_WITH_STORE: Duration = Duration::from_secs(20);

/// After this time the command reports what it waits for.
const REPORT_AFTER: Duration = Duration::from_secs(2);

/// How many processes that keep a mount busy are named.
const USERS_MAX: usize = 3;

pub(crate) fn run(args: &UmountArgs, output: &mut Output) -> Result<()> {
    let (volume, mounts) = find(&args.path)?;
    let daemon = volume.as_deref().and_then(mounting_daemon);
    if let (Some(volume), true) = (&volume, mounts.is_empty()) {
        return close_unmounted(volume, daemon, args.lazy, output);
    }
    let mut lazily = false;
    for mount_point in mounts.iter().map(|mount| &mount.mount_point) {
        let lazy = args.lazy || is_dead(mount_point);
        let in_use = if lazy { InUse::Detached } else { InUse::Stays };
        let unmounted = fuse::unmount(mount_point, in_use).map_err(|error| refused(&error))?;
        lazily |= unmounted == Unmounted::Lazy;
        output.object(&json!({
            "volume": volume.as_deref().map(host::shown),
            "mount_point": mount_point.to_string_lossy(),
            "in_use": unmounted == Unmounted::Lazy,
        }))?;
        output.line(&format!("unmounted {}", mount_point.display()))?;
    }
    if lazily {
        output.remark("it is in use: its daemon ends when the last open file is closed");
        return Ok(());
    }
    match (volume, daemon) {
        (Some(volume), Some(daemon)) => {
            let clock = SystemClock::new();
            wait_for_end(&volume, &daemon, &mounts, &clock, output)
        }
        _ => Ok(()),
    }
}

/// Closes a volume that is not mounted here.
fn close_unmounted(
    volume: &Path,
    daemon: Option<Daemon>,
    lazy: bool,
    output: &mut Output,
) -> Result<()> {
    let Some(daemon) = daemon else { return close(volume, output) };
    let Some(mount_point) = gone(volume) else { return close(volume, output) };
    let copies = mounts::copies(volume, &mount_point);
    if !copies.is_empty() {
        return elsewhere(volume, &daemon, (&copies, lazy), output);
    }
    detached(volume, &mount_point, &daemon, lazy, output)
}

/// The daemon of a volume. The descriptor stays that process's when its number is used again.
struct Daemon {
    pid: u32,
    process: OwnedFd,
}

impl Daemon {
    /// The process behind a connection, which may differ from the one that the welcome names;
    /// `None` if it is gone or out of sight.
    fn of(connection: &Connection) -> Option<Daemon> {
        let pid = connection.peer().ok()?.pid.try_into().ok()?;
        Some(Daemon { pid, process: connection.process().ok()? })
    }

    /// Whether all its threads have ended: the first thread may end before those that still hold
    /// the process's files.
    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn end(&self) -> Result<()> {
        match pidfd_send_signal(&self.process, Signal::TERM) {
            // It has ended by itself.
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => {
                let what = PathBuf::from(format!("the daemon (pid {})", self.pid));
                Err(failure::io("end", &what, &error.into()))
            }
        }
    }
}

/// For a volume that is mounted only in other mount namespaces. The mounts cannot be unmounted
/// from here, but the daemon can end.
fn elsewhere(
    volume: &Path,
    daemon: &Daemon,
    (copies, lazy): (&[fuse::Copy], bool),
    output: &mut Output,
) -> Result<()> {
    let pid = daemon.pid;
    if !lazy {
        let message = format!("{} is mounted elsewhere: {}", volume.display(), named(copies));
        return Err(Failure::new(FailureKind::Busy, message).hint(format!(
            "unmount it there, or end that process; `pando umount --lazy {}` ends its daemon \
             (pid {pid}): the volume is closed, and those mounts then fail",
            volume.display()
        )));
    }
    daemon.end()?;
    wait_for_end(volume, daemon, &[], &SystemClock::new(), output)?;
    output.line(&format!("closed {}", host::shown(volume)))
}

/// Where the volume was mounted, if that mount is gone and its daemon has not ended.
fn gone(volume: &Path) -> Option<PathBuf> {
    let Ok(Opened::Connected(connection)) = Connection::open(volume) else { return None };
    let mount_point = connection.welcome().mount_point.clone()?;
    let mount_point = PathBuf::from(OsString::from_vec(mount_point.0));
    (!mounts::is_here(volume, &mount_point)).then_some(mount_point)
}

/// For a volume whose mount is gone, while files of it are open. Without them its daemon is just
/// ending.
fn detached(
    volume: &Path,
    mount_point: &Path,
    daemon: &Daemon,
    lazy: bool,
    output: &mut Output,
) -> Result<()> {
    let clock = SystemClock::new();
    if lazy {
        daemon.end()?;
        wait_for_end(volume, daemon, &[], &clock, output)?;
    }
    let begin = clock.monotonic();
    while !daemon.has_ended() {
        if clock.monotonic().saturating_sub(begin) > REPORT_AFTER {
            return Err(mounts::not_ended(volume, mount_point, daemon.pid));
        }
        clock.sleep(Duration::from_millis(5));
    }
    output.object(&json!({
        "volume": host::shown(volume),
        "mount_point": mount_point.to_string_lossy(),
        "in_use": false,
    }))?;
    output.line(&format!("closed {}", host::shown(volume)))
}

/// Reports that a daemon continues, and for which mounts.
fn print_copies(volume: &Path, pid: u32, copies: &[fuse::Copy], output: &mut Output) {
    output.remark(&format!(
        "still mounted elsewhere: {}; its daemon (pid {pid}) runs until that is unmounted, or \
         `pando umount --lazy {}` ends it",
        named(copies),
        volume.display()
    ));
}

/// Mounts in other namespaces, for people.
pub(crate) fn named(copies: &[fuse::Copy]) -> String {
    let one = |copy: &fuse::Copy| {
        format!("on {} for {} (pid {})", copy.mount_point.display(), copy.name, copy.pid)
    };
    let mut named: Vec<_> = copies.iter().take(USERS_MAX).map(one).collect();
    if copies.len() > USERS_MAX {
        named.push("others".into());
    }
    named.join(", ")
}

/// Whether the mount's daemon is gone: processes with files open there can do nothing with them.
fn is_dead(mount_point: &Path) -> bool {
    let looked = std::fs::metadata(mount_point);
    looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotConnected)
}

/// Why a mount stays, and which processes keep it busy.
fn refused(error: &MountError) -> Failure {
    let failure = failure::mount(error);
    let MountError::Busy(mount_point) = error else { return failure };
    let inside = fuse::mounted_in(mount_point).into_iter();
    let mut named: Vec<_> =
        inside.map(|below| format!("what is mounted on {}", below.display())).collect();
    let mounts = named.len();
    let users = fuse::users_of(mount_point, USERS_MAX + 1);
    named.extend(users.iter().map(|(pid, name)| format!("{name} (pid {pid})")));
    if named.len() > USERS_MAX {
        named.truncate(USERS_MAX);
        named.push("others".into());
    }
    let by = if named.is_empty() {
        "something that is not seen from here".into()
    } else {
        named.join(", ")
    };
    let hint = match mounts {
        0 => "end the processes that work there or have files open",
        _ => "unmount what is mounted there, and end the processes with open files",
    };
    let hint = format!(
        "{hint}, or use --lazy: it detaches the mount at once, and closes the volume when the \
         last process has left it"
    );
    Failure::new(failure.kind, format!("{}: by {by}", failure.message)).hint(hint)
}

/// The volume that an argument names, and its mounts to be unmounted.
fn find(path: &Path) -> Result<(Option<PathBuf>, Vec<MountInfo>)> {
    let absolute = std::path::absolute(path).map_err(|error| failure::io("open", path, &error))?;
    if let Some(found) = fuse::find_mount(&absolute) {
        let is_root = std::fs::canonicalize(&absolute).unwrap_or(absolute) == found.mount_point;
        if is_root {
            // A caller with the right to unmount may do so, whatever the mount's source claims;
            // only its daemon is waited for.
            let volume = mounts::is_believed(&found).then(|| found.volume_dir.clone());
            return Ok((volume, vec![found]));
        }
    }
    let volume = VolumePath::volume(path).map_err(|failure| {
        let message = format!("{} is neither a mount point nor a volume", path.display());
        if failure.kind == FailureKind::Permission {
            failure
        } else {
            Failure::new(FailureKind::NotFound, message)
                .hint("findmnt(8) lists mount points; a volume is named by its directory or URL")
        }
    })?;
    let mounts = mounts::of(&volume);
    Ok((Some(volume), mounts))
}

/// Ends the daemon of a volume that is not mounted: an earlier command started the daemon, and it
/// waits for the next command.
fn close(volume: &Path, output: &mut Output) -> Result<()> {
    let Ok(Opened::Connected(mut connection)) = Connection::open(volume) else {
        let message = format!("{} is not mounted, and no daemon has it open", volume.display());
        return Err(
            Failure::new(FailureKind::NotFound, message).hint("there is nothing to unmount")
        );
    };
    let pid = connection.welcome().pid;
    let daemon = Daemon::of(&connection);
    match connection.ask_briefly(Call::HandOver) {
        Ok(_) => {}
        // It is already leaving.
        Err(failure) if matches!(failure.kind, FailureKind::Leaving | FailureKind::Other) => {}
        Err(failure) => return Err(failure),
    }
    if let Some(daemon) = daemon {
        wait_for_end(volume, &daemon, &[], &SystemClock::new(), output)?;
    }
    output.object(&json!({
        "volume": host::shown(volume),
        "mount_point": null,
        "in_use": false,
    }))?;
    output.line(&format!("closed {}: its daemon (pid {pid}) ended", host::shown(volume)))
}

/// The process that has the volume mounted.
fn mounting_daemon(volume: &Path) -> Option<Daemon> {
    match Connection::open(volume) {
        Ok(Opened::Connected(connection)) => {
            connection.welcome().mount_point.as_ref()?;
            Daemon::of(&connection)
        }
        _ => None,
    }
}

/// Waits until a daemon has closed the volume. The daemon continues while an import is under way.
/// The command reports its user, and waits less long for imports of other users than for the
/// caller's. Nor does it wait for a daemon that still serves the volume in another mount
/// namespace.
fn wait_for_end(
    volume: &Path,
    daemon: &Daemon,
    unmounted: &[MountInfo],
    clock: &dyn Clock,
    output: &mut Output,
) -> Result<()> {
    let pid = daemon.pid;
    let begin = clock.monotonic();
    let own = rustix::process::geteuid().as_raw();
    let mut next_look = REPORT_AFTER;
    let mut reported = false;
    while !daemon.has_ended() {
        let waited = clock.monotonic().saturating_sub(begin);
        if waited > next_look {
            next_look = waited + Duration::from_secs(1);
            // By both: the number of a device is used again.
            let of = |mount: &MountInfo| {
                let mut copies = mounts::confirmed_copies(&mount.volume_dir);
                copies.retain(|copy| copy.device == mount.device);
                copies
            };
            let copies: Vec<_> = unmounted.iter().flat_map(of).collect();
            let is_kept = || unmounted.iter().any(|mount| mounts::serves(volume, &mount.device));
            if !copies.is_empty() || is_kept() {
                // What was written here does not depend on how the other mount ends.
                match Connection::open(volume) {
                    Ok(Opened::Connected(mut connection)) => {
                        connection.ask(Call::Sync)?;
                    }
                    _ if daemon.has_ended() => {}
                    Err(failure) => return Err(failure),
                    Ok(_) => return Err(unsynced(pid)),
                }
                if copies.is_empty() {
                    // It was mounted again after `umount --lazy`.
                    output.remark("files that were open before still keep its daemon");
                } else {
                    print_copies(volume, pid, &copies, output);
                }
                return Ok(());
            }
            if let Some(why) = host::closing(volume) {
                if !reported {
                    output.remark(&format!("waiting for the object store: {why}"));
                    reported = true;
                }
                if waited > PATIENCE_WITH_STORE {
                    return Err(held_by_store(pid, &why));
                }
            }
            // A daemon that no longer answers is about to end.
            let sessions = holding(volume, pid);
            if let Some(first) = sessions.first() {
                if !reported {
                    let what = session::text(first);
                    output.remark(&format!("waiting for session {what}"));
                    reported = true;
                }
                let others = sessions.iter().any(|session| session.uid != own);
                if waited > PATIENCE || (others && waited > PATIENCE_WITH_OTHERS) {
                    return Err(held_by(volume, pid, first));
                }
            }
        }
        if waited > PATIENCE {
            let message = format!("unmounted, but its daemon (pid {pid}) still works");
            return Err(Failure::new(FailureKind::Busy, message)
                .hint("the volume is closed when that process has ended"));
        }
        clock.sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The sessions for which a daemon continues without its mount; none if another daemon answers.
fn holding(volume: &Path, pid: u32) -> Vec<Session> {
    match Connection::open(volume) {
        Ok(Opened::Connected(connection)) if connection.welcome().pid == pid => {}
        _ => return Vec::new(),
    }
    let mut sessions = session::of(volume).unwrap_or_default();
    sessions.retain(|session| session.holds);
    sessions
}

fn unsynced(pid: u32) -> Failure {
    let message = format!("unmounted, but its daemon (pid {pid}) does not answer");
    Failure::new(FailureKind::Busy, message)
        .hint("run `pando sync`: until then the last changes may be in memory alone")
}

fn held_by_store(pid: u32, why: &str) -> Failure {
    let message = format!(
        "unmounted, but its daemon (pid {pid}) cannot make the last changes durable: {why}"
    );
    let hint = format!(
        "the volume is closed as soon as the store accepts objects; `kill -9 {pid}` loses these \
         changes"
    );
    Failure::new(FailureKind::Busy, message).hint(hint)
}

fn held_by(volume: &Path, pid: u32, session: &Session) -> Failure {
    let message = format!(
        "unmounted, but its daemon (pid {pid}) keeps the volume open for session {}",
        session::text(session)
    );
    let hint = format!(
        "the volume is closed when it has ended; `pando session end {} {}` ends it",
        volume.display(),
        session.id
    );
    Failure::new(FailureKind::Busy, message).hint(hint)
}
