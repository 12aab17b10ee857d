//! Metadata of a snapshot as JSON lines: one line a name, in the order of the paths by their names.
//! So two equal trees of any volumes have equal dumps.
//!
//! A line repeats all attributes for each name of a file, so that a program reads the lines one by
//! one, and so does `Loader`.

use device::Map;
use format::stream::PATH_BYTES_MAX;
use fs::{DirEntry, FileSystem, Fs, WalkControl};
use inode::{Attr, Caller, FsError, Kind, NodeId};
use serde::{Deserialize, Serialize};

use crate::attributes;
use crate::error::{At, Error, Result};
use crate::job::Job;
use crate::out::Emit;
use crate::walk::{Above, Held, Walk, join};

/// The version of the lines.
pub(crate) const VERSION: u32 = 1;
/// Bytes that are handed on at once.
const PART_BYTES: usize = 256 << 10;

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct First {
    pub(crate) pando_dump: u32,
}

/// The last line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Last {
    pub(crate) lines: u64,
}

/// An extended attribute, in hexadecimal where it is no text.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Xattr {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name_hex: Option<String>,
    pub(crate) value_hex: String,
}

/// A name. Times are nanoseconds since 1970.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_hex: Option<String>,
    pub(crate) kind: String,
    /// The first name of the inode, if this is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link_to_hex: Option<String>,
    pub(crate) mode: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target_hex: Option<String>,
    pub(crate) atime_ns: i64,
    pub(crate) mtime_ns: i64,
    pub(crate) ctime_ns: i64,
    pub(crate) btime_ns: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) xattrs: Vec<Xattr>,
}

/// Bytes as text, and in hexadecimal if they are none.
pub(crate) fn text(bytes: &[u8]) -> (String, Option<String>) {
    let shown = String::from_utf8_lossy(bytes).into_owned();
    (shown, std::str::from_utf8(bytes).is_err().then(|| hex(bytes)))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Dumps a directory of a snapshot to a function that returns `false` when nobody reads on.
pub fn dump(
    fs: &Fs,
    caller: &Caller,
    directory: NodeId,
    memory: usize,
    (cancel, emit): (&std::sync::atomic::AtomicBool, Emit<'_>),
) -> Result<()> {
    let job = Job { fs, caller, memory, cancel };
    let held = Walk::new(fs, caller, directory).entry(b"")?;
    let mut dump = Dump { job, emit, buffer: Vec::new(), lines: 0, links: Map::default(), used: 0 };
    dump.line(&First { pando_dump: VERSION })?;
    dump.all(held)?;
    let lines = dump.lines - 1;
    dump.line(&Last { lines })?;
    dump.flush()
}

struct Dump<'a> {
    job: Job<'a>,
    emit: Emit<'a>,
    buffer: Vec<u8>,
    lines: u64,
    /// The first names of inodes with several.
    links: Map<NodeId, Vec<u8>>,
    used: usize,
}

impl<'a> Dump<'a> {
    fn all(&mut self, root: Held<'a>) -> Result<()> {
        self.inode((b"", &root), None)?;
        let names = self.names(root.node(), b"")?;
        let mut above = Above::default();
        above.enter(root.node(), b"")?;
        let mut levels = vec![(root, Vec::new(), names)];
        while let Some((held, path, names)) = levels.last_mut() {
            self.job.check_wanted()?;
            let Some(name) = names.pop() else {
                above.leave(held.node());
                levels.pop();
                continue;
            };
            self.used -= name.len() + size_of::<Vec<u8>>();
            let path = join(path, &name);
            if path.len() > PATH_BYTES_MAX {
                let end = &path[path.len() - 256..];
                return Err(FsError::LimitReached(
                    "a path of a dump has at most 256 KiB: dump a directory below it",
                ))
                .at(end);
            }
            let entry = self.job.fs.lookup(self.job.caller, held.node(), &name).at(&path)?;
            let held = Held::new(self.job.fs, entry);
            let attr = entry.attr;
            if attr.kind == Kind::Directory {
                above.enter(held.node(), &path)?;
                self.inode((&path, &held), None)?;
                let names = self.names(held.node(), &path)?;
                levels.push((held, path, names));
                continue;
            }
            let first = match (attr.nlink > 1, self.links.get(&held.node())) {
                (true, Some(first)) => Some(first.clone()),
                (true, None) => {
                    let more = path.len() + 96;
                    self.job.count(&mut self.used, more, "the inodes with several names")?;
                    self.links.insert(held.node(), path.clone());
                    None
                }
                (false, _) => None,
            };
            self.inode((&path, &held), first.as_deref())?;
        }
        Ok(())
    }

    /// The names in a directory, the last one first.
    fn names(&mut self, directory: NodeId, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (mut names, mut failed) = (Vec::new(), None);
        let Dump { job, used, .. } = self;
        let mut take = |entry: &DirEntry<'_>| {
            let more = entry.name.len() + size_of::<Vec<u8>>();
            if let Err(error) = job.count(used, more, "the names of a directory") {
                failed = Some(error);
                return WalkControl::Stop;
            }
            names.push(entry.name.to_vec());
            WalkControl::Continue
        };
        job.fs.readdir(job.caller, directory, 0, &mut take).at(path)?;
        if let Some(error) = failed {
            return Err(error);
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names)
    }

    fn inode(&mut self, (path, held): (&[u8], &Held<'_>), first: Option<&[u8]>) -> Result<()> {
        let Job { fs, caller, .. } = self.job;
        let attr: Attr = fs.getattr(caller, held.node()).at(path)?;
        let target = match attr.kind {
            Kind::Symlink => Some(fs.readlink_untimed(caller, held.node()).at(path)?),
            _ => None,
        };
        let target = target.as_deref().map(text);
        let xattrs = attributes::all(fs, caller, held.node()).at(path)?;
        let first = first.map(text);
        let (path, path_hex) = text(path);
        let is_device = matches!(attr.kind, Kind::CharDevice | Kind::BlockDevice);
        let xattr = |(name, value): &(Vec<u8>, Vec<u8>)| {
            let (name, name_hex) = text(name);
            Xattr { name, name_hex, value_hex: hex(value) }
        };
        let line = Line {
            path,
            path_hex,
            kind: attr.kind.name().to_owned(),
            link_to_hex: first.as_ref().and_then(|first| first.1.clone()),
            link_to: first.map(|first| first.0),
            mode: format!("{:04o}", attr.mode),
            uid: attr.uid,
            gid: attr.gid,
            size: (attr.kind == Kind::File).then_some(attr.size),
            device: is_device.then_some(attr.rdev),
            target_hex: target.as_ref().and_then(|target| target.1.clone()),
            target: target.map(|target| target.0),
            atime_ns: attr.atime.0,
            mtime_ns: attr.mtime.0,
            ctime_ns: attr.ctime.0,
            btime_ns: attr.btime.0,
            xattrs: xattrs.iter().map(xattr).collect(),
        };
        self.line(&line)
    }

    fn line(&mut self, line: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.buffer, line)
            .map_err(|error| Error::refused(format!("cannot write a line: {error}"), ""))?;
        self.buffer.push(b'\n');
        self.lines += 1;
        if self.buffer.len() >= PART_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        let continues = (self.emit)(&self.buffer);
        self.buffer.clear();
        if continues { Ok(()) } else { Err(Error::Interrupted) }
    }
}
