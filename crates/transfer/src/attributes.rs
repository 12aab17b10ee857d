//! Attributes of inodes in records.

use format::acl::{ACCESS, DEFAULT};
use format::stream::{Attributes, Record};
use fs::{FileSystem, Fs, FsResult, SetXattr};
use inode::{Attr, Caller, Kind, NodeId, SetAttr, SetTime};

use crate::error::{At, Result};
use crate::out::Out;

/// Sends the attributes of an inode.
pub(crate) fn send(
    fs: &Fs,
    caller: &Caller,
    (path, node, attr): (&[u8], NodeId, &Attr),
    out: &mut Out<'_>,
) -> Result<()> {
    let xattrs = all(fs, caller, node).at(path)?;
    let attributes = Attributes {
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        atime: attr.atime.0,
        mtime: attr.mtime.0,
        ctime: attr.ctime.0,
        btime: attr.btime.0,
        xattrs: xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
    };
    out.push(&Record::Attr { path, attributes })
}

/// Extended attributes and access lists that a caller may see, by name.
pub(crate) fn all(fs: &Fs, caller: &Caller, node: NodeId) -> FsResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = fs.listxattr(caller, node)?;
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        found.push((name.to_vec(), fs.getxattr(caller, node, name)?));
    }
    found.sort();
    Ok(found)
}

/// Gives an inode attributes, as far as the caller may: root gets all of them. Another user gets
/// neither owners nor times of attributes and of birth, and no set-id bits: they would give the
/// rights of that user away.
pub(crate) fn apply(
    fs: &Fs,
    caller: &Caller,
    (node, kind): (NodeId, Kind),
    attributes: &Attributes<'_>,
) -> FsResult<()> {
    let is_root = caller.is_root();
    let may_set = |name: &[u8]| is_root || is_of_users(name);
    let wanted: Vec<_> = attributes.xattrs.iter().filter(|(name, _)| may_set(name)).collect();
    let present = fs.listxattr(caller, node)?;
    let has_xattrs = !wanted.is_empty() || !present.is_empty();
    let owners = SetAttr {
        uid: is_root.then_some(attributes.uid),
        gid: is_root.then_some(attributes.gid),
        ..SetAttr::default()
    };
    if has_xattrs {
        // A change of owners ends capabilities, which are among them.
        fs.setattr(caller, node, &owners)?;
    }
    for name in present.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let is_wanted = wanted.iter().any(|(wanted, _)| *wanted == name);
        if !is_wanted && may_set(name) {
            fs.removexattr(caller, node, name)?;
        }
    }
    for (name, value) in wanted {
        fs.setxattr(caller, node, name, value, SetXattr::Any)?;
    }
    let set_id = if is_root { 0o7777 } else { 0o1777 };
    let at = |nanos| Some(SetTime::At(device::Timestamp(nanos)));
    let changes = SetAttr {
        // The mode of a symbolic link is fixed.
        mode: (kind != Kind::Symlink).then_some(attributes.mode & set_id),
        atime: at(attributes.atime),
        mtime: at(attributes.mtime),
        ctime: at(attributes.ctime).filter(|_| is_root),
        btime: at(attributes.btime).filter(|_| is_root),
        ..if has_xattrs { SetAttr::default() } else { owners }
    };
    fs.setattr(caller, node, &changes).map(drop)
}

/// Whether any owner of a file may set an attribute.
fn is_of_users(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == ACCESS || name == DEFAULT
}
