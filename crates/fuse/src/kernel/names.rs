//! Requests about names and attributes: unpack, call the adapter, pack.

use device::Timestamp;
use inode::{SetAttr, SetTime};

use super::numbers::{SETXATTR_ACL_KILL_SGID, feature, set};
use super::reply::Reply;
use super::request::Request;
use crate::adapter::{Adapter, Answer, AttrChanges, Maker, Named, Setting, Timeouts};

type Asked<'r, 'a> = &'r mut Request<'a>;

fn entry(adapter: &Adapter, reply: &mut Reply, named: &Named) {
    reply.entry(named, adapter.times(named.node));
}

pub(super) fn lookup(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let name = request.arguments.name()?;
    match adapter.lookup(request.who, request.node, name)? {
        Some(named) => entry(adapter, reply, &named),
        None => reply.no_entry(adapter.timeouts.negative),
    }
    Ok(())
}

pub(super) fn forget(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    let arguments = &mut request.arguments;
    if request.opcode == super::numbers::op::FORGET {
        adapter.forget(request.node, arguments.u64()?);
        return Ok(());
    }
    let count = arguments.u32()?;
    arguments.skip(4)?;
    for _ in 0..count {
        let (node, lookups) = (arguments.u64()?, arguments.u64()?);
        adapter.forget(node, lookups);
    }
    Ok(())
}

pub(super) fn getattr(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let named = adapter.getattr(request.who, request.node)?;
    reply.attributes(&named, adapter.times(named.node).attr);
    Ok(())
}

pub(super) fn statx(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let named = adapter.getattr(request.who, request.node)?;
    reply.statx(&named, adapter.times(named.node).attr);
    Ok(())
}

pub(super) fn setattr(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let arguments = &mut request.arguments;
    let valid = arguments.u32()?;
    arguments.skip(12)?;
    let size = arguments.u64()?;
    arguments.skip(8)?;
    let seconds = [arguments.u64()?, arguments.u64()?, arguments.u64()?];
    let nanos = [arguments.u32()?, arguments.u32()?, arguments.u32()?];
    let mode = arguments.u32()?;
    arguments.skip(4)?;
    let (uid, gid) = (arguments.u32()?, arguments.u32()?);
    let given = |bit| valid & bit != 0;
    let time = |at: usize, bit, now| {
        given(bit).then(|| {
            if given(now) { SetTime::Now } else { SetTime::At(time_of(seconds[at], nanos[at])) }
        })
    };
    let changes = SetAttr {
        mode: given(set::MODE).then_some(mode & 0o7777),
        uid: given(set::UID).then_some(uid),
        gid: given(set::GID).then_some(gid),
        size: given(set::SIZE).then_some(size),
        atime: time(0, set::ATIME, set::ATIME_NOW),
        mtime: time(1, set::MTIME, set::MTIME_NOW),
        ctime: time(2, set::CTIME, 0),
        btime: None,
    };
    let wanted = AttrChanges { changes, ends_bits: given(set::KILL_SUIDGID) };
    let named = adapter.setattr(request.who, request.node, &wanted)?;
    reply.attributes(&named, adapter.times(named.node).attr);
    Ok(())
}

/// A time of the kernel: seconds with a sign, nanoseconds that count forward. A time out of the
/// range of a [`Timestamp`] is clamped.
fn time_of(seconds: u64, nanos: u32) -> Timestamp {
    let total = i128::from(seconds as i64) * 1_000_000_000 + i128::from(nanos);
    Timestamp(total.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

pub(super) fn mknod(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let (mode, rdev) = (request.arguments.u32()?, request.arguments.u32()?);
    let umask = request.arguments.u32()?;
    request.arguments.skip(4)?;
    let name = request.arguments.name()?;
    let maker = maker(request, umask);
    let named = adapter.mknod(&maker, request.node, name, mode, rdev)?;
    entry(adapter, reply, &named);
    Ok(())
}

fn maker(request: &Request<'_>, umask: u32) -> Maker {
    Maker { who: request.who, groups: request.groups(), umask: umask & 0o777 }
}

pub(super) fn mkdir(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let (mode, umask) = (request.arguments.u32()?, request.arguments.u32()?);
    let name = request.arguments.name()?;
    let maker = maker(request, umask);
    let named = adapter.mkdir(&maker, request.node, name, mode)?;
    entry(adapter, reply, &named);
    Ok(())
}

pub(super) fn create(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let (flags, mode) = (request.arguments.i32()?, request.arguments.u32()?);
    let umask = request.arguments.u32()?;
    request.arguments.skip(4)?;
    let name = request.arguments.name()?;
    let maker = maker(request, umask);
    let handle = adapter.epoch();
    let named = adapter.create(&maker, request.node, name, mode, flags)?;
    opened(adapter, reply, &named, (flags, handle));
    Ok(())
}

pub(super) fn tmpfile(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let flags = request.arguments.i32()?;
    let (mode, umask) = (request.arguments.u32()?, request.arguments.u32()?);
    let maker = maker(request, umask);
    let handle = adapter.epoch();
    let named = adapter.tmpfile(&maker, request.node, mode)?;
    opened(adapter, reply, &named, (flags, handle));
    Ok(())
}

/// A file that was created and opened.
fn opened(adapter: &Adapter, reply: &mut Reply, named: &Named, (flags, handle): (i32, u64)) {
    let Timeouts { attr, entry, negative } = adapter.timeouts;
    let kept = attr.min(entry);
    reply.entry(named, &Timeouts { attr: kept, entry: kept, negative });
    let answer = super::contents::flags_of_open(adapter, flags, true);
    reply.u64(handle).u32(answer).u32(0);
}

pub(super) fn symlink(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let (name, target) = (request.arguments.name()?, request.arguments.name()?);
    let named = adapter.symlink(request.who, request.node, name, target)?;
    entry(adapter, reply, &named);
    Ok(())
}

pub(super) fn link(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let node = request.arguments.u64()?;
    let name = request.arguments.name()?;
    let named = adapter.link(request.who, node, request.node, name)?;
    entry(adapter, reply, &named);
    Ok(())
}

pub(super) fn unlink(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    adapter.unlink(request.who, request.node, request.arguments.name()?)
}

pub(super) fn rmdir(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    adapter.rmdir(request.who, request.node, request.arguments.name()?)
}

pub(super) fn rename(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    let parent = request.arguments.u64()?;
    let (from, to) = (request.arguments.name()?, request.arguments.name()?);
    adapter.rename(request.who, (request.node, from), (parent, to), 0)
}

pub(super) fn rename2(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    let parent = request.arguments.u64()?;
    let flags = request.arguments.u32()?;
    request.arguments.skip(4)?;
    let (from, to) = (request.arguments.name()?, request.arguments.name()?);
    adapter.rename(request.who, (request.node, from), (parent, to), flags)
}

pub(super) fn setxattr(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    let (size, flags) = (request.arguments.u32()?, request.arguments.i32()?);
    let mut more = 0;
    if request.features & feature::SETXATTR_EXT != 0 {
        more = request.arguments.u32()?;
        request.arguments.skip(4)?;
    }
    let name = request.arguments.name()?;
    let value = request.arguments.bytes(size as usize)?;
    let setting = Setting { flags, in_group: more & SETXATTR_ACL_KILL_SGID == 0 };
    adapter.setxattr(request.who, request.node, name, value, setting)
}

pub(super) fn getxattr(adapter: &Adapter, request: Asked<'_, '_>, reply: &mut Reply) -> Answer<()> {
    let size = request.arguments.u32()?;
    request.arguments.skip(4)?;
    let name = request.arguments.name()?;
    let value = adapter.getxattr(request.who, request.node, name, size)?;
    sized(reply, size, &value);
    Ok(())
}

pub(super) fn listxattr(
    adapter: &Adapter,
    request: Asked<'_, '_>,
    reply: &mut Reply,
) -> Answer<()> {
    let size = request.arguments.u32()?;
    let names = adapter.listxattr(request.who, request.node, size)?;
    sized(reply, size, &names);
    Ok(())
}

/// The bytes, or their length for a caller without a buffer.
fn sized(reply: &mut Reply, size: u32, bytes: &[u8]) {
    if size == 0 {
        reply.u32(bytes.len() as u32).u32(0);
    } else {
        reply.raw(bytes);
    }
}

pub(super) fn removexattr(adapter: &Adapter, request: Asked<'_, '_>) -> Answer<()> {
    adapter.removexattr(request.who, request.node, request.arguments.name()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_out_of_range_are_understood() {
        // 1.2 s before 1970 is sent as (-2 s, 0.8 s).
        assert_eq!(time_of(-2_i64 as u64, 800_000_000), Timestamp(-1_200_000_000));
        assert_eq!(time_of(20_000_000_000, 0), Timestamp(i64::MAX));
        assert_eq!(time_of(-20_000_000_000_i64 as u64, 0), Timestamp(i64::MIN));
        assert_eq!(time_of(i64::MIN as u64, 0), Timestamp(i64::MIN));
    }
}
