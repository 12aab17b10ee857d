//! Which copies inherit from which subvolumes, as the ledger has it in memory. It has their homes,
//! who made them, and how far each was given what it inherits. It follows each commit (`ledger`).

use format::inherited_record::Home;
use vfs::FsResult;
use volume::Core;

use super::ledger::{Ledger, Reached};

impl Ledger {
    /// The homes of a copy; none when it inherits nothing.
    pub(super) fn homes(&mut self, fs: &Core, copy: u64) -> FsResult<Vec<Home>> {
        Ok(self.mounts(fs)?.homes.get(&copy).cloned().unwrap_or_default())
    }

    /// The copies that inherit what is mounted in a subvolume, the oldest first.
    pub(super) fn heirs(&mut self, fs: &Core, home: u64) -> FsResult<Vec<u64>> {
        let heirs = self.mounts(fs)?.heirs.get(&home);
        let mut heirs: Vec<u64> = heirs.into_iter().flatten().map(|(_, heir)| *heir).collect();
        heirs.sort_unstable();
        Ok(heirs)
    }

    /// Those of them that one user made.
    pub(super) fn heirs_by(&mut self, fs: &Core, home: u64, maker: u32) -> FsResult<Vec<u64>> {
        let heirs = self.mounts(fs)?.heirs.get(&home);
        let all = (maker, 0)..=(maker, u64::MAX);
        Ok(heirs.into_iter().flat_map(|heirs| heirs.range(all.clone())).map(|at| at.1).collect())
    }

    /// Who made a copy that inherits; 0: the superuser, or it inherits nothing.
    pub(super) fn maker_of(&mut self, fs: &Core, heir: u64) -> FsResult<u32> {
        Ok(self.mounts(fs)?.makers.get(&heir).copied().unwrap_or_default())
    }

    /// The homes with too many heirs that are among some subvolumes, or are mounted below one.
    pub(super) fn crowded_below(&mut self, fs: &Core, tops: &[Home]) -> FsResult<Vec<u64>> {
        let mounts = self.mounts(fs)?;
        Ok(mounts.below(&mounts.crowded, tops))
    }

    /// The copies with too many homes that are mounted below some subvolumes, each with how many.
    pub(super) fn deep_below(&mut self, fs: &Core, tops: &[Home]) -> FsResult<Vec<(u64, usize)>> {
        let mounts = self.mounts(fs)?;
        let count = |id| (id, mounts.homes.get(&id).map_or(0, Vec::len));
        Ok(mounts.below(&mounts.deep, tops).into_iter().map(count).collect())
    }

    /// Whether what an heir inherits could not be copied, because something is damaged.
    pub(super) fn is_damaged(&self, heir: u64) -> bool {
        let failed = self.reached.get(&heir).is_some_and(|reached| reached.failed.is_some());
        failed || self.damaged.contains(&heir)
    }

    /// Notes that it could not.
    pub(super) fn note_damaged(&mut self, heir: u64) {
        self.damaged.insert(heir);
    }

    /// A copy that inherits and does not rest; the last, so that the copies that it is given are
    /// seen to before others.
    pub(super) fn last_heir(
        &mut self,
        fs: &Core,
        rests: &dyn Fn(u64) -> bool,
    ) -> FsResult<Option<u64>> {
        let mut heirs = self.mounts(fs)?.homes.keys().rev();
        Ok(heirs.find(|copy| !rests(**copy)).copied())
    }

    /// How far an heir was given what it inherits.
    pub(super) fn reached(&self, heir: u64) -> Reached {
        self.reached.get(&heir).cloned().unwrap_or_default()
    }

    /// Notes how far that is.
    pub(super) fn reach(&mut self, heir: u64, to: Reached) {
        self.reached.insert(heir, to);
    }
}
