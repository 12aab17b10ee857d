//! The directories of an index, without its files: what a scan that trusts the times of
//! directories needs to know.

use format::entry_record::{EntryHead, Target};
use format::key::{self, Parsed, Part};
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, malformed};

use super::Scan;

/// A directory as the last scan found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDirectory {
    /// Our number of it.
    pub ino: u64,
    /// Its device and number at the source.
    pub elsewhere: (u64, u64),
    /// Last change of entries, nanoseconds since 1970.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// The directories in it.
    pub children: Vec<KnownChild>,
}

/// A directory in another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownChild {
    /// Its name.
    pub name: Vec<u8>,
    /// Our number of it.
    pub ino: u64,
}

impl Scan<'_> {
    /// Our number of the source itself.
    pub fn root_ino(&self) -> u64 {
        self.subvol.root
    }

    /// Visits all directories that the tree knows, by number. What a scan that did not end left
    /// half-written is left out, and directories below it may be given.
    pub fn directories(
        &self,
        visit: &mut dyn FnMut(KnownDirectory) -> FsResult<()>,
    ) -> FsResult<()> {
        let malformed = |error| malformed(self.tree, &error);
        let mut cursor =
            self.fs.store.scan(self.tree, KeyRange::prefix(b"D")).map_err(from_store)?;
        let mut known: Option<KnownDirectory> = None;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let Parsed::Entry { directory, cookie, part: Part::Attributes } =
                key::parse(item.key).map_err(malformed)?
            else {
                continue;
            };
            if cookie != 0 {
                let head = EntryHead::decode(item.value).map_err(malformed)?;
                if head.kind == Some(format::inode_record::FileKind::Directory)
                    && let Some(known) = known.as_mut().filter(|known| known.ino == directory)
                {
                    let child = KnownChild { name: head.name.to_vec(), ino: head.ino };
                    if head.target().map_err(malformed)? == Target::Directory {
                        known.children.push(child);
                    }
                }
                continue;
            }
            if let Some(done) = known.take() {
                visit(done)?;
            }
            let record = format::directory_record::DirectoryRecord::decode(item.value);
            let record = record.map_err(malformed)?;
            known = record.elsewhere.map(|elsewhere| KnownDirectory {
                ino: directory,
                elsewhere: (elsewhere.inode.device, elsewhere.inode.number),
                mtime: record.mtime,
                ctime: record.ctime,
                children: Vec::new(),
            });
        }
        known.map_or(Ok(()), visit)
    }
}
