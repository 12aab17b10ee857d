//! The links of one query of `.search`: what the last search found. Links keep their names and
//! numbers from one search to the next.
//!
//! * A number never points to another path: the kernel caches its target.
//! * A path that still matches keeps its number and its name.
//! * Links are listed by their numbers, so a listing that is interrupted by another search
//!   continues where it was: what stays is listed once.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a name that may be left out where its number among alike ones has to fit.
const NUMBER_BYTES: usize = 8;
/// Memory of a link beside its path and its name, about.
const LINK_BYTES: usize = 96;

/// A match.
pub(super) struct Link {
    pub(super) path: Box<[u8]>,
    pub(super) name: Box<[u8]>,
}

/// The links of a query.
#[derive(Default)]
pub(super) struct Links {
    all: BTreeMap<u32, Link>,
    /// Their numbers in the order of names.
    by_name: Vec<u32>,
    /// The next number.
    next: u32,
    /// Names that were tried.
    #[cfg(test)]
    tried: usize,
}

impl Links {
    /// Takes the matches of a new search, sorted. `false`: there are not as many numbers.
    #[must_use]
    pub(super) fn replace(&mut self, paths: Vec<Vec<u8>>, numbers: u32) -> bool {
        if self.next as usize + paths.len() > numbers as usize {
            return false;
        }
        let mut before = std::mem::take(&mut self.all);
        let mut taken: BTreeSet<Box<[u8]>> = BTreeSet::new();
        let mut fresh = Vec::new();
        let known: BTreeMap<Box<[u8]>, u32> =
            before.iter().map(|(number, link)| (link.path.clone(), *number)).collect();
        for path in paths {
            match known.get(&path[..]).and_then(|number| Some((*number, before.remove(number)?))) {
                Some((number, link)) => {
                    taken.insert(link.name.clone());
                    self.all.insert(number, link);
                }
                None => fresh.push(path),
            }
        }
        // How many names differ only in their ends.
        let mut alike: BTreeMap<Box<[u8]>, u32> = BTreeMap::new();
        for path in fresh {
            let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let own = &path[start..];
            let mut name: Box<[u8]> = own.into();
            let stem = &own[..own.len().min(inode::NAME_BYTES_MAX - NUMBER_BYTES)];
            #[cfg(test)]
            {
                self.tried += 1;
            }
            while taken.contains(&name) {
                let turn = alike.entry(stem.into()).or_insert(1);
                *turn += 1;
                let end = format!("~{turn}");
                let kept = own.len().min(inode::NAME_BYTES_MAX - end.len());
                name = [&own[..kept], end.as_bytes()].concat().into();
                #[cfg(test)]
                {
                    self.tried += 1;
                }
            }
            taken.insert(name.clone());
            self.all.insert(self.next, Link { path: path.into(), name });
            self.next += 1;
        }
        let all = &self.all;
        self.by_name = all.keys().copied().collect();
        self.by_name.sort_unstable_by(|one, other| all[one].name.cmp(&all[other].name));
        true
    }

    /// The number of a link, by its name.
    pub(super) fn named(&self, name: &[u8]) -> Option<u32> {
        let at = self.by_name.binary_search_by(|number| self.all[number].name[..].cmp(name));
        at.ok().map(|at| self.by_name[at])
    }

    /// A link.
    pub(super) fn get(&self, number: u32) -> Option<&Link> {
        self.all.get(&number)
    }

    /// The links from a number on.
    pub(super) fn from(&self, number: u32) -> impl Iterator<Item = (u32, &Link)> {
        self.all.range(number..).map(|(number, link)| (*number, link))
    }

    /// Memory that they take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.all.values().map(|link| link.path.len() + link.name.len() + LINK_BYTES).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Links;

    const NUMBERS: u32 = 1 << 20;

    fn found(links: &mut Links, paths: &[&str]) -> Vec<(u32, String)> {
        let mut paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        paths.sort();
        assert!(links.replace(paths, NUMBERS));
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        links.from(0).map(|(number, link)| (number, name(&link.name))).collect()
    }

    #[test]
    fn similar_links_are_distinguished_and_a_number_never_points_elsewhere() {
        let mut links = Links::default();
        let first = found(&mut links, &["../../a/f", "../../b/f", "../../c/f~2"]);
        assert_eq!(first, [(0, "f".into()), (1, "f~2".into()), (2, "f~2~2".into())]);
        // What stays has its name and its number, whatever comes before it or goes.
        let then = found(&mut links, &["../../0/f", "../../b/f"]);
        assert_eq!(then, [(1, "f~2".into()), (3, "f".into())]);
        assert_eq!((links.named(b"f"), links.named(b"f~2~2")), (Some(3), None));
        assert!(links.get(0).is_none());
        assert_eq!(&links.get(1).expect("it stays").path[..], b"../../b/f");
        assert!(!links.replace(vec![b"x".to_vec()], 4));
    }

    #[test]
    fn many_equal_names_are_numbered_without_trying_all() {
        let long = "n".repeat(inode::NAME_BYTES_MAX - 1);
        let mut paths: Vec<String> = (0..20_000).map(|at| format!("../../{at}/same")).collect();
        paths.extend((0..5000).map(|at| format!("../../{at}/{long}{}", at % 10)));
        paths.extend((0..5000).map(|at| format!("../../same~{at}")));
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let mut links = Links::default();
        let listed = found(&mut links, &paths);
        let names: std::collections::BTreeSet<&String> =
            listed.iter().map(|(_, name)| name).collect();
        assert_eq!(names.len(), 30_000);
        assert!(names.iter().all(|name| name.len() <= inode::NAME_BYTES_MAX));
        assert!(links.tried < 3 * 30_000, "{} names tried", links.tried);
    }
}
