//! Requests about contents, listings and space: unpack, call the adapter, pack.

use vfs::WalkControl;

use super::numbers::{
    FSYNC_DATA, OPEN_CACHE_DIR, OPEN_KEEP_CACHE, OPEN_NO_FLUSH, WRITE_CACHE, WRITE_KILL_SUIDGID, op,
};
use super::reply::Reply;
use super::request::{Arguments, Request};
use crate::adapter::{Adapter, Answer, Timeouts};
use crate::errno::Errno;

type Asked<'r, 'a> = &'r mut Request<'a>;

/// Reads, and passes the bytes on without a copy.
pub(super) fn read(adapter: &Adapter, request: &Request<'_>, send: impl FnOnce(Answer<&[u8]>)) {
    match range_and_flags(request.arguments) {
        Ok((range, flags)) => adapter.read(request.who, request.node, range, flags, send),
        Err(error) => send(Err(error)),
    }
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
    arguments.skip(16)?;
    let bytes = arguments.bytes(size as usize)?;
    let ends_rights = flags & WRITE_KILL_SUIDGID != 0;
    match flags & WRITE_CACHE {
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

/// Answers an open as the kernel does without a message: what it cached stays.
pub(super) fn open(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let flags = request.arguments.u32()?;
    adapter.opened(request.who, request.node, flags)?;
    let flags = match request.opcode {
        op::OPENDIR => OPEN_KEEP_CACHE | OPEN_CACHE_DIR,
        _ => OPEN_KEEP_CACHE | OPEN_NO_FLUSH,
    };
    reply.u64(0).u32(flags).u32(0);
    Ok(())
}

/// A close; without opens there are closes of files that were created.
pub(super) fn release(adapter: &Adapter, request: Asked<'_, '_>) {
    if adapter.trace_opens {
        adapter.released(request.who, request.node);
    }
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
    let room = adapter.statfs(request.node)?;
    reply.u64(room.blocks).u64(room.blocks_free).u64(room.blocks_available);
    reply.u64(room.inodes).u64(room.inodes_free);
    reply.u32(room.block_bytes).u32(room.name_bytes_max).u32(room.block_bytes).zeros(28);
    Ok(())
}
