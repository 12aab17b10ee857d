//! Reads objects ahead: several requests at a time, whose answers come in the order of the objects.
//!
//! The bytes of objects that were requested and not taken are bounded. Threads end when the other
//! end is dropped; nothing waits for them, because a request may take long to fail.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Mutex, Receiver, RecvTimeoutError, Sender, channel};
use objects::{Source, SourceObject};

/// Requests at a time, and the bytes of memory for each: a thread takes some of its own.
const THREADS_MAX: usize = 16;
const THREADS_MIN: usize = 2;
const THREAD_BYTES: usize = 1 << 20;
/// Most bytes of one request, and the least that make sense.
const PART_BYTES_MAX: usize = 4 << 20;
const PART_BYTES_MIN: usize = 64 << 10;
/// How long the caller waits before it has another look at what else is to be done.
const WAIT: Duration = Duration::from_secs(1);

/// A part of an object.
pub(super) enum Fetched {
    Bytes(Vec<u8>),
    /// The object is another one by now, or gone.
    Changed,
    /// It could not be read, so many bytes.
    Failed(device::Error, usize),
}

struct Job {
    object: Arc<SourceObject>,
    offset: u64,
    length: usize,
    done: Sender<Fetched>,
}

/// A part that was requested.
struct Asked {
    object: Arc<SourceObject>,
    bytes: usize,
    done: Receiver<Fetched>,
}

pub(super) struct Fetch {
    jobs: Sender<Job>,
    bytes_max: usize,
    part_bytes: usize,
    /// What is to be requested, and how much of the first one was.
    objects: VecDeque<Arc<SourceObject>>,
    offset: u64,
    asked: VecDeque<Asked>,
    asked_bytes: usize,
    /// The object of the part that was taken last.
    current: Option<Arc<SourceObject>>,
}

impl Fetch {
    /// Most bytes that are worth asking for ahead.
    pub(super) const BYTES_MAX: usize = 128 << 20;

    /// Starts threads that keep at most so many bytes in memory.
    pub(super) fn start(source: &Arc<Source>, bytes_max: usize) -> io::Result<Fetch> {
        let (jobs, todo) = channel::<Job>();
        let todo = Arc::new(Mutex::new(todo));
        let threads = (bytes_max / THREAD_BYTES).clamp(THREADS_MIN, THREADS_MAX);
        for _ in 0..threads {
            let (todo, source) = (Arc::clone(&todo), Arc::clone(source));
            device::spawn("import-get", move || {
                loop {
                    let job = todo.lock().recv();
                    let Ok(Job { object, offset, length, done }) = job else { return };
                    let mut bytes = vec![0; length];
                    let fetched = match source.read(&object, &mut bytes, offset) {
                        Ok(true) => Fetched::Bytes(bytes),
                        Ok(false) => Fetched::Changed,
                        Err(error) => Fetched::Failed(error, length),
                    };
                    // Nobody waits for it if another part of the object failed.
                    drop(done.send(fetched));
                }
            })?;
        }
        Ok(Fetch {
            jobs,
            bytes_max,
            part_bytes: (bytes_max / threads).clamp(PART_BYTES_MIN, PART_BYTES_MAX),
            objects: VecDeque::new(),
            offset: 0,
            asked: VecDeque::new(),
            asked_bytes: 0,
            current: None,
        })
    }

    /// Begins to read objects, whose parts are then taken in this order; empty ones have none.
    pub(super) fn begin(&mut self, objects: &mut dyn Iterator<Item = Arc<SourceObject>>) {
        self.asked.clear();
        self.asked_bytes = 0;
        self.offset = 0;
        self.objects = objects.filter(|object| object.size > 0).collect();
        self.ask();
    }

    /// The next part; `None`: it has not come within a second.
    pub(super) fn next(&mut self) -> Option<Fetched> {
        self.ask();
        let asked = self.asked.front()?;
        let fetched = match asked.done.recv_timeout(WAIT) {
            Ok(fetched) => fetched,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => {
                let ended = io::Error::other("a thread ended");
                let error = device::Error::new("read", &asked.object.key, ended);
                Fetched::Failed(error, asked.bytes)
            }
        };
        let taken = self.asked.pop_front()?;
        self.asked_bytes -= taken.bytes;
        self.current = Some(taken.object);
        Some(fetched)
    }

    /// Forgets the rest of the object of which a part was taken last.
    pub(super) fn skip_object(&mut self) {
        let Some(current) = &self.current else { return };
        while self.asked.front().is_some_and(|asked| Arc::ptr_eq(&asked.object, current)) {
            if let Some(asked) = self.asked.pop_front() {
                self.asked_bytes -= asked.bytes;
            }
        }
        if self.objects.front().is_some_and(|object| Arc::ptr_eq(object, current)) {
            self.objects.pop_front();
            self.offset = 0;
        }
    }

    /// Asks for parts while there is memory for them.
    fn ask(&mut self) {
        while let Some(object) = self.objects.front() {
            let left = object.size - self.offset;
            let length = self.part_bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
            if !self.asked.is_empty() && self.asked_bytes + length > self.bytes_max {
                return;
            }
            let (done, wait) = channel();
            let job = Job { object: Arc::clone(object), offset: self.offset, length, done };
            self.asked.push_back(Asked { object: Arc::clone(object), bytes: length, done: wait });
            // If no thread is left, taking the part fails.
            drop(self.jobs.send(job));
            self.asked_bytes += length;
            self.offset += length as u64;
            if self.offset == object.size {
                self.objects.pop_front();
                self.offset = 0;
            }
        }
    }
}
