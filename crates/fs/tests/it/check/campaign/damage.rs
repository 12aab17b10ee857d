//! The damage that is done to a place.

use std::ops::Range;

use format::node::UNIT_BYTES;

use super::anatomy::DamageSite;
use super::media::Media;

/// Bytes that a disk loses at once.
const BLOCK: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Damage {
    Zeros,
    Flip,
    Swap,
    Other,
    Old,
    Cut,
    Gone,
}

impl Damage {
    pub(super) const ALL: [Damage; 7] = [
        Damage::Zeros,
        Damage::Flip,
        Damage::Swap,
        Damage::Other,
        Damage::Old,
        Damage::Cut,
        Damage::Gone,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Damage::Zeros => "zeros",
            Damage::Flip => "flipped bit",
            Damage::Swap => "swapped blocks",
            Damage::Other => "swapped with another kind",
            Damage::Old => "old block",
            Damage::Cut => "cut off",
            Damage::Gone => "file gone",
        }
    }
}

/// Structures of which places are swapped though they are of different kinds, or in different
/// files.
const OTHERS: &[[&str; 2]] = &[
    ["leaf", "interior node"],
    ["leaf", "record of the log"],
    ["leaf", "page of counts"],
    ["leaf", "contents in a sealed segment"],
    ["interior node", "long value"],
    ["node of the catalog", "node of the volume's own tree"],
    ["superblock", "directory of counts"],
    ["cluster of the index", "cluster of the index"],
    ["cluster of the index", "manifest of the index"],
    ["contents in a sealed segment", "contents in a sealed segment"],
    ["contents in a sealed segment", "contents in an open segment"],
    ["contents in an open segment", "record of the log"],
    ["header of a segment", "footer of a segment"],
    ["volume header", "copy of the volume header"],
    ["block of a run", "index of a run"],
    ["block of a run", "block of a value log"],
    ["block of a run", "record of the log"],
    ["block of a run", "head of a blob"],
    ["index of a run", "filters of a run"],
    ["run of the volume's own tree", "run of the copies of its records"],
    ["manifest", "manifest of the index"],
];

/// A volume, and what was in its place earlier.
pub(super) struct Target<'a> {
    pub(super) all: &'a [DamageSite],
    pub(super) olds: &'a [Media],
    /// The places of each of those. Where they are known, only what was a whole structure of the
    /// same kind is put back.
    pub(super) were: &'a [Vec<DamageSite>],
}

/// A file by the name that it has when it is sealed.
fn sealed(path: &str) -> String {
    path.replace("data/open/", "data/sealed/")
}

/// What sort of file it is, of those that are never written over.
fn kind(path: &str) -> Option<&str> {
    ["index/manifest", "index/cluster", "lsm/run", "lsm/manifest", "lsm/copy"]
        .into_iter()
        .find(|kind| path.starts_with(kind))
}

impl Target<'_> {
    /// Damages a place. Returns the places of which bytes are not what they were, or `None` where
    /// nothing is.
    pub(super) fn strike<'p>(
        &'p self,
        media: &Media,
        place: &'p DamageSite,
        damage: Damage,
        random: &mut fastrand::Rng,
    ) -> Option<Vec<&'p DamageSite>> {
        let DamageSite { path, offset, length, .. } = place;
        let device = media.of(path);
        let before = device.read_file(path);
        let mut also = None;
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
            Damage::Swap | Damage::Other => {
                let other = self.partner(place, damage, random)?;
                let count = BLOCK.min(*length).min(other.length) as usize;
                let here = before[*offset as usize..][..count].to_vec();
                let all = media.read(&other.path);
                let there = all[other.offset as usize..][..count].to_vec();
                device.overwrite(path, *offset, &there);
                media.of(&other.path).overwrite(&other.path, other.offset, &here);
                also = Some((other.path.as_str(), all));
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
        let mut struck = self.differing(media, path, &before);
        if let Some((other, before)) = also.filter(|(other, _)| other != path) {
            struck.extend(self.differing(media, other, &before));
        }
        (!struck.is_empty()).then_some(struck)
    }

    /// The places of a file of which bytes are not what they were.
    fn differing(&self, media: &Media, path: &str, before: &[u8]) -> Vec<&DamageSite> {
        let after = if media.has(path) { media.read(path) } else { Vec::new() };
        let same = |place: &DamageSite| {
            let range = place.offset as usize..place.end() as usize;
            after.get(range.clone()) == before.get(range)
        };
        self.all.iter().filter(|other| other.path == *path && !same(other)).collect()
    }

    /// What a place is swapped with.
    fn partner(
        &self,
        place: &DamageSite,
        damage: Damage,
        random: &mut fastrand::Rng,
    ) -> Option<&DamageSite> {
        let DamageSite { path, offset, structure, .. } = place;
        let alike = |other: &&DamageSite| {
            if damage == Damage::Swap {
                return other.path == *path
                    && other.offset != *offset
                    && is_alike(structure, other.structure);
            }
            let are = |pair: &[&str; 2]| {
                *pair == [*structure, other.structure] || *pair == [other.structure, *structure]
            };
            let is_other = other.structure != *structure || other.path != *path;
            is_other && OTHERS.iter().any(are)
        };
        let others: Vec<&DamageSite> = self.all.iter().filter(alike).collect();
        // Each kind as often as any.
        let mut kinds: Vec<&str> = others.iter().map(|other| other.structure).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let kind = *random.choice(&kinds)?;
        let others: Vec<_> = others.into_iter().filter(|other| other.structure == kind).collect();
        random.choice(&others).copied()
    }

    /// Other bytes that were at a place earlier. Where files are never written over, those at the
    /// same place of an earlier file of the same kind.
    fn older(&self, place: &DamageSite, now: &[u8]) -> Option<Vec<u8>> {
        if !self.were.is_empty() {
            return self.same_kind(place, now);
        }
        let DamageSite { path, offset, length, .. } = place;
        let is_whole = *offset == 0 && *length == now.len() as u64;
        for old in self.olds.iter().rev() {
            let mut files = old.files();
            files.retain(|(name, _)| {
                name == path || kind(path).is_some() && kind(name) == kind(path)
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

impl Target<'_> {
    /// A whole structure of the same kind that was at this place earlier. Where files are never
    /// written over, it is one of an earlier file of the same kind.
    pub(super) fn same_kind(&self, place: &DamageSite, now: &[u8]) -> Option<Vec<u8>> {
        let DamageSite { path, offset, length, structure, .. } = place;
        let here = &now[*offset as usize..place.end() as usize];
        let is_file = kind(path).is_some();
        let space = if is_file { *length } else { length.next_multiple_of(UNIT_BYTES as u64) };
        let is_whole_file = *length == now.len() as u64;
        let name = sealed(path);
        for (old, places) in self.olds.iter().zip(self.were).rev() {
            let was = |was: &&DamageSite| {
                let is_same = was.structure == *structure;
                // A segment is sealed meanwhile.
                let is_alike =
                    || [was.structure, structure].iter().all(|s| s.starts_with("contents"));
                let same_place = || was.offset == *offset && sealed(&was.path) == name;
                let same_kind = || is_same && is_file && kind(&was.path) == kind(path);
                (is_same || is_alike()) && (same_place() || same_kind())
            };
            for was in places.iter().filter(was) {
                if !is_whole_file && was.length > space {
                    continue;
                }
                // With what was written into the same block later, as it was before that.
                let count = if is_file { was.length } else { was.length.max(*length) };
                let mut past = old.read(&was.path).split_off(was.offset as usize);
                past.resize(count as usize, 0);
                let common = past.len().min(here.len());
                if past[..common] != here[..common] || is_whole_file && past.len() != here.len() {
                    return Some(past);
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
