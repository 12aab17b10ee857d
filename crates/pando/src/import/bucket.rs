//! Imports the objects below a prefix of a bucket: contents are copied, and what is between the
//! slashes of a key are names.
//!
//! A key that is no path is left out and named. It has an empty part (`a//b`), `.` or `..`, or a
//! part of more than 255 bytes. Or it is below another object (`a/b`, where `a` is an object too).
//! An empty object whose key ends in `/` is a directory. Objects get the time of their last change,
//! by which the same import continues.
//!
//! The server is asked ahead ([`fetch`](super::fetch)). In a new destination, that goes over all
//! objects of a page of the list. In another one, it goes over those of one directory, because only
//! the entries of the directory show which are there.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Connection;
use device::{Clock, SystemClock};
use format::volume::{COPY, FILE};
use indicatif::ProgressBar;
use objects::{Seams, Settings, Source, SourceObject, SourcePrefix};
use rustix::fs::Mode;
use wire::{Failure, FailureKind, ImportAttr, Item, Kind};

use super::Outcome;
use super::fetch::{Fetch, Fetched};
use super::tree::{Begun, Node, Tree, Visible, Xattrs};
use crate::archive::path::Parts;
use crate::cli::OnConflict;
use crate::failure::{self, Result};
use crate::output::Output;

/// Longest name.
const NAME_BYTES_MAX: usize = 255;
/// Contents travel in items of this length; a file up to this travels in one.
const DATA_BYTES: usize = 256 << 10;

/// How long reads of an object are repeated before it is seen whether the store answers at all.
const OBJECT_PATIENCE: Duration = Duration::from_secs(5);

/// Modes of files and directories, without the bits of the umask: objects have none.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;

/// A prefix to import.
pub(crate) struct Bucket<'a> {
    pub(crate) source: &'a SourcePrefix,
    /// The destination, a path inside the volume, and how it becomes visible.
    pub(crate) destination: (&'a [u8], Visible<'a>),
    pub(crate) on_conflict: OnConflict,
    /// Whether to keep what is sent, to be verified.
    pub(crate) verify: bool,
    /// Whether objects are left out that a server which answers does not return, and the rest gets
    /// its name although something failed.
    pub(crate) keep_going: bool,
    /// Bytes of memory.
    pub(crate) memory: usize,
    pub(crate) bar: &'a ProgressBar,
    pub(crate) interrupted: &'a AtomicBool,
}

/// A page of the list.
type Page = (Vec<SourceObject>, Option<String>);

impl Bucket<'_> {
    /// Runs to the end of the list, or until `interrupted` is set.
    pub(crate) fn run(self, connection: Connection, output: &mut Output) -> Result<Outcome> {
        let clock = SystemClock::new();
        let source = Source::open(&self.source.bucket, &Settings::default(), &Seams::system());
        let source = source.map_err(|error| self.failed(&error))?;
        let source = if self.keep_going { source.read_within(OBJECT_PATIENCE) } else { source };
        let source = Arc::new(source);
        self.refuse_volume_above(&source)?;
        // What is no source leaves nothing behind.
        let first = self.page(&source, None)?;
        if first.0.is_empty() {
            let message = format!("no object's key begins with {:?}", self.source.prefix);
            let failure = Failure::new(FailureKind::NotFound, message);
            return Err(failure.hint("give the beginning of keys up to a '/'"));
        }
        let both = (self.bar, self.interrupted);
        let rules = (self.on_conflict, self.verify);
        let ahead = (self.memory / 2).min(Fetch::BYTES_MAX);
        let kept = (self.memory - ahead, output);
        let mut tree = Tree::open(connection, self.destination, rules, both, kept)?;
        if self.keep_going {
            tree.keep_going();
        }
        // Threads come later: it is the process's.
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        let umask = umask.bits() & 0o777;
        tree.part_mode(DIRECTORY_MODE & !umask);
        let (bucket, files) = (&self, Vec::new());
        let mut import = Import { bucket, source: &source, files, umask, tree: &mut tree };
        let fetch = Fetch::start(&source, ahead).map_err(|error| {
            let message = format!("cannot start a thread: {error}");
            Failure::new(FailureKind::Other, message).hint("end other processes")
        });
        let walked = fetch.and_then(|mut fetch| import.pages(&mut fetch, first));
        match walked {
            Ok(()) if tree.is_interrupted() => tree.abandon()?,
            Ok(()) => tree.finish(self.destination.1)?,
            Err(failure) => {
                return Err(tree.failed(failure));
            }
        }
        let mut outcome = tree.outcome;
        outcome.interrupted = self.interrupted.load(Ordering::Relaxed);
        outcome.seconds = clock.monotonic().as_secs_f64();
        Ok(outcome)
    }

    fn page(&self, source: &Source, token: Option<&str>) -> Result<Page> {
        let page = source.list(&self.source.prefix, token);
        page.map_err(|error| self.failed(&error))
    }

    /// Refuses a prefix that is a volume's own, or inside one.
    fn refuse_volume_above(&self, source: &Source) -> Result<()> {
        let prefix = &self.source.prefix;
        let slashes = prefix.match_indices('/').map(|(at, _)| at + 1);
        for end in std::iter::once(0).chain(slashes) {
            let header = format!("{}{FILE}", &prefix[..end]);
            let found = match source.list(&header, None) {
                Ok((found, _)) => found,
                // Keys may be limited to the prefix, whose own list comes next.
                Err(error) if error.kind == ErrorKind::PermissionDenied => continue,
                Err(error) => return Err(self.failed(&error)),
            };
            if found.iter().any(|object| object.key == header) {
                return Err(self.of_a_volume(&prefix[..end]));
            }
        }
        Ok(())
    }

    fn of_a_volume(&self, prefix: &str) -> Failure {
        let volume = format!("s3://{}/{}", self.source.bucket, prefix.trim_end_matches('/'));
        let message = format!("{volume} is a volume, whose objects are not its files");
        let hint = "`pando export` copies files out of a volume; name a prefix beside it";
        Failure::new(FailureKind::Invalid, message).hint(hint)
    }

    /// The failure of a request, after which the import ends.
    fn failed(&self, error: &device::Error) -> Failure {
        let kind = match failure::io_kind(&std::io::Error::from(error.kind)) {
            // The volume is not damaged.
            FailureKind::Damaged => FailureKind::Other,
            kind => kind,
        };
        let bucket = &self.source.bucket;
        let message =
            format!("s3://{bucket}: {} {}: {}", error.operation, error.path, error.message);
        Failure::new(kind, message).hint("the imported files stay; run the same command again")
    }
}

struct Import<'a, 'b> {
    bucket: &'a Bucket<'a>,
    source: &'a Source,
    tree: &'a mut Tree<'b>,
    /// Keys of objects that the current key begins with: files, below which is nothing.
    files: Vec<String>,
    /// Bits that new files and directories do not get.
    umask: u32,
}

/// An object, and the names of its path.
struct Wanted {
    object: Arc<SourceObject>,
    path: Parts,
    /// Whether it was compared with what is there.
    begun: Option<Begun>,
}

impl Import<'_, '_> {
    fn pages(&mut self, fetch: &mut Fetch, first: Page) -> Result<()> {
        let (mut objects, mut token) = first;
        loop {
            self.objects(objects, fetch)?;
            match token {
                Some(next) if !self.tree.is_interrupted() => {
                    self.tree.proceed()?;
                    (objects, token) = self.bucket.page(self.source, Some(&next))?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Imports a page of the list.
    fn objects(&mut self, objects: Vec<SourceObject>, fetch: &mut Fetch) -> Result<()> {
        let mut group: Vec<Wanted> = Vec::new();
        for object in objects {
            if self.tree.is_interrupted() {
                return Ok(());
            }
            if object.key.ends_with('/') && !self.tree.is_new() {
                // Its directory is not that of the files before, which are begun.
                self.group(&std::mem::take(&mut group), fetch)?;
            }
            let Some(mut wanted) = self.wanted(object)? else { continue };
            if !self.tree.is_new() {
                let parent = |one: &Wanted| one.path[..one.path.len() - 1].to_vec();
                if group.last().is_some_and(|last| parent(last) != parent(&wanted)) {
                    self.group(&std::mem::take(&mut group), fetch)?;
                }
                match self.begin(&wanted)? {
                    Begun::Done => continue,
                    begun => wanted.begun = Some(begun),
                }
            }
            group.push(wanted);
        }
        self.group(&group, fetch)
    }

    /// What becomes of an object; `None` if it is left out or made.
    fn wanted(&mut self, object: SourceObject) -> Result<Option<Wanted>> {
        let inner = object.key.strip_prefix(&self.bucket.source.prefix).unwrap_or(&object.key);
        let name = inner.rsplit('/').next().unwrap_or(inner);
        if name == FILE || name == COPY {
            let end = object.key.len() - name.len();
            return Err(self.bucket.of_a_volume(&object.key[..end]));
        }
        while self.files.last().is_some_and(|file| !object.key.starts_with(file.as_str())) {
            self.files.pop();
        }
        let is_below = |file: &String| object.key[file.len()..].starts_with('/');
        if self.files.iter().any(is_below) {
            self.left_out(&object, "there is an object that its path goes through");
            return Ok(None);
        }
        let is_directory = inner.is_empty() || inner.ends_with('/');
        let path = match parts(inner.strip_suffix('/').unwrap_or(inner)) {
            Ok(path) => path,
            Err(why) => {
                self.left_out(&object, why);
                return Ok(None);
            }
        };
        if !is_directory {
            if self.files.last() != Some(&object.key) {
                self.files.push(object.key.clone());
            }
            return Ok(Some(Wanted { object: Arc::new(object), path, begun: None }));
        }
        if object.size > 0 {
            self.left_out(&object, "its key is that of a directory, and it has contents");
        } else {
            let attr = attr(&object, DIRECTORY_MODE & !self.umask);
            self.tree.plain_directory(&path, attr)?;
        }
        Ok(None)
    }

    fn left_out(&mut self, object: &SourceObject, why: &str) {
        let message = format!("the object is left out: {why}");
        let failure = Failure::new(FailureKind::Invalid, message).at(object.key.as_bytes());
        self.tree.fail(failure.hint("copy it under another key, and import that"));
    }

    fn begin(&mut self, wanted: &Wanted) -> Result<Begun> {
        let (attr, size) = (attr(&wanted.object, FILE_MODE & !self.umask), wanted.object.size);
        let xattrs = Xattrs::new();
        let node = Node { kind: Kind::File, attr, xattrs: &xattrs, size, rdev: 0, target: b"" };
        let begun = self.tree.begin(&wanted.path, &node)?;
        if begun == Begun::Compare {
            self.tree.again(&wanted.path)?;
        }
        Ok(begun)
    }

    /// Reads objects and makes files of them.
    fn group(&mut self, group: &[Wanted], fetch: &mut Fetch) -> Result<()> {
        let mut objects = group.iter().map(|wanted| Arc::clone(&wanted.object));
        fetch.begin(&mut objects);
        for wanted in group {
            if self.tree.is_interrupted() {
                return Ok(());
            }
            let begun = match wanted.begun {
                Some(begun) => begun,
                None => self.begin(wanted)?,
            };
            self.file(wanted, begun, fetch)?;
        }
        Ok(())
    }

    fn file(&mut self, wanted: &Wanted, begun: Begun, fetch: &mut Fetch) -> Result<()> {
        let object = &wanted.object;
        let name = wanted.path.last().map_or(&b""[..], Vec::as_slice);
        let (attr, xattrs, hold) = (attr(object, FILE_MODE & !self.umask), Vec::new(), 0);
        let is_made = begun != Begun::Done;
        if object.size == 0 && is_made {
            return self.tree.made(&Item::File { name, attr, xattrs, data: &[], hold });
        }
        let mut offset = 0;
        while offset < object.size {
            let bytes = match self.part(fetch)? {
                Some(Fetched::Bytes(bytes)) => bytes,
                Some(Fetched::Changed) => {
                    self.changed(object);
                    fetch.skip_object();
                    return Ok(());
                }
                Some(Fetched::Failed(error, length)) => {
                    let Some(bytes) = self.read_again(&error, object, (offset, length))? else {
                        fetch.skip_object();
                        return Ok(());
                    };
                    bytes
                }
                // Interrupted.
                None => return Ok(()),
            };
            if !is_made {
                offset += bytes.len() as u64;
                continue;
            }
            self.tree.outcome.bytes += bytes.len() as u64;
            if bytes.len() as u64 == object.size && bytes.len() <= DATA_BYTES {
                return self.tree.made(&Item::File { name, attr, xattrs, data: &bytes, hold });
            }
            if offset == 0 {
                self.tree.push(&Item::Begin { name })?;
            }
            for bytes in bytes.chunks(DATA_BYTES) {
                self.tree.push(&Item::Data { offset, bytes })?;
                offset += bytes.len() as u64;
            }
        }
        if is_made {
            self.tree.made(&Item::End { size: object.size, attr, xattrs, hold })?;
        }
        Ok(())
    }

    /// What to do about a part of an object that could not be read. The result is its bytes, if a
    /// store that failed is back. `None`: the object is left out, because the store answers other
    /// requests.
    fn read_again(
        &mut self,
        error: &device::Error,
        object: &SourceObject,
        (offset, length): (u64, usize),
    ) -> Result<Option<Vec<u8>>> {
        let key = object.key.as_bytes();
        if is_of_one_object(error) {
            self.tree.fail(self.bucket.failed(error).at(key));
            return Ok(None);
        }
        if !self.bucket.keep_going {
            let failure = self.bucket.failed(error).at(key);
            let hint = "run the same command again; --keep-going leaves out what is never returned";
            return Err(failure.hint(hint));
        }
        self.bucket.page(self.source, None)?;
        let mut bytes = vec![0; length];
        match self.source.read(object, &mut bytes, offset) {
            Ok(true) => return Ok(Some(bytes)),
            Ok(false) => self.changed(object),
            Err(error) => self.tree.fail(self.bucket.failed(&error).at(key)),
        }
        Ok(None)
    }

    fn changed(&mut self, object: &SourceObject) {
        let message = "it changed or was removed while it was imported";
        let failure = Failure::new(FailureKind::Other, message).at(object.key.as_bytes());
        self.tree.fail(failure.hint("run the same import again"));
    }

    /// The next bytes; `None` when interrupted.
    fn part(&mut self, fetch: &mut Fetch) -> Result<Option<Fetched>> {
        loop {
            if self.tree.is_interrupted() {
                return Ok(None);
            }
            if let Some(fetched) = fetch.next() {
                return Ok(Some(fetched));
            }
            self.tree.proceed()?;
        }
    }
}

/// Whether others may be read although this one may not. It is in an archive, has rules of its own,
/// or keys of its own encrypt it.
fn is_of_one_object(error: &device::Error) -> bool {
    matches!(error.kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported)
}

fn attr(object: &SourceObject, mode: u32) -> ImportAttr {
    ImportAttr { mode, owner: None, atime: object.modified, mtime: object.modified }
}

/// The names of a path; none for the prefix itself.
fn parts(inner: &str) -> std::result::Result<Parts, &'static str> {
    if inner.is_empty() {
        return Ok(Parts::new());
    }
    let name = |part: &str| match part {
        "" => Err("its key has nothing between two slashes"),
        "." | ".." => Err("its key has `.` or `..` between slashes"),
        part if part.len() > NAME_BYTES_MAX => Err("its key has a name of more than 255 bytes"),
        part if part.contains('\0') => Err("its key has a zero byte"),
        part => Ok(part.as_bytes().to_vec()),
    };
    inner.split('/').map(name).collect()
}
