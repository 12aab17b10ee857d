//! Decides which subvolumes should have a new base of the index; `search_upkeep` makes them.
//!
//! A base is due by how many rows differ from it. Counting those by comparing trees costs as much
//! as there is to count, and later writers must copy what is compared. So the first estimate is an
//! upper bound: how much was given to the store. The next is how many rows the log counts as
//! changed; a row that is changed repeatedly counts once there (`Distinct`). Names that are
//! created and removed again do not differ, and there may be any number of those. So a sample of
//! the rows is looked up in both trees. A base is due only if half of what makes one due is likely
//! to differ. Trees are compared if the log does not reach back to the base, or is longer than a
//! base of so many rows is worth. They are also compared if earlier differences and later changes
//! are too many together, but neither is alone: they may be the same rows.

use std::collections::BTreeMap;
use std::time::Duration;

use device::Timestamp;
use format::batch::Op;
use format::key::{self, Parsed, Part};
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use policy::Governed;
use search::Searchable;
use search::index::{Index, Reach};
use store::{CommitToken, Lsn, Pinned, TreeId};
use vfs::FsResult;
use volume::error::{from_search, from_store};
use volume::subvol::VOLUME;
use volume::view::View;

use crate::distinct::Distinct;
use crate::search_bases;

/// This many bytes of the index's memory allow one row to differ: what differs may take half of it.
const HELD_ROW_BYTES: usize = 400;
/// The smallest change of a row, in bytes: the removal of a name.
const LEAST_CHANGE_BYTES: u64 = 20;
/// No entry has this cookie.
const LINKED: u64 = u64::MAX;
/// Number of subvolumes for which the count of differing rows is remembered.
const COUNTED_MAX: usize = 16 << 10;

/// How many rows of subvolumes differ from their bases, at most.
#[derive(Default)]
pub struct Changes {
    /// The log was read up to here.
    at: Lsn,
    /// What the store had been given since opening when it was read, in bytes, and now.
    given: u64,
    now: u64,
    counted: BTreeMap<u64, Counted>,
    /// Bases that were begun since opening: what the store had been given before, and the tree
    /// that they are clones of.
    begun: BTreeMap<u64, (u64, u64)>,
}

/// What was counted of a subvolume.
struct Counted {
    /// Its base when it was counted; 0: none, and all rows differ.
    base: u64,
    tree: u64,
    /// Rows that differed then.
    rows: u64,
    /// Rows that were changed since, as of [`Changes::at`].
    since: Distinct,
}

impl Counted {
    /// Rows that differ, about; one that differed and was changed again counts twice.
    fn rows(&self) -> u64 {
        self.rows.saturating_add(self.since.count())
    }
}

impl Changes {
    /// Records how much the store has been given by the time of a state that is pinned next.
    pub fn look_at(&mut self, given: u64) {
        self.now = given;
    }

    /// Records that a base of a tree is begun, and what the store was given before.
    pub fn begun(&mut self, base: u64, given: u64, tree: u64) {
        if self.begun.len() >= COUNTED_MAX {
            self.begun.clear();
        }
        self.begun.insert(base, (given, tree));
    }

    /// Bytes that were given since a base was begun, or more; `None`: not known.
    fn since(&self, pinned: &dyn Pinned, base: u64, behind: CommitToken) -> Option<u64> {
        if let Some((given, _)) = self.begun.get(&base) {
            return Some(self.now.saturating_sub(*given));
        }
        // Estimates the length of the log as if all its records were equally long.
        Some(pinned.logged_bytes(behind)?.max(self.now))
    }

    /// Reads from the log what was committed since it was last read.
    fn catch_up(&mut self, pinned: &dyn Pinned) {
        let CommitToken(now) = pinned.commit();
        let since = std::mem::replace(&mut self.at, now);
        self.given = self.now;
        if self.counted.is_empty() || since >= self.at {
            return;
        }
        let trees = self.counted.values().map(|counted| (counted.tree, Distinct::default()));
        let mut changed: BTreeMap<u64, Distinct> = trees.collect();
        let mut is_counted = true;
        let whole = pinned.logged_since(CommitToken(since), &mut |mut ops| {
            is_counted = ops.all(|op| note(&mut changed, &op));
            is_counted
        });
        if !whole || !is_counted {
            self.counted.clear();
        }
        self.counted.retain(|_, counted| match changed.get(&counted.tree) {
            Some(more) => {
                counted.since.join(more);
                true
            }
            None => false,
        });
    }

    /// Counts by the log alone the rows of a tree that were changed since a base was cloned from
    /// it, after a commit. Nothing is counted if the log does not reach back that far. The result
    /// is as of the last [`Changes::catch_up`], with the same state.
    fn count_since(
        &mut self,
        pinned: &dyn Pinned,
        (id, base, tree): (u64, u64, u64),
        behind: CommitToken,
    ) {
        let mut changed = BTreeMap::from([(tree, Distinct::default())]);
        let (mut is_of_base, mut is_counted) = (false, true);
        let whole = pinned.logged_since(behind, &mut |mut ops| {
            is_counted = ops.all(|op| match op {
                Ok(Op::CloneTree { source, target, .. }) if target == base => {
                    is_of_base = source == tree;
                    is_of_base
                }
                Ok(
                    Op::CloneTree { target: made, .. }
                    | Op::CreateTree { tree: made }
                    | Op::DropTree { tree: made },
                ) if made == tree => false,
                op => note(&mut changed, &op),
            });
            is_counted
        });
        let is_all = whole && is_counted && is_of_base;
        if let (true, Some(since)) = (is_all, changed.remove(&tree)) {
            self.insert(id, Counted { base, tree, rows: 0, since });
        }
    }

    fn insert(&mut self, id: u64, counted: Counted) {
        if self.counted.len() >= COUNTED_MAX {
            self.counted.clear();
        }
        self.counted.insert(id, counted);
    }

    /// Rows of a subvolume that were changed since it was counted, about.
    fn since_counted(&self, id: u64) -> u64 {
        self.counted.get(&id).map_or(0, |counted| counted.since.count())
    }

    /// Rows of a subvolume that differ from its base, estimated by looking some of them up: a
    /// changed row may be as it was.
    fn likely(&self, pinned: &dyn Pinned, id: u64) -> FsResult<u64> {
        let Some(counted) = self.counted.get(&id) else { return Ok(0) };
        let (old, new) = (TreeId(counted.base), TreeId(counted.tree));
        let (mut looked_up, mut differ) = (0, 0);
        for (number, cookie) in counted.since.sample() {
            let key = |part| match cookie {
                LINKED => key::linked(number, part).to_vec(),
                _ => key::entry(number, cookie, part).to_vec(),
            };
            let keys = [Part::Attributes, Part::Xattrs].map(key);
            looked_up += 1;
            for key in keys {
                let was = match pinned.get(old, &key) {
                    // Everything differs from a base that is gone.
                    Err(store::Error::NoTree(_)) => return Ok(counted.rows()),
                    was => was.map_err(from_store)?,
                };
                if was != pinned.get(new, &key).map_err(from_store)? {
                    differ += 1;
                    break;
                }
            }
        }
        let since = u128::from(counted.since.count()) * differ / u128::max(looked_up, 1);
        Ok(counted.rows.saturating_add(since as u64))
    }

    /// What is known of a subvolume; `own`: whether the base was made for it, and not for its
    /// source. After a scan another tree replaces it, and what the scan removed is a few ranges,
    /// regardless of how much was in them.
    fn of(&self, (id, own): (u64, bool), base: u64, tree: u64) -> Known {
        match self.counted.get(&id).filter(|counted| counted.base == base) {
            Some(counted) if counted.tree != tree => Known::Useless,
            Some(counted) => Known::Rows(counted.rows()),
            None => match self.begun.get(&base) {
                Some((_, source)) if own && *source != tree => Known::Useless,
                _ => Known::Nothing,
            },
        }
    }
}

/// What is known of how much differs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Only what the log has since the base.
    Nothing,
    /// Not even that.
    Useless,
    /// So many rows, about.
    Rows(u64),
}

/// Takes an operation of the log; `false` if it cannot be read. A tree into which a run came is no
/// longer among those that are counted: the log does not have the run's rows.
fn note(changed: &mut BTreeMap<u64, Distinct>, op: &Result<Op<'_>, format::Malformed>) -> bool {
    match op {
        Ok(Op::Put { tree, key, .. } | Op::Delete { tree, key } | Op::Merge { tree, key, .. }) => {
            if let Some(changed) = changed.get_mut(tree)
                && let Some(row) = row_of(key)
            {
                changed.add(row);
            }
            true
        }
        // What is in a range was removed before; trees get new numbers.
        Ok(
            Op::DeleteRange { .. }
            | Op::CreateTree { .. }
            | Op::CloneTree { .. }
            | Op::DropTree { .. },
        ) => true,
        Ok(Op::Ingest { tree, .. } | Op::Link { tree, .. }) => {
            changed.remove(tree);
            true
        }
        Err(_) => false,
    }
}

/// The part of a record's key that all records of one row share.
fn row_of(key: &[u8]) -> Option<(u64, u64)> {
    match key::parse(key).ok()? {
        Parsed::Entry { directory, cookie, part: Part::Attributes | Part::Xattrs } => {
            Some((directory, cookie))
        }
        Parsed::Linked { ino, .. } => Some((ino, LINKED)),
        _ => None,
    }
}

/// Whether a subvolume should have a new base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It should.
    Now,
    /// Not yet, but after a time, even if nothing more happens.
    After(Duration),
    /// Not before something changes.
    Not,
}

impl Due {
    /// Now, or whenever something changes.
    fn now_if(is_due: bool) -> Due {
        if is_due { Due::Now } else { Due::Not }
    }
}

/// Whether a subvolume should have a new base.
pub(crate) fn is_due(
    fs: &Governed,
    index: &Index,
    changes: &mut Changes,
    pinned: &dyn Pinned,
    (id, record): (u64, &SubvolumeRecord),
) -> FsResult<Due> {
    if record.detached {
        return Ok(Due::Not);
    }
    let options = index.options();
    let reach = index.reach(id);
    let asked = match reach {
        Reach::Walked => return Ok(Due::Now),
        Reach::Unknown => false,
        Reach::Indexed { .. } => true,
    };
    let base = match record.base {
        0 => None,
        base => search_bases::get(fs, base)?.filter(|found| found.complete),
    };
    let Some(base) = base.filter(|_| !index.is_lost(record.base)) else {
        // A snapshot is searched only on request; then it is walked, and is due.
        let rows = options.rows_without_base as u64;
        return Ok(Due::now_if(
            !record.read_only && holds(fs, index, changes, pinned, (id, record, rows))?,
        ));
    };
    if index.is_damaged(record.base) {
        return Ok(Due::Now);
    }
    let searchable = Searchable::declared(pinned).map_err(from_search)?;
    if asked && index.lags(record.base, &searchable) {
        return Ok(Due::Now);
    }
    if asked && index.check(record.base).is_err() {
        return Ok(Due::Now);
    }
    if record.read_only {
        return Ok(Due::Not);
    }
    let share = base.rows / 100 * u64::from(options.flush.share_percent);
    let held = options.cache_bytes / HELD_ROW_BYTES;
    let young = (share as usize).max(options.flush.rows_min).min(held.max(1)) as u64;
    let old = (young / 16).max(1);
    let Timestamp(now) = fs.env.clock.now();
    // A copy's differences at its creation are no older than the copy.
    let since = if base.subvolume == id { base.created } else { base.created.max(record.created) };
    let left = until_old(now.saturating_sub(since), options.flush.age);
    let limit = if left.is_zero() { old } else { young };
    let rows = if let Reach::Indexed { rows, .. } = reach {
        rows as u64
    } else {
        let behind = Some(CommitToken(Lsn(base.commit)));
        let whose = (id, base.subvolume == id);
        // The log is of all subvolumes: as for queries, it is not read for a few rows.
        let log_max = base.rows.saturating_mul(options.logged_row_bytes);
        let of = (record.base, behind, log_max);
        differing(index, changes, pinned, (whose, record), of, limit)?
    };
    Ok(match rows {
        _ if rows >= limit => Due::Now,
        // A thread that checks only after changes would not check an idle volume again.
        _ if rows >= old => Due::After(left),
        _ => Due::Not,
    })
}

/// How long it is until a base of an age, in nanoseconds, is as old as `old`. A base from the
/// future was made while the clock was ahead. Its age is not known, and it may be years until the
/// clock reaches that time: it counts as old, which costs a base. A clock that was corrected by
/// less than `old` costs none: the base still becomes old, later by no more than that.
fn until_old(age: i64, old: Duration) -> Duration {
    let [past, ahead] =
        [age, age.saturating_neg()].map(|time| Duration::from_nanos(time.max(0).cast_unsigned()));
    if ahead >= old { Duration::ZERO } else { old.saturating_sub(past) }
}

/// An estimate of how many rows of a subvolume differ from a base that was cloned from it after a
/// commit; 0: from nothing. The log is read from there on if it has no more than so many bytes. The
/// count stops once it shows whether they are at least so many.
fn differing(
    index: &Index,
    changes: &mut Changes,
    pinned: &dyn Pinned,
    (whose, record): ((u64, bool), &SubvolumeRecord),
    (base, behind, log_max): (u64, Option<CommitToken>, u64),
    limit: u64,
) -> FsResult<u64> {
    let known = match changes.of(whose, base, record.tree) {
        Known::Nothing => {
            let bytes = behind.and_then(|behind| changes.since(pinned, base, behind));
            bytes.map(|bytes| (0, bytes))
        }
        Known::Rows(rows) => Some((rows, changes.now.saturating_sub(changes.given))),
        Known::Useless => None,
    };
    let most =
        known.map(|(rows, bytes): (u64, u64)| rows.saturating_add(bytes / LEAST_CHANGE_BYTES));
    if let Some(most) = most.filter(|most| *most < limit) {
        return Ok(most);
    }
    changes.catch_up(pinned);
    if let (Known::Nothing, (id, true), Some(behind)) =
        (changes.of(whose, base, record.tree), whose, behind)
        && pinned.logged_bytes(behind).is_some_and(|bytes| bytes <= log_max)
    {
        changes.count_since(pinned, (id, base, record.tree), behind);
    }
    if let Known::Rows(rows) = changes.of(whose, base, record.tree) {
        if rows < limit {
            return Ok(rows);
        }
        if changes.since_counted(whose.0) >= limit - limit / 4 {
            let likely = changes.likely(pinned, whose.0)?;
            return Ok(if likely < limit.div_ceil(2) { likely } else { rows });
        }
    }
    let compared = SubvolumeRecord { base, ..record.clone() };
    let rows = index.differing(pinned, &compared, limit as usize).map_err(from_search)? as u64;
    let counted = Counted { base, tree: record.tree, rows, since: Distinct::default() };
    changes.insert(whose.0, counted);
    Ok(rows)
}

/// Whether a subvolume has more than so many names.
fn holds(
    fs: &Governed,
    index: &Index,
    changes: &mut Changes,
    pinned: &dyn Pinned,
    (id, record, rows): (u64, &SubvolumeRecord, u64),
) -> FsResult<bool> {
    let view = View::new(&*fs.store, VOLUME);
    let usage = view.read(&key::usage(id), UsageRecord::decode)?.unwrap_or_default();
    if usage.counted {
        return Ok(u64::try_from(usage.files).is_ok_and(|files| files > rows));
    }
    Ok(differing(index, changes, pinned, ((id, true), record), (0, None, 0), rows + 1)? > rows)
}
