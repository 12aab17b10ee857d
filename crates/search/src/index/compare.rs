//! Finds the differences from a base when none are cached: from the log, or by comparing trees.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use format::base_record::BaseRecord;
use format::detached_record::DetachedRecord;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use store::{CommitToken, KeyRange, Pinned, TreeId};

use super::Index;
use super::base::Base;
use super::fold::{Folded, fold};
use super::folding::{Below, Clusters, Folding, Helpers, Logged, Old};
use super::table::Table;
use crate::Result;
use crate::assemble::{CARRY_NOTHING, Records, VOLUME};

impl Index {
    /// Finds the differences from a base, or from nothing if there is none.
    pub(super) fn compare(
        &self,
        pinned: &Arc<dyn Pinned>,
        record: &SubvolumeRecord,
        (subvolume, base_tree, cancel): (u64, u64, &AtomicBool),
    ) -> Result<(Option<Arc<Base>>, Folded)> {
        let tree = TreeId(record.tree);
        let records = Records { read: &**pinned, tree, searchable: &CARRY_NOTHING };
        let root = (!record.pruned).then_some(record.root);
        let of = |bytes_max| Folding::of(&**pinned, records, root, bytes_max).until(cancel);
        let Some(base) = self.base(&**pinned, base_tree) else {
            return Ok((None, fold(Old::Nothing, of(self.delta_budget(false)))?));
        };
        let logged = if record.pruned { self.logged(&**pinned, record, &base)? } else { None };
        let old = Old::State(&**pinned, base.tree);
        let helpers = self.helpers(Some(&base.table));
        let detached = if root.is_some() { detached(&**pinned, subvolume)? } else { Vec::new() };
        let (table, count) = (&base.table, &self.below);
        let below = Some(Below { table, detached: &detached, count });
        let folding = Folding { helpers, logged, below, ..of(self.delta_budget(true)) };
        let folded = fold(old, folding)?;
        Ok((Some(base), folded))
    }

    /// Helper threads for finding the differences from a base with these directories.
    pub(crate) fn helpers<'a>(&self, table: Option<&'a Table>) -> Option<Helpers<'a>> {
        let (threads, from) = (self.options.threads, self.options.fold_alone);
        table.filter(|_| threads > 1).map(|table| Helpers { table, threads, from })
    }

    /// How the log can supply the differences from a base, if it is less to read than both trees.
    pub(super) fn logged<'a>(
        &'a self,
        pinned: &dyn Pinned,
        subvolume: &SubvolumeRecord,
        base: &'a Base,
    ) -> Result<Option<Logged<'a>>> {
        let tree = TreeId(subvolume.tree);
        let records = Records { read: pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
        let record = records.decode(&key::base(base.tree.0), BaseRecord::decode)?;
        let Some(BaseRecord { commit, rows, .. }) = record else { return Ok(None) };
        let behind = CommitToken(store::Lsn(commit));
        let most = rows.saturating_mul(self.options.logged_row_bytes);
        let bytes = pinned.logged_bytes(behind);
        let is_less = bytes.is_some_and(|bytes| bytes <= most);
        if !is_less {
            tracing::debug!(tree = tree.0, bytes, most, "not reading the difference from the log");
        }
        let clusters = Clusters { index: self, base, count: &self.merged };
        let clusters = (!subvolume.index).then_some(clusters);
        let (base, end, count) = (base.tree, None, &self.logged);
        Ok(is_less.then_some(Logged { tree, base, behind, end, count, clusters }))
    }
}

/// Directories of a subvolume that were removed with their contents and are not empty yet.
fn detached(pinned: &dyn Pinned, subvolume: u64) -> Result<Vec<u64>> {
    let records = Records { read: pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
    let mut found = Vec::new();
    let mut cursor = pinned.scan(VOLUME, KeyRange::prefix(&key::DETACHED_PREFIX))?;
    while let Some(item) = cursor.next()? {
        let record =
            DetachedRecord::decode(item.value).map_err(|error| records.malformed(error))?;
        if let DetachedRecord::Directory { subvolume: of, directory, .. } = record
            && of == subvolume
        {
            found.push(directory);
        }
    }
    Ok(found)
}
