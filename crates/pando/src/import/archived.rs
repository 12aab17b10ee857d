//! Imports a tar archive, plain or compressed.
//!
//! Rules for what may be hostile: names are below the destination (`archive::path`), no symbolic
//! link is followed, and links are kept as they are. Hard links reach only what is below the
//! destination. Only root gets owners, set-id bits, devices and attributes other than `user.`.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use device::{Clock, SystemClock};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use nix::unistd::{Group, User};
use wire::{Failure, FailureKind, ImportAttr, Item, Kind};

use super::Outcome;
use super::tree::{Begun, Node, Tree, Visible, Xattrs, borrowed};
use crate::archive::path;
use crate::archive::read::{Member, MemberKind, ReadError, Reader};
use crate::cli::OnConflict;
use crate::failure::{self, Result};
use crate::output::Output;

/// Files up to this length travel in one item.
const WHOLE_FILE_BYTES: u64 = 64 << 10;

/// Contents of longer files travel in items of this length.
const DATA_BYTES: usize = 256 << 10;

/// Bytes read from the archive at once.
const BUFFER_BYTES: usize = 1 << 20;

/// How to import an archive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    pub(crate) on_conflict: OnConflict,
    /// Whether owners are those of the numbers in the archive, even where names are known.
    pub(crate) numeric_owner: bool,
    /// Whether to keep what is sent, to be verified.
    pub(crate) verify: bool,
    /// Whether the rest becomes visible although some members failed.
    pub(crate) keep_going: bool,
    /// Bytes of memory.
    pub(crate) memory: usize,
}

/// An archive to import.
pub(crate) struct Archived<'a, R> {
    /// The bytes of the archive.
    pub(crate) input: R,
    /// The destination, a path inside the volume, and how it becomes visible.
    pub(crate) destination: (&'a [u8], Visible<'a>),
    pub(crate) options: Options,
    pub(crate) bar: &'a ProgressBar,
    pub(crate) interrupted: &'a AtomicBool,
}

impl<R: Read> Archived<'_, R> {
    /// Runs to the end of the archive, or until `interrupted` is set.
    pub(crate) fn run(self, connection: Connection, output: &mut Output) -> Result<Outcome> {
        let clock = SystemClock::new();
        let Archived { input, destination, options, bar, interrupted } = self;
        let input = decompressed(Interruptible { input, interrupted })?;
        let mut reader = Reader::new(input);
        // What is no archive leaves nothing behind.
        let first = match reader.next() {
            Err(_) if interrupted.load(Ordering::Relaxed) => None,
            first => first.map_err(failed)?,
        };
        let both = (bar, interrupted);
        let mut tree = Tree::open(
            connection,
            destination,
            (options.on_conflict, options.verify),
            both,
            (options.memory, output),
        )?;
        if options.keep_going {
            tree.keep_going();
        }
        let mut import = Import { owners: Owners::new(options), buffer: vec![0; DATA_BYTES] };
        let read = import.members(first, &mut reader, &mut tree);
        match read {
            _ if tree.is_interrupted() => tree.abandon()?,
            Err(Trouble::Daemon(failure)) => return Err(tree.failed(failure)),
            Err(Trouble::Archive(error)) => return Err(tree.failed(failed(error))),
            Ok(()) => tree.finish(destination.1)?,
        }
        let mut outcome = tree.outcome;
        outcome.interrupted = interrupted.load(Ordering::Relaxed);
        outcome.seconds = clock.monotonic().as_secs_f64();
        Ok(outcome)
    }
}

struct Import {
    owners: Owners,
    buffer: Vec<u8>,
}

enum Trouble {
    Archive(ReadError),
    Daemon(Failure),
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Trouble {
        Trouble::Archive(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Daemon(failure)
    }
}

type Tried<T> = std::result::Result<T, Trouble>;

impl Import {
    fn members<R: Read>(
        &mut self,
        first: Option<Member>,
        reader: &mut Reader<R>,
        tree: &mut Tree<'_>,
    ) -> Tried<()> {
        let mut next = first;
        while let Some(member) = next {
            if tree.is_interrupted() {
                return Ok(());
            }
            tree.proceed()?;
            self.member(reader, tree, member)?;
            next = reader.next()?;
        }
        Ok(reader.drain()?)
    }

    fn member<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        tree: &mut Tree<'_>,
        member: Member,
    ) -> Tried<()> {
        let refused = |tree: &mut Tree<'_>, kind, message: &str| {
            let failure = Failure::new(kind, message).at(&member.path);
            tree.fail(failure.hint("unpack this member by tar(1), if it is needed"));
        };
        let kind = match member.kind {
            MemberKind::Node(kind) => Some(kind),
            MemberKind::Link => None,
            // The label of a volume of GNU tar.
            MemberKind::Unknown(b'V') => return Ok(()),
            MemberKind::Unknown(letter) => {
                let message = format!("a member of the unknown type '{}'", letter.escape_ascii());
                refused(tree, FailureKind::NotSupported, &message);
                return Ok(());
            }
        };
        let path = match path::parts(&member.path) {
            Ok(path) => path,
            Err(why) => {
                refused(tree, FailureKind::Invalid, why);
                return Ok(());
            }
        };
        let attr = self.owners.attr(&member);
        match kind {
            None => match path::parts(&member.link) {
                Ok(target) => tree.link(&path, &target)?,
                Err(_) => refused(
                    tree,
                    FailureKind::Invalid,
                    "a hard link to a path outside of the archive",
                ),
            },
            Some(Kind::Directory) => {
                let xattrs = self.owners.xattrs(member.xattrs);
                if !tree.directory(&path, attr, xattrs)? {
                    let message = "the directory is not created";
                    let failure = Failure::new(FailureKind::NotDirectory, message);
                    let hint = "remove the file that has its name, and import again";
                    tree.fail(failure.at(&member.path).hint(hint));
                }
            }
            Some(kind) => {
                let xattrs = &self.owners.xattrs(member.xattrs);
                let (size, rdev, target) = (member.size, member.rdev, member.link.as_slice());
                let node = Node { kind, attr, xattrs, size, rdev, target };
                let begun = tree.begin(&path, &node)?;
                if begun != Begun::Done {
                    self.node(reader, tree, (&path, &member.ranges), (&node, begun))?;
                }
            }
        }
        Ok(())
    }

    fn node<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        tree: &mut Tree<'_>,
        (path, ranges): (&[Vec<u8>], &[(u64, u64)]),
        (node, begun): (&Node<'_>, Begun),
    ) -> Tried<()> {
        let name = path.last().map_or(&b""[..], Vec::as_slice);
        let Node { kind, attr, size, rdev, target, .. } = *node;
        let xattrs = borrowed(node.xattrs);
        let hold = 0;
        match kind {
            Kind::Symlink => tree.made(&Item::Symlink { name, target, attr, hold })?,
            Kind::File => {
                let whole = ranges.is_empty() && size == 0 || ranges == [(0, size)];
                if whole && size <= WHOLE_FILE_BYTES {
                    let buffer = &mut self.buffer[..size as usize];
                    let length = reader.contents(buffer)?;
                    let data = &buffer[..length];
                    if begun == Begun::Compare && tree.has(path, data)? {
                        return Ok(());
                    }
                    tree.outcome.bytes += length as u64;
                    tree.made(&Item::File { name, attr, xattrs, data, hold })?;
                    return Ok(());
                }
                if begun == Begun::Compare {
                    // It would have to be read twice to be compared.
                    tree.again(path)?;
                }
                tree.push(&Item::Begin { name })?;
                for &(start, length) in ranges {
                    self.range(reader, tree, (start, length))?;
                }
                tree.made(&Item::End { size, attr, xattrs, hold })?;
            }
            kind => tree.made(&Item::Special { name, kind, rdev, attr, hold })?,
        }
        Ok(())
    }

    fn range<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        tree: &mut Tree<'_>,
        (start, length): (u64, u64),
    ) -> Tried<()> {
        let mut done = 0;
        while done < length {
            let take = self.buffer.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
            let read = reader.contents(&mut self.buffer[..take])?;
            let bytes = &self.buffer[..read];
            tree.push(&Item::Data { offset: start + done, bytes })?;
            tree.outcome.bytes += read as u64;
            done += read as u64;
            if read < take || tree.is_interrupted() {
                // Without its last item the file does not look complete.
                let error = io::Error::from(io::ErrorKind::Interrupted);
                return Err(Trouble::Archive(ReadError::Input(error)));
            }
        }
        Ok(())
    }
}

/// Owners and attributes that members get, by what the caller may give.
struct Owners {
    is_root: bool,
    numeric: bool,
    users: BTreeMap<Vec<u8>, Option<u32>>,
    groups: BTreeMap<Vec<u8>, Option<u32>>,
}

impl Owners {
    fn new(options: Options) -> Owners {
        let is_root = rustix::process::geteuid().is_root();
        let (users, groups) = (BTreeMap::new(), BTreeMap::new());
        Owners { is_root, numeric: options.numeric_owner, users, groups }
    }

    fn attr(&mut self, member: &Member) -> ImportAttr {
        let owner = self.is_root.then(|| {
            let user = known(&mut self.users, &member.user, self.numeric, &|name| {
                User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
            });
            let group = known(&mut self.groups, &member.group, self.numeric, &|name| {
                Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
            });
            (user.unwrap_or(member.uid), group.unwrap_or(member.gid))
        });
        // A user runs nothing of an archive as somebody: the file would be the user's own.
        let mode = if self.is_root { member.mode } else { member.mode & 0o1777 };
        let atime = member.atime.unwrap_or(member.mtime);
        ImportAttr { mode, owner, atime, mtime: member.mtime }
    }

    fn xattrs(&self, mut xattrs: Xattrs) -> Xattrs {
        xattrs.retain(|(name, _)| self.is_root || name.starts_with(b"user."));
        xattrs
    }
}

/// The number of a name on this machine.
fn known(
    cache: &mut BTreeMap<Vec<u8>, Option<u32>>,
    name: &[u8],
    numeric: bool,
    find: &dyn Fn(&str) -> Option<u32>,
) -> Option<u32> {
    if numeric || name.is_empty() {
        return None;
    }
    if let Some(known) = cache.get(name) {
        return *known;
    }
    let found = std::str::from_utf8(name).ok().and_then(find);
    // A hostile archive has as many names as it likes.
    if cache.len() < 10_000 {
        cache.insert(name.to_vec(), found);
    }
    found
}

/// Ends reading when the caller interrupts the import.
struct Interruptible<'a, R> {
    input: R,
    interrupted: &'a AtomicBool,
}

impl<R: Read> Read for Interruptible<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        match self.input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if self.interrupted.load(Ordering::Relaxed) {
                    return Err(io::Error::other("interrupted"));
                }
                Err(error)
            }
            read => read,
        }
    }
}

/// The bytes of an archive that may be compressed: its first bytes show how.
fn decompressed<'a>(input: impl Read + 'a) -> Result<Box<dyn Read + 'a>> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
    let mut first = Vec::new();
    let read = input.by_ref().take(6).read_to_end(&mut first);
    read.map_err(|error| failed(ReadError::Input(error)))?;
    let named = |program: &str| {
        let message = format!("the archive is compressed by {program}");
        let hint = format!("pipe it: {program} -dc FILE | pando import --format tar - DST");
        Err(Failure::new(FailureKind::NotSupported, message).hint(hint))
    };
    let whole = io::Cursor::new(first.clone()).chain(input);
    match first.as_slice() {
        [0x1f, 0x8b, ..] => {
            let whole = BufReader::with_capacity(BUFFER_BYTES, whole);
            Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::Decoder::new(whole);
            let decoder = decoder.map_err(|error| failed(ReadError::Input(error)))?;
            Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => named("xz"),
        [b'B', b'Z', b'h', ..] => named("bzip2"),
        _ => Ok(Box::new(whole)),
    }
}

fn failed(error: ReadError) -> Failure {
    match error {
        ReadError::Input(error) => {
            let message = format!("cannot read the archive: {error}");
            let kind = match failure::io_kind(&error) {
                // The volume is not damaged.
                FailureKind::Damaged => FailureKind::Other,
                kind => kind,
            };
            Failure::new(kind, message)
                .hint("check the file or the program that the archive is from")
        }
        ReadError::Cut(at) => {
            let message = format!("the archive is cut short: it ends after {at} bytes");
            Failure::new(FailureKind::Invalid, message).hint("fetch or make the archive again")
        }
        ReadError::Malformed(at, what) => Failure::new(
            FailureKind::Invalid,
            format!("the archive is malformed at byte {at}: {what}"),
        )
        .hint("make the archive again; GNU tar's and bsdtar's formats are read"),
    }
}
