//! Directories that objects in a directory of a device need: the parts of their names.
//!
//! Invariant: an object is durable only if every directory above it is. So a directory counts as
//! made only when this process synced its name. An earlier process, or another that works in the
//! same place, may have made it and not synced it yet. Directories are never removed.

use std::collections::BTreeSet;

use crate::sync::Mutex;
use crate::{Device, Result, STAGED};

/// The directories of a store of objects.
pub(crate) struct Directories {
    root: String,
    /// Directories, relative to the root, whose names are durable.
    durable: Mutex<BTreeSet<String>>,
}

impl Directories {
    /// Below a directory of the device; `""` is the device's own.
    pub(crate) fn below(root: &str) -> Directories {
        Directories { root: root.to_owned(), durable: Mutex::default() }
    }

    /// The path of an object or a directory of objects.
    pub(crate) fn path(&self, name: &str) -> String {
        match (self.root.as_str(), name) {
            ("", name) => name.to_owned(),
            (root, "") => root.to_owned(),
            (root, name) => format!("{root}/{name}"),
        }
    }

    /// The path of the directory of an object.
    pub(crate) fn of(&self, name: &str) -> String {
        self.path(name.rsplit_once('/').map_or("", |(above, _)| above))
    }

    /// Makes the directories above an object, durable on return.
    pub(crate) fn make(&self, device: &dyn Device, name: &str) -> Result<()> {
        let ends = name.match_indices('/').map(|(at, _)| at);
        for directory in ends.map(|end| &name[..end]) {
            if self.durable.lock().contains(directory) {
                continue;
            }
            device.create_dir(&self.path(directory))?;
            device.sync_dir(&self.of(directory))?;
            self.durable.lock().insert(directory.to_owned());
        }
        Ok(())
    }

    /// Forgets what is durable, because a directory is gone: only a person removes one.
    pub(crate) fn forget(&self) {
        self.durable.lock().clear();
    }

    /// All objects whose names start with a prefix, sorted. `visit` gets the path of each directory
    /// that was read.
    pub(crate) fn list(
        &self,
        device: &dyn Device,
        prefix: &str,
        mut visit: impl FnMut(&str) -> Result<()>,
    ) -> Result<Vec<String>> {
        let first = prefix.rsplit_once('/').map_or("", |(above, _)| above);
        let (mut found, mut to_read) = (Vec::new(), vec![first.to_owned()]);
        while let Some(directory) = to_read.pop() {
            let path = self.path(&directory);
            let entries = match device.entries(&path) {
                Err(error) if error.is_not_found() && !directory.is_empty() => continue,
                entries => entries?,
            };
            for entry in entries {
                let hidden = entry.name.starts_with('.') && entry.directory;
                let name = match directory.as_str() {
                    "" => entry.name,
                    directory => format!("{directory}/{}", entry.name),
                };
                if hidden || !name.starts_with(prefix) || name.ends_with(STAGED) {
                    continue;
                }
                if entry.directory { to_read.push(name) } else { found.push(name) }
            }
            visit(&path)?;
        }
        found.sort();
        Ok(found)
    }
}
