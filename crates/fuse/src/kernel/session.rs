//! The session: negotiates a version and features, reads requests, sends answers.
//!
//! 1. `negotiate` answers the first message, INIT; nothing else comes before that.
//! 2. Each thread reads one request at a time into a buffer of its own, answers it, and reads the
//!    next. The kernel passes every request to one reader. A request that may take as long as a
//!    search goes to threads of its own (`slow`). So does one that waits for an object store, or
//!    until the kernel has written dirty pages.
//! 3. ENODEV means that the file system is unmounted and that the last request was answered.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use vfs::Waits;

use super::clone_channel::clone_channel;
use super::numbers::{
    MAJOR, MINOR, MINOR_MIN, MINOR_WITH_EPOCH, MINOR_WITH_EXPIRY, feature, notify, op,
};
use super::reply::Reply;
use super::request::{Arguments, Request};
use super::shares::Shares;
use super::slow::{self, Queue};
use crate::adapter::Adapter;
use crate::transport::{Notifier, Session, Transport, Workers};
use crate::turns::Turns;

/// Largest write, and with it the largest read, in one request: 256 pages, the kernel's own bound.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;
const PAGES_MAX: u16 = 256;
/// Bytes that a message may have in addition to its payload.
const MESSAGE_HEAD_BYTES: usize = 64 << 10;
/// How many background requests (read-ahead, late writes) make the kernel hold back.
const CONGESTED: u16 = 48;
/// How many of them it sends at once, if it may not hold back. It is more than there are, because
/// [`crate::write_back()`] could not wait for requests that the kernel kept.
const BACKGROUND_MAX: u16 = u16::MAX;

/// Features used if the kernel has them. Not used: the write-back cache, because it makes the first
/// `stat` after every close a request. Atomic truncation: a truncating open then arrives as a
/// change of size, and open itself as nothing. Automatic invalidation: the daemon invalidates; a
/// remote mount has time-outs of 0 and decides at each open. Locks: one kernel has all users of a
/// mount, and a volume has one mount, so the kernel keeps them by itself. For others see `LOCKS`.
/// The kernel's own choice of listings with attributes: find, du, tar and Go read all names before
/// they look at the first file. They would pay a look-up for each.
pub(super) const FEATURES: u64 = feature::ASYNC_READ
    | feature::EXPORT_SUPPORT
    | feature::BIG_WRITES
    | feature::DONT_MASK
    | feature::DO_READDIRPLUS
    | feature::PARALLEL_DIROPS
    | feature::ASYNC_DIO
    | feature::MAX_PAGES
    | feature::CACHE_SYMLINKS
    | feature::HANDLE_KILLPRIV_V2
    | feature::NO_OPEN_SUPPORT
    | feature::SETXATTR_EXT
    | feature::INIT_EXT
    | feature::CREATE_SUPP_GROUP
    | feature::POSIX_ACL;

/// The same for a file system that keeps locks.
const LOCKS: u64 = feature::POSIX_LOCKS | feature::FLOCK_LOCKS;

/// The transport.
pub(crate) struct KernelTransport;

struct KernelSession {
    adapter: Arc<Adapter>,
    channel: OwnedFd,
    workers: Workers,
    agreed: Agreed,
    turns: Arc<Turns>,
}

/// Negotiated features.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    minor: u32,
    pub(super) features: u64,
}

struct KernelNotifier {
    channel: OwnedFd,
    kernel_minor: u32,
}

impl Transport for KernelTransport {
    fn negotiate(
        &self,
        channel: OwnedFd,
        adapter: Arc<Adapter>,
        workers: Workers,
    ) -> io::Result<Box<dyn Session>> {
        let mut buffer = vec![0; MESSAGE_HEAD_BYTES];
        loop {
            let length = read(&channel, &mut buffer)?
                .ok_or_else(|| io::Error::other("unmounted before it was served"))?;
            let Some(mut request) = Request::parse(&buffer[..length]) else { continue };
            if request.opcode != op::INIT {
                send(&channel, &mut Reply::default(), request.unique, libc::EIO, &[]);
                continue;
            }
            let locks = if adapter.keeps_locks() { LOCKS } else { 0 };
            let agreed = answer_init(&channel, &mut request, FEATURES | locks)?;
            let Some(agreed) = agreed else { continue };
            let turns = Arc::default();
            return Ok(Box::new(KernelSession { adapter, channel, workers, agreed, turns }));
        }
    }
}

/// Answers INIT; `None` if the kernel must ask again with a version that we know.
fn answer_init(
    channel: &OwnedFd,
    request: &mut Request<'_>,
    features: u64,
) -> io::Result<Option<Agreed>> {
    let mut reply = Reply::default();
    reply.clear();
    match agree(&mut request.arguments, features, &mut reply) {
        Ok(agreed) => {
            send_built(channel, &mut reply, request.unique, 0, &[]);
            Ok(agreed)
        }
        Err(error) => {
            send(channel, &mut reply, request.unique, libc::EPROTO, &[]);
            Err(error)
        }
    }
}

/// The features of both sides, from those `offered`, and the answer to INIT that lists them; `None`
/// if the kernel must ask again.
pub(super) fn agree(
    arguments: &mut Arguments<'_>,
    offered: u64,
    reply: &mut Reply,
) -> io::Result<Option<Agreed>> {
    let short = |_| io::Error::other("a short INIT");
    let major = arguments.u32().map_err(short)?;
    let minor = arguments.u32().map_err(short)?;
    if major > MAJOR {
        reply.u32(MAJOR).u32(MINOR).zeros(56);
        return Ok(None);
    }
    if major < MAJOR || minor < MINOR_MIN {
        let message = format!("FUSE {major}.{minor} of this kernel is too old: 7.31 is needed");
        return Err(io::Error::other(message));
    }
    let read_ahead = arguments.u32().map_err(short)?.min(REQUEST_BYTES_MAX);
    let low = u64::from(arguments.u32().map_err(short)?);
    let high = arguments.u32().map_or(0, u64::from);
    let taken = (low | high << 32) & offered;
    reply.u32(MAJOR).u32(MINOR).u32(read_ahead).u32(taken as u32);
    reply.u16(BACKGROUND_MAX).u16(CONGESTED).u32(REQUEST_BYTES_MAX);
    // Times have nanoseconds; nothing is mapped; the upper half of the features.
    reply.u32(1).u16(PAGES_MAX).u16(0).u32((taken >> 32) as u32).zeros(28);
    tracing::debug!(minor, features = taken, "agreed with the kernel");
    Ok(Some(Agreed { minor, features: taken }))
}

impl Session for KernelSession {
    fn notifier(&self) -> Box<dyn Notifier> {
        let channel = self.channel.try_clone().expect("invariant: descriptors are not exhausted");
        Box::new(KernelNotifier { channel, kernel_minor: self.agreed.minor })
    }

    fn turns(&self) -> Arc<Turns> {
        Arc::clone(&self.turns)
    }

    fn run(self: Box<Self>) -> io::Result<()> {
        let mut channels = Vec::new();
        for _ in 1..self.workers.threads {
            channels.push(if self.workers.clone_channel {
                clone_channel(self.channel.as_fd())?
            } else {
                self.channel.try_clone()?
            });
        }
        let queues = Queues {
            slow: Queue::default(),
            seeks: Queue::default(),
            waits: Queue::of_waiting(),
            locks: Queue::of_locks(),
        };
        let shares = Shares::new(channels.len() + 1);
        device::scope(|scope| {
            let (queues, adapter, agreed) = (&queues, &*self.adapter, self.agreed);
            let shares = &shares;
            let turns = &*self.turns;
            let mut result = Ok(());
            let waiting = if adapter.waits() == Waits::No { 0 } else { slow::WAITING };
            let locking = if adapter.keeps_locks() { slow::LOCKING } else { 0 };
            for (name, queue, threads) in [
                ("fuse-slow", &queues.slow, slow::THREADS),
                ("fuse-seek", &queues.seeks, slow::THREADS),
                ("fuse-wait", &queues.waits, waiting),
                ("fuse-lock", &queues.locks, locking),
            ] {
                for _ in 0..threads {
                    let serve = move || serve_slow(adapter, agreed, queue);
                    result = result.and(device::spawn_in(scope, name, serve).map(|_| ()));
                }
            }
            let others: Vec<_> = channels
                .into_iter()
                .map(|channel| {
                    let worker = Worker::new(adapter, channel, agreed, queues);
                    let work = move || worker.run(turns, shares);
                    device::spawn_in(scope, "fuse", work)
                })
                .collect();
            let own = self.channel.try_clone().and_then(|channel| {
                Worker::new(adapter, channel, agreed, queues).run(turns, shares)
            });
            result = result.and(own);
            for other in others {
                let ended = other.and_then(|other| {
                    other.join().unwrap_or_else(|_| Err(io::Error::other("a panic")))
                });
                result = result.and(ended);
            }
            queues.slow.end();
            queues.seeks.end();
            queues.waits.end();
            queues.locks.end();
            result
        })
    }
}

/// Requests that the reading threads do not serve themselves.
struct Queues {
    /// Those that may take as long as a search.
    slow: Queue,
    /// Those that wait until the kernel has written dirty pages: that takes requests for which the
    /// reading threads must be free.
    seeks: Queue,
    /// Those that may wait for an object store.
    waits: Queue,
    /// Those that wait for a lock of another program.
    locks: Queue,
}

/// One thread that serves.
struct Worker<'a> {
    adapter: &'a Adapter,
    channel: Arc<OwnedFd>,
    agreed: Agreed,
    queues: &'a Queues,
    buffer: Vec<u8>,
    reply: Reply,
}

impl<'a> Worker<'a> {
    fn new(
        adapter: &'a Adapter,
        channel: OwnedFd,
        agreed: Agreed,
        queues: &'a Queues,
    ) -> Worker<'a> {
        let buffer = vec![0; REQUEST_BYTES_MAX as usize + MESSAGE_HEAD_BYTES];
        let (channel, reply) = (Arc::new(channel), Reply::default());
        Worker { adapter, channel, agreed, queues, buffer, reply }
    }

    fn run(mut self, turns: &Turns, shares: &Shares) -> io::Result<()> {
        let serving = turns.enter();
        loop {
            serving.take();
            let Some(length) = read(&self.channel, &mut self.buffer)? else { return Ok(()) };
            serving.taken();
            let (channel, message) = (&self.channel, &self.buffer[..length]);
            // Held until the request is answered.
            let share = match Request::parse(message) {
                Some(request) if request.opcode == op::INTERRUPT => {
                    self.queues.slow.interrupt(&request);
                    self.queues.waits.interrupt(&request);
                    if self.adapter.keeps_locks() {
                        self.queues.locks.interrupt(&request);
                    }
                    continue;
                }
                Some(request)
                    if self.adapter.keeps_locks() && super::contents::waits_for_lock(&request) =>
                {
                    self.queues.locks.put(&request, message, channel);
                    continue;
                }
                Some(request) if slow::may_wait(self.adapter, &request) => {
                    self.queues.waits.put(&request, message, channel);
                    continue;
                }
                Some(request) if slow::is_slow(self.adapter, &request) => {
                    self.queues.slow.put(&request, message, channel);
                    continue;
                }
                Some(request) if request.opcode == op::LSEEK => {
                    self.queues.seeks.put(&request, message, channel);
                    continue;
                }
                Some(request) => {
                    let share = shares.take(&request, self.adapter);
                    if share.is_none() {
                        self.queues.slow.put(&request, message, channel);
                        continue;
                    }
                    share
                }
                None => None,
            };
            let features = self.agreed.features;
            answer(
                self.adapter,
                features,
                message,
                &mut self.reply,
                |reply, unique, error, body| {
                    send_built(channel, reply, unique, error, body);
                },
            );
            drop(share);
        }
    }
}

/// The body of a thread that serves slow requests.
fn serve_slow(adapter: &Adapter, agreed: Agreed, queue: &Queue) {
    let mut reply = Reply::default();
    while let Some(slow) = queue.take() {
        let serve = || {
            let sent = |reply: &mut Reply, unique, error, body: &[u8]| {
                send_built(&slow.channel, reply, unique, error, body);
            };
            answer(adapter, agreed.features, &slow.message, &mut reply, sent);
        };
        vfs::with_cancellation(&slow.cancel, serve);
        queue.done(&slow);
    }
}

/// Answers one message. `send` gets the answer, the request it belongs to, the error number or 0,
/// and bytes that follow the answer.
pub(super) fn answer(
    adapter: &Adapter,
    features: u64,
    message: &[u8],
    reply: &mut Reply,
    send: impl FnOnce(&mut Reply, u64, i32, &[u8]),
) {
    let Some(mut request) = Request::parse(message) else {
        tracing::error!(length = message.len(), "ignoring a message that is not a request");
        return;
    };
    request.features = features;
    reply.clear();
    let unique = request.unique;
    if request.opcode == op::READ {
        super::contents::read(adapter, &request, |answer| match answer {
            Ok(bytes) => send(reply, unique, 0, bytes),
            Err(error) => send(reply, unique, error.0, &[]),
        });
        return;
    }
    match super::serve::serve(adapter, request, reply) {
        Some(Ok(())) => send(reply, unique, 0, &[]),
        Some(Err(error)) => send(reply, unique, error.0, &[]),
        // It needs no answer.
        None => {}
    }
}

/// Reads one message; `None` when the file system is unmounted.
fn read(channel: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(channel, &mut *buffer) {
            Ok(length) => return Ok(Some(length)),
            Err(Errno::NODEV) => return Ok(None),
            // A request was withdrawn before it was read, or a signal came.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends an answer that is a header and `body`.
fn send(channel: &OwnedFd, reply: &mut Reply, unique: u64, error: i32, body: &[u8]) {
    reply.clear();
    send_built(channel, reply, unique, error, body);
}

fn send_built(channel: &OwnedFd, reply: &mut Reply, unique: u64, error: i32, body: &[u8]) {
    let head = reply.finish(unique, error, body.len());
    let sent = if body.is_empty() {
        rustix::io::write(channel, head)
    } else {
        rustix::io::writev(channel, &[IoSlice::new(head), IoSlice::new(body)])
    };
    match sent {
        // ENOENT: the caller was interrupted. ENODEV: unmounted meanwhile.
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
        Err(error) => tracing::error!(%error, unique, "the kernel did not accept an answer"),
    }
}

impl KernelNotifier {
    fn notify(&self, code: i32, build: impl FnOnce(&mut Reply)) -> io::Result<()> {
        let mut message = Reply::default();
        message.clear();
        build(&mut message);
        rustix::io::write(self.channel.as_fd(), message.finish_notice(code))?;
        Ok(())
    }
}

impl KernelNotifier {
    fn notify_name(&self, (parent, name): (u64, &[u8]), flags: u32) -> io::Result<()> {
        self.notify(notify::INVAL_ENTRY, |message| {
            message.u64(parent).u32(name.len() as u32).u32(flags).raw(name).raw(&[0]);
        })
    }
}

impl Notifier for KernelNotifier {
    fn name(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.notify_name((parent, name), 0)
    }

    fn expire(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.notify_name((parent, name), notify::EXPIRE_ONLY)
    }

    fn can_expire(&self) -> bool {
        self.kernel_minor >= MINOR_WITH_EXPIRY
    }

    fn node(&self, node: u64) -> io::Result<()> {
        // All of it, from the first byte on.
        self.notify(notify::INVAL_INODE, |message| {
            message.u64(node).u64(0).u64(0);
        })
    }

    fn contents(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
        self.notify(notify::INVAL_INODE, |message| {
            message.u64(node).u64(offset).u64(length);
        })
    }

    fn attributes(&self, node: u64) -> io::Result<()> {
        // From a byte before the first on: the kernel takes that for attributes, no page.
        self.notify(notify::INVAL_INODE, |message| {
            message.u64(node).u64(-1_i64 as u64).u64(0);
        })
    }

    fn all_names(&self) -> io::Result<()> {
        self.notify(notify::INC_EPOCH, |_| {})
    }

    fn can_drop_all_names(&self) -> bool {
        self.kernel_minor >= MINOR_WITH_EPOCH
    }
}
