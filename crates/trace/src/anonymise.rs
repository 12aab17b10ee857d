//! Replaces the names of a trace.
//!
//! A name becomes a hash of it under a key, the same one wherever it occurs, so that paths, renames
//! and links still fit together. Different names stay different: a hash that is taken becomes
//! another one. Without the key, nobody can find out by trying whether a name was in a trace. Its
//! length or extension may show that, where these are kept. Numbers of users, groups and processes
//! become small ones, in the order in which they occur, and the trace begins at the start of 1970.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use format::trace::{Event, Header, Listed, Setting, UNKNOWN_CALLER};
use siphasher::sip128::{Hasher128, SipHasher13};

/// Letters of new names.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Length of new names, if lengths are not kept: two names of a trace become the same hash about
/// never.
const LETTERS_OF_NAME: usize = 16;
const EXTENSION_BYTES_MAX: usize = 8;
/// Names that this program gives a meaning.
const KEPT: [&[u8]; 5] = [b"", b".", b"..", b".snapshots", b".search"]; // tidy: knows names to keep

/// What of a name is kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keep {
    /// Its length.
    pub lengths: bool,
    /// What follows its last dot, if that is short.
    pub extensions: bool,
}

/// Numbers, replaced in the order in which they occur.
#[derive(Debug, Default)]
struct Renumbered(BTreeMap<u32, u32>);

impl Renumbered {
    fn get(&mut self, number: u32) -> u32 {
        if number == 0 || number == UNKNOWN_CALLER {
            return number;
        }
        let next = self.0.len() as u32 + 1;
        *self.0.entry(number).or_insert(next)
    }
}

/// What a name takes beside its bytes and those of its replacement, which are there twice: entries
/// of two trees, and what the allocator adds.
const NAME_BYTES: usize = 192;
/// What a number takes.
const NUMBER_BYTES: usize = 16;

/// Replaces names, event by event. It keeps all names of the trace in memory.
#[derive(Debug)]
pub struct Anonymiser {
    key: [u8; 16],
    keep: Keep,
    names: BTreeMap<Box<[u8]>, Box<[u8]>>,
    taken: BTreeSet<Box<[u8]>>,
    uids: Renumbered,
    gids: Renumbered,
    pids: Renumbered,
    started: i64,
    /// Bytes of names and of their replacements.
    name_bytes: usize,
}

impl Anonymiser {
    /// Names become hashes under this key.
    pub fn new(key: [u8; 16], keep: Keep) -> Anonymiser {
        Anonymiser {
            key,
            keep,
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            uids: Renumbered::default(),
            gids: Renumbered::default(),
            pids: Renumbered::default(),
            started: 0,
            name_bytes: 0,
        }
    }

    /// An upper estimate of the memory for the names and numbers so far.
    pub fn memory_bytes(&self) -> usize {
        let numbers = self.uids.0.len() + self.gids.0.len() + self.pids.0.len();
        self.name_bytes + self.names.len() * NAME_BYTES + numbers * NUMBER_BYTES
    }

    /// The header of the new trace; `id` distinguishes it from the old one.
    pub fn header(&mut self, header: &Header, id: [u8; 16]) -> Header {
        self.started = header.started;
        Header { id, started: 0, anonymised: true, ..*header }
    }

    /// Passes the event without its names to `take`.
    pub fn event<T>(&mut self, event: &Event<'_>, take: impl FnOnce(&Event<'_>) -> T) -> T {
        let fields = event.call.fields();
        let is_xattr = !fields.has(format::trace::CallField::Found)
            && event.name.contains(&b'.')
            && matches!(event.call.name(), "getxattr" | "setxattr" | "removexattr");
        let name = if is_xattr { self.attribute(event.name) } else { self.name(event.name) };
        let other_name = match event.call {
            format::trace::Call::Readlink | format::trace::Call::Symlink => {
                self.path(event.other_name)
            }
            _ => self.name(event.other_name),
        };
        let names: Vec<_> = event.entries.iter().map(|entry| self.name(entry.name)).collect();
        let mut new = Event { name: &name, other_name: &other_name, ..event.clone() };
        new.entries = (event.entries.iter().zip(&names))
            .map(|(entry, name)| Listed { name, ..*entry })
            .collect();
        for entry in &mut new.entries {
            entry.shown.uid = self.uids.get(entry.shown.uid);
            entry.shown.gid = self.gids.get(entry.shown.gid);
        }
        new.found.uid = self.uids.get(new.found.uid);
        new.found.gid = self.gids.get(new.found.gid);
        new.uid = self.uids.get(new.uid);
        new.gid = self.gids.get(new.gid);
        new.pid = self.pids.get(new.pid);
        if event.how & Setting::UID != 0 {
            new.new_uid = self.uids.get(new.new_uid);
        }
        if event.how & Setting::GID != 0 {
            new.new_gid = self.gids.get(new.new_gid);
        }
        for time in [&mut new.atime, &mut new.mtime] {
            if *time != 0 {
                *time = time.saturating_sub(self.started);
            }
        }
        take(&new)
    }

    /// The name that replaces one.
    fn name(&mut self, name: &[u8]) -> Box<[u8]> {
        if KEPT.contains(&name) {
            return name.into();
        }
        if let Some(new) = self.names.get(name) {
            return new.clone();
        }
        let new = (0_u64..).map(|attempt| self.hash(name, attempt));
        let new = new.into_iter().find(|new| !self.taken.contains(new) && **new != *name);
        let new = new.unwrap_or_default();
        self.name_bytes += name.len() + 2 * new.len();
        self.taken.insert(new.clone());
        self.names.insert(name.into(), new.clone());
        new
    }

    fn hash(&self, name: &[u8], attempt: u64) -> Box<[u8]> {
        let extension = extension(name).filter(|_| self.keep.extensions).unwrap_or_default();
        let stem = name.len().saturating_sub(extension.len()).max(1);
        let length = if self.keep.lengths { stem } else { LETTERS_OF_NAME };
        // A short name has few hashes: once they are taken, longer ones follow.
        let length = length + (attempt / 64) as usize;
        let mut new = Vec::with_capacity(length + extension.len());
        for part in 0_u64.. {
            let mut hasher = SipHasher13::new_with_key(&self.key);
            hasher.write_u64(attempt);
            hasher.write_u64(part);
            hasher.write(name);
            let hash = hasher.finish128().as_u128();
            let left = length - new.len();
            let letters = (0..25).map(|at| LETTERS[(hash >> (5 * at)) as usize & 31]);
            new.extend(letters.take(left));
            if new.len() == length {
                break;
            }
        }
        new.extend_from_slice(extension);
        new.into()
    }

    /// A path of names, as the target of a link is one.
    fn path(&mut self, path: &[u8]) -> Box<[u8]> {
        let parts: Vec<_> = path.split(|byte| *byte == b'/').map(|name| self.name(name)).collect();
        parts.join(&b'/').into()
    }

    /// The name of an extended attribute: its namespace stays, and so do names that the system
    /// gives a meaning.
    fn attribute(&mut self, name: &[u8]) -> Box<[u8]> {
        for namespace in [&b"user."[..], b"trusted."] {
            if let Some(rest) = name.strip_prefix(namespace) {
                return [namespace, &self.name(rest)].concat().into();
            }
        }
        name.into()
    }
}

/// A dot and what follows it, if that looks like an extension.
fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0)?;
    let extension = name.get(dot..)?;
    let rest = extension.get(1..)?;
    let fits = (1..=EXTENSION_BYTES_MAX).contains(&rest.len());
    (fits && rest.iter().all(u8::is_ascii_alphanumeric)).then_some(extension)
}

#[cfg(test)]
mod tests {
    use format::trace::{Call, Shown};

    use super::*;

    fn replaced(keep: Keep, names: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut anonymiser = Anonymiser::new([1; 16], keep);
        names.iter().map(|name| anonymiser.name(name).to_vec()).collect()
    }

    #[test]
    fn lengths_and_extensions_are_kept_on_request() {
        let names: [&[u8]; 5] =
            [b"secret-plan.txt", b".bashrc", b"a", b"x.verylongextension", b"b"];
        let new = replaced(Keep { lengths: true, extensions: true }, &names);
        for (name, new) in names.iter().zip(&new) {
            assert_eq!(name.len(), new.len());
            assert_ne!(*name, &**new);
        }
        assert!(new[0].ends_with(b".txt") && !new[3].contains(&b'.'));
        let new = replaced(Keep::default(), &names);
        assert!(new.iter().all(|new| new.len() == LETTERS_OF_NAME && !new.contains(&b'.')));
    }

    #[test]
    fn different_names_stay_different_however_short() {
        let names: Vec<Vec<u8>> = (1..=255_u8).map(|byte| vec![byte]).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).filter(|n| *n != b".").collect();
        let new = replaced(Keep { lengths: true, extensions: false }, &names);
        let different: BTreeSet<_> = new.iter().collect();
        assert_eq!(different.len(), names.len());
        assert!(new.iter().all(|name| crate::is_entry(name)));
    }

    #[test]
    fn memory_is_that_of_different_names() {
        let mut anonymiser = Anonymiser::new([1; 16], Keep::default());
        assert_eq!(anonymiser.memory_bytes(), 0);
        anonymiser.name(&[b'a'; 100]);
        let one = anonymiser.memory_bytes();
        assert_eq!(one, 100 + 2 * LETTERS_OF_NAME + NAME_BYTES);
        anonymiser.name(&[b'a'; 100]);
        assert_eq!(anonymiser.memory_bytes(), one);
        let event = Event { uid: 5, pid: 7, ..Event::new(Call::Getattr) };
        anonymiser.event(&event, |_| ());
        assert_eq!(anonymiser.memory_bytes(), one + 2 * NUMBER_BYTES);
    }

    #[test]
    fn no_name_and_no_number_of_a_user_survives() {
        let mut anonymiser = Anonymiser::new([7; 16], Keep::default());
        let found = Shown { uid: 1001, gid: 1002, ..Shown::default() };
        let entry = Listed { name: b"payroll", shown: found, with_attributes: true };
        let event = Event {
            uid: 1001,
            gid: 1002,
            pid: 4711,
            name: b"payroll",
            other_name: b"/home/alice/../payroll",
            found,
            entries: vec![entry],
            ..Event::new(Call::Symlink)
        };
        anonymiser.event(&event, |new| {
            assert_eq!(new.name, new.entries[0].name, "one name, one replacement");
            let target: Vec<_> = new.other_name.split(|byte| *byte == b'/').collect();
            assert_eq!((target[0], target[3], target[4]), (&b""[..], &b".."[..], new.name));
            let mut bytes = Vec::new();
            new.put_fields(&mut bytes);
            for name in [&b"payroll"[..], b"home", b"alice"] {
                assert!(!bytes.windows(name.len()).any(|window| window == name));
            }
            assert_eq!((new.uid, new.gid, new.pid), (1, 1, 1));
            assert_eq!((new.found.uid, new.entries[0].shown.gid), (1, 1));
        });
    }

    #[test]
    fn other_keys_give_other_names() {
        let mut one = Anonymiser::new([1; 16], Keep::default());
        let mut other = Anonymiser::new([2; 16], Keep::default());
        assert_ne!(one.name(b"payroll"), other.name(b"payroll"));
        assert_eq!(one.attribute(b"security.capability").as_ref(), b"security.capability");
        assert!(one.attribute(b"user.payroll").starts_with(b"user."));
    }
}
