//! Dispatches a request to a call. An unlisted request is answered with ENOSYS, and the kernel does
//! without it from then on. It keeps locks by itself. It opens and closes without a message, unless
//! a trace needs them, or the file system is on another machine. It copies by reading and writing
//! if copies are not offered.

use super::numbers::op;
use super::reply::Reply;
use super::request::Request;
use super::{contents, names};
use crate::adapter::{Adapter, Answer};
use crate::errno::Errno;

/// Requests that the kernel stops sending after one ENOSYS.
const NOT_OFFERED: Errno = Errno(libc::ENOSYS);

/// Answers a request into `reply`; `None` if no answer is sent.
pub(super) fn serve(
    adapter: &Adapter,
    mut request: Request<'_>,
    reply: &mut Reply,
) -> Option<Answer<()>> {
    let request = &mut request;
    if let Err(error) = contents::check_handles(adapter, request) {
        // The server closed it, and ended its locks, with the session.
        let is_close = matches!(request.opcode, op::RELEASE | op::RELEASEDIR);
        return Some(if is_close { Ok(()) } else { Err(error) });
    }
    let answer = match request.opcode {
        op::FORGET | op::BATCH_FORGET => {
            if names::forget(adapter, request).is_err() {
                tracing::error!("a FORGET request is too short");
            }
            return None;
        }
        // The queue cancels slow requests; everything else is done before this is checked.
        op::INTERRUPT => return None,
        op::LOOKUP => names::lookup(adapter, request, reply),
        op::GETATTR => names::getattr(adapter, request, reply),
        op::STATX => names::statx(adapter, request, reply),
        op::SETATTR => names::setattr(adapter, request, reply),
        op::READLINK => contents::readlink(adapter, request, reply),
        op::SYMLINK => names::symlink(adapter, request, reply),
        op::MKNOD => names::mknod(adapter, request, reply),
        op::MKDIR => names::mkdir(adapter, request, reply),
        op::UNLINK => names::unlink(adapter, request),
        op::RMDIR => names::rmdir(adapter, request),
        op::RENAME => names::rename(adapter, request),
        op::RENAME2 => names::rename2(adapter, request),
        op::LINK => names::link(adapter, request, reply),
        op::CREATE => names::create(adapter, request, reply),
        op::TMPFILE => names::tmpfile(adapter, request, reply),
        op::WRITE => contents::write(adapter, request, reply),
        op::LSEEK => contents::lseek(adapter, request, reply),
        op::FALLOCATE => contents::fallocate(adapter, request),
        op::COPY_FILE_RANGE => contents::copy_file_range(adapter, request, reply),
        op::FSYNC | op::FSYNCDIR => contents::fsync(adapter, request),
        op::READDIR => contents::readdir(adapter, request, reply, false),
        op::READDIRPLUS => contents::readdir(adapter, request, reply, true),
        op::STATFS => contents::statfs(adapter, request, reply),
        op::SETXATTR => names::setxattr(adapter, request),
        op::GETXATTR => names::getxattr(adapter, request, reply),
        op::LISTXATTR => names::listxattr(adapter, request, reply),
        op::REMOVEXATTR => names::removexattr(adapter, request),
        op::OPEN | op::OPENDIR if adapter.trace_opens || adapter.is_remote => {
            contents::open(adapter, request, reply)
        }
        op::RELEASE => contents::release(adapter, request),
        op::RELEASEDIR => {
            contents::release_directory(adapter, request);
            Ok(())
        }
        op::FLUSH if adapter.keeps_locks() => contents::flush(adapter, request),
        op::SETLK | op::SETLKW if adapter.keeps_locks() => contents::set_lock(adapter, request),
        op::GETLK if adapter.keeps_locks() => contents::test_lock(adapter, request, reply),
        op::DESTROY => Ok(()),
        _ => Err(NOT_OFFERED),
    };
    Some(answer)
}
