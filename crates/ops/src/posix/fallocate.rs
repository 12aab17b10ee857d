//! `fallocate`: grows a file, and turns ranges of it into holes or zeros.
//!
//! Segments are written in order and nothing in them is kept free for a file. So allocating
//! reserves nothing: it fails if there is not enough space now, and grows the file with a hole.

use data::FileRef;
use inode::permissions::WRITE;
use inode::{Caller, FsError, Kind, NodeId};
use vfs::{Allocate, FsResult};
use volume::load::load;
use volume::locks::Lock;
use volume::permit;
use volume::view::View;

use crate::contents::{self, FILE_BYTES_MAX, Step};
use crate::edit::{Edit, edit};
use crate::policy::Policy;
use crate::{Ops, ranges};

/// Extents that are counted while a file is locked: some milliseconds.
const STEP_EXTENTS: usize = 4096;

/// Applies `mode` to `length` bytes at `offset`.
pub fn fallocate(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    (offset, length): (u64, u64),
    mode: Allocate,
) -> FsResult<()> {
    if length == 0 {
        return Err(FsError::InvalidArgument("an empty range"));
    }
    let end = offset
        .checked_add(length)
        .filter(|&end| end <= FILE_BYTES_MAX)
        .ok_or(FsError::FileTooLarge)?;
    let (space, held) = match mode {
        Allocate::Grow | Allocate::Keep => {
            let space = super::statfs::statfs(fs)?;
            let space = space.blocks_available.saturating_mul(u64::from(space.block_bytes));
            // Counted only if it decides: a file may have millions of extents.
            let fits = end - offset <= space;
            (space, if fits { 0 } else { held(fs, caller, node, (offset, end))? })
        }
        Allocate::Punch | Allocate::Zero | Allocate::ZeroKeep => (u64::MAX, 0),
    };
    loop {
        let step =
            edit(fs, policy, node, |edit| apply(edit, caller, (offset, end), mode, (space, held)))?;
        if step == Step::Done {
            return Ok(());
        }
    }
}

/// Bytes of a range that extents of a file cover. They are counted in steps; between two steps
/// other threads can lock the file and what shares its lock. Concurrent changes may count or not,
/// as with the space that is left.
fn held(fs: &Ops, caller: &Caller, node: NodeId, (offset, end): (u64, u64)) -> FsResult<u64> {
    let (mut held, mut at) = (0, offset);
    while at < end {
        let (subvol, ino) = fs.place(node)?;
        let node = subvol.node(ino);
        let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
        let (more, reached) = subvol.read(|tree| {
            let view = View::new(&*fs.store, tree);
            let inode = load(fs, view, node, ino)?;
            let owned = inode.owned();
            if owned.kind != Kind::File {
                return Ok((0, end));
            }
            owned.check(caller, WRITE, || permit::of_inode(fs, view, node, ino, &inode))?;
            contents::covered(fs, view, FileRef { tree, ino }, (at, end), STEP_EXTENTS)
        })?;
        held += more;
        at = reached;
    }
    Ok(held)
}

fn apply(
    edit: &mut Edit<'_>,
    caller: &Caller,
    (offset, end): (u64, u64),
    mode: Allocate,
    (space, held): (u64, u64),
) -> FsResult<Step> {
    edit.plan.on_behalf(caller);
    let owned = edit.inode.owned();
    match owned.kind {
        Kind::File => owned.check(caller, WRITE, || edit.acl())?,
        Kind::Directory => return Err(FsError::IsDirectory),
        _ => return Err(FsError::InvalidArgument("only files have contents")),
    }
    edit.end_rights(caller)?;
    let inode = edit.file()?.inode;
    match mode {
        Allocate::Grow | Allocate::Keep => {
            let held =
                if inode.has_extents { held } else { inode.size.min(end).saturating_sub(offset) };
            if (end - offset).saturating_sub(held) > space {
                return Err(FsError::NoSpace);
            }
        }
        Allocate::Punch | Allocate::Zero | Allocate::ZeroKeep => {
            edit.removes();
            if ranges::punch(edit, offset, end)? == Step::More {
                return Ok(Step::More);
            }
        }
    }
    let grows = matches!(mode, Allocate::Grow | Allocate::Zero) && end > inode.size;
    if grows && contents::set_size(edit, end)? == Step::More {
        return Ok(Step::More);
    }
    let now = edit.plan.now;
    let inode = &mut edit.file()?.inode;
    inode.mtime = now;
    inode.ctime = now;
    Ok(Step::Done)
}
