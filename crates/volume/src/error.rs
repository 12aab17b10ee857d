//! Converts errors of lower layers into errors of the namespace.

use format::Malformed;
use inode::{FsError, IoFailure};
use store::TreeId;

/// Converts a store's error. A missing tree means that its subvolume was removed, or moved to
/// another tree, since the caller read its number.
#[cold]
pub fn from_store(error: store::Error) -> FsError {
    if error.is_no_space() {
        return FsError::NoSpace;
    }
    match error {
        store::Error::Device(error) if error.is_interrupted() => FsError::Interrupted,
        store::Error::ReadOnly(why) => FsError::ReadOnly(why.to_string()),
        // Another host opened the volume: nothing more can be changed through this one.
        store::Error::Replaced(_) => FsError::ReadOnly(error.to_string()),
        store::Error::NoTree(_) => FsError::Stale,
        other => FsError::Io(IoFailure {
            place: place(&other).map(Box::new),
            what: other.to_string(),
            is_damage: !matches!(&other, store::Error::Device(error) if !error.is_unread()),
        }),
    }
}

/// The file and byte that a store's error is about.
fn place(error: &store::Error) -> Option<(String, u64)> {
    match error {
        store::Error::Corrupt(bad) => Some((bad.file.clone(), bad.offset)),
        store::Error::Missing { file, .. } => Some((file.clone(), 0)),
        store::Error::Device(error) => Some((error.path.clone(), error.offset.unwrap_or(0))),
        _ => None,
    }
}

/// A record that does not match its key. The bytes passed the store's checksums, so a program wrote
/// them; the store knows where they are in a file.
#[cold]
pub fn malformed(tree: TreeId, error: &Malformed) -> FsError {
    FsError::Io(format!("tree {}: {error}", tree.0).into())
}

/// Records that contradict one another.
#[cold]
pub fn inconsistent(tree: TreeId, what: &str, ino: u64) -> FsError {
    FsError::Io(format!("tree {}: {what}: inode {ino}", tree.0).into())
}

/// An error of search as an answer of the namespace.
pub fn from_search(error: search::Error) -> FsError {
    match error {
        search::Error::Store(error) => from_store(error),
        search::Error::Device(error) if error.is_no_space() => FsError::NoSpace,
        search::Error::NotFound => FsError::NotFound,
        search::Error::Limit(what) => FsError::LimitReached(what),
        search::Error::Cancelled => FsError::Interrupted,
        other => FsError::Io(other.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_disk_does_not_return_is_damage() {
        let is_damage = |os: i32| {
            let other = std::io::Error::other("a failed call");
            let error = device::Error { os: Some(os), ..device::Error::new("read", "a", other) };
            match from_store(store::Error::Device(error)) {
                FsError::Io(failure) => failure.is_damage,
                other => panic!("{other}"),
            }
        };
        // EIO; too many open files (EMFILE); the time-out of a server (ETIMEDOUT).
        assert_eq!([5, 24, 110].map(is_damage), [true, false, false]);
    }
}
