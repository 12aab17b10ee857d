//! Keeps an index closed to other users while a directory above its source hides the source from
//! some of them. The index has the modes from the source down, and nothing in it limits access to
//! the source itself.

use std::os::unix::fs::MetadataExt;

use device::LocalDevice;

use super::Index;
use crate::failure::{self, Result};
use crate::output::Output;
use crate::{access, mounts};

/// The permissions of group and others.
const OF_OTHERS: u32 = 0o077;

impl Index<'_> {
    /// Closes the volume's directory if the source is hidden now, and was not when the last scan
    /// began. An administrator who opens the directory afterwards does so on purpose, and it stays
    /// open for as long as the source is hidden.
    pub(super) fn close_if_hidden(&self, output: &mut Output) -> Result<()> {
        let above = self.source.ancestors().skip(1);
        let closed = above.into_iter().find(|above| !access::is_open_to_all(above));
        let was_hidden = self.hidden.replace(closed.is_some());
        let Some(closed) = closed.filter(|_| !was_hidden) else { return Ok(()) };
        let (closed, volume) = (closed.display(), self.volume.display());
        let mode = self.volume.metadata().map(|found| found.mode());
        let mode = mode.map_err(|error| failure::io("open", self.volume, &error))?;
        if mode & OF_OTHERS != 0 {
            LocalDevice::open(self.volume)
                .and_then(|device| device.set_mode(0o700))
                .map_err(|error| failure::device(self.volume, &error))?;
            output.remark(&format!(
                "{closed} is not open to every user: neither is the index (`chmod 711 {volume}` \
                 opens it)"
            ));
        }
        for mount in mounts::of(self.volume).into_iter().filter(|mount| mount.others) {
            let place = mount.mount_point.display();
            output.remark(&format!(
                "{closed} is not open to every user, and the index is mounted on {place} for \
                 other users\n       `pando umount {place}` ends that; the next mount is for its \
                 user alone"
            ));
        }
        Ok(())
    }
}
