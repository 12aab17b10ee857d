//! Attributes as text and as JSON, for `ls`, `stat` and `info`.

use serde_json::{Value, json};
use wire::{Attr, Bytes, Kind};

use crate::output;

/// The ten letters that `ls -l` begins with.
pub(crate) fn mode_letters(attr: &Attr) -> String {
    let mut letters = String::with_capacity(10);
    letters.push(attr.kind.letter());
    for (shift, special, set, unset) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = attr.mode >> shift;
        letters.push(if bits & 4 == 0 { '-' } else { 'r' });
        letters.push(if bits & 2 == 0 { '-' } else { 'w' });
        letters.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => set,
            (true, false) => unset,
        });
    }
    letters
}

/// The length, or the device number of a device node.
pub(crate) fn size_or_device(attr: &Attr) -> String {
    match attr.kind {
        Kind::CharDevice | Kind::BlockDevice => {
            let device = u64::from(attr.rdev);
            format!("{}, {}", rustix::fs::major(device), rustix::fs::minor(device))
        }
        _ => attr.size.to_string(),
    }
}

/// The same in a sentence.
pub(crate) fn bytes_or_device(attr: &Attr) -> String {
    match attr.kind {
        Kind::CharDevice | Kind::BlockDevice => format!("device {}", size_or_device(attr)),
        _ => output::count(attr.size, "byte", "bytes"),
    }
}

/// All attributes.
pub(crate) fn json(attr: &Attr, target: Option<&Bytes>) -> Value {
    let mut object = json!({
        "inode": attr.node,
        "kind": attr.kind.name(),
        "mode": format!("{:04o}", attr.mode),
        "links": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "size": attr.size,
        "blocks": attr.blocks,
        "atime": output::time_rfc3339(attr.atime),
        "mtime": output::time_rfc3339(attr.mtime),
        "ctime": output::time_rfc3339(attr.ctime),
        "btime": output::time_rfc3339(attr.btime),
    });
    if matches!(attr.kind, Kind::CharDevice | Kind::BlockDevice) {
        object["device"] = json!(size_or_device(attr));
    }
    if let Some(target) = target {
        output::put_bytes(&mut object, "target", &target.0);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_in_ls() {
        let attr = Attr {
            node: 1,
            kind: Kind::Directory,
            mode: 0o1777,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
        };
        assert_eq!(mode_letters(&attr), "drwxrwxrwt");
        assert_eq!(mode_letters(&Attr { mode: 0o4744, kind: Kind::File, ..attr }), "-rwsr--r--");
        assert_eq!(mode_letters(&Attr { mode: 0o2604, kind: Kind::File, ..attr }), "-rw---Sr--");
    }
}
