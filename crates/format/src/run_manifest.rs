//! A numbered manifest: the trees of a state of the log-structured engine, of which runs each is
//! made, and in which blobs those are (`docs/format/run-manifest.md`).

use std::collections::BTreeMap;

use crate::key::DIRECTORY_PREFIX_BYTES;
use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Reader, Writer};

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

/// Layout of what is said of a blob.
pub const BLOB_LAYOUT: &[Field] =
    &[Field::fixed("number", "u64 LE", 8), Field::fixed("length", "u64 LE", 8)];

/// Layout of what is said of a run.
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

/// Layout of what follows the trees in version 2.
pub const VALUES_LAYOUT: &[Field] =
    &[Field::variable("values_from", "varint"), Field::variable("logs", "varint")];

/// Layout of what is said of a value log.
pub const LOG_LAYOUT: &[Field] = &[
    Field::variable("blob", "varint"),
    Field::variable("rows", "varint"),
    Field::variable("bytes", "varint"),
];

/// Layout of what is said of a run's rows in a value log.
pub const USE_LAYOUT: &[Field] = &[
    Field::variable("log", "varint"),
    Field::variable("rows", "varint"),
    Field::variable("bytes", "varint"),
];

/// Layout of what follows that in version 3.
pub const PREFIX_LAYOUT: &[Field] = &[Field::variable("prefix_bytes", "varint")];

// DO NOT CHANGE THESE VALUES: they are on disk.
/// The newest version that this program reads. It writes the oldest that can say what it has to,
/// so that a program that knows no others opens such stores: a volume's directories are named by
/// as many bytes as in the versions that do not say it.
pub const VERSION: u32 = 3;
/// The version without value logs.
const ROWS: u32 = 1;
/// The version with them.
const LOGS: u32 = 2;
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
    /// Where in the blob its blocks begin.
    pub start: u64,
    /// Where its index begins, behind the blocks.
    pub index: u64,
    /// Bytes of the index.
    pub index_bytes: u32,
    /// Ranges that it deletes from what is below it.
    pub ranges: u32,
    /// CRC32C of the index, begun with that of its place.
    pub checksum: u32,
    /// Entries, tombstones too.
    pub entries: u64,
    /// Of those, tombstones.
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
    /// Which of the stacks it is made of.
    pub stack: u32,
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
    /// Bytes from which a value goes to a value log; 0: none does.
    pub values_from: u64,
    /// Value logs, ascending, with all that was written to them.
    pub logs: Vec<LogRows>,
    /// What each run points to, in the order of `runs` and then ascending.
    pub uses: Vec<Vec<LogRows>>,
    /// Bytes of a key that name its directory: filters tell which of those a run has.
    pub prefix_bytes: usize,
}

impl Default for RunManifest {
    /// Of nothing, with directories as volumes have them.
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
        }
    }
}

/// What the bytes of a manifest are.
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
        let version = if self.prefix_bytes != DIRECTORY_PREFIX_BYTES {
            VERSION
        } else if self.values_from > 0 || !self.logs.is_empty() {
            LOGS
        } else {
            ROWS
        };
        if version >= LOGS {
            self.encode_logs(&mut body);
        }
        if version > LOGS {
            body.put_varint(u64::try_from(self.prefix_bytes).unwrap_or(u64::MAX));
        }
        Seal { version, ..SEAL }.seal(&body)
    }

    /// What version 2 has behind the trees.
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

    /// The volume and the number that bytes name, if they are as long; nothing of them is verified.
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
        if version > LOGS {
            manifest.prefix_bytes = reader.length(PREFIX_BYTES_MAX)?;
        }
        reader.end()?;
        if !manifest.sums_fit() {
            return Err(reader.malformed("sums below 2^62", "others"));
        }
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

    /// Whether what is said of blobs, runs and rows may be added up by whoever opens the state: of
    /// all of them, for many runs may be said to lie in one place, or to point to one log.
    fn sums_fit(&self) -> bool {
        let fits = |numbers: &mut dyn Iterator<Item = u64>| {
            numbers.fold(0, u64::saturating_add) <= SUM_MAX
        };
        let (runs, uses) = (&self.runs, &self.uses);
        let index = |run: &RunEntry| run.index.saturating_add(u64::from(run.index_bytes));
        fits(&mut self.blobs.iter().map(|blob| blob.length))
            && fits(&mut runs.iter().map(index))
            && fits(&mut runs.iter().map(|run| run.entries))
            && fits(&mut runs.iter().map(|run| run.tombstones))
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

/// No sum of what a manifest says is greater.
const SUM_MAX: u64 = 1 << 62;

fn put_rows(body: &mut Vec<u8>, place: u64, rows: &LogRows) {
    body.put_varint(place);
    body.put_varint(rows.rows);
    body.put_varint(rows.bytes);
}

/// Rows of logs, each of which is one of those that have these numbers.
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
mod tests {
    use super::*;
    use crate::COUNTED_MAX;

    fn sample() -> RunManifest {
        let run = |number, blob| RunEntry {
            number,
            blob,
            start: 40,
            index: 900,
            index_bytes: 100,
            ranges: 1,
            checksum: 7,
            entries: 70,
            tombstones: 3,
        };
        RunManifest {
            volume: [3; 16],
            number: 41,
            lsn: 1 << 40,
            time: -5,
            next_blob: 9,
            next_run: 100,
            blobs: vec![
                BlobEntry { number: 3, length: 1000 },
                BlobEntry { number: 8, length: 2000 },
            ],
            runs: vec![run(5, 8), run(6, 3), run(99, 8)],
            stacks: vec![vec![], vec![2, 0], vec![2, 1, 0]],
            trees: vec![
                TreeEntry { number: 16, stack: 2 },
                TreeEntry { number: 500, stack: 0 },
                TreeEntry { number: 501, stack: 2 },
            ],
            uses: vec![vec![]; 3],
            ..RunManifest::default()
        }
    }

    /// One with value logs.
    fn with_logs() -> RunManifest {
        let rows = |log, rows, bytes| LogRows { log, rows, bytes };
        let mut manifest = RunManifest { values_from: 48, ..sample() };
        for number in [11, 12] {
            manifest.blobs.push(BlobEntry { number, length: 5000 });
        }
        manifest.logs = vec![rows(11, 300, 9000), rows(12, 2, 1 << 40)];
        manifest.uses = vec![vec![rows(12, 1, 7)], vec![], vec![rows(11, 3, 90), rows(12, 2, 9)]];
        manifest
    }

    #[test]
    fn what_has_no_value_logs_is_of_the_first_version() {
        assert_eq!(sample().encode()[8], 1);
        assert_eq!(with_logs().encode()[8], 2);
        let meant = RunManifest { values_from: 1, ..sample() };
        assert_eq!(meant.encode()[8], 2);
        let found = RunManifest::decode(&meant.encode(), [3; 16], 41);
        assert_eq!(found, Ok(Decoded::Manifest(meant)));
    }

    #[test]
    fn what_names_directories_otherwise_is_of_the_third_version() {
        for manifest in [sample(), with_logs()] {
            let other = RunManifest { prefix_bytes: 0, ..manifest };
            assert_eq!(other.encode()[8], 3);
        }
        let long = RunManifest { prefix_bytes: PREFIX_BYTES_MAX + 1, ..sample() };
        assert!(RunManifest::decode(&long.encode(), [3; 16], 41).is_err());
    }

    #[test]
    fn a_manifest_round_trips_and_every_flipped_bit_and_cut_is_noticed() {
        let other = |manifest| RunManifest { prefix_bytes: PREFIX_BYTES_MAX, ..manifest };
        for manifest in [sample(), with_logs(), other(sample()), other(with_logs())] {
            round_trips(&manifest);
        }
    }

    fn round_trips(manifest: &RunManifest) {
        let bytes = manifest.encode();
        let found = RunManifest::decode(&bytes, [3; 16], 41);
        assert_eq!(found, Ok(Decoded::Manifest(manifest.clone())));
        assert!(RunManifest::decode(&bytes, [4; 16], 41).is_err());
        assert!(RunManifest::decode(&bytes, [3; 16], 42).is_err());
        for bit in 0..bytes.len().saturating_mul(8) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = RunManifest::decode(&bad, [3; 16], 41);
            assert!(!matches!(found, Ok(Decoded::Manifest(_))), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(RunManifest::decode(&bytes[..length], [3; 16], 41).is_err());
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let breaks: [fn(&mut RunManifest); 11] = [
            |manifest| manifest.runs[1].blob = 4,
            |manifest| manifest.runs[1].index_bytes = 101,
            |manifest| manifest.stacks[1] = vec![3],
            |manifest| manifest.trees[1].stack = 3,
            |manifest| manifest.trees[1].number = 16,
            |manifest| manifest.logs[1].log = 13,
            |manifest| manifest.uses[0][0].log = 8,
            |manifest| manifest.uses[2].reverse(),
            |manifest| manifest.uses[0][0].rows = 3,
            |manifest| manifest.uses[2][0].bytes = 9001,
            |manifest| (manifest.logs[1].bytes, manifest.uses[0][0].bytes) = (1 << 63, 1 << 63),
        ];
        for (number, apply) in breaks.iter().enumerate() {
            let mut manifest = with_logs();
            apply(&mut manifest);
            let found = RunManifest::decode(&manifest.encode(), [3; 16], 41);
            assert!(found.is_err(), "{number}");
        }
    }

    /// A checksum does not make it right: whoever opens the state counts on from these.
    #[test]
    fn numbers_that_nobody_comes_to_are_refused() {
        let puts: [fn(&mut RunManifest, u64); 5] = [
            |manifest, number| manifest.lsn = number,
            |manifest, number| manifest.next_blob = number,
            |manifest, number| manifest.next_run = number,
            |manifest, number| manifest.blobs.last_mut().unwrap().number = number,
            |manifest, number| manifest.runs.last_mut().unwrap().number = number,
        ];
        for (at, put) in puts.iter().enumerate() {
            let found = |number| {
                // What is last is named by nothing else.
                let mut manifest = sample();
                let number_of = manifest.blobs.last().unwrap().number + 1;
                manifest.blobs.push(BlobEntry { number: number_of, length: 1 });
                put(&mut manifest, number);
                RunManifest::decode(&manifest.encode(), [3; 16], 41)
            };
            assert!(found(COUNTED_MAX).is_ok(), "{at}: {:?}", found(COUNTED_MAX));
            for number in [COUNTED_MAX + 1, u64::MAX - 1, u64::MAX] {
                assert!(found(number).is_err(), "{at}: {number}");
            }
        }
        let numbered = |number| {
            let manifest = RunManifest { number, ..sample() };
            RunManifest::decode(&manifest.encode(), [3; 16], number)
        };
        assert!(numbered(COUNTED_MAX).is_ok() && numbered(u64::MAX).is_err());
    }

    /// Each number alone is one that may be; all of them together are not.
    #[test]
    fn what_cannot_be_added_up_is_refused() {
        let adds: [fn(&mut RunManifest, u64); 6] = [
            |manifest, each| manifest.blobs.iter_mut().for_each(|blob| blob.length = each),
            |manifest, each| manifest.runs.iter_mut().for_each(|run| run.entries = each),
            |manifest, each| manifest.runs.iter_mut().for_each(|run| run.tombstones = each),
            |manifest, each| manifest.logs.iter_mut().for_each(|log| log.bytes = each),
            |manifest, each| manifest.logs.iter_mut().for_each(|log| log.rows = each),
            |manifest, each| {
                manifest.logs.iter_mut().for_each(|log| log.bytes = 1 << 60);
                manifest.uses.iter_mut().flatten().for_each(|rows| rows.bytes = each);
            },
        ];
        for (number, add) in adds.iter().enumerate() {
            let found = |each| {
                let mut manifest = with_logs();
                add(&mut manifest, each);
                RunManifest::decode(&manifest.encode(), [3; 16], 41)
            };
            assert!(found(1 << 59).is_ok(), "{number}");
            assert!(found(u64::MAX / 2).is_err(), "{number}");
        }
        // More runs than a sum of as much as one log may have has room for.
        let mut manifest = with_logs();
        manifest.logs[1].bytes = 1 << 48;
        manifest.runs = (0..70_000).map(|n| RunEntry { number: n, ..manifest.runs[0] }).collect();
        manifest.uses = vec![vec![LogRows { log: 12, rows: 1, bytes: 1 << 48 }]; 70_000];
        manifest.stacks.truncate(1);
        manifest.trees.clear();
        assert!(RunManifest::decode(&manifest.encode(), [3; 16], 41).is_err());
        let logless = RunManifest { values_from: 0, ..with_logs() };
        assert!(RunManifest::decode(&logless.encode(), [3; 16], 41).is_err());
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = sample().encode();
        bytes[8] = 4;
        assert_eq!(RunManifest::decode(&bytes, [3; 16], 41), Ok(Decoded::Newer(4)));
    }
}
