//! Where subvolumes are mounted, and which copies inherit from which: the ledger's memory of it.
//! The ledger reads it from the volume when it is first used, and it follows each commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use format::inherited_record::{HOMES_MAX, Home};

/// From so many heirs of a subvolume that one user made on, that user's next copy gives the oldest
/// some of what it inherits. From so many homes of an heir on, copies of it do.
pub(super) const HEIRS_MAX: usize = 32;
/// Most heirs of a subvolume that one user made when that user makes another copy. Before a first
/// change a writer gives to each of them.
pub(super) const HEIRS_LIMIT: usize = 256;
/// Most homes of a copy when another copy is made of it: what that is given has more.
pub(super) const HOMES_LIMIT: usize = 48;
const _: () = assert!(HEIRS_MAX < HOMES_LIMIT && HOMES_LIMIT < HOMES_MAX);
/// With so many heirs a subvolume delays copies of those that it is mounted in, too. Each copy that
/// one of their heirs is given of it is one more heir.
const CROWD: usize = 2 * HEIRS_MAX;

/// The place of an entry: a subvolume, a directory of it, and a cookie there.
pub(super) type MountPoint = (u64, u64, u64);

/// A directory and a cookie in it.
pub(super) type Slot = (u64, u64);

/// Subvolumes by where they are mounted.
#[derive(Default)]
pub(super) struct Mounts {
    /// Places, each with the number of what is mounted there. In a damaged volume two may claim one
    /// place.
    inside: BTreeSet<(u64, u64, u64, u64)>,
    pub(super) places: BTreeMap<u64, MountPoint>,
    /// What copies inherit: their homes.
    pub(super) homes: BTreeMap<u64, Vec<Home>>,
    /// The same by homes: each heir after its maker.
    pub(super) heirs: BTreeMap<u64, BTreeSet<(u32, u64)>>,
    /// Who made those that inherit.
    pub(super) makers: BTreeMap<u64, u32>,
    /// Homes with more heirs than a caller that copies may leave.
    pub(super) crowded: BTreeSet<u64>,
    /// Copies with more homes than such a caller may leave.
    pub(super) deep: BTreeSet<u64>,
    /// Entries of heirs that may not point to what the heir has there. While an heir's tree was
    /// damaged, its entry could not be pointed to its copy; copies of the heir have the same entry.
    pub(super) doubted: BTreeSet<MountPoint>,
}

impl Mounts {
    /// Notes that each entry of an heir may point to something else than what is mounted there.
    /// Each entry that it has from a copy may point to something else than what it inherits there.
    pub(super) fn doubt_all(&mut self, is_copy: &dyn Fn(u64) -> bool) {
        let of_heirs = |place: &&MountPoint| self.homes.contains_key(&place.0);
        let mut doubted: BTreeSet<MountPoint> =
            self.places.values().filter(of_heirs).copied().collect();
        for (&heir, homes) in &self.homes {
            for home in homes.iter().filter(|home| is_copy(home.subvolume)) {
                let older = self.behind(home.subvolume, (0, 0)).filter(|(_, _, id)| *id < heir);
                doubted.extend(older.map(|(directory, cookie, _)| (heir, directory, cookie)));
            }
        }
        self.doubted = doubted;
    }

    /// Whether the same is mounted and inherited in another.
    pub(super) fn is_like(&self, other: &Mounts) -> bool {
        (&self.inside, &self.places, &self.homes, &self.heirs)
            == (&other.inside, &other.places, &other.homes, &other.heirs)
    }

    /// Notes where a subvolume is mounted now.
    pub(super) fn set(&mut self, subvol: u64, to: Option<MountPoint>) {
        if let Some((above, directory, cookie)) = self.places.remove(&subvol) {
            self.inside.remove(&(above, directory, cookie, subvol));
        }
        if let Some((above, directory, cookie)) = to {
            self.places.insert(subvol, (above, directory, cookie));
            self.inside.insert((above, directory, cookie, subvol));
        }
    }

    /// Notes what a copy inherits now, and who made it.
    pub(super) fn inherit(&mut self, copy: u64, homes: Vec<Home>, maker: u32) {
        let before = self.makers.remove(&copy).unwrap_or_default();
        self.deep.remove(&copy);
        for home in self.homes.remove(&copy).into_iter().flatten() {
            if let Some(heirs) = self.heirs.get_mut(&home.subvolume) {
                heirs.remove(&(before, copy));
                if heirs.len() < CROWD {
                    self.crowded.remove(&home.subvolume);
                }
                if heirs.is_empty() {
                    self.heirs.remove(&home.subvolume);
                }
            }
        }
        for home in &homes {
            let heirs = self.heirs.entry(home.subvolume).or_default();
            heirs.insert((maker, copy));
            if heirs.len() >= CROWD {
                self.crowded.insert(home.subvolume);
            }
        }
        if homes.is_empty() {
            for (directory, cookie) in self.doubted_in(copy) {
                self.doubted.remove(&(copy, directory, cookie));
            }
        } else {
            let copied: Vec<_> =
                homes.iter().flat_map(|home| self.doubted_in(home.subvolume)).collect();
            for (directory, cookie) in copied {
                self.doubted.insert((copy, directory, cookie));
            }
            if homes.len() > HEIRS_MAX {
                self.deep.insert(copy);
            }
            self.homes.insert(copy, homes);
            self.makers.insert(copy, maker);
        }
    }

    /// Those of some subvolumes that are among others, or are mounted below one.
    pub(super) fn below(&self, some: &BTreeSet<u64>, tops: &[Home]) -> Vec<u64> {
        let is_top = |at: u64| tops.iter().any(|top| top.subvolume == at);
        let above = |at: &u64| self.places.get(at).map(|(above, ..)| *above);
        let is_below = |id: &&u64| {
            let way = std::iter::successors(Some(**id), above);
            // Damaged records may form a circle.
            way.take(self.places.len() + 1).any(is_top)
        };
        some.iter().filter(is_below).copied().collect()
    }

    /// The entries of a copy that may not point to what it has there.
    fn doubted_in(&self, copy: u64) -> Vec<(u64, u64)> {
        let all = (copy, 0, 0)..=(copy, u64::MAX, u64::MAX);
        self.doubted.range(all).map(|&(_, directory, cookie)| (directory, cookie)).collect()
    }

    /// What is mounted in a subvolume behind an entry of it: directory, cookie and number.
    pub(super) fn behind(
        &self,
        subvol: u64,
        (directory, cookie): (u64, u64),
    ) -> impl Iterator<Item = (u64, u64, u64)> {
        let from = Bound::Excluded((subvol, directory, cookie, u64::MAX));
        let to = Bound::Included((subvol, u64::MAX, u64::MAX, u64::MAX));
        self.inside.range((from, to)).map(|&(_, directory, cookie, id)| (directory, cookie, id))
    }

    /// What is mounted in a directory of a subvolume.
    pub(super) fn within(&self, subvol: u64, directory: u64) -> impl Iterator<Item = u64> {
        let all = (subvol, directory, 0, 0)..=(subvol, directory, u64::MAX, u64::MAX);
        self.inside.range(all).map(|(_, _, _, id)| *id)
    }

    /// What is mounted at an entry.
    pub(super) fn at(&self, (subvol, directory, cookie): MountPoint) -> Option<u64> {
        let all = (subvol, directory, cookie, 0)..=(subvol, directory, cookie, u64::MAX);
        self.inside.range(all).next().map(|(_, _, _, id)| *id)
    }

    /// The directories of a subvolume in which others are mounted. Very many in one directory cost
    /// no more than one.
    pub(super) fn directories(&self, subvol: u64) -> impl Iterator<Item = u64> {
        let from = move |directory| {
            let rest = (subvol, directory, 0, 0)..=(subvol, u64::MAX, u64::MAX, u64::MAX);
            self.inside.range(rest).next().map(|(_, directory, _, _)| *directory)
        };
        std::iter::successors(from(0), move |last| from(last.checked_add(1)?))
    }
}
