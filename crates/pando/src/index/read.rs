//! Reads one directory: its names by `getdents64` into a large buffer, their attributes by `statx`
//! relative to it. The order is that of inode numbers, which is the order on disk.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use inode::Outside;
use rustix::fs::RawDir;
use wire::{Kind, ScanItem, ScanRow, push_scan_item};

use super::known::Directory;
use super::problems::is_gone;
use super::row::{self, Xattrs};
use super::tree::{self, Node};
use super::walk::{Task, Walk};

/// Buffer of `getdents64`, in bytes: some thousand names a call.
const LISTING_BYTES: usize = 128 << 10;

/// Most names in one item, so that memory stays bounded in huge directories.
const PART: usize = 4096;

/// Bytes of the rows of one item, plus at most one more row: an item fits in one message.
const ITEM_BYTES: usize = 128 << 10;
/// Approximate bytes of a row without its name.
const ROW_BYTES: usize = 96;

/// File systems with only the kernel's own files, by their magic numbers. The scan does not descend
/// into them where they are mounted below a source.
const KERNELS_OWN: [u64; 16] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x1cd1,      // devpts
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0x1980_0202, // mqueue
    0xf97c_ff8c, // selinuxfs
    0x4249_4e4d, // binfmt_misc
    0x0187,      // autofs
];

/// Reads directories for one thread, and reuses its memory.
pub(super) struct Reader<'a> {
    walk: &'a Walk,
    listing: Vec<MaybeUninit<u8>>,
    /// Names, each with its terminating NUL.
    names: Vec<u8>,
    /// Inode, start and end of each name.
    order: Vec<(u64, u32, u32)>,
    found: Vec<ReadItem>,
    items: Vec<u8>,
}

/// A name whose attributes were read.
struct ReadItem {
    name: (u32, u32),
    attr: Outside,
    target: Vec<u8>,
    xattrs: Xattrs,
    /// For directories: number, number in the last scan, and whether its names are foreign.
    directory: Option<(u64, u64, bool)>,
}

impl ReadItem {
    /// Approximate bytes of its row.
    fn bytes(&self) -> usize {
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 8);
        let (start, end) = self.name;
        (end - start) as usize + self.target.len() + xattrs.sum::<usize>() + ROW_BYTES
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(walk: &'a Walk) -> Reader<'a> {
        Reader {
            walk,
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES],
            names: Vec::new(),
            order: Vec::new(),
            found: Vec::new(),
            items: Vec::new(),
        }
    }

    /// Reports a directory, and pushes its subdirectories on the stack; `false` when the receiver
    /// is gone.
    pub(super) fn directory(&mut self, task: &Task, stack: &mut Vec<Task>) -> bool {
        self.walk.directories.fetch_add(1, Ordering::Relaxed);
        if task.foreign {
            return self.close(task, true);
        }
        let walk = self.walk;
        if let Some(known) = walk.known.get(task.known)
            && walk.known.has_same_names(known, &task.attr)
        {
            match self.known_names(task, known, stack) {
                Ok(Some(listening)) => return listening,
                // A subdirectory is gone after all.
                Ok(None) => {}
                Err(error) => return self.unread(task, &error),
            }
        }
        self.walk.read.fetch_add(1, Ordering::Relaxed);
        match self.names(task, stack) {
            Ok(listening) => listening && self.close(task, true),
            Err(error) => self.unread(task, &error),
        }
    }

    /// Ends a directory that could not be read: what the index has of it stays.
    fn unread(&mut self, task: &Task, error: &io::Error) -> bool {
        self.walk.problems.note(|| task.node.path(), error);
        if is_gone(error) {
            self.walk.vanished.add(&task.attr);
        }
        self.close(task, is_gone(error))
    }

    fn close(&mut self, task: &Task, all: bool) -> bool {
        self.items.clear();
        push_scan_item(&ScanItem::Close { directory: task.directory, all }, &mut self.items);
        self.walk.feed.push(&self.items, 0)
    }

    /// Continues below a directory whose names are known, without reading it. `None` if one of its
    /// subdirectories does not exist.
    fn known_names(
        &mut self,
        task: &Task,
        known: &Directory,
        stack: &mut Vec<Task>,
    ) -> io::Result<Option<bool>> {
        self.found.clear();
        self.names.clear();
        if !known.children().is_empty() {
            let directory = self.open(task)?;
            for (name, _) in known.children() {
                let name = self.add_name(name);
                match self.stat(&directory, name, Some(known)) {
                    Ok(Some(found)) if found.directory.is_some() => self.found.push(found),
                    Ok(_) => return Ok(None),
                    Err(error) if is_gone(&error) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
            task.node.keep_open(&directory);
        }
        Ok(Some(self.report_directory(task, stack) && self.close(task, false)))
    }

    /// Opens a directory, and sets its watch before it is read if the source is followed by
    /// inotify.
    fn open(&self, task: &Task) -> io::Result<Arc<OwnedFd>> {
        let directory = task.node.open()?;
        if let Some(inotify) = &self.walk.inotify {
            inotify.watch(&directory, task.node.path())?;
            // Its attributes were read earlier, and no event reports what changed in between.
            let now = row::attr(&tree::stat(&directory, c"")?);
            if (Outside { atime: task.attr.atime, ..now }) != task.attr {
                inotify.missed(task.node.path());
            }
        }
        Ok(directory)
    }

    /// Reports some names of a directory after other items about it, and ends that directory. Does
    /// not descend into subdirectories among them.
    pub(super) fn some(
        &mut self,
        task: &Task,
        items: &[u8],
        names: &BTreeSet<Vec<u8>>,
        stack: &mut Vec<Task>,
    ) -> io::Result<()> {
        let directory = task.node.open()?;
        let mut items = items.to_vec();
        self.found.clear();
        self.names.clear();
        for text in names.iter().filter(|name| !name.is_empty()) {
            let name = self.add_name(text);
            match self.stat(&directory, name, None) {
                Ok(Some(found)) => self.found.push(found),
                Ok(None) => {
                    let gone = ScanItem::Gone { directory: task.directory, name: text };
                    push_scan_item(&gone, &mut items);
                }
                Err(error) => {
                    let name = self.name(name);
                    self.walk.problems.note(|| task.node.child(name).path(), &error);
                }
            }
        }
        task.node.keep_open(&directory);
        self.walk.feed.push(&items, 0);
        self.report_directory(task, stack);
        self.close(task, false);
        Ok(())
    }

    fn names(&mut self, task: &Task, stack: &mut Vec<Task>) -> io::Result<bool> {
        let directory = self.open(task)?;
        if task.attr.device != self.walk.settings.device && is_kernels_own(&directory)? {
            return Ok(true);
        }
        let known = self.walk.known.get(task.known);
        let mut listing = std::mem::take(&mut self.listing);
        let mut entries = RawDir::new(&directory, &mut listing);
        let mut result = Ok(true);
        self.names.clear();
        self.order.clear();
        let mut more = true;
        while more {
            match entries.next() {
                None => more = false,
                Some(Err(error)) => {
                    // Entries read before the error are still reported.
                    result = Err(error.into());
                    more = false;
                }
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if !matches!(name.to_bytes(), b"." | b"..") {
                        let (start, end) = self.add_name(name.to_bytes());
                        self.order.push((entry.ino(), start, end));
                    }
                }
            }
            if self.order.len() == PART || !more && !self.order.is_empty() {
                let reported = self.part(task, &directory, known, stack);
                if !reported {
                    result = Ok(false);
                    break;
                }
            }
        }
        self.listing = listing;
        result
    }

    /// Reads the attributes of the collected names and reports them.
    fn part(
        &mut self,
        task: &Task,
        directory: &Arc<OwnedFd>,
        known: Option<&Directory>,
        stack: &mut Vec<Task>,
    ) -> bool {
        let mut order = std::mem::take(&mut self.order);
        order.sort_unstable();
        self.found.clear();
        let mut below = false;
        for &(_, start, end) in &order {
            match self.stat(directory, (start, end), known) {
                Ok(Some(found)) => {
                    below |= found.directory.is_some();
                    self.found.push(found);
                }
                Ok(None) => {}
                Err(error) => {
                    let name = self.name((start, end));
                    self.walk.problems.note(|| task.node.child(name).path(), &error);
                }
            }
        }
        if below {
            task.node.keep_open(directory);
        }
        let reported = self.report_directory(task, stack);
        order.clear();
        self.order = order;
        self.names.clear();
        reported
    }

    /// The attributes of a name; `None` if it is gone.
    fn stat(
        &self,
        directory: &Arc<OwnedFd>,
        name: (u32, u32),
        known: Option<&Directory>,
    ) -> io::Result<Option<ReadItem>> {
        let walk = self.walk;
        let text = self.name(name);
        let stat = match tree::stat(directory, text) {
            Err(error) if is_gone(&error) => return Ok(None),
            stat => stat?,
        };
        let attr = row::attr(&stat);
        let mut target = Vec::new();
        if attr.kind == Kind::Symlink {
            target = match row::target(directory, text) {
                Err(error) if is_gone(&error) => return Ok(None),
                target => target?,
            };
        }
        let xattrs = match (walk.settings.keeps_xattrs, attr.kind) {
            (true, _) => row::xattrs(directory, text),
            (false, Kind::Directory) => row::access_list(directory, text),
            (false, _) => Ok(Xattrs::new()),
        };
        let xattrs = match xattrs {
            Err(error) if is_gone(&error) => return Ok(None),
            xattrs => xattrs?,
        };
        let directory = (attr.kind == Kind::Directory).then(|| {
            let mounted = row::is_mount(&stat) || attr.device != walk.settings.device;
            let foreign = mounted && !walk.settings.crosses_mounts
                || walk.settings.own == Some((attr.device, attr.number));
            let known = known.map_or(0, |known| known.child(text.to_bytes()));
            (walk.number(), known, foreign)
        });
        Ok(Some(ReadItem { name, attr, target, xattrs, directory }))
    }

    /// Reports the collected entries, and then pushes the directories among them on the stack.
    fn report_directory(&mut self, task: &Task, stack: &mut Vec<Task>) -> bool {
        if self.found.is_empty() {
            return true;
        }
        let mut items = std::mem::take(&mut self.items);
        let mut listening = true;
        let mut left = &self.found[..];
        while listening && !left.is_empty() {
            let mut bytes = 0;
            let fits = |found: &&ReadItem| {
                let space = bytes < ITEM_BYTES;
                bytes += found.bytes();
                space
            };
            let count = left.iter().take_while(fits).count();
            let (these, after) = left.split_at(count);
            left = after;
            let rows = these.iter().map(|found| ScanRow {
                name: self.name(found.name).to_bytes(),
                attr: found.attr,
                target: &found.target,
                xattrs: row::borrowed(&found.xattrs),
                directory: found.directory.map_or(0, |(number, ..)| number),
            });
            let rows = rows.collect();
            items.clear();
            push_scan_item(&ScanItem::Rows { directory: task.directory, rows }, &mut items);
            listening = self.walk.feed.push(&items, count as u64);
        }
        self.items = items;
        for found in &self.found {
            if let Some((directory, known, foreign)) = found.directory {
                let node = task.node.child(self.name(found.name));
                stack.push(Task { node, directory, attr: found.attr, known, foreign });
            }
        }
        listening
    }

    fn add_name(&mut self, name: &[u8]) -> (u32, u32) {
        let start = self.names.len() as u32;
        self.names.extend_from_slice(name);
        self.names.push(0);
        (start, self.names.len() as u32)
    }

    fn name(&self, (start, end): (u32, u32)) -> &CStr {
        CStr::from_bytes_with_nul(&self.names[start as usize..end as usize])
            .expect("invariant: a name ends with its only NUL")
    }
}

/// Whether a directory is of a file system without user files.
fn is_kernels_own(directory: &OwnedFd) -> io::Result<bool> {
    let system = rustix::fs::fstatfs(directory)?;
    Ok(KERNELS_OWN.contains(&(system.f_type as u64 & 0xffff_ffff)))
}

/// The attributes of the source itself, the first item of a scan.
pub(super) fn top(node: &Arc<Node>, keeps_xattrs: bool) -> io::Result<(Outside, Xattrs)> {
    let directory = node.open()?;
    let stat = tree::stat(&directory, c"")?;
    let xattrs = if keeps_xattrs {
        row::xattrs(&directory, c"")?
    } else {
        row::access_list(&directory, c"")?
    };
    Ok((row::attr(&stat), xattrs))
}
