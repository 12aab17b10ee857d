//! Paths of the objects that problems refer to, as far as the records above can be read.

use format::key;
use store::TreeId;
use vfs::FsResult;

use super::look::{self, Look};
use super::{Checker, Problem};

/// Components of a path that are resolved.
const COMPONENTS_MAX: usize = 4096;
/// Subvolumes that a path is followed through.
const NESTED_MAX: usize = 64;

impl Checker<'_, '_> {
    /// The path of a directory of a subvolume, from the volume's root.
    pub(super) fn path_of(&self, subvol: u64, dir: u64) -> FsResult<Vec<u8>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let (mut subvol, mut dir) = (subvol, dir);
        for _ in 0..NESTED_MAX {
            let Some(record) = self.table.subvolumes.get(&subvol) else {
                parts.push(format!("[subvolume {subvol}]").into_bytes());
                break;
            };
            let above = self.within(TreeId(record.tree), record.root, dir, &mut parts)?;
            if !above {
                parts.push(format!("[subvolume {subvol}]").into_bytes());
                break;
            }
            if record.snapshot {
                // A snapshot is named below the directory that it was taken of.
                parts.push(record.name.clone());
                parts.push(self.above_snapshots.to_vec());
                (subvol, dir) = record.source;
            } else if record.parent.0 != 0 {
                let (above, directory, cookie) = record.parent;
                let tree = self.table.subvolumes.get(&above).map(|record| TreeId(record.tree));
                let name = match tree {
                    Some(tree) => look::entry(self.pin, tree, directory, cookie)?.found(),
                    None => None,
                };
                parts.push(name.map_or_else(|| record.name.clone(), |entry| entry.name));
                (subvol, dir) = (above, directory);
            } else if subvol == self.table.root {
                break;
            } else {
                parts.push(format!("[subvolume {subvol}]").into_bytes());
                break;
            }
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            if !part.starts_with(b"[") || !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }

    /// Adds the names above a directory, up to the subvolume's root; `false` when they do not
    /// reach it.
    fn within(
        &self,
        tree: TreeId,
        root: u64,
        dir: u64,
        parts: &mut Vec<Vec<u8>>,
    ) -> FsResult<bool> {
        let mut at = dir;
        for _ in 0..COMPONENTS_MAX {
            if at == root {
                return Ok(true);
            }
            let Look::Found(record) = look::directory(self.pin, tree, at)? else {
                parts.push(format!("#{at}").into_bytes());
                return Ok(false);
            };
            let entry = look::entry(self.pin, tree, record.parent, record.parent_cookie)?;
            match entry.found().filter(|entry| entry.ino == at) {
                Some(entry) => parts.push(entry.name),
                None => parts.push(format!("#{at}").into_bytes()),
            }
            if record.parent == at {
                return Ok(false);
            }
            at = record.parent;
        }
        Ok(false)
    }

    /// Sets where a problem is: a name in a directory, or the directory itself.
    pub(super) fn at(
        &self,
        problem: Problem,
        (subvol, dir): (u64, u64),
        name: &[u8],
    ) -> FsResult<Problem> {
        let mut path = self.path_of(subvol, dir)?;
        if !name.is_empty() {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Ok(Problem { subvolume: subvol, path, ..problem })
    }

    /// The first name of a linked inode, as a path; empty when none is known.
    pub(super) fn path_of_linked(&self, subvol: u64, tree: TreeId, ino: u64) -> FsResult<Vec<u8>> {
        let mut scan =
            volume::readable::Scan::new(self.pin, tree, &key::back_reference_prefix(ino))?;
        if !scan.advance()? {
            return Ok(Vec::new());
        }
        let Ok(key::Parsed::BackReference { directory, cookie, .. }) = key::parse(&scan.key) else {
            return Ok(Vec::new());
        };
        let name = look::entry(self.pin, tree, directory, cookie)?.found();
        let name = name.map(|entry| entry.name).unwrap_or_default();
        let problem = Problem::new(super::ProblemKind::Name, String::new());
        Ok(self.at(problem, (subvol, directory), &name)?.path)
    }
}
