//! Mounts the volume again for `pando mount`. The mount point is gone, and open files or a mount in
//! another namespace (a container) keep the file system, and so this daemon. The kernel can show
//! the same file system at a mount point again, so that one daemon serves both.
//!
//! The file system and the daemon stay as they are. So a mount that asks for other settings is
//! refused, and the answer names a setting that differs.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use fs::Follow;
use inode::Caller;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::{Answer, Call, Failure, FailureKind};

use super::about::Answered;
use super::held::Held;
use super::server::Server;
use super::start::Settings;
use crate::failure;

/// Mounts again.
pub(super) fn mount((server, id): (&Server, u64), call: &Call<'_>) -> Answered<Answer> {
    let Call::MountAgain { mount_point, options, cache, index, metrics, traces } = *call else {
        return Err(Failure::new(FailureKind::Protocol, "an unexpected request"));
    };
    let Some((mount, settings)) = server.mounted() else {
        return Err(Failure::new(FailureKind::Leaving, "the volume is not mounted any more"));
    };
    check(server, id)?;
    let mount_point = Path::new(OsStr::from_bytes(mount_point));
    let mut given = fuse::MountOptions::new(server.volume(), mount_point);
    given.parse(options).map_err(|error| failure::mount(&error.into()))?;
    let is_index = server.fs().scan_info()?.is_some();
    let given = super::alone_if_closed((server.volume(), is_index), &[options], given);
    let metrics = metrics.map(str::parse).transpose();
    let metrics = metrics.map_err(|_| {
        Failure::new(FailureKind::Protocol, "the address for metrics is no address")
    })?;
    let asked = Settings::asked(given, cache, (index, metrics, traces));
    let differs = settings.difference(&asked).or_else(|| renamed(server, mount));
    if let Some(option) = differs {
        return Err(failure::mount(&fuse::MountError::Differs { option }));
    }
    let mounted = mount.mount_again(asked.options());
    mounted.map(|()| Answer::Nothing).map_err(|error| failure::mount(&error))
}

/// The option `subdir`, if its path names a directory other than the mounted one.
fn renamed(server: &Server, mount: &fuse::Mount) -> Option<&'static str> {
    let path = mount.subdir()?.as_os_str().as_bytes();
    let held = Held::exactly(server.fs(), &Caller::root(), path, Follow::No);
    let shows = held.is_ok_and(|held| mount.shows_as_root(held.entry.node));
    (!shows).then_some("subdir")
}

/// Refuses a caller that could not mount the same by itself: the daemon does nothing for others
/// that they may not do.
fn check(server: &Server, id: u64) -> Answered<()> {
    let who = server.who(id);
    let why = if !rustix::process::geteuid().is_root() {
        "only root's daemon can"
    } else if who.is_none_or(|who| who.uid != 0) {
        "only root can request it"
    } else {
        let pid = who.and_then(|who| u32::try_from(who.pid).ok());
        // Asked last: what the number names belongs to the process that has not ended since.
        if pid.is_some_and(fuse::mounts_as_we_do)
            && server.process(id).is_some_and(|process| lives(&process))
        {
            return Ok(());
        }
        "it is in another mount namespace, or has rights that you lack"
    };
    Err(failure::mount(&fuse::MountError::NotAgain(why.to_owned())))
}

/// Whether a process has not ended.
fn lives(process: &OwnedFd) -> bool {
    let mut ends = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ends, Some(&Timespec::default())) == Ok(0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn a_process_lives_until_it_ends() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert!(lives(&process));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!lives(&process));
    }
}
