//! What the clusters of a base come to. Of a cluster in which little changed and all of whose
//! directories count, its sums are taken, which are in memory, less the rows that changed, read
//! from the tree of the base; of the others the rows that count are added up.
//!
//! Where directories are told one by one, a cluster whose directories all lie below one that is
//! told is counted with that; of the others the sums of their directories are read. The last
//! change cannot be taken away: where a row that changed was it, all rows are looked at.

use std::ops::ControlFlow;
use std::sync::Arc;

use format::cluster_directories::{ClusterDirectory, Directories};
use format::cluster_groups::Groups;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::FileKind;

use super::base::{Base, ClusterSums, LARGEST_KEPT, own_totals, read_directories, read_groups};
use super::ground::Ground;
use super::table::NOWHERE;
use super::totals::{Gather, LINKED, Place, fields};
use crate::aggregate::{Totals, add_directory, add_file, add_plain, is_plain, sums_of};
use crate::assemble::{CARRY_NOTHING, NamedEntry, Records};
use crate::row::RowBuf;
use crate::{Result, Row};

/// Of so many rows of a cluster one may differ for what was there to be taken away row by row;
/// where more do, it is quicker to add up the others.
const ROWS_A_CHANGE: usize = 32;

/// How the directories of a cluster stand.
#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is found out by itself")]
struct Standing {
    open: bool,
    closed: bool,
    /// Places in it that differ, in order.
    touched: Vec<(u64, u64)>,
    /// Those are too many to be looked up.
    changed: bool,
    /// The directory that all are counted with, and whether there are several such.
    with: Option<u32>,
    several: bool,
}

impl Standing {
    fn is_whole(&self) -> bool {
        self.open && !self.closed && !self.changed
    }
}

/// What the sums of a cluster leave to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing.
    Nothing,
    /// Rows with several names.
    Linked,
    /// All: the sums could not be used.
    Everything,
}

/// How the clusters of a base stand.
fn standings(place: &Place<'_, '_>, base: &Base, ground: &Ground) -> Vec<Standing> {
    let mut standing = vec![Standing::default(); base.clusters.len()];
    base.table.each(&mut |at, cluster| {
        let found = &mut standing[cluster as usize];
        let open = ground.is_open(at);
        found.open |= open;
        found.closed |= !open;
        let with = place.with.get(at).copied().unwrap_or(NOWHERE);
        found.several |= with == NOWHERE || found.with.is_some_and(|known| known != with);
        found.with = Some(with);
    });
    place.view.delta.each_place(&mut |(directory, cookie)| {
        if let Some(cluster) = base.table.cluster_of(directory, cookie) {
            let rows = base.clusters[cluster as usize].rows as usize;
            let found = &mut standing[cluster as usize];
            if !found.changed {
                found.touched.push((directory, cookie));
            }
            if found.touched.len() > rows / ROWS_A_CHANGE + 1 {
                (found.changed, found.touched) = (true, Vec::new());
            }
        }
    });
    for found in &mut standing {
        found.touched.sort_unstable();
        found.touched.dedup();
    }
    standing
}

impl Gather<'_> {
    /// What the base's clusters come to.
    pub(super) fn base(
        &mut self,
        place: &mut Place<'_, '_>,
        base: &Arc<Base>,
        ground: &Ground,
    ) -> Result<()> {
        let standing = standings(place, base, ground);
        let mut whole = vec![false; base.clusters.len()];
        let mut gone = Groups::default();
        for (number, found) in standing.iter().enumerate() {
            if self.is_cancelled() {
                return Ok(());
            }
            let cluster = &base.clusters[number];
            if !found.open || cluster.summary.is_none() {
                continue;
            }
            let number = number as u32;
            let left = match &cluster.sums {
                Some(sums) if found.is_whole() => {
                    self.whole(place, base, number, found, sums, &mut gone)?
                }
                _ => Left::Everything,
            };
            whole[number as usize] = left != Left::Everything;
            match left {
                Left::Nothing => {}
                Left::Linked => self.rows(place, base, number, Some(LINKED))?,
                Left::Everything => self.rows(place, base, number, None)?,
            }
        }
        if self.question.groups {
            self.groups(place, base, &whole)?;
            self.tally.answer.groups.take(&gone);
        }
        Ok(())
    }

    /// Adds the sums of a cluster, less what was at places that differ, and tells what is left.
    fn whole(
        &mut self,
        place: &mut Place<'_, '_>,
        base: &Base,
        number: u32,
        found: &Standing,
        sums: &ClusterSums,
        gone: &mut Groups,
    ) -> Result<Left> {
        let old = old_rows(place, base, &found.touched)?;
        if old.iter().any(|row| row.as_row().ctime >= sums.totals.ctime) {
            return Ok(Left::Everything);
        }
        let listed =
            found.touched.is_empty() && sums.linked == 0 && self.question.largest <= LARGEST_KEPT;
        let told = self.tree.is_some() && found.several;
        if told || self.question.largest > 0 && !listed {
            let Some(own) = self.own_totals(base, number)? else { return Ok(Left::Everything) };
            let latest = |directory: &ClusterDirectory| {
                let of = |row: &&RowBuf| row.as_row().directory == directory.ino;
                old.iter().filter(of).all(|row| row.as_row().ctime < directory.ctime)
            };
            if told && !old.is_empty() && !own.iter().all(latest) {
                return Ok(Left::Everything);
            }
            for directory in &own {
                let totals = own_totals(directory);
                if told && let Some(known) = self.told(place, directory.ino)? {
                    known.add(&totals);
                }
                if self.question.largest > 0 {
                    self.own.entry(directory.ino).or_default().add(totals.sums);
                }
            }
        } else if self.question.largest > 0 {
            for (ino, own) in &sums.largest {
                self.own.entry(*ino).or_default().add(*own);
            }
        }
        if self.tree.is_some()
            && !told
            && let Some(with) = found.with
            && let Some(known) = self.told(place, base.table.at(with as usize).0)?
        {
            known.add(&sums.totals);
        }
        self.tally.answer.total.add(&sums.totals);
        for row in &old {
            self.take(place, &row.as_row(), gone)?;
        }
        Ok(if sums.linked > 0 { Left::Linked } else { Left::Nothing })
    }

    /// Takes away a row of the base that is not there any more, or not like that.
    fn take(&mut self, place: &mut Place<'_, '_>, row: &Row<'_>, gone: &mut Groups) -> Result<()> {
        let mut one = Totals::default();
        if row.kind == FileKind::Directory {
            one.directories = 1;
            add_directory(gone, row);
        } else if is_plain(row) {
            one.sums = sums_of(row);
            add_file(gone, row);
        } else {
            return Ok(());
        }
        self.tally.answer.total.take(&one);
        if let Some(own) = self.own.get_mut(&row.directory) {
            own.take(one.sums);
        }
        if let Some(told) = self.told(place, row.directory)? {
            told.take(&one);
        }
        Ok(())
    }

    /// What the directories of a cluster come to; `None` when that cannot be read.
    fn own_totals(&self, base: &Base, number: u32) -> Result<Option<Vec<ClusterDirectory>>> {
        let bytes = match read_directories(&self.index.files, &base.clusters[number as usize]) {
            Ok(bytes) => bytes,
            Err(error) if error.is_of_index() => {
                super::note_damage("the sums of a cluster", &error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut listed = Directories::new(&bytes);
        let mut own = Vec::new();
        // Its checksum was right: what does not decode was written so.
        while let Ok(Some(directory)) = listed.read_next() {
            own.push(directory);
        }
        Ok(Some(own))
    }

    /// Adds the groups of those clusters whose sums were taken: all that are in memory less the
    /// others, or one by one, whichever is less to read.
    fn groups(&mut self, place: &Place<'_, '_>, base: &Base, whole: &[bool]) -> Result<()> {
        let summed = |(number, _): &(usize, &bool)| base.clusters[*number].sums.is_some();
        let wholes = whole.iter().filter(|whole| **whole).count();
        let less = wholes * 2 > whole.len();
        let mut read = Groups::default();
        for (number, _) in whole.iter().enumerate().filter(summed).filter(|(_, one)| **one != less)
        {
            if self.is_cancelled() {
                return Ok(());
            }
            read.merge(&self.groups_of(place, base, number as u32)?);
        }
        if less {
            let mut groups = base.groups.clone();
            groups.take(&read);
            read = groups;
        }
        // Those are counted one by one, and are not left out of the answer.
        read.linked = 0;
        self.tally.answer.groups.absorb(read);
        Ok(())
    }

    /// The groups of a cluster, counted again where they cannot be read.
    fn groups_of(&self, place: &Place<'_, '_>, base: &Base, number: u32) -> Result<Groups> {
        let cluster = &base.clusters[number as usize];
        match read_groups(&self.index.files, cluster) {
            Err(error) if error.is_of_index() => super::note_damage("groups", &error),
            read => return read,
        }
        let mut groups = Groups::default();
        self.index.with_cluster(place.view, base, number, &mut |cluster| {
            groups = Groups::default();
            let rows = cluster.rows(fields(true))?;
            let flow = cluster.search(&[], &mut |at| {
                add_plain(&mut groups, &rows.get(at));
                ControlFlow::Continue(())
            })?;
            debug_assert!(flow.is_continue(), "nothing ends it");
            Ok(())
        })?;
        self.index.settle(cluster.id);
        Ok(groups)
    }
}

/// What the base had at places that differ now.
fn old_rows(place: &Place<'_, '_>, base: &Base, touched: &[(u64, u64)]) -> Result<Vec<RowBuf>> {
    let records =
        Records { read: &*place.view.pinned, tree: base.tree, searchable: &CARRY_NOTHING };
    let (mut found, mut xattrs) = (NamedEntry::default(), Vec::new());
    let mut old = Vec::new();
    for &(directory, cookie) in touched {
        records.entry(directory, cookie, &mut found)?;
        let Some(target) = found.target else { continue };
        // What clusters leave out.
        if matches!(target, Target::Subvolume(_)) {
            continue;
        }
        let entry = EntryRecord { chained: false, ino: found.ino, name: &found.name, target };
        if let Some(row) = records.row((directory, cookie), &entry, &mut xattrs)? {
            old.push(row.to_buf());
        }
    }
    Ok(old)
}
