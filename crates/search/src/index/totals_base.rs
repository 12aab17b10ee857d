//! Totals of the clusters of a base: their sums, which are in memory, minus the former rows at the
//! places that changed (`before`). If only some directories of a cluster count, the sums of those
//! are read. The rows are added up only if groups are requested as well, or if the former rows at
//! those places take too much memory.
//!
//! If directories are reported one by one, a cluster whose directories are all below one reported
//! directory is counted with that one. For other clusters, the sums of their directories are read.
//! The last change cannot be subtracted. If it came from a row that changed, and nothing else that
//! counts is as late, all rows are read.

use std::ops::ControlFlow;
use std::sync::Arc;

use device::Map;
use format::cluster_directories::{ClusterDirectory, Directories};
use format::cluster_groups::{Groups, Sums};
use format::inode_record::FileKind;

use super::base::{
    Base, ClusterSums, LARGEST_KEPT, file, own_totals, read_directories, read_groups,
};
use super::before::Gone;
use super::before_list::Had;
use super::classified::Classified;
use super::files::cluster_name;
use super::table::NOWHERE;
use super::totals::{Gather, SubvolumePart, fields, linked};
use super::view::View;
use crate::aggregate::memory::{counted_bytes, group_bytes};
use crate::aggregate::{GroupCounts, Totals, is_plain, sums_of};
use crate::{Result, Row};

/// The state of a cluster's directories.
#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is found out by itself")]
struct ClusterState {
    open: bool,
    closed: bool,
    /// Rows of it changed, and their former values are not known.
    changed: bool,
    /// The directory that all are counted with, and whether there are several such.
    with: Option<u32>,
    several: bool,
}

/// What remains to count after the sums of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Nothing.
    Nothing,
    /// Rows with several names.
    Linked,
    /// All: the sums could not be used.
    Everything,
}

/// A cluster of a base whose sums are added.
struct Summed<'a> {
    base: &'a Base,
    classified: &'a Classified,
    number: u32,
    found: &'a ClusterState,
    sums: &'a ClusterSums,
    /// The former rows at changed places in it.
    gone: &'a [Had<'a>],
}

impl Summed<'_> {
    /// Whether the contents of one of its directories count.
    fn counts(&self, directory: u64) -> bool {
        !self.found.closed
            || self.base.table.position(directory).is_some_and(|at| self.classified.is_open(at))
    }
}

/// The state of a base's clusters; `known`: the former rows at changed places.
fn states_of(
    place: &SubvolumePart<'_, '_>,
    base: &Base,
    classified: &Classified,
    known: bool,
) -> Vec<ClusterState> {
    let mut states = vec![ClusterState::default(); base.clusters.len()];
    base.table.each(&mut |at, cluster| {
        let found = &mut states[cluster as usize];
        let open = classified.is_open(at);
        found.open |= open;
        found.closed |= !open;
        let with = place.with.get(at).copied().unwrap_or(NOWHERE);
        found.several |= with == NOWHERE || found.with.is_some_and(|known| known != with);
        found.with = Some(with);
    });
    if !known {
        place.view.delta.each_place(&mut |(directory, cookie)| {
            if let Some(cluster) = base.table.cluster_of(directory, cookie) {
                states[cluster as usize].changed = true;
            }
        });
    }
    states
}

impl Gather<'_> {
    /// Adds the totals of the base's clusters.
    pub(super) fn base(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        base: &Arc<Base>,
        classified: &Classified,
    ) -> Result<()> {
        if self.is_cancelled() {
            return Ok(());
        }
        let lists = self.index.before(place.view, base, self.question.cancel);
        let states = states_of(place, base, classified, lists.is_some());
        let lists = lists.unwrap_or_default();
        let gone = Gone::of(&lists, states.len(), &|number| states[number].open);
        let mut whole = vec![false; base.clusters.len()];
        let (linked, mut taken) = (linked(), GroupCounts::default());
        for (number, found) in states.iter().enumerate() {
            if self.is_cancelled() {
                return Ok(());
            }
            let cluster = &base.clusters[number];
            if !found.open || cluster.summary.is_none() {
                continue;
            }
            let gone = gone.of_cluster(number);
            let number = number as u32;
            let rows_only = found.changed || found.closed && self.question.groups;
            let left = match &cluster.sums {
                Some(sums) if !rows_only => {
                    let summed = Summed { base, classified, number, found, sums, gone };
                    self.summed(place, &summed, &mut taken)?
                }
                _ => Left::Everything,
            };
            whole[number as usize] = left != Left::Everything;
            match left {
                Left::Nothing => {}
                Left::Linked => self.rows(place, base, number, &linked)?,
                Left::Everything => self.rows(place, base, number, &[])?,
            }
        }
        if self.question.groups {
            self.groups(place, base, &whole)?;
            self.tally.answer.groups.take(&taken.finish());
        }
        Ok(())
    }

    /// Adds the sums of a cluster, minus the former rows at places that differ, and returns what
    /// remains to count.
    fn summed(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        summed: &Summed<'_>,
        taken: &mut GroupCounts,
    ) -> Result<Left> {
        let Summed { base, number, found, sums, gone, .. } = *summed;
        let listed = !found.closed && self.question.largest <= LARGEST_KEPT;
        let each = found.closed || self.tree.is_some() && found.several;
        if each || self.question.largest > 0 && !listed {
            let Some(mut own) = self.own_totals(base, number)? else {
                return Ok(Left::Everything);
            };
            own.retain(|directory| summed.counts(directory.ino));
            if each && !self.knows_last(place, &own, gone)? {
                return Ok(Left::Everything);
            }
            if !each && !self.knows_last_of_all(place, summed)? {
                return Ok(Left::Everything);
            }
            for directory in &own {
                let totals = own_totals(directory);
                if each && let Some(known) = self.counted(place, directory.ino)? {
                    known.add(&totals);
                }
                if found.closed {
                    self.tally.answer.total.add(&totals);
                }
                if self.question.largest > 0 {
                    self.holding.add(directory.ino, totals.sums);
                }
            }
            self.check_memory(0)?;
        } else if !self.knows_last_of_all(place, summed)? {
            return Ok(Left::Everything);
        } else if self.question.largest > 0 {
            self.holding.add_largest(base, number, sums);
            self.check_memory(0)?;
        }
        if !each && let Some(known) = self.counted_with(place, summed)? {
            known.add(&sums.totals);
        }
        if !found.closed {
            self.tally.answer.total.add(&sums.totals);
        }
        for row in gone.iter().filter_map(|had| had.counted()) {
            if summed.counts(row.directory) {
                self.take(place, &row, taken)?;
            }
        }
        Ok(if sums.linked > 0 { Left::Linked } else { Left::Nothing })
    }

    /// The directory that all of a cluster is counted with, if directories are reported.
    fn counted_with(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        summed: &Summed<'_>,
    ) -> Result<Option<&mut Totals>> {
        match summed.found.with {
            Some(with) if self.tree.is_some() && with != NOWHERE => {
                self.counted(place, summed.base.table.at(with as usize).0)
            }
            _ => Ok(None),
        }
    }

    /// Whether the cluster's last change is not from a changed row, or something that is counted
    /// with it is as late.
    fn knows_last_of_all(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        summed: &Summed<'_>,
    ) -> Result<bool> {
        let last = summed.sums.totals.ctime;
        if summed.gone.iter().all(|had| had.row.ctime < last) {
            return Ok(true);
        }
        let counted = self.counted_with(place, summed)?.map(|known| known.ctime);
        Ok(counted.unwrap_or(self.tally.answer.total.ctime) >= last)
    }

    /// The same for each of some directories.
    fn knows_last(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        own: &[ClusterDirectory],
        gone: &[Had<'_>],
    ) -> Result<bool> {
        let mut latest: Map<u64, i64> = Map::default();
        for row in gone.iter().map(|had| had.row) {
            let known = latest.entry(row.directory).or_insert(row.ctime);
            *known = row.ctime.max(*known);
        }
        for directory in own {
            let last = directory.ctime;
            if latest.get(&directory.ino).is_none_or(|latest| *latest < last) {
                continue;
            }
            let total = self.tally.answer.total.ctime;
            let counted = self.counted(place, directory.ino)?.map(|known| known.ctime);
            if counted.unwrap_or(total) < last {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Subtracts a row of the base that was removed or changed.
    fn take(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        row: &Row<'_>,
        taken: &mut GroupCounts,
    ) -> Result<()> {
        let mut one = Totals::default();
        let groups = self.question.groups;
        if row.kind == FileKind::Directory {
            one.directories = 1;
            if groups {
                taken.directory(row);
            }
        } else {
            one.sums = sums_of(row);
            if groups {
                taken.file(row);
            }
        }
        self.tally.answer.total.take(&one);
        if self.question.largest > 0 && one.sums.files > 0 {
            self.holding.take(row.directory, one.sums);
        }
        self.check_memory(counted_bytes(taken))?;
        if self.tree.is_some()
            && let Some(counted) = self.counted(place, row.directory)?
        {
            counted.take(&one);
        }
        Ok(())
    }

    /// The totals of a cluster's directories; `None` if they cannot be read.
    fn own_totals(&self, base: &Base, number: u32) -> Result<Option<Vec<ClusterDirectory>>> {
        let cluster = &base.clusters[number as usize];
        let bytes = match read_directories(&self.index.files, cluster) {
            Ok(bytes) => bytes,
            Err(error) if error.is_of_index() => {
                super::damage::note_damage("the sums of a cluster", &error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut listed = Directories::new(&bytes);
        let mut own = Vec::new();
        loop {
            match listed.read_next() {
                Ok(Some(directory)) => own.push(directory),
                Ok(None) => return Ok(Some(own)),
                // Its checksum was correct: it was written like this.
                Err(error) => {
                    let (file, at) = (file(&cluster_name(cluster.id)), cluster.directories.0);
                    let error = error.located(&file, at).into();
                    super::damage::note_damage("the sums of a cluster", &error);
                    return Ok(None);
                }
            }
        }
    }

    /// The sums of each directory's own names in a cluster; added up again if they cannot be read.
    pub(super) fn own_sums(
        &self,
        view: &View,
        base: &Base,
        number: u32,
    ) -> Result<Vec<(u64, Sums)>> {
        if let Some(own) = self.own_totals(base, number)? {
            let sums = |directory: &ClusterDirectory| (directory.ino, own_totals(directory).sums);
            return Ok(own.iter().map(sums).collect());
        }
        let mut own: Map<u64, Sums> = Map::default();
        self.index.with_cluster(view, base, number, &mut |cluster| {
            own.clear();
            let rows = cluster.rows(fields(false))?;
            let flow = cluster.search(&[], &mut |at| {
                let row = rows.get(at);
                if is_plain(&row) {
                    own.entry(row.directory).or_default().add(sums_of(&row));
                }
                ControlFlow::Continue(())
            })?;
            debug_assert!(flow.is_continue(), "nothing ends it");
            Ok(())
        })?;
        self.index.settle(base.clusters[number as usize].id);
        Ok(own.into_iter().collect())
    }

    /// Adds the groups of the clusters whose sums were used: either all in memory minus the others,
    /// or cluster by cluster, whichever reads less.
    fn groups(&mut self, place: &SubvolumePart<'_, '_>, base: &Base, whole: &[bool]) -> Result<()> {
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
            self.check_memory(group_bytes(&read))?;
        }
        if less {
            self.check_memory(group_bytes(&base.groups))?;
            let mut groups = base.groups.clone();
            groups.take(&read);
            read = groups;
        }
        // Those rows are counted one by one, and are not missing in the answer.
        read.linked = 0;
        self.tally.answer.groups.absorb(read);
        self.check_memory(0)?;
        Ok(())
    }

    /// The groups of a cluster, counted again if they cannot be read.
    fn groups_of(&self, place: &SubvolumePart<'_, '_>, base: &Base, number: u32) -> Result<Groups> {
        let cluster = &base.clusters[number as usize];
        match read_groups(&self.index.files, cluster) {
            Err(error) if error.is_of_index() => super::damage::note_damage("groups", &error),
            read => return read,
        }
        let mut groups = GroupCounts::default();
        self.index.with_cluster(place.view, base, number, &mut |cluster| {
            groups = GroupCounts::default();
            let rows = cluster.rows(fields(true))?;
            let flow = cluster.search(&[], &mut |at| {
                groups.plain(&rows.get(at));
                ControlFlow::Continue(())
            })?;
            debug_assert!(flow.is_continue(), "nothing ends it");
            Ok(())
        })?;
        self.index.settle(cluster.id);
        Ok(groups.finish())
    }
}
