//! The volume's own tree: subvolumes, names of snapshots, what waits to be removed, bases of the
//! index, counters; and which trees there are.

use std::collections::{BTreeMap, BTreeSet};

use format::Corruption;
use format::base_record::BaseRecord;
use format::candidate;
use format::cluster_limits::ClusterLimitsRecord;
use format::detached_record::DetachedRecord;
use format::inherited_record::InheritedRecord;
use format::kept_twice::is_kept_twice;
use format::key::{self, Counter};
use format::received_record::{self, ReceivedRecord};
use format::retention::{self, HoldRecord, ScheduleRecord};
use format::scan_record::ScanRecord;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use format::trash::TrashRecord;
use format::usage;
use store::{LostRange, Pinned, TreeId};
use upkeep::Upkeep;
use vfs::FsResult;
use volume::error::from_store;
use volume::numbers::COUNT_MAX;
use volume::readable::Scan;
use volume::record_copies::{COPY, differences, is_damage, is_of_volume_tree};
use volume::subvol::VOLUME;

use super::look::{self, touches};
use super::missing::{gone, put_back};
use super::problem::{Edit, Fix, Problem, ProblemKind, VolumeReport};

/// What the volume's tree holds.
#[derive(Default)]
pub(super) struct Table {
    pub(super) subvolumes: BTreeMap<u64, SubvolumeRecord>,
    /// What copies inherit.
    pub(super) inherited: BTreeMap<u64, InheritedRecord>,
    /// Subvolumes of which copies were taken.
    pub(super) sources: BTreeSet<u64>,
    /// Subvolume of the volume's root.
    pub(super) root: u64,
    pub(super) names: Vec<(u64, u64, Vec<u8>, u64)>,
    pub(super) orphans: Vec<(u64, u64)>,
    pub(super) detached: BTreeMap<u64, DetachedRecord>,
    usage: BTreeMap<u64, UsageRecord>,
    pub(super) bases: BTreeMap<u64, BaseRecord>,
    pub(super) scans: BTreeMap<u64, ScanRecord>,
    segments: BTreeMap<u64, i64>,
    pub(super) counters: BTreeMap<u8, u64>,
    next_detached: u64,
    /// What part of it cannot be read, or does not decode.
    pub(super) lost: Vec<LostRange>,
    /// Keys of records that only their copies have whole, and that were read from the copies.
    pub(super) from_copies: BTreeSet<Vec<u8>>,
    /// Subvolumes whose trees also belong to others.
    pub(super) sharing: BTreeSet<u64>,
}

impl Table {
    /// Reads it, and reports what cannot be read or does not decode.
    pub(super) fn read(
        fs: &Upkeep,
        pin: &dyn Pinned,
        report: &mut VolumeReport,
    ) -> FsResult<Table> {
        let mut table = Table { root: fs.root_subvol()?.id.0, ..Table::default() };
        let mut scan = Scan::new(pin, VOLUME, &[])?;
        let mut malformed_records = Vec::new();
        while scan.advance()? {
            if let Err(malformed) = table.take(&scan.key, &scan.value) {
                malformed_records.push((scan.key.clone(), malformed));
            }
        }
        let mut not_decoded = Vec::new();
        let is_whole = scan.lost.is_empty();
        let copies = if is_whole { only_in_copies(fs, pin)? } else { BTreeMap::new() };
        for (key, malformed) in malformed_records {
            let what = format!("the volume's record {key:02x?}: {malformed}");
            let problem = Problem::new(ProblemKind::Structure, what);
            if let Some(copy) = copies.get(&key) {
                table.from_copies.insert(key.clone());
                report.add(problem.repaired_by(put_back(&key, copy)));
            } else {
                report.add(problem);
                not_decoded.push(look::not_decoded(VOLUME, &key, malformed));
            }
        }
        for (key, copy) in copies {
            if table.from_copies.insert(key.clone()) {
                report.add(gone(&key, &copy));
            }
            // It was decoded before.
            table.take(&key, &copy).unwrap_or_default();
        }
        for range in &scan.lost {
            let what =
                format!("a part of the table of subvolumes cannot be read: {}", range.damage);
            let mut problem = Problem::new(ProblemKind::Unreadable, what);
            if fs.own.noted().has_copies() {
                table.take_copies(pin, range)?;
                problem.fix = renews(fs, &range.damage);
            }
            report.add(problem.in_file(&range.damage.file, range.damage.offset));
        }
        table.lost = scan.lost;
        table.lost.append(&mut not_decoded);
        Ok(table)
    }

    /// Uses the copies of what cannot be read. If those cannot be read either, this reports it.
    fn take_copies(&mut self, pin: &dyn Pinned, lost: &LostRange) -> FsResult<()> {
        let mut scan = Scan::new(pin, COPY, &[])?;
        while scan.advance()? {
            let is_lost = scan.key >= lost.from && lost.to.as_ref().is_none_or(|to| scan.key < *to);
            if is_lost && let Err(malformed) = self.take(&scan.key, &scan.value) {
                tracing::debug!(%malformed, "cannot decode the copy of a record");
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), format::Malformed> {
        let prefix = key.get(..1).unwrap_or_default();
        let number = || key::parse_number(key);
        if prefix == key::SUBVOLUMES_PREFIX {
            let record = SubvolumeRecord::decode(value)?;
            self.sources.insert(record.source.0);
            self.subvolumes.insert(number()?, record);
        } else if prefix == format::inherited_record::INHERITED_PREFIX {
            self.inherited.insert(number()?, InheritedRecord::decode(value)?);
        } else if prefix == key::SNAPSHOT_NAMES_PREFIX {
            let (lineage, directory, name) = key::parse_snapshot_name(key)?;
            let mut reader = format::Reader::new("snapshot name", value);
            let id = reader.u64()?;
            self.names.push((lineage, directory, name.to_vec(), id));
        } else if prefix == key::ORPHANS_PREFIX {
            self.orphans.push(key::parse_orphan(key)?);
        } else if prefix == key::DETACHED_PREFIX {
            let sequence = number()?;
            if sequence < COUNT_MAX {
                self.next_detached = self.next_detached.max(sequence + 1);
            }
            self.detached.insert(sequence, DetachedRecord::decode(value)?);
        } else if prefix == key::TRASH_PREFIX {
            key::parse_trash(key)?;
            TrashRecord::decode(value)?;
        } else if prefix == retention::SCHEDULES_PREFIX {
            retention::parse_schedule(key)?;
            ScheduleRecord::decode(value)?;
        } else if prefix == retention::HOLDS_PREFIX {
            retention::parse_hold(key)?;
            HoldRecord::decode(value)?;
        } else if prefix == received_record::RECEIVED_PREFIX {
            number()?;
            ReceivedRecord::decode(value)?;
        } else if key == key::CLUSTER_LIMITS_KEY {
            ClusterLimitsRecord::decode(value)?;
        } else if key == candidate::COLLECT_KEY {
            format::Reader::new("record of a collection that is due", value).end()?;
        } else if prefix == key::USAGE_PREFIX {
            self.usage.insert(number()?, UsageRecord::decode(value)?);
        } else if prefix == key::BASES_PREFIX {
            self.bases.insert(number()?, BaseRecord::decode(value)?);
        } else if prefix == key::SEGMENTS_PREFIX {
            self.segments.insert(number()?, usage::decode(value)?);
        } else if key.len() == 9 && key == key::scan(number()?) {
            self.scans.insert(number()?, ScanRecord::decode(value)?);
        } else if key.len() == 2 && prefix == &key::counter(Counter::Epoch)[..1] {
            let mut reader = format::Reader::new("counter", value);
            self.counters.insert(key[1], reader.u64()?);
        }
        Ok(())
    }

    /// The trees that hold extents.
    pub(super) fn trees(&self) -> impl Iterator<Item = TreeId> {
        self.subvolumes.values().map(|record| TreeId(record.tree))
    }

    /// The subvolumes that are not removed, those that are not copies first.
    pub(super) fn live(&self) -> Vec<u64> {
        let live = self.subvolumes.iter().filter(|(_, record)| !record.detached);
        live.map(|(&id, _)| id).collect()
    }

    /// Those of them whose trees are checked: no tree is checked twice, for two subvolumes.
    pub(super) fn alone(&self) -> Vec<u64> {
        let live = self.live();
        live.into_iter().filter(|id| !self.sharing.contains(id)).collect()
    }

    /// Bytes of contents that segments count.
    pub(super) fn content_bytes(&self) -> u64 {
        let pages = self.segments.values().map(|&pages| pages.max(0) as u64);
        pages.fold(0, u64::saturating_add).saturating_mul(u64::from(data::CHUNK_BYTES))
    }

    /// An estimate of the inodes to check.
    pub(super) fn files(&self) -> u64 {
        self.live()
            .iter()
            .filter_map(|id| self.usage.get(id))
            .map(|usage| usage.files.max(0) as u64)
            .fold(0, u64::saturating_add)
    }

    /// Whether a directory waits to be reclaimed; unsure counts as yes.
    pub(super) fn waits(&self, subvol: u64, dir: u64) -> bool {
        touches(&self.lost, &key::DETACHED_PREFIX)
            || self.detached.values().any(|record| {
                matches!(*record, DetachedRecord::Directory { subvolume, directory, .. }
                    if (subvolume, directory) == (subvol, dir))
            })
    }

    /// Whether a subvolume waits to be reclaimed; unsure counts as yes.
    pub(super) fn subvolume_waits(&self, id: u64) -> bool {
        touches(&self.lost, &key::DETACHED_PREFIX)
            || self
                .detached
                .values()
                .any(|other| *other == DetachedRecord::Subvolume { subvolume: id })
    }

    /// Whether something of a subvolume waits to be reclaimed; unsure counts as yes.
    pub(super) fn has_detached(&self, subvol: u64) -> bool {
        !self.lost.is_empty()
            || self.detached.values().any(|record| {
                matches!(*record, DetachedRecord::Directory { subvolume, .. }
                    if subvolume == subvol)
            })
    }

    /// Whether an index of a lineage is being scanned into.
    pub(super) fn scans(&self, lineage: u64) -> bool {
        self.scans.get(&lineage).is_some_and(|scan| scan.pending != 0)
    }

    /// Has a detached directory reclaimed.
    pub(super) fn detach(&self, subvolume: u64, directory: u64) -> Fix {
        let record = DetachedRecord::Directory { subvolume, directory, kept_while_held: false };
        self.wait("have it reclaimed", record)
    }

    pub(super) fn wait(&self, what: &'static str, record: DetachedRecord) -> Fix {
        let counter = key::counter(Counter::NextDetached);
        let known = self.counters.get(&counter[1]).copied().unwrap_or(0);
        let sequence = self.next_detached.max(known);
        let next = sequence.saturating_add(1).to_le_bytes().to_vec();
        Fix::Edits(
            what,
            vec![
                Edit::Put(VOLUME, key::detached(sequence).to_vec(), record.encode()),
                Edit::Put(VOLUME, counter.to_vec(), next),
            ],
        )
    }
}

/// The repair that rebuilds the damaged one of the two trees; none for a read that failed.
pub(super) fn renews(fs: &Upkeep, damage: &Corruption) -> Option<Fix> {
    may_renew(fs).filter(|_| !damage.unread)
}

/// The same, if anything may be changed.
pub(super) fn may_renew(fs: &Upkeep) -> Option<Fix> {
    let may = fs.store.read_only().is_none() || is_of_volume_tree(&fs.store.unknown());
    may.then_some(Fix::VolumeRecords)
}

/// The records that only the copies have, or have whole. Damaged copies are handled elsewhere.
fn only_in_copies(fs: &Upkeep, pin: &dyn Pinned) -> FsResult<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    if !fs.own.noted().has_copies() {
        return Ok(found);
    }
    let decodes = |key: &[u8], value: &[u8]| Table::default().take(key, value).is_ok();
    let compared = differences(pin, &mut |key, own, copy| {
        let is_lost = is_kept_twice(key) && own.is_none_or(|own| !decodes(key, own));
        if let Some(copy) = copy.filter(|copy| is_lost && decodes(key, copy)) {
            found.insert(key.to_vec(), copy.to_vec());
        }
        Ok(())
    });
    match compared {
        // A part proves nothing.
        Err(error) if is_damage(&error) => Ok(BTreeMap::new()),
        compared => compared.map_err(from_store).map(|()| found),
    }
}
