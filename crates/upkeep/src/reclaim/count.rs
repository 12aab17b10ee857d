//! Counts the initial contents of a copy of a directory. So the volume reports exact numbers of
//! files and bytes although a copy is made without reading its contents.
//!
//! From its first operation on a copy's usage record gathers what is created and removed. One walk
//! over a pinned state counts what exists. That count, minus the record in that same state, is what
//! the copy began with; it is added once, with the mark that it was. Snapshots are not counted:
//! they are not part of what a volume's users see.

use std::collections::VecDeque;
use std::time::Duration;

use device::Set;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord, LinkedRecord};
use format::key::{self, Parsed, Part};
use format::subvolume_record::{
    SubvolumeRecord, USAGE_BYTES_AT, USAGE_COUNTED_AT, USAGE_FILES_AT, UsageRecord,
};
use inode::SubvolId;
use ops::subvolumes::execute_with;
use policy::Governed;
use store::{KeyRange, Lane, MergeKind, Pinned, TreeId, prefix_end};
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::{VOLUME, read_record};

use crate::rest::REST_AFTER_FAILURE;

/// Copies that are to be counted, and how far the present one is.
#[derive(Default)]
pub(super) struct Counting {
    /// Copies that were not counted when that was looked at last.
    waiting: VecDeque<u64>,
    present: Option<Count>,
    /// When it continues after a failure. Until then pruning has its turn.
    rests_until: Duration,
}

/// A copy that is being counted.
struct Count {
    subvol: u64,
    tree: TreeId,
    pin: Box<dyn Pinned>,
    /// Ranges of directories that were not walked yet.
    left: Vec<(u64, Vec<u8>)>,
    /// Inodes with several names that were counted.
    linked: Set<u64>,
    found: UsageRecord,
}

/// One step of counting; returns how much was done.
pub(super) fn step(fs: &Governed, counting: &mut Counting, budget: usize) -> FsResult<u64> {
    if let Some(count) = &mut counting.present {
        let walked = count.walk(budget).and_then(|done| {
            let finished = count.left.is_empty();
            if finished {
                finish(fs, count)?;
            }
            Ok((done, finished))
        });
        // After an error what the step had taken is lost: the count begins again.
        if !matches!(walked, Ok((_, false))) {
            counting.present = None;
        }
        if walked.is_err() {
            fs.queue.note_uncounted();
            counting.rests_until = fs.env.clock.monotonic() + REST_AFTER_FAILURE;
        }
        return walked.map(|(done, _)| done.max(1));
    }
    if fs.env.clock.monotonic() < counting.rests_until || !fs.queue.take_uncounted() {
        return Ok(0);
    }
    let picked = pick(fs, &mut counting.waiting).and_then(|picked| match picked {
        None => Ok(None),
        Some(picked) => Ok(Some((picked, fs.store.pin().map_err(from_store)?))),
    });
    if !matches!(picked, Ok(None)) {
        // There may be more, or this one could not be read.
        fs.queue.note_uncounted();
    }
    let picked = picked.inspect_err(|_| {
        counting.rests_until = fs.env.clock.monotonic() + REST_AFTER_FAILURE;
    })?;
    let Some(((subvol, record), pin)) = picked else { return Ok(0) };
    counting.present = Some(Count {
        subvol,
        tree: TreeId(record.tree),
        pin,
        left: vec![(record.root, key::directory_prefix(record.root).to_vec())],
        linked: Set::default(),
        found: UsageRecord { files: 1, bytes: 0, counted: true },
    });
    Ok(1)
}

/// A copy that was not counted. Very many are looked for at once.
fn pick(fs: &Governed, to_count: &mut VecDeque<u64>) -> FsResult<Option<(u64, SubvolumeRecord)>> {
    loop {
        while let Some(id) = to_count.pop_front() {
            let Some(record) = read_record(&*fs.store, SubvolId(id))? else { continue };
            let mut counted = Ok(false);
            let mut look = |value: &[u8]| {
                counted = UsageRecord::decode(value).map(|usage| usage.counted);
            };
            fs.store.get_with(VOLUME, &key::usage(id), &mut look).map_err(from_store)?;
            let counted = counted.map_err(|error| malformed(VOLUME, &error))?;
            if !counted && !record.detached && !record.read_only {
                return Ok(Some((id, record)));
            }
        }
        *to_count = uncounted(fs)?;
        if to_count.is_empty() {
            return Ok(None);
        }
    }
}

/// The copies that were not counted.
fn uncounted(fs: &Governed) -> FsResult<VecDeque<u64>> {
    let mut counted = Set::default();
    fs.visit_volume(&key::USAGE_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        if UsageRecord::decode(value).map_err(malformed)?.counted {
            counted.insert(key::parse_number(key).map_err(malformed)?);
        }
        Ok(())
    })?;
    let mut uncounted = VecDeque::new();
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let id = key::parse_number(key).map_err(malformed)?;
        let record = SubvolumeRecord::decode(value).map_err(malformed)?;
        if !record.detached && !record.read_only && !counted.contains(&id) {
            uncounted.push_back(id);
        }
        Ok(())
    })?;
    Ok(uncounted)
}

impl Count {
    fn walk(&mut self, budget: usize) -> FsResult<u64> {
        let mut done = 0;
        while done < budget as u64 {
            let Some((directory, from)) = self.left.pop() else { break };
            done += self.directory(directory, from, budget as u64 - done)?;
        }
        Ok(done)
    }

    /// Counts entries of a directory; the rest is queued again.
    fn directory(&mut self, directory: u64, from: Vec<u8>, budget: u64) -> FsResult<u64> {
        let malformed = |error| malformed(self.tree, &error);
        let to = prefix_end(&key::directory_prefix(directory));
        let mut cursor = self.pin.scan(self.tree, KeyRange { from, to }).map_err(from_store)?;
        let mut done = 0;
        let mut below = Vec::new();
        while let Some(item) = cursor.next().map_err(from_store)? {
            if done == budget {
                self.left.push((directory, item.key.to_vec()));
                break;
            }
            done += 1;
            let Parsed::Entry { cookie: 1.., part: Part::Attributes, .. } =
                key::parse(item.key).map_err(malformed)?
            else {
                continue;
            };
            let entry = EntryRecord::decode(item.value).map_err(malformed)?;
            match entry.target {
                Target::Embedded(inode) => add(&mut self.found, &inode),
                Target::Directory => {
                    self.found.files += 1;
                    below.push((entry.ino, key::directory_prefix(entry.ino).to_vec()));
                }
                Target::Linked(_) if self.linked.insert(entry.ino) => {
                    let key = key::linked(entry.ino, Part::Attributes);
                    let value = self.pin.get(self.tree, &key).map_err(from_store)?;
                    if let Some(value) = value {
                        add(
                            &mut self.found,
                            &LinkedRecord::decode(&value).map_err(malformed)?.inode,
                        );
                    }
                }
                Target::Linked(_) | Target::Subvolume(_) | Target::Tombstone => {}
            }
        }
        drop(cursor);
        self.left.append(&mut below);
        Ok(done)
    }
}

fn add(found: &mut UsageRecord, inode: &InodeRecord) {
    found.files += 1;
    if inode.kind == FileKind::File && inode.elsewhere.is_none() {
        // Wraps as merges do: sizes of sparse files can add up to more than 63 bits.
        found.bytes = found.bytes.wrapping_add(inode.size as i64);
    }
}

/// Adds what the copy began with to its record, unless the copy was removed meanwhile.
fn finish(fs: &Governed, count: &Count) -> FsResult<()> {
    let usage = key::usage(count.subvol);
    let known = match count.pin.get(VOLUME, &usage).map_err(from_store)? {
        None => UsageRecord::default(),
        Some(value) => UsageRecord::decode(&value).map_err(|error| malformed(VOLUME, &error))?,
    };
    let lane = |offset, operand| Lane { offset, kind: MergeKind::Add, operand };
    let lanes = [
        lane(USAGE_FILES_AT, count.found.files.wrapping_sub(known.files)),
        lane(USAGE_BYTES_AT, count.found.bytes.wrapping_sub(known.bytes)),
        lane(USAGE_COUNTED_AT, 1),
    ];
    execute_with(fs, &mut fs.admin.lock(), |_, plan| {
        let record = read_record(&*fs.store, SubvolId(count.subvol))?;
        if record.is_some_and(|record| !record.detached) {
            plan.batch().merge(VOLUME, &usage, &lanes);
        }
        Ok(())
    })
}
