//! What a base had at the places that differ from it, in memory: what totals take away from the
//! sums of clusters.
//!
//! It is looked up when totals are first asked for, and kept with the layers of the difference, so
//! that each change since the base is looked up once. Where few rows of a cluster changed, they are
//! read from the tree of the base, one by one; where many did, the cluster is gone through.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use format::entry_record::{EntryRecord, Target};
use format::inode_record::FileKind;
use parking_lot::Mutex;

use super::Index;
use super::base::Base;
use super::spread::spread;
use super::totals::fields;
use super::view::View;
use crate::aggregate::{EXTENSION_BYTES_MAX, extension, is_plain};
use crate::assemble::{CARRY_NOTHING, NamedEntry, Records};
use crate::cluster::{Cluster, Fields};
use crate::query::Test;
use crate::{Attribute, Condition, Result, Row};

/// Of so many rows of a cluster one may have changed for each to be read by itself: more take as
/// long as going through the cluster, and far longer where nothing of the tree is in memory.
pub(super) const ROWS_A_LOOKUP: usize = 128;
/// Bytes of a name that has an extension, and nothing else that counts.
const NAME_BYTES: usize = EXTENSION_BYTES_MAX + 2;

/// What counts of a row that a cluster has, and that is not so any more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    /// The cluster.
    pub(crate) cluster: u32,
    /// The directory that held the name.
    pub(crate) directory: u64,
    /// The last change of attributes.
    pub(crate) ctime: i64,
    kind: FileKind,
    linked: bool,
    extension_bytes: u8,
    extension: [u8; EXTENSION_BYTES_MAX],
    uid: u32,
    gid: u32,
    size: u64,
    allocated: u64,
    mtime: i64,
}

// One is kept for each place that differs.
const _: () = assert!(size_of::<Before>() <= 72);

impl Before {
    pub(super) fn new(row: &Row<'_>, cluster: u32) -> Before {
        let mut bytes = [0; EXTENSION_BYTES_MAX];
        let known = extension(row.name);
        bytes[..known.len()].copy_from_slice(&known);
        Before {
            cluster,
            directory: row.directory,
            ctime: row.ctime,
            kind: row.kind,
            linked: row.kind != FileKind::Directory && !is_plain(row),
            extension_bytes: known.len() as u8,
            extension: bytes,
            uid: row.uid,
            gid: row.gid,
            size: row.size,
            allocated: row.allocated,
            mtime: row.mtime,
        }
    }

    /// Gives the row, as far as it counts for totals; nothing where the sums leave it out.
    pub(crate) fn with_row<T>(&self, take: impl FnOnce(&Row<'_>) -> T) -> Option<T> {
        if self.linked {
            return None;
        }
        let mut name = [b'x'; NAME_BYTES];
        let length = usize::from(self.extension_bytes);
        name[1] = b'.';
        name[2..2 + length].copy_from_slice(&self.extension[..length]);
        let name = if length == 0 { &name[..1] } else { &name[..2 + length] };
        Some(take(&Row { name, ..self.row() }))
    }

    /// The row, as far as it is known ([`Before::tells`]).
    pub(crate) fn row(&self) -> Row<'static> {
        let (directory, kind, ctime, mtime) = (self.directory, self.kind, self.ctime, self.mtime);
        let (uid, gid, size, allocated) = (self.uid, self.gid, self.size, self.allocated);
        Row { directory, kind, uid, gid, nlink: 1, size, allocated, mtime, ctime, ..NOTHING }
    }

    /// Whether [`Before::row`] is enough to say what a test is of any row.
    pub(crate) fn tells(test: &Test) -> bool {
        match test {
            Test::Within(attribute, ..) => matches!(
                attribute,
                Attribute::Kind
                    | Attribute::Uid
                    | Attribute::Gid
                    | Attribute::Size
                    | Attribute::Allocated
                    | Attribute::Mtime
                    | Attribute::Ctime
            ),
            Test::Kind(_) | Test::NoUser | Test::NoGroup => true,
            _ => false,
        }
    }
}

/// A row of which nothing is known.
const NOTHING: Row<'static> = Row {
    directory: 0,
    cookie: 0,
    ino: 0,
    name: b"",
    kind: FileKind::File,
    mode: 0,
    uid: 0,
    gid: 0,
    nlink: 0,
    rdev: 0,
    size: 0,
    allocated: 0,
    entries: 0,
    atime: 0,
    mtime: 0,
    ctime: 0,
    btime: 0,
    subvolume: 0,
    xattrs: b"",
};

/// What was at the places that changed, by clusters.
pub(super) struct Gone<'a> {
    rows: Vec<&'a Before>,
    /// Where those of each cluster begin, and where all end.
    starts: Vec<usize>,
}

impl<'a> Gone<'a> {
    /// Of so many clusters those of which anything counts.
    pub(super) fn of(
        lists: &'a [Arc<Vec<Before>>],
        clusters: usize,
        is_open: &dyn Fn(usize) -> bool,
    ) -> Gone<'a> {
        let counts = |row: &&Before| is_open(row.cluster as usize);
        let all = || lists.iter().flat_map(|list| list.iter()).filter(counts);
        let mut starts = vec![0; clusters + 1];
        all().for_each(|row| starts[row.cluster as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut rows: Vec<&Before> = all().collect();
        for row in all() {
            let at = &mut next[row.cluster as usize];
            rows[*at] = row;
            *at += 1;
        }
        Gone { rows, starts }
    }

    /// Those of a cluster.
    pub(super) fn of_cluster(&self, number: usize) -> &[&'a Before] {
        &self.rows[self.starts[number]..self.starts[number + 1]]
    }
}

/// A place, with the cluster that may have it.
type Wanted = (u32, (u64, u64));
/// What was read for a layer: which one, what was known of it, and all.
pub(super) type LookedUp = (usize, Arc<Vec<Before>>, Arc<Vec<Before>>);

impl Index {
    /// What a base had at the places of a view that differ, in lists. `None` where that takes more
    /// memory than there is for it, or cannot be read, or nobody waits any more.
    pub(super) fn before(
        &self,
        view: &View,
        base: &Arc<Base>,
        cancel: &AtomicBool,
    ) -> Option<Vec<Arc<Vec<Before>>>> {
        let looked = view.delta.looked();
        let mut wanted: Vec<Option<Vec<Wanted>>> = Vec::with_capacity(looked.len());
        // Most may be in directories that the base does not have, and take no memory.
        let place = |key: (u64, u64)| Some((base.table.cluster_of(key.0, key.1)?, key));
        let (mut lists, mut read) = (Vec::with_capacity(looked.len()), Vec::new());
        for (known, unread) in looked {
            lists.push(known);
            wanted.push(unread.map(|keys| keys.into_iter().filter_map(place).collect()));
        }
        let more: usize = wanted.iter().flatten().map(Vec::len).sum();
        let bytes = more.saturating_mul(size_of::<Before>());
        if more > 0 && !self.may_keep(view, bytes) {
            return None;
        }
        let mut whole = true;
        for (depth, wanted) in wanted.into_iter().enumerate() {
            let Some(wanted) = wanted else { continue };
            let Some(all) = self.read_layer(view, base, &lists[depth], wanted, cancel) else {
                whole = false;
                break;
            };
            let known = std::mem::replace(&mut lists[depth], Arc::clone(&all));
            read.push((depth, known, all));
        }
        if !read.is_empty() {
            self.keep_before(view, &read);
        }
        whole.then_some(lists)
    }

    /// What a base had at all places of a layer; `None` where it cannot be read, or nobody waits
    /// any more.
    fn read_layer(
        &self,
        view: &View,
        base: &Arc<Base>,
        known: &[Before],
        mut wanted: Vec<Wanted>,
        cancel: &AtomicBool,
    ) -> Option<Arc<Vec<Before>>> {
        wanted.sort_unstable();
        self.looked_up.fetch_add(wanted.len() as u64, Ordering::Relaxed);
        let clusters: Vec<&[Wanted]> = wanted.chunk_by(|one, other| one.0 == other.0).collect();
        // Threads cost about as much to start as a few look-ups.
        let threads = if wanted.len() < self.options.fold_alone { 1 } else { self.options.threads };
        let mut all = Vec::with_capacity(known.len() + wanted.len());
        all.extend_from_slice(known);
        // In any order: who adds them up puts them in that of clusters.
        let all = Mutex::new(all);
        let read = spread((threads, "before"), clusters.len(), cancel, &|at| {
            let mut read = Vec::with_capacity(clusters[at].len());
            self.read_before(view, base, clusters[at], &mut read)?;
            all.lock().append(&mut read);
            Ok(())
        });
        let read = read.inspect_err(|error| {
            // Clusters, which are checked by themselves, say what there is to be counted.
            let subvolume = view.subvolume;
            tracing::warn!(%error, subvolume, "what a base had is not known: rows are counted");
            self.note_gone(error);
        });
        read.ok().flatten()?;
        let mut all = all.into_inner();
        all.shrink_to_fit();
        Some(Arc::new(all))
    }

    /// Reads what one cluster, or the tree in its place, had at some places.
    fn read_before(
        &self,
        view: &View,
        base: &Arc<Base>,
        wanted: &[Wanted],
        out: &mut Vec<Before>,
    ) -> Result<()> {
        let Some(&(number, _)) = wanted.first() else { return Ok(()) };
        let cluster = &base.clusters[number as usize];
        if cluster.rows == 0 {
            return Ok(());
        }
        if wanted.len() <= cluster.rows as usize / ROWS_A_LOOKUP + 1 {
            return look_up(view, base, wanted, out);
        }
        let start = out.len();
        self.with_cluster(view, base, number, &mut |cluster| {
            // A cluster that is damaged is gone through again.
            out.truncate(start);
            pick(cluster, wanted, out)
        })?;
        self.settle(cluster.id);
        Ok(())
    }
}

/// Reads rows of a base's tree.
fn look_up(view: &View, base: &Base, wanted: &[Wanted], out: &mut Vec<Before>) -> Result<()> {
    let records = Records { read: &*view.pinned, tree: base.tree, searchable: &CARRY_NOTHING };
    let (mut found, mut xattrs) = (NamedEntry::default(), Vec::new());
    for &(cluster, (directory, cookie)) in wanted {
        records.entry(directory, cookie, &mut found)?;
        let Some(target) = found.target else { continue };
        // What clusters leave out.
        if matches!(target, Target::Subvolume(_)) {
            continue;
        }
        let entry = EntryRecord { chained: false, ino: found.ino, name: &found.name, target };
        if let Some(row) = records.row((directory, cookie), &entry, &mut xattrs)? {
            out.push(Before::new(&row, cluster));
        }
    }
    Ok(())
}

/// Reads rows of a cluster, by going through those of the directories that have any.
fn pick(cluster: &Cluster, wanted: &[Wanted], out: &mut Vec<Before>) -> Result<()> {
    let Some(&(number, _)) = wanted.first() else { return Ok(()) };
    let mut directories: Vec<i128> = wanted.iter().map(|(_, key)| key.0.into()).collect();
    directories.dedup();
    let identity = cluster.rows(Fields::IDENTITY)?;
    let rows = cluster.rows(fields(true))?;
    let within = [Condition::OneOf(Attribute::Directory, directories)];
    let flow = cluster.search(&within, &mut |at| {
        let row = identity.get(at);
        if wanted.binary_search(&(number, (row.directory, row.cookie))).is_ok() {
            out.push(Before::new(&rows.get(at), number));
        }
        ControlFlow::Continue(())
    })?;
    debug_assert!(flow.is_continue(), "nothing ends it");
    Ok(())
}
