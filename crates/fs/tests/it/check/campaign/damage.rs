//! What is done to a place.

use std::ops::Range;

use super::anatomy::Place;
use super::media::Media;

/// Bytes that a medium loses at once.
const BLOCK: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Damage {
    Zeros,
    Flip,
    Swap,
    Old,
    Cut,
    Gone,
}

impl Damage {
    pub(super) const ALL: [Damage; 6] =
        [Damage::Zeros, Damage::Flip, Damage::Swap, Damage::Old, Damage::Cut, Damage::Gone];

    pub(super) fn name(self) -> &'static str {
        match self {
            Damage::Zeros => "zeros",
            Damage::Flip => "flipped bit",
            Damage::Swap => "swapped blocks",
            Damage::Old => "old block",
            Damage::Cut => "cut off",
            Damage::Gone => "file gone",
        }
    }
}

/// A volume, and what stood where it is earlier.
pub(super) struct Target<'a> {
    pub(super) all: &'a [Place],
    pub(super) olds: &'a [Media],
}

impl Target<'_> {
    /// Damages a place. Returns the places of which bytes are not what they were, or `None` where
    /// nothing is.
    pub(super) fn strike<'p>(
        &'p self,
        media: &Media,
        place: &'p Place,
        damage: Damage,
        random: &mut fastrand::Rng,
    ) -> Option<Vec<&'p Place>> {
        let Place { path, offset, length, .. } = place;
        let device = media.of(path);
        let before = device.read_file(path);
        match damage {
            Damage::Zeros => {
                let blocks = (*offset..place.end()).step_by(BLOCK as usize);
                let blocks = blocks.map(|at| at as usize..(at + BLOCK).min(place.end()) as usize);
                let is_some = |block: &Range<usize>| before[block.clone()].iter().any(|b| *b != 0);
                let blocks: Vec<Range<usize>> = blocks.filter(is_some).collect();
                let block = random.choice(&blocks)?;
                device.overwrite(path, block.start as u64, &vec![0; block.len()]);
            }
            Damage::Flip => device.flip_bit(path, offset * 8 + random.u64(..*length * 8)),
            Damage::Swap => {
                let alike = |other: &&Place| {
                    other.path == *path && other.offset != *offset && {
                        is_alike(place.structure, other.structure)
                    }
                };
                let others: Vec<&Place> = self.all.iter().filter(alike).collect();
                let other = random.choice(&others)?;
                let count = BLOCK.min(*length).min(other.length) as usize;
                let here = before[*offset as usize..][..count].to_vec();
                let there = before[other.offset as usize..][..count].to_vec();
                device.overwrite(path, *offset, &there);
                device.overwrite(path, other.offset, &here);
            }
            Damage::Old => {
                let old = self.older(place, &before)?;
                if *offset == 0 && *length == before.len() as u64 {
                    device.truncate(path, 0);
                }
                device.overwrite(path, *offset, &old);
            }
            Damage::Cut => device.truncate(path, offset + random.u64(..*length)),
            Damage::Gone => device.delete(path),
        }
        let after = if media.has(path) { device.read_file(path) } else { Vec::new() };
        let same = |place: &Place| {
            let range = place.offset as usize..place.end() as usize;
            after.get(range.clone()) == before.get(range)
        };
        let struck: Vec<&Place> =
            self.all.iter().filter(|other| other.path == *path && !same(other)).collect();
        (!struck.is_empty()).then_some(struck)
    }

    /// Other bytes that stood at a place earlier, or at the same place of an earlier file of the
    /// same kind, where files are never written over.
    fn older(&self, place: &Place, now: &[u8]) -> Option<Vec<u8>> {
        let Place { path, offset, length, .. } = place;
        let is_whole = *offset == 0 && *length == now.len() as u64;
        let kind = |path: &str| path.rsplit_once('-').map(|(kind, _)| kind.to_owned());
        for old in self.olds.iter().rev() {
            let mut files = old.files();
            files.retain(|(name, _)| {
                name == path || path.starts_with("lsm/") && kind(name) == kind(path)
            });
            for (name, _) in files {
                let bytes = old.read(&name);
                let past = if is_whole {
                    Some(&bytes[..])
                } else {
                    bytes.get(*offset as usize..place.end() as usize)
                };
                let here = &now[*offset as usize..place.end() as usize];
                let is_other = |past: &&[u8]| *past != here && past.iter().any(|byte| *byte != 0);
                if let Some(past) = past.filter(is_other) {
                    return Some(past.to_vec());
                }
            }
        }
        None
    }
}

/// Whether blocks of two structures are swapped: such as are lost alike.
fn is_alike(one: &str, other: &str) -> bool {
    let counts = |structure: &str| structure.ends_with("of counts");
    one == other || counts(one) && counts(other)
}
