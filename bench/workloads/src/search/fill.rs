//! Fills the volume, and draws the sample of its files that queries are derived from.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use device::Timestamp;
use fs::{FileSystem, Fs, NewNode};
use inode::{Caller, Kind, NodeId, SetAttr, SetTime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wire::Failure;

use super::place::BenchVolume;
use super::timed::{failed, timed};
use crate::Run;
use crate::namespace::{FileMeta, Namespace};
use crate::volume::{broken, caller};
use program::failure::{self, Result};

/// Files that queries are drawn from.
const SAMPLE: usize = 4096;
/// Files between two checks for Ctrl-C.
const STRIDE: u64 = 1024;
const SEED: u64 = 7;

/// Files of the volume, drawn evenly.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) files: u64,
    pub(super) profile: String,
    pub(super) rows: Vec<SampleRow>,
}

/// A file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SampleRow {
    /// Directories from the root down.
    pub(super) directories: Vec<String>,
    pub(super) name: String,
    pub(super) uid: u32,
    /// Nanoseconds since 1970.
    pub(super) mtime: i64,
    pub(super) size: u64,
}

fn sample_path(volume: &Path) -> PathBuf {
    let mut name = volume.as_os_str().to_owned();
    name.push(".sample.json");
    name.into()
}

impl Sample {
    /// The sample of a volume that was filled.
    pub(super) fn read(volume: &Path) -> Result<Option<Sample>> {
        let path = sample_path(volume);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| failed(&format!("{} is no sample", path.display()), error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failure::io("read", &path, &error)),
        }
    }

    fn write(&self, volume: &Path) -> Result<()> {
        let path = sample_path(volume);
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        std::fs::write(&path, bytes).map_err(|error| failure::io("write", &path, &error))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Draws from a sequence of files, each with the same probability.
struct Drawn {
    random: fastrand::Rng,
    seen: u64,
    rows: Vec<(u32, FileMeta)>,
}

impl Drawn {
    fn new() -> Drawn {
        Drawn { random: fastrand::Rng::with_seed(SEED + 1), seen: 0, rows: Vec::new() }
    }

    fn see(&mut self, directory: u32, file: &FileMeta) {
        self.seen += 1;
        if self.rows.len() < SAMPLE {
            return self.rows.push((directory, file.clone()));
        }
        let place = self.random.u64(..self.seen) as usize;
        if let Some(slot) = self.rows.get_mut(place) {
            *slot = (directory, file.clone());
        }
    }

    fn sample(self, namespace: &Namespace, run: &Run<'_>) -> Sample {
        let rows = self.rows.into_iter().map(|(directory, file)| SampleRow {
            directories: path_of(namespace, directory),
            name: text(&file.name),
            uid: file.uid,
            mtime: file.mtime,
            size: file.size,
        });
        let profile = format!("{:?}", run.args.profile).to_lowercase();
        Sample { files: self.seen, profile, rows: rows.collect() }
    }
}

fn path_of(namespace: &Namespace, mut directory: u32) -> Vec<String> {
    let mut path = Vec::new();
    while directory != 0 {
        let found = &namespace.directories[directory as usize];
        path.push(text(&found.name));
        directory = found.parent;
    }
    path.reverse();
    path
}

/// Creates all directories and files, then the base of the index.
pub(super) fn fill(run: &Run<'_>, place: &BenchVolume) -> Result<(Sample, Value)> {
    run.bar.set_message("filling");
    run.bar.set_length(run.args.files);
    let namespace = Namespace::generate(run.args.profile, run.args.files, SEED);
    let fs = place.fs();
    let mut drawn = Drawn::new();
    let (made, took) = timed(|| make_all(run, &fs, &namespace, &mut drawn));
    made?;
    fs.sync().map_err(broken)?;
    run.bar.set_message("indexing");
    let (flushed, base_took) = timed(|| fs.index_flush(NodeId::ROOT));
    flushed.map_err(broken)?;
    let directories = namespace.directories.len();
    let sample = drawn.sample(&namespace, run);
    sample.write(place.path())?;
    let stats = place.index_stats()?;
    let object = json!({
        "bench": "search", "set": "fill", "files": sample.files, "directories": directories,
        "profile": sample.profile,
        "seconds": took.as_secs_f64(),
        "creates_per_second": (sample.files as f64 / took.as_secs_f64()).round(),
        "index_seconds": base_took.as_secs_f64(),
        "index_rows_per_second": (sample.files as f64 / base_took.as_secs_f64()).round(),
        "clusters": stats.clusters, "index_bytes": stats.disk_bytes,
    });
    Ok((sample, object))
}

fn make_all(run: &Run<'_>, fs: &Fs, namespace: &Namespace, drawn: &mut Drawn) -> Result<()> {
    let who = caller();
    let mut nodes = vec![NodeId::ROOT; namespace.directories.len()];
    for number in namespace.walk() {
        let directory = &namespace.directories[number as usize];
        if number != 0 {
            let parent = nodes[directory.parent as usize];
            let made = fs.mkdir(&who, parent, &directory.name, 0o755).map_err(broken)?.node;
            let (uid, gid) = (Some(directory.uid), Some(directory.gid));
            let owner = SetAttr { uid, gid, ..SetAttr::default() };
            fs.setattr(&who, made, &owner).map_err(broken)?;
            nodes[number as usize] = made;
        }
        let parent = nodes[number as usize];
        namespace.files::<Failure>(number as usize, |file| {
            make(fs, &who, parent, file)?;
            drawn.see(number, file);
            if drawn.seen.is_multiple_of(STRIDE) {
                run.bar.inc(STRIDE);
                run.check()?;
            }
            Ok(())
        })?;
    }
    for node in nodes.into_iter().filter(|&node| node != NodeId::ROOT) {
        fs.forget(node, 1);
    }
    Ok(())
}

fn make(fs: &Fs, who: &Caller, parent: NodeId, file: &FileMeta) -> Result<()> {
    let new = NewNode { kind: Kind::File, mode: file.mode, rdev: 0 };
    let node = fs.mknod(who, parent, &file.name, &new).map_err(broken)?.node;
    let time = |nanos| Some(SetTime::At(Timestamp(nanos)));
    let changes = SetAttr {
        uid: Some(file.uid),
        gid: Some(file.gid),
        size: Some(file.size),
        atime: time(file.atime),
        mtime: time(file.mtime),
        ..SetAttr::default()
    };
    fs.setattr(who, node, &changes).map_err(broken)?;
    fs.forget(node, 1);
    Ok(())
}

/// Writes what the volume would hold as lines for other programs: directory, name, owner,
/// nanoseconds of the last change, size, separated by tabs.
pub(super) fn list(run: &Run<'_>, path: &Path) -> Result<()> {
    let unwritten = |error: std::io::Error| failure::io("write", path, &error);
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).open(path).map_err(unwritten)?;
    let mut out = std::io::BufWriter::new(file);
    let namespace = Namespace::generate(run.args.profile, run.args.files, SEED);
    let mut drawn = Drawn::new();
    for number in namespace.walk() {
        let directory = path_of(&namespace, number).join("/");
        namespace
            .files(number as usize, |file| {
                drawn.see(number, file);
                let FileMeta { uid, mtime, size, .. } = file;
                writeln!(out, "{directory}\t{}\t{uid}\t{mtime}\t{size}", text(&file.name))
            })
            .map_err(unwritten)?;
        run.check()?;
    }
    out.flush().map_err(unwritten)?;
    drawn.sample(&namespace, run).write(path)
}
