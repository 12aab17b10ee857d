//! Requests about contents, listings and space: unpack, call the adapter, pack.

use vfs::{FileLock, LockKind, WalkControl};

use super::numbers::{
    FSYNC_DATA, LOCK_FLOCK, OPEN_CACHE_DIR, OPEN_DIRECT_IO, OPEN_KEEP_CACHE, OPEN_NO_FLUSH,
    RELEASE_FLOCK_UNLOCK, WRITE_CACHE, WRITE_KILL_SUIDGID, op, set,
};
use super::reply::Reply;
use super::request::{Arguments, Request};
use crate::adapter::{Adapter, Answer, Timeouts};
use crate::errno::Errno;

type Asked<'r, 'a> = &'r mut Request<'a>;

/// Reads, and passes the bytes on without a copy.
pub(super) fn read(adapter: &Adapter, request: &Request<'_>, send: impl FnOnce(Answer<&[u8]>)) {
    let asked = check_handles(adapter, request);
    match asked.and_then(|()| range_and_flags(request.arguments)) {
        Ok((range, flags)) => adapter.read(request.who, request.node, range, flags, send),
        Err(error) => send(Err(error)),
    }
}

/// Refuses to use what was opened in another session with a server: it is not open any more, and
/// its locks have ended.
pub(super) fn check_handles(adapter: &Adapter, request: &Request<'_>) -> Answer<()> {
    if !adapter.is_remote {
        return Ok(());
    }
    let mut arguments = request.arguments;
    match request.opcode {
        op::READ
        | op::WRITE
        | op::FSYNC
        | op::LSEEK
        | op::FALLOCATE
        | op::FLUSH
        | op::SETLK
        | op::SETLKW
        | op::GETLK
        | op::RELEASE
        | op::RELEASEDIR => {}
        op::SETATTR => {
            if arguments.u32()? & set::HANDLE == 0 {
                return Ok(());
            }
            arguments.skip(4)?;
        }
        op::COPY_FILE_RANGE => {
            check_handle(adapter, &mut arguments)?;
            arguments.skip(16)?;
        }
        _ => return Ok(()),
    }
    check_handle(adapter, &mut arguments)
}

fn check_handle(adapter: &Adapter, arguments: &mut Arguments<'_>) -> Answer<()> {
    let is_open = arguments.u64()? == adapter.epoch();
    if is_open { Ok(()) } else { Err(Errno::STALE) }
}

/// The range to read, and the flags that the file was opened with.
fn range_and_flags(mut arguments: Arguments<'_>) -> Answer<((u64, u32), i32)> {
    arguments.skip(8)?;
    let range = (arguments.u64()?, arguments.u32()?);
    // Flags of the request, and an owner of locks.
    arguments.skip(12)?;
    Ok((range, arguments.i32()?))
}

pub(super) fn write(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let arguments = &mut request.arguments;
    arguments.skip(8)?;
    let (offset, size, flags) = (arguments.u64()?, arguments.u32()?, arguments.u32()?);
    arguments.skip(8)?;
    let opened = arguments.i32()?;
    arguments.skip(4)?;
    let bytes = arguments.bytes(size as usize)?;
    let ends_rights = flags & WRITE_KILL_SUIDGID != 0;
    let appends = adapter.is_remote && opened & libc::O_APPEND != 0;
    match flags & WRITE_CACHE {
        0 if appends => adapter.append(request.who, request.node, bytes, ends_rights)?,
        0 => adapter.write(request.who, request.node, offset, bytes, ends_rights)?,
        _ => adapter.write_kept(request.who, request.node, offset, bytes, ends_rights)?,
    }
    reply.u32(size).u32(0);
    Ok(())
}

pub(super) fn fsync(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    request.arguments.skip(8)?;
    let flags = request.arguments.u32()?;
    adapter.fsync(request.node, flags & FSYNC_DATA != 0)
}

/// Answers an open as the kernel does without a message: what it cached stays. Of a file system on
/// another machine it stays if the file is unchanged, and listings are not cached.
pub(super) fn open(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let flags = request.arguments.u32()?;
    let handle = adapter.epoch();
    let keeps = if adapter.is_remote {
        adapter.open(request.who, request.node, flags)?
    } else {
        adapter.opened(request.who, request.node, flags)?;
        true
    };
    let flags = match request.opcode {
        op::OPENDIR if adapter.is_remote => 0,
        op::OPENDIR => OPEN_KEEP_CACHE | OPEN_CACHE_DIR,
        _ => flags_of_open(adapter, flags as i32, keeps),
    };
    reply.u64(handle).u32(flags).u32(0);
    Ok(())
}

/// How the kernel treats an open file. The file system chooses the place of data appended to a file
/// that others append to, too. The kernel would keep it in pages at a place of its own. So a
/// descriptor with O_APPEND bypasses pages. Pages that are there serve other descriptors of the
/// file. They stay if the file is as it was at its last open.
pub(super) fn flags_of_open(adapter: &Adapter, flags: i32, keeps: bool) -> u32 {
    if !adapter.is_remote {
        return OPEN_KEEP_CACHE | OPEN_NO_FLUSH;
    }
    let direct = if flags & libc::O_APPEND != 0 { OPEN_DIRECT_IO } else { 0 };
    // A close ends locks.
    let flush = if adapter.keeps_locks() { 0 } else { OPEN_NO_FLUSH };
    direct | flush | if keeps { OPEN_KEEP_CACHE } else { 0 }
}

/// A close; without opens there are closes of files that were created.
pub(super) fn release(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    if adapter.keeps_locks() {
        request.arguments.skip(12)?;
        let (flags, owner) = (request.arguments.u32()?, request.arguments.u64()?);
        if flags & RELEASE_FLOCK_UNLOCK != 0 {
            let done = adapter.unlock(request.who, request.node, owner, true);
            release_directory(adapter, request);
            return done;
        }
    }
    release_directory(adapter, request);
    Ok(())
}

/// The close of a directory, or the end of that of a file.
pub(super) fn release_directory(adapter: &Adapter, request: &Request<'_>) {
    if adapter.trace_opens || adapter.is_remote {
        adapter.released(request.who, request.node);
    }
}

/// A descriptor is closed: locks of fcntl(2) of its process end.
pub(super) fn flush(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    request.arguments.skip(16)?;
    let owner = request.arguments.u64()?;
    adapter.unlock(request.who, request.node, owner, false)
}

/// The lock in a request.
fn lock_in(arguments: &mut Arguments<'_>) -> Answer<FileLock> {
    arguments.skip(8)?;
    let owner = arguments.u64()?;
    let (start, end) = (arguments.u64()?, arguments.u64()?);
    let (kind, pid) = (arguments.i32()?, arguments.u32()?);
    let whole = arguments.u32()? & LOCK_FLOCK != 0;
    let kind = match kind {
        libc::F_RDLCK => LockKind::Shared,
        libc::F_WRLCK => LockKind::Exclusive,
        libc::F_UNLCK => LockKind::Unlocked,
        _ => return Err(Errno::INVALID),
    };
    // A range without an end, and a lock of the whole file.
    let (start, end) = if whole { (0, u64::MAX) } else { (start, end) };
    Ok(FileLock { owner, pid, kind, start, end, whole })
}

/// Whether a request for a lock may wait until another ends.
pub(super) fn waits_for_lock(request: &Request<'_>) -> bool {
    let mut arguments = request.arguments;
    request.opcode == op::SETLKW
        && lock_in(&mut arguments).is_ok_and(|lock| lock.kind != LockKind::Unlocked)
}

pub(super) fn set_lock(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    let wait = request.opcode == op::SETLKW;
    let lock = lock_in(&mut request.arguments)?;
    adapter.lock(request.who, request.node, &lock, wait)
}

pub(super) fn test_lock(
    adapter: &Adapter,
    request: Asked<'_, '_>,
    reply: &mut Reply,
) -> Answer<()> {
    let wanted = lock_in(&mut request.arguments)?;
    let found = adapter.test_lock(request.who, request.node, &wanted)?;
    let (lock, kind) = match found {
        None => (wanted, libc::F_UNLCK),
        Some(lock) if lock.kind == LockKind::Shared => (lock, libc::F_RDLCK),
        Some(lock) => (lock, libc::F_WRLCK),
    };
    reply.u64(lock.start).u64(lock.end).u32(kind as u32).u32(lock.pid);
    Ok(())
}

pub(super) fn readlink(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    reply.raw(&adapter.readlink(request.who, request.node)?);
    Ok(())
}

pub(super) fn lseek(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    request.arguments.skip(8)?;
    let (offset, what) = (request.arguments.u64()?, request.arguments.i32()?);
    reply.u64(adapter.seek(request.who, request.node, offset as i64, what)?);
    Ok(())
}

pub(super) fn fallocate(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    request.arguments.skip(8)?;
    let range = (request.arguments.u64()?, request.arguments.u64()?);
    let mode = request.arguments.i32()?;
    adapter.fallocate(request.who, request.node, range, mode)
}

pub(super) fn copy_file_range(
    adapter: &Adapter,
    request: Asked<'_, '_>,
    reply: &mut Reply,
) -> Answer<()> {
    let arguments = &mut request.arguments;
    arguments.skip(8)?;
    let from = (request.node, arguments.u64()?);
    let target = arguments.u64()?;
    arguments.skip(8)?;
    let to = (target, arguments.u64()?);
    let length = arguments.u64()?;
    if arguments.u64()? != 0 {
        return Err(Errno::INVALID);
    }
    let copied = adapter.copy_range(request.who, from, to, length)?;
    reply.u32(copied).u32(0);
    Ok(())
}

pub(super) fn readdir(
    adapter: &Adapter,
    request: Asked<'_, '_>,
    reply: &mut Reply,
    with_attributes: bool,
) -> Answer<()> {
    request.arguments.skip(8)?;
    let (offset, size) = (request.arguments.u64()?, request.arguments.u32()?);
    let times = adapter.times(request.node);
    let kept = times.attr.min(times.entry);
    let times = Timeouts { attr: kept, entry: kept, negative: kept };
    let times = with_attributes.then_some(&times);
    adapter.list(request.who, request.node, offset, with_attributes, &mut |entry| {
        if reply.listed(entry, times, size as usize) {
            WalkControl::Continue
        } else {
            WalkControl::Stop
        }
    })
}

pub(super) fn statfs(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let space = adapter.statfs(request.node)?;
    reply.u64(space.blocks).u64(space.blocks_free).u64(space.blocks_available);
    reply.u64(space.inodes).u64(space.inodes_free);
    reply.u32(space.block_bytes).u32(space.name_bytes_max).u32(space.block_bytes).zeros(28);
    Ok(())
}
