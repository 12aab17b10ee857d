//! Reads the source ahead of the walk: one thread lists directories, depth first, and several look
//! at what is in them and read small files. The walk gets everything in the order of the list.
//!
//! Reading ahead is bounded by [`BATCHES`] batches of [`BATCH_NAMES`] files of up to
//! [`SMALL_BYTES`], and the names of one list that are sorted together (`source`). Names of
//! subdirectories wait until the walk is through with their directory; they count in the memory of
//! the import. Contents of files are in one piece of memory a batch, which is used again when the
//! message that has them is sent. Fresh memory for each file is a page fault each, and that took as
//! long as reading. The threads end
//! when the walk drops its end; nothing waits for them, as a read of a source that hangs may never
//! return.

use std::ffi::{CStr, CString};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use device::sync::{
    Mutex, Receiver, RecvTimeoutError, Sender, SyncSender, bounded_channel, channel,
};
use rustix::fs::Stat;
use wire::{Failure, FailureKind};

use super::memory::Memory;
use super::source::{self, Directory, Xattrs};
use crate::failure::Result;

/// Files up to this length are read ahead, and travel in one item.
pub(super) const SMALL_BYTES: u64 = 64 << 10;
/// Names that one thread looks at, one after the other.
const BATCH_NAMES: usize = 16;
/// Batches that are ready, or being read.
const BATCHES: usize = 16;
/// Threads that read: a disk answers several faster than one after the other.
const READERS: usize = 4;
/// How long the walk waits before it has another look at what else is to be done.
const WAIT: Duration = Duration::from_secs(1);

/// The next step of the walk.
pub(super) enum Event {
    /// A subdirectory of the current directory.
    Enter(CString, io::Result<Arc<Directory>>),
    /// The current directory cannot be listed, or only in part.
    Unreadable(io::Error),
    /// Names in the current directory.
    Names(Batch),
    /// The current directory has no more names.
    Leave,
    /// The import ends here: more names of subdirectories wait than its memory allows.
    Exceeded(Failure),
    /// Nothing yet.
    Nothing,
}

/// Names that one thread looked at.
pub(super) struct Batch {
    pub(super) seen: Vec<Seen>,
    /// The contents of the files that were read.
    pub(super) contents: Arc<Contents>,
}

/// Contents of the files of a batch. Their memory is used again when nobody has them any more.
pub(super) struct Contents {
    bytes: Vec<u8>,
    spare: Spare,
}

impl Contents {
    /// The contents of all files.
    pub(super) fn all(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.spare.lock().push(std::mem::take(&mut self.bytes));
        }
    }
}

/// A name that is no directory, as it was seen.
pub(super) struct Seen {
    pub(super) name: CString,
    pub(super) stat: io::Result<Stat>,
    /// A regular file that was read, or why it was not. `None`: the walk reads it.
    pub(super) file: Option<io::Result<Small>>,
}

/// A file that was read.
pub(super) struct Small {
    /// Where its contents are in those of its batch.
    pub(super) data: Range<usize>,
    pub(super) xattrs: io::Result<Xattrs>,
    /// Whether it changed meanwhile.
    pub(super) changed: bool,
}

/// A name to look at.
struct Name {
    name: CString,
    /// Whether it is a regular file, by the list of its directory.
    regular: bool,
}

enum Planned {
    Ready(Event),
    Names(Receiver<Batch>),
}

struct Job {
    directory: Arc<Directory>,
    names: Vec<Name>,
    done: Sender<Batch>,
}

/// Memory for contents of batches that is not in use.
type Spare = Arc<Mutex<Vec<Vec<u8>>>>;

/// The walk's end.
pub(super) struct Ahead {
    planned: Receiver<Planned>,
    waiting: Option<Receiver<Batch>>,
}

impl Ahead {
    /// Starts at a directory; with `contents`, small files are read.
    pub(super) fn start(top: Arc<Directory>, contents: bool, memory: Memory) -> io::Result<Ahead> {
        let (events, planned) = bounded_channel(BATCHES);
        let (jobs, todo) = bounded_channel::<Job>(BATCHES);
        let (todo, spare) = (Arc::new(Mutex::new(todo)), Spare::default());
        for _ in 0..READERS {
            let (todo, spare) = (Arc::clone(&todo), Arc::clone(&spare));
            device::spawn("import-read", move || {
                loop {
                    let job = todo.lock().recv();
                    let Ok(Job { directory, names, done }) = job else { return };
                    let mut into = Vec::new();
                    if contents {
                        let spare = spare.lock().pop();
                        into = spare.unwrap_or_else(|| vec![0; BATCH_NAMES * SMALL_BYTES as usize]);
                    }
                    let mut used = 0;
                    let seen = names.into_iter().map(|name| {
                        let read = contents.then_some((&mut into, &mut used));
                        look(&directory, name, read)
                    });
                    let seen = seen.collect();
                    let contents = Contents { bytes: into, spare: Arc::clone(&spare) };
                    // Without the walk nobody needs it.
                    drop(done.send(Batch { seen, contents: Arc::new(contents) }));
                }
            })?;
        }
        device::spawn("import-list", move || {
            // Without the walk nobody needs more.
            drop(Lister { events, jobs, memory }.list_all(top));
        })?;
        Ok(Ahead { planned, waiting: None })
    }

    /// The next event; within a second there is one, if only [`Event::Nothing`].
    pub(super) fn next(&mut self) -> Result<Event> {
        let Some(waiting) = &self.waiting else {
            return match self.planned.recv_timeout(WAIT) {
                Ok(Planned::Ready(event)) => Ok(event),
                Ok(Planned::Names(names)) => {
                    self.waiting = Some(names);
                    self.next()
                }
                Err(RecvTimeoutError::Timeout) => Ok(Event::Nothing),
                Err(RecvTimeoutError::Disconnected) => Err(ended()),
            };
        };
        match waiting.recv_timeout(WAIT) {
            Ok(batch) => {
                self.waiting = None;
                Ok(Event::Names(batch))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Event::Nothing),
            Err(RecvTimeoutError::Disconnected) => Err(ended()),
        }
    }
}

fn ended() -> Failure {
    Failure::new(FailureKind::Other, "a thread that reads the source ended early")
        .hint("the imported files stay; run the same command again to continue")
}

/// The walk needs no more.
struct Gone;

struct Lister {
    events: SyncSender<Planned>,
    jobs: SyncSender<Job>,
    memory: Memory,
}

impl Lister {
    fn list_all(&mut self, top: Arc<Directory>) -> std::result::Result<(), Gone> {
        let mut levels = vec![self.list(top)?];
        while let Some((directory, below)) = levels.last_mut() {
            let Some(name) = below.next() else {
                levels.pop();
                self.send(Event::Leave)?;
                continue;
            };
            self.memory.release(waiting_bytes(&name));
            match directory.open_below(&name).map(Arc::new) {
                Ok(opened) => {
                    self.send(Event::Enter(name, Ok(Arc::clone(&opened))))?;
                    levels.push(self.list(opened)?);
                }
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.send(Event::Enter(name, Err(error)))?,
            }
        }
        Ok(())
    }

    /// Sends what is in a directory, and returns its subdirectories.
    fn list(
        &mut self,
        directory: Arc<Directory>,
    ) -> std::result::Result<(Arc<Directory>, std::vec::IntoIter<CString>), Gone> {
        let (mut names, mut below) = (Vec::new(), Vec::new());
        let listed = directory.names(|name, kind| {
            if kind == source::Listed::Directory {
                let counted = self.memory.take(waiting_bytes(&name));
                below.push(name);
                return counted.map_err(|failure| {
                    // Whether or not the walk still takes it, there is nothing more to list.
                    self.send(Event::Exceeded(failure)).err().unwrap_or(Gone)
                });
            }
            names.push(Name { name, regular: kind == source::Listed::Regular });
            if names.len() < BATCH_NAMES {
                return Ok(());
            }
            self.batch(&directory, std::mem::take(&mut names))
        })?;
        if !names.is_empty() {
            self.batch(&directory, names)?;
        }
        if let Err(error) = listed {
            self.send(Event::Unreadable(error))?;
        }
        Ok((directory, below.into_iter()))
    }

    /// Has a thread look at some names.
    fn batch(&self, directory: &Arc<Directory>, names: Vec<Name>) -> std::result::Result<(), Gone> {
        let (done, seen) = channel();
        let job = Job { directory: Arc::clone(directory), names, done };
        self.jobs.send(job).map_err(|_| Gone)?;
        self.events.send(Planned::Names(seen)).map_err(|_| Gone)
    }

    fn send(&self, event: Event) -> std::result::Result<(), Gone> {
        self.events.send(Planned::Ready(event)).map_err(|_| Gone)
    }
}

/// What the name of a subdirectory takes while it waits.
fn waiting_bytes(name: &CStr) -> usize {
    name.to_bytes().len() + size_of::<CString>()
}

/// Looks at one name.
pub(super) fn look_at(directory: &Directory, name: CString) -> Seen {
    look(directory, Name { name, regular: false }, None)
}

/// Looks at a name, and reads a small file into memory behind what is used of it.
fn look(
    directory: &Directory,
    Name { name, regular }: Name,
    into: Option<(&mut Vec<u8>, &mut usize)>,
) -> Seen {
    let Some((into, used)) = into.filter(|_| regular) else {
        let stat = directory.stat(&name);
        return Seen { name, stat, file: None };
    };
    let opened = directory.open_file(&name).and_then(|file| {
        let stat = rustix::fs::fstat(&file)?;
        Ok((file, stat))
    });
    let (file, stat) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let stat = directory.stat(&name);
            return Seen { name, stat, file: Some(Err(error)) };
        }
    };
    // Further names of a file are not read again, so the walk decides.
    let is_small = source::kind(&stat) == wire::Kind::File && stat.st_size as u64 <= SMALL_BYTES;
    if !is_small || stat.st_nlink > 1 {
        return Seen { name, stat: Ok(stat), file: None };
    }
    let small = read(&file, &stat, into, *used);
    if let Ok(small) = &small {
        *used = small.data.end;
    }
    Seen { name, stat: Ok(stat), file: Some(small) }
}

/// Reads a small file, as long as it was when it was looked at, into memory from an offset on.
pub(super) fn read(
    file: &OwnedFd,
    stat: &Stat,
    into: &mut Vec<u8>,
    from: usize,
) -> io::Result<Small> {
    let most = from + stat.st_size as usize;
    if into.len() < most {
        into.resize(most, 0);
    }
    let space = into.get_mut(from..most).unwrap_or_default();
    let length = source::read_at(file, space, 0)?;
    let xattrs = source::xattrs_of(file);
    let changed = source::has_changed(file, stat)?;
    Ok(Small { data: from..from + length, xattrs, changed })
}
