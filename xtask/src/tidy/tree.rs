//! The files of the repository, as git sees them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Paths relative to the root, with the text of those that are text.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    texts: BTreeMap<String, String>,
    sizes: BTreeMap<String, u64>,
}

/// What is read as text.
const TEXT: [&str; 10] = ["rs", "md", "toml", "sh", "yml", "txt", "py", "json", "service", "awk"];

impl Tree {
    /// Reads all files that git tracks, or would.
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let mut git = Command::new("git");
        git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
        let listed = git.current_dir(root).output().map_err(|error| format!("git: {error}"))?;
        if !listed.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr)));
        }
        let mut tree = Tree::default();
        for path in listed.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
            let path = String::from_utf8_lossy(path).into_owned();
            // A file that was just removed is still in the index.
            let Ok(found) = std::fs::symlink_metadata(root.join(&path)) else { continue };
            tree.sizes.insert(path.clone(), found.len());
            let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
            let is_text = TEXT.contains(&extension) || path == "Makefile" || path == ".ci/run";
            if is_text && found.is_file() {
                match std::fs::read_to_string(root.join(&path)) {
                    Ok(text) => tree.texts.insert(path, text),
                    Err(error) => return Err(format!("{path}: {error}")),
                };
            }
        }
        Ok(tree)
    }

    /// A tree of these files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.sizes.insert((*path).to_owned(), text.len() as u64);
            tree.texts.insert((*path).to_owned(), (*text).to_owned());
        }
        tree
    }

    /// All text files, by path.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of a file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// All files with their sizes in bytes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (&str, u64)> {
        self.sizes.iter().map(|(path, size)| (path.as_str(), *size))
    }

    /// Whether a file, or a directory with files in it, is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        self.sizes.contains_key(path) || self.sizes.keys().any(|other| other.starts_with(&below))
    }
}
