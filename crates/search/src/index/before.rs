//! Rows that a base had at the places that differ from it, in memory. Totals subtract them from the
//! sums of clusters.
//!
//! The first request for totals looks them up and keeps them with the layers of the difference. So
//! each change since the base is looked up once. If few rows of a cluster changed, they are read
//! one by one from the tree of the base. If many did, the whole cluster is scanned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use format::entry_record::{EntryRecord, Target};

use super::Index;
use super::base::Base;
use super::before_list::{Before, BeforeList, Had};
use super::spread::spread;
use super::totals::fields;
use super::view::View;
use crate::assemble::{CARRY_NOTHING, NamedEntry, Records};
use crate::cluster::{Cluster, Fields};
use crate::{Attribute, Result};

/// Rows are looked up one by one if at most one in this many rows of a cluster changed. More
/// look-ups take as long as a scan of the cluster, and far longer if nothing of the tree is in
/// memory.
pub(super) const ROWS_A_LOOKUP: usize = 128;
/// Estimated bytes of a name.
const NAME_BYTES: usize = 24;

/// Former rows at the places that changed, grouped by cluster.
pub(super) struct Gone<'a> {
    rows: Vec<Had<'a>>,
    /// Start of each cluster's rows, and the end of all.
    starts: Vec<usize>,
}

impl<'a> Gone<'a> {
    /// Groups the rows that count, for this many clusters.
    pub(super) fn of(
        lists: &'a [Arc<BeforeList>],
        clusters: usize,
        is_open: &dyn Fn(usize) -> bool,
    ) -> Gone<'a> {
        let counts = |had: &Had<'_>| is_open(had.row.cluster as usize);
        let all = || lists.iter().flat_map(|list| list.iter()).filter(counts);
        let mut starts = vec![0; clusters + 1];
        all().for_each(|had| starts[had.row.cluster as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut rows: Vec<Had<'_>> = all().collect();
        for had in all() {
            let at = &mut next[had.row.cluster as usize];
            rows[*at] = had;
            *at += 1;
        }
        Gone { rows, starts }
    }

    /// The rows of one cluster.
    pub(super) fn of_cluster(&self, number: usize) -> &[Had<'a>] {
        &self.rows[self.starts[number]..self.starts[number + 1]]
    }
}

/// A place, and the cluster that may hold it.
type Wanted = (u32, (u64, u64));
/// What was read for a layer: the layer's index, what was known of it, and the complete list.
pub(super) type LookedUp = (usize, Arc<BeforeList>, Arc<BeforeList>);

impl Index {
    /// The rows that a base had at the places of a view that differ, as lists. `None` if that takes
    /// more memory than allowed, cannot be read, or the caller cancelled.
    pub(super) fn before(
        &self,
        view: &View,
        base: &Arc<Base>,
        cancel: &AtomicBool,
    ) -> Option<Vec<Arc<BeforeList>>> {
        let looked = view.delta.looked();
        let mut wanted: Vec<Option<Vec<Wanted>>> = Vec::with_capacity(looked.len());
        // Most places may be in directories that the base does not have; those take no memory.
        let place = |key: (u64, u64)| Some((base.table.cluster_of(key.0, key.1)?, key));
        let (mut lists, mut read) = (Vec::with_capacity(looked.len()), Vec::new());
        for (known, unread) in looked {
            lists.push(known);
            wanted.push(unread.map(|keys| keys.into_iter().filter_map(place).collect()));
        }
        let more: usize = wanted.iter().flatten().map(Vec::len).sum();
        let bytes = more.saturating_mul(size_of::<Before>() + NAME_BYTES);
        let space = self.space_for_before(view);
        if more > 0 && bytes > space {
            return None;
        }
        let (mut whole, mut taken) = (true, 0);
        for (depth, wanted) in wanted.into_iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            let left = space.saturating_sub(taken);
            let Some(all) = self.read_layer(view, base, &lists[depth], (wanted, left), cancel)
            else {
                whole = false;
                break;
            };
            taken += all.memory_bytes().saturating_sub(lists[depth].memory_bytes());
            let known = std::mem::replace(&mut lists[depth], Arc::clone(&all));
            read.push((depth, known, all));
        }
        if !read.is_empty() {
            self.keep_before(view, &read);
        }
        whole.then_some(lists)
    }

    /// The rows that a base had at all places of a layer. `None` if it cannot be read, takes more
    /// bytes than are left, or the caller cancelled.
    fn read_layer(
        &self,
        view: &View,
        base: &Arc<Base>,
        known: &BeforeList,
        (mut wanted, left): (Vec<Wanted>, usize),
        cancel: &AtomicBool,
    ) -> Option<Arc<BeforeList>> {
        wanted.sort_unstable();
        self.looked_up.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        let clusters: Vec<&[Wanted]> = wanted.chunk_by(|one, other| one.0 == other.0).collect();
        // Any order will do: the summation sorts by cluster. If the cache does not hold all
        // clusters, a fixed order would evict each one before its turn.
        let mut order: Vec<u32> = (0..clusters.len() as u32).collect();
        let number = |at: u32| clusters[at as usize][0].0 as usize;
        self.cache.held_first(&mut order, |at| base.clusters[number(at)].id);
        // Threads cost about as much to start as a few look-ups.
        let threads = if wanted.len() < self.options.fold_alone { 1 } else { self.options.threads };
        let most = known.memory_bytes().saturating_add(left);
        let all = Mutex::new(BeforeList::joined(known, &BeforeList::default()));
        let is_over = AtomicBool::new(false);
        let read = spread((threads, "before"), clusters.len(), cancel, &|at| {
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut read = BeforeList::default();
            self.read_before(view, base, clusters[order[at] as usize], &mut read)?;
            let mut all = all.lock();
            let fits = BeforeList::fit_together(&all, &read);
            if fits {
                all.append(&read);
            }
            is_over.fetch_or(!fits || all.used_bytes() > most, Ordering::Relaxed);
            Ok(())
        });
        let read = read.inspect_err(|error| {
            // Clusters have their own checksums, so they decide which rows count.
            let subvolume = view.subvolume;
            tracing::warn!(%error, subvolume, "cannot look up rows of the base: counting rows");
            self.note_gone(error);
        });
        read.ok().flatten()?;
        let mut all = all.into_inner();
        all.rows.shrink_to_fit();
        all.names.shrink_to_fit();
        (!is_over.into_inner()).then(|| Arc::new(all))
    }

    /// Reads the former rows at a set of places from one cluster, or from the tree instead.
    fn read_before(
        &self,
        view: &View,
        base: &Arc<Base>,
        wanted: &[Wanted],
        out: &mut BeforeList,
    ) -> Result<()> {
        let Some(&(number, _)) = wanted.first() else { return Ok(()) };
        let cluster = &base.clusters[number as usize];
        if cluster.rows == 0 {
            return Ok(());
        }
        if wanted.len() <= cluster.rows as usize / ROWS_A_LOOKUP + 1 {
            return look_up(view, base, wanted, out);
        }
        self.with_cluster(view, base, number, &mut |cluster| {
            // Called again if the cluster is damaged.
            out.clear();
            pick(cluster, wanted, out)
        })?;
        self.settle(cluster.id);
        Ok(())
    }
}

/// Reads rows of a base's tree.
fn look_up(view: &View, base: &Base, wanted: &[Wanted], out: &mut BeforeList) -> Result<()> {
    let records = Records { read: &*view.pinned, tree: base.tree, searchable: &CARRY_NOTHING };
    let (mut found, mut xattrs) = (NamedEntry::default(), Vec::new());
    for &(cluster, (directory, cookie)) in wanted {
        records.entry(directory, cookie, &mut found)?;
        let Some(target) = found.target else { continue };
        // Clusters leave these out.
        if matches!(target, Target::Subvolume(_)) {
            continue;
        }
        let entry = EntryRecord { chained: false, ino: found.ino, name: &found.name, target };
        if let Some(row) = records.row((directory, cookie), &entry, &mut xattrs)? {
            out.push(&row, cluster);
        }
    }
    Ok(())
}

/// Reads rows of a cluster.
fn pick(cluster: &Cluster, wanted: &[Wanted], out: &mut BeforeList) -> Result<()> {
    let Some(&(number, _)) = wanted.first() else { return Ok(()) };
    let places: Vec<(u64, u64)> = wanted.iter().map(|(_, place)| *place).collect();
    let more = [Attribute::Mode, Attribute::Atime, Attribute::Btime].map(Fields::of);
    let fields = more.into_iter().fold(fields(true).and(Fields::ENTRIES), Fields::and);
    let rows = cluster.rows(fields)?;
    cluster.find_places(&places, &mut |at| out.push(&rows.get(at), number))
}
