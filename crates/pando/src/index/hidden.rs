//! Keeps an index closed to other users while a directory above its source hides the source from
//! some of them. The index has the modes from the source down, and nothing in it limits access to
//! the source itself.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use client::Connection;
use device::LocalDevice;
use wire::{Answer, Call};

use super::Index;
use crate::failure::{self, Result};
use crate::output::Output;
use crate::{access, mounts, session};

/// The permissions of group and others.
const OF_OTHERS: u32 = 0o077;

/// What was done before a scan because a directory above the source hides it.
#[derive(Default)]
pub(super) struct Closing {
    /// Whether the source is hidden, for the record of the scan.
    pub(super) hidden: bool,
    /// The mode that the volume's directory had, if this closed it.
    mode_before: Option<u32>,
    remarks: Vec<String>,
}

impl Closing {
    /// The scan has begun: reports what was done.
    pub(super) fn report(&self, output: &mut Output) {
        self.remarks.iter().for_each(|remark| output.remark(remark));
    }

    /// The scan was refused, so the directory is as before. (After a crash it would be closed.)
    pub(super) fn undo(&self, volume: &Path) {
        if let Some(mode) = self.mode_before
            && let Err(error) = LocalDevice::open(volume).and_then(|device| device.set_mode(mode))
        {
            tracing::warn!(%error, "the volume's directory stays closed");
        }
    }
}

impl Index<'_> {
    /// Closes the volume's directory if the source is hidden now, and was not when the last scan
    /// began. An administrator who opens the directory afterwards does so on purpose, and it stays
    /// open for as long as the source is hidden.
    pub(super) fn close_if_hidden(&self, connection: &mut Connection) -> Result<Closing> {
        let above = self.source.ancestors().skip(1);
        let above = above.into_iter().find(|above| !access::is_open_to_all(above));
        let mut closing = Closing { hidden: above.is_some(), ..Closing::default() };
        let Some(above) = above else { return Ok(closing) };
        let was_hidden = match connection.ask(Call::ScanInfo)? {
            Answer::ScanInfo(info) => info.is_some_and(|info| info.hidden),
            other => return Err(session::unexpected(&other)),
        };
        let found = self.volume.metadata();
        let found = found.map_err(|error| failure::io("open", self.volume, &error))?;
        let caller = rustix::process::geteuid();
        // Nobody else may scan, and the daemon answers that.
        if was_hidden || !(caller.is_root() || caller.as_raw() == found.uid()) {
            return Ok(closing);
        }
        let (above, volume) = (above.display(), self.volume.display());
        if found.mode() & OF_OTHERS != 0 {
            LocalDevice::open(self.volume)
                .and_then(|device| device.set_mode(0o700))
                .map_err(|error| failure::device(self.volume, &error))?;
            closing.mode_before = Some(found.mode() & 0o7777);
            closing.remarks.push(format!(
                "{above} is not open to every user: neither is the index (`chmod 711 {volume}` \
                 opens it)"
            ));
        }
        for mount in mounts::of(self.volume).into_iter().filter(|mount| mount.others) {
            let place = mount.mount_point.display();
            closing.remarks.push(format!(
                "{above} is not open to every user, and the index is mounted on {place} for \
                 other users\n       `pando umount {place}` ends that; the next mount is for its \
                 user alone"
            ));
        }
        Ok(closing)
    }
}
