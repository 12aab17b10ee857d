//! What an expression refers to outside of the volume, where the command runs. That is the clock
//! and the local day, users and groups, and files to compare with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use device::{Clock, SystemClock};
use jiff::tz::TimeZone;
use nix::unistd::{Group, User};
use search::query::{Letters, Reference, Surroundings};
use wire::{Answer, Call};

use super::times;
use crate::place::{Last, VolumePath};
use crate::session;

/// The environment where the command runs.
pub(crate) struct Around {
    now: i64,
    zone: TimeZone,
    letters: Letters,
    /// The volume that is searched, if it is only one.
    volume: Option<PathBuf>,
}

impl Around {
    /// The environment at this moment.
    pub(crate) fn new(volume: Option<PathBuf>) -> Around {
        let device::Timestamp(now) = SystemClock::new().now();
        Around { now, zone: TimeZone::system(), letters: letters(), volume }
    }

    /// The user's time zone.
    pub(crate) fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Resolves `VOLDIR:/path`, and `DIR@SNAPSHOT` if no file has that name.
    fn inside(&self, path: &Path) -> Option<Result<Reference, String>> {
        let place = VolumePath::split(path).or_else(|| {
            let signed = path.as_os_str().as_bytes().contains(&b'@');
            let place = || VolumePath::reading(path, Last::Link).ok();
            (signed && path.symlink_metadata().is_err()).then(place).flatten().map(Ok)
        })?;
        let ask = || {
            let place = place.map_err(|failure| failure.message)?;
            match session::ask(&place, &Call::Stat { path: &place.inner }) {
                Ok(Answer::Stat(stat)) => Ok(Reference {
                    atime: stat.attr.atime,
                    mtime: stat.attr.mtime,
                    ctime: stat.attr.ctime,
                    btime: Some(stat.attr.btime),
                    node: (self.volume.as_ref() == Some(&place.volume)).then_some(stat.attr.node),
                }),
                Ok(_) => Err("the daemon sent an answer of a different kind".to_owned()),
                Err(failure) => Err(failure.message),
            }
        };
        Some(ask())
    }
}

impl Surroundings for Around {
    fn now(&self) -> i64 {
        self.now
    }

    fn day_start(&self) -> i64 {
        times::day_start(self.now, &self.zone)
    }

    fn user(&self, name: &[u8]) -> Option<u32> {
        let name = std::str::from_utf8(name).ok()?;
        User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
    }

    fn group(&self, name: &[u8]) -> Option<u32> {
        let name = std::str::from_utf8(name).ok()?;
        Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
    }

    fn reference(&self, path: &[u8]) -> Result<Reference, String> {
        let path = Path::new(OsStr::from_bytes(path));
        if let Some(inside) = self.inside(path) {
            return inside;
        }
        let found = path.symlink_metadata().map_err(|error| error.to_string())?;
        let nanos =
            |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        let ours = VolumePath::locate(path, Last::Link)
            .is_ok_and(|place| Some(place.volume) == self.volume);
        let born = found.created().ok().and_then(|born| {
            let age = born.duration_since(std::time::UNIX_EPOCH).ok()?;
            i64::try_from(age.as_nanos()).ok()
        });
        Ok(Reference {
            atime: nanos(found.atime(), found.atime_nsec()),
            mtime: nanos(found.mtime(), found.mtime_nsec()),
            ctime: nanos(found.ctime(), found.ctime_nsec()),
            btime: born,
            node: ours.then(|| found.ino()),
        })
    }

    fn time(&self, text: &[u8]) -> Option<i64> {
        times::parse(std::str::from_utf8(text).ok()?, self.now, &self.zone)
    }

    fn letters(&self) -> Letters {
        self.letters
    }
}

/// The character set of names, by the locale's variables.
fn letters() -> Letters {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_lowercase();
    if locale.contains("utf-8") || locale.contains("utf8") { Letters::Utf8 } else { Letters::Bytes }
}
