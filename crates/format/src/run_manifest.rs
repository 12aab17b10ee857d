//! A numbered manifest: the trees of a state of the log-structured engine, the runs of each, and
//! the blobs of the runs (`docs/format/run-manifest.md`).

use std::collections::BTreeMap;

use crate::key::DIRECTORY_PREFIX_BYTES;
use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{COUNTED_MAX, Malformed, Reader, Writer};

/// Layout of the head.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "8 bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "16 bytes", 16),
    Field::fixed("number", "u64 LE", 8),
    Field::fixed("lsn", "u64 LE", 8),
    Field::fixed("time", "i64 LE", 8),
    Field::fixed("next_blob", "u64 LE", 8),
    Field::fixed("next_run", "u64 LE", 8),
    Field::fixed("blobs", "u32 LE", 4),
    Field::fixed("runs", "u32 LE", 4),
    Field::fixed("stacks", "u32 LE", 4),
    Field::fixed("trees", "u32 LE", 4),
];
const HEAD_BYTES: usize = 88;
const _: () = assert!(size_of(LAYOUT) == HEAD_BYTES);

/// Layout of the description of a blob.
pub const BLOB_LAYOUT: &[Field] =
    &[Field::fixed("number", "u64 LE", 8), Field::fixed("length", "u64 LE", 8)];

/// Layout of the description of a run.
pub const RUN_LAYOUT: &[Field] = &[
    Field::fixed("number", "u64 LE", 8),
    Field::fixed("blob", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("start", "u64 LE", 8),
    Field::fixed("index", "u64 LE", 8),
    Field::fixed("index_bytes", "u32 LE", 4),
    Field::fixed("ranges", "u32 LE", 4),
    Field::fixed("entries", "u64 LE", 8),
    Field::fixed("tombstones", "u64 LE", 8),
];
const RUN_BYTES: usize = 56;
const _: () = assert!(size_of(RUN_LAYOUT) == RUN_BYTES);

/// Layout of the part that follows the trees in version 2.
pub const VALUES_LAYOUT: &[Field] =
    &[Field::variable("values_from", "varint"), Field::variable("logs", "varint")];

/// Layout of the description of a value log.
pub const LOG_LAYOUT: &[Field] = &[
    Field::variable("blob", "varint"),
    Field::variable("rows", "varint"),
    Field::variable("bytes", "varint"),
];

/// Layout of the description of a run's rows in a value log.
pub const USE_LAYOUT: &[Field] = &[
    Field::variable("log", "varint"),
    Field::variable("rows", "varint"),
    Field::variable("bytes", "varint"),
];

/// Layout of the part that follows that in version 3.
pub const PREFIX_LAYOUT: &[Field] = &[Field::variable("prefix_bytes", "varint")];

/// Layout of the part that follows that in version 4.
pub const ORIGIN_LAYOUT: &[Field] = &[
    Field::variable("epoch", "varint"),
    Field::fixed("opening", "16 bytes", 16),
    Field::variable("log_epoch", "varint"),
    Field::variable("log_number", "varint"),
];

// DO NOT CHANGE THESE VALUES: they are on disk.
/// The newest version that this program reads. It writes the oldest that can express its content,
/// so that older programs can open such stores. In versions without the prefix length, directories
/// are named by the number of bytes that volumes use.
pub const VERSION: u32 = 4;
/// The version without value logs.
const ROWS: u32 = 1;
/// The version with them.
const LOGS: u32 = 2;
/// The version with the length of prefixes.
const PREFIX: u32 = 3;
/// The version with the opening that made it, and the log that follows.
const ORIGIN: u32 = 4;
/// Most bytes that name a directory.
const PREFIX_BYTES_MAX: usize = 1 << 16;
const SEAL: Seal = Seal {
    structure: "manifest of runs",
    magic: *b"PANDOLSM",
    version: VERSION,
    covers: Covers::Body,
};

/// A blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobEntry {
    /// Its number, which names it.
    pub number: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEntry {
    /// Its number.
    pub number: u64,
    /// The number of its blob.
    pub blob: u64,
    /// Offset of its blocks in the blob.
    pub start: u64,
    /// Offset of its index, behind the blocks.
    pub index: u64,
    /// Bytes of the index.
    pub index_bytes: u32,
    /// Number of ranges that it deletes from the runs below it.
    pub ranges: u32,
    /// CRC32C of the index, begun with that of its place.
    pub checksum: u32,
    /// Number of entries, including tombstones.
    pub entries: u64,
    /// Number of tombstones among them.
    pub tombstones: u64,
}

/// Rows of a value log: all of them, or those that a run points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRows {
    /// The number of its blob.
    pub log: u64,
    /// How many rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its number.
    pub number: u64,
    /// Its stack, as an index into the stacks.
    pub stack: u32,
}

/// Who made a manifest in an object store that also has the log, and where the log
/// continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The number of the claim manifest of the opening that made this manifest.
    pub epoch: u64,
    /// The random id of that opening.
    pub opening: [u8; 16],
    /// The epoch in whose log the records after the manifest's `lsn` are.
    pub log_epoch: u64,
    /// The number of the first object there that may have such a record.
    pub log_number: u64,
}

/// A state of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunManifest {
    /// The volume.
    pub volume: [u8; 16],
    /// Its own number, which names it.
    pub number: u64,
    /// The last record of the log that it contains.
    pub lsn: u64,
    /// When it was made, in nanoseconds since 1970.
    pub time: i64,
    /// No blob has this number or a greater one.
    pub next_blob: u64,
    /// No run has this number or a greater one.
    pub next_run: u64,
    /// Blobs, ascending.
    pub blobs: Vec<BlobEntry>,
    /// Runs, ascending.
    pub runs: Vec<RunEntry>,
    /// Stacks: places in `runs`, from the newest run to the oldest.
    pub stacks: Vec<Vec<u32>>,
    /// Trees, ascending.
    pub trees: Vec<TreeEntry>,
    /// Least length of a value that is stored in a value log; 0: none is.
    pub values_from: u64,
    /// Value logs, ascending, with the totals of what was written to them.
    pub logs: Vec<LogRows>,
    /// The rows that each run points to, in the order of `runs` and then ascending.
    pub uses: Vec<Vec<LogRows>>,
    /// Bytes of a key that name its directory: filters contain the directories of a run.
    pub prefix_bytes: usize,
    /// Who made it, if the log is in the same object store.
    pub origin: Option<Origin>,
}

impl Default for RunManifest {
    /// An empty state, with directory prefixes as volumes have them.
    fn default() -> RunManifest {
        RunManifest {
            volume: [0; 16],
            number: 0,
            lsn: 0,
            time: 0,
            next_blob: 0,
            next_run: 0,
            blobs: Vec::new(),
            runs: Vec::new(),
            stacks: Vec::new(),
            trees: Vec::new(),
            values_from: 0,
            logs: Vec::new(),
            uses: Vec::new(),
            prefix_bytes: DIRECTORY_PREFIX_BYTES,
            origin: None,
        }
    }
}

/// A decoded manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, taken apart at once")]
pub enum Decoded {
    /// A manifest.
    Manifest(RunManifest),
    /// A manifest of this newer version.
    Newer(u32),
}

impl RunManifest {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let mut body = Vec::new();
        body.raw(&self.volume);
        body.put_u64(self.number);
        body.put_u64(self.lsn);
        body.put_i64(self.time);
        body.put_u64(self.next_blob);
        body.put_u64(self.next_run);
        body.put_u32(count(self.blobs.len()));
        body.put_u32(count(self.runs.len()));
        body.put_u32(count(self.stacks.len()));
        body.put_u32(count(self.trees.len()));
        for blob in &self.blobs {
            body.put_u64(blob.number);
            body.put_u64(blob.length);
        }
        for run in &self.runs {
            let blob = self.blobs.binary_search_by_key(&run.blob, |blob| blob.number);
            body.put_u64(run.number);
            body.put_u32(blob.map_or(u32::MAX, count));
            body.put_u32(run.checksum);
            body.put_u64(run.start);
            body.put_u64(run.index);
            body.put_u32(run.index_bytes);
            body.put_u32(run.ranges);
            body.put_u64(run.entries);
            body.put_u64(run.tombstones);
        }
        for stack in &self.stacks {
            body.put_varint(u64::from(count(stack.len())));
            for run in stack {
                body.put_varint(u64::from(*run));
            }
        }
        for tree in &self.trees {
            body.put_varint(tree.number);
            body.put_varint(u64::from(tree.stack));
        }
        let version = if self.origin.is_some() {
            ORIGIN
        } else if self.prefix_bytes != DIRECTORY_PREFIX_BYTES {
            PREFIX
        } else if self.values_from > 0 || !self.logs.is_empty() {
            LOGS
        } else {
            ROWS
        };
        if version >= LOGS {
            self.encode_logs(&mut body);
        }
        if version >= PREFIX {
            body.put_varint(u64::try_from(self.prefix_bytes).unwrap_or(u64::MAX));
        }
        if let Some(origin) = &self.origin {
            body.put_varint(origin.epoch);
            body.raw(&origin.opening);
            body.put_varint(origin.log_epoch);
            body.put_varint(origin.log_number);
        }
        Seal { version, ..SEAL }.seal(&body)
    }

    /// Appends the part behind the trees in version 2.
    fn encode_logs(&self, body: &mut Vec<u8>) {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        body.put_varint(self.values_from);
        body.put_varint(count(self.logs.len()));
        for log in &self.logs {
            let blob = self.blobs.binary_search_by_key(&log.log, |blob| blob.number);
            put_rows(body, blob.map_or(u64::MAX, count), log);
        }
        for at in 0..self.runs.len() {
            let uses = self.uses.get(at).map_or(&[][..], Vec::as_slice);
            body.put_varint(count(uses.len()));
            for used in uses {
                let log = self.logs.binary_search_by_key(&used.log, |log| log.log);
                put_rows(body, log.map_or(u64::MAX, count), used);
            }
        }
    }

    /// The volume and the number that the bytes name, if they are long enough; not verified.
    pub fn named(bytes: &[u8]) -> Option<([u8; 16], u64)> {
        let mut reader = Reader::new(SEAL.structure, bytes.get(crate::sealed::HEAD_BYTES..)?);
        Some((reader.array::<16>().ok()?, reader.u64().ok()?))
    }

    /// Reads a manifest, which must be of this volume and number.
    pub fn decode(bytes: &[u8], volume: [u8; 16], number: u64) -> Result<Decoded, Malformed> {
        let (version, mut reader) = match SEAL.open(bytes)? {
            Opened::Body(version, reader) => (version, reader),
            Opened::Newer(version) => return Ok(Decoded::Newer(version)),
        };
        let found = (reader.array::<16>()?, reader.counted()?);
        if found != (volume, number) {
            return Err(reader.malformed("this volume's of this number", format!("{found:?}")));
        }
        let mut manifest = RunManifest {
            volume,
            number,
            lsn: reader.counted()?,
            time: reader.i64()?,
            next_blob: reader.counted()?,
            next_run: reader.counted()?,
            ..RunManifest::default()
        };
        let counts = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        for _ in 0..counts[0] {
            let (number, length) = (reader.counted()?, reader.u64()?);
            manifest.blobs.push(BlobEntry { number, length });
        }
        for _ in 0..counts[1] {
            let run = manifest.run(&mut reader)?;
            manifest.runs.push(run);
        }
        for _ in 0..counts[2] {
            let stack = manifest.stack(&mut reader)?;
            manifest.stacks.push(stack);
        }
        for _ in 0..counts[3] {
            let (number, stack) = (reader.varint()?, reader.length(manifest.stacks.len())?);
            let stack = u32::try_from(stack).unwrap_or(u32::MAX);
            if stack >= counts[2] {
                return Err(reader.malformed("a stack", stack.to_string()));
            }
            manifest.trees.push(TreeEntry { number, stack });
        }
        if version >= LOGS {
            manifest.read_logs(&mut reader)?;
        } else {
            manifest.uses.resize(manifest.runs.len(), Vec::new());
        }
        if version >= PREFIX {
            manifest.prefix_bytes = reader.length(PREFIX_BYTES_MAX)?;
        }
        if version >= ORIGIN {
            manifest.origin = Some(read_origin(&mut reader, number)?);
        }
        reader.end()?;
        if !manifest.sums_fit() {
            return Err(reader.malformed("sums of at most 2^62, and counts of 2^56", "others"));
        }
        manifest.check_numbers(&reader)?;
        manifest.check_stacks(&reader)?;
        let rows_ascend = |rows: &[LogRows]| rows.is_sorted_by(|a, b| a.log < b.log);
        let ascend = manifest.trees.is_sorted_by(|a, b| a.number < b.number)
            && manifest.runs.is_sorted_by(|a, b| a.number < b.number)
            && manifest.blobs.is_sorted_by(|a, b| a.number < b.number)
            && rows_ascend(&manifest.logs)
            && manifest.uses.iter().all(|uses| rows_ascend(uses));
        if ascend {
            Ok(Decoded::Manifest(manifest))
        } else {
            Err(reader.malformed("trees, runs, blobs and logs that ascend", "others"))
        }
    }

    fn read_logs(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        self.values_from = reader.varint()?;
        let numbers: Vec<u64> = self.blobs.iter().map(|blob| blob.number).collect();
        self.logs = read_rows(reader, &numbers)?;
        if self.values_from == 0 && !self.logs.is_empty() {
            let found = format!("{} value logs", self.logs.len());
            return Err(reader.malformed("no value logs, for none are to be made", found));
        }
        let numbers: Vec<u64> = self.logs.iter().map(|log| log.log).collect();
        let logs: BTreeMap<u64, LogRows> = self.logs.iter().map(|log| (log.log, *log)).collect();
        for _ in 0..self.runs.len() {
            let uses = read_rows(reader, &numbers)?;
            for of in &uses {
                if logs.get(&of.log).is_none_or(|all| of.rows > all.rows || of.bytes > all.bytes) {
                    let found = format!("{} rows, {} bytes of log {}", of.rows, of.bytes, of.log);
                    return Err(reader.malformed("rows that a value log has", found));
                }
            }
            self.uses.push(uses);
        }
        Ok(())
    }

    /// Refuses numbers that the next blob or run gets, too.
    fn check_numbers(&self, reader: &Reader<'_>) -> Result<(), Malformed> {
        if let Some(blob) = self.blobs.iter().find(|blob| blob.number >= self.next_blob) {
            let found = format!("blob {}, and {} is the next", blob.number, self.next_blob);
            return Err(reader.malformed("blobs numbered below the next", found));
        }
        if let Some(run) = self.runs.iter().find(|run| run.number >= self.next_run) {
            let found = format!("run {}, and {} is the next", run.number, self.next_run);
            return Err(reader.malformed("runs numbered below the next", found));
        }
        if let Some(run) = self.runs.iter().find(|run| run.tombstones > run.entries) {
            let found = format!("{} of {} in run {}", run.tombstones, run.entries, run.number);
            return Err(reader.malformed("no more tombstones than entries", found));
        }
        Ok(())
    }

    /// Refuses stacks that share a run and not all runs below it. So no run is in a stack twice.
    fn check_stacks(&self, reader: &Reader<'_>) -> Result<(), Malformed> {
        let mut below: Vec<Option<Option<u32>>> = vec![None; self.runs.len()];
        for stack in &self.stacks {
            let next = stack.iter().skip(1).copied().map(Some).chain([None]);
            for (&run, next) in stack.iter().zip(next) {
                let place = usize::try_from(run).ok().and_then(|at| below.get_mut(at));
                if place.is_none_or(|place| *place.get_or_insert(next) != next) {
                    let found = format!("others at place {run}");
                    return Err(reader.malformed("the same runs below a run in all stacks", found));
                }
            }
        }
        Ok(())
    }

    /// Whether the numbers of blobs, runs and rows can be added up when the state is opened. They
    /// are those of all runs, since the runs may all name one part of a blob, or one log.
    fn sums_fit(&self) -> bool {
        let sum = |numbers: &mut dyn Iterator<Item = u64>| numbers.fold(0, u64::saturating_add);
        let fits = |numbers: &mut dyn Iterator<Item = u64>| sum(numbers) <= SUM_MAX;
        let counts = |run: &RunEntry| run.entries.saturating_add(u64::from(run.ranges));
        let (runs, uses) = (&self.runs, &self.uses);
        let index = |run: &RunEntry| run.index.saturating_add(u64::from(run.index_bytes));
        fits(&mut self.blobs.iter().map(|blob| blob.length))
            && fits(&mut runs.iter().map(index))
            && sum(&mut runs.iter().map(counts)) <= COUNTS_MAX
            && fits(&mut self.logs.iter().map(|log| log.bytes))
            && fits(&mut self.logs.iter().map(|log| log.rows))
            && fits(&mut uses.iter().flatten().map(|rows| rows.bytes))
            && fits(&mut uses.iter().flatten().map(|rows| rows.rows))
    }

    fn run(&self, reader: &mut Reader<'_>) -> Result<RunEntry, Malformed> {
        let number = reader.counted()?;
        let blob = reader.u32()?;
        let checksum = reader.u32()?;
        let (start, index, index_bytes) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let ranges = reader.u32()?;
        let (entries, tombstones) = (reader.u64()?, reader.u64()?);
        let end = index.saturating_add(u64::from(index_bytes));
        let blob = usize::try_from(blob).ok().and_then(|at| self.blobs.get(at));
        match blob {
            Some(blob) if start <= index && end <= blob.length => {
                let blob = blob.number;
                Ok(RunEntry {
                    number,
                    blob,
                    start,
                    index,
                    index_bytes,
                    ranges,
                    checksum,
                    entries,
                    tombstones,
                })
            }
            _ => Err(reader.malformed("a run within its blob", format!("run {number}"))),
        }
    }

    fn stack(&self, reader: &mut Reader<'_>) -> Result<Vec<u32>, Malformed> {
        let count = reader.length(reader.remaining())?;
        let mut stack = Vec::new();
        for _ in 0..count {
            let run = reader.length(self.runs.len())?;
            if run >= self.runs.len() {
                return Err(reader.malformed("a run", run.to_string()));
            }
            stack.push(u32::try_from(run).unwrap_or(u32::MAX));
        }
        Ok(stack)
    }
}

/// Reads the origin of the manifest of this number. An opening's first manifest is its claim. The
/// log that follows is its own, or that of an earlier opening.
fn read_origin(reader: &mut Reader<'_>, number: u64) -> Result<Origin, Malformed> {
    let (epoch, opening) = (reader.varint()?, reader.array()?);
    let (log_epoch, log_number) = (reader.varint()?, reader.varint()?);
    let is_possible = (1..=number).contains(&epoch)
        && (1..=epoch).contains(&log_epoch)
        && (1..=COUNTED_MAX).contains(&log_number);
    if !is_possible {
        let found = format!("epoch {epoch}, log {log_epoch} from {log_number}");
        return Err(reader.malformed("an opening not after the manifest", found));
    }
    Ok(Origin { epoch, opening, log_epoch, log_number })
}

/// Upper bound of any sum of the numbers in a manifest.
const SUM_MAX: u64 = 1 << 62;
/// Nor are there more entries and ranges, so that a few bytes of each can be added up, too.
const COUNTS_MAX: u64 = 1 << 56;

fn put_rows(body: &mut Vec<u8>, place: u64, rows: &LogRows) {
    body.put_varint(place);
    body.put_varint(rows.rows);
    body.put_varint(rows.bytes);
}

/// Reads rows of logs, each of which must have one of these numbers.
fn read_rows(reader: &mut Reader<'_>, numbers: &[u64]) -> Result<Vec<LogRows>, Malformed> {
    let count = reader.length(reader.remaining())?;
    let mut all = Vec::new();
    for _ in 0..count {
        let place = reader.length(numbers.len())?;
        let (rows, bytes) = (reader.varint()?, reader.varint()?);
        let Some(&log) = numbers.get(place) else {
            return Err(reader.malformed("a value log", place.to_string()));
        };
        all.push(LogRows { log, rows, bytes });
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
