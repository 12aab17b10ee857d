//! What a client may do, and for whom it may ask.
//!
//! The certificate of a client contains it, as a URI: `pando:grant?uids=...`. A word that is not
//! known refuses the certificate: it may be a limit.

use std::fmt;

use inode::{Caller, Ends, Enforce};
use wire::remote::Asker;

/// The user and group that root of a client is, unless its certificate names others.
pub const NOBODY: u32 = 65_534;
/// How the URI begins.
const SCHEME: &str = "pando:grant?";
/// Most supplementary groups of a call.
pub const GROUPS_MAX: usize = 1024;
/// Longest name of a volume.
const VOLUME_NAME_BYTES_MAX: usize = 64;

/// Numbers that a client may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ids {
    /// Any.
    All,
    /// These.
    Listed(Vec<u32>),
}

impl Ids {
    fn has(&self, id: u32) -> bool {
        match self {
            Ids::All => true,
            Ids::Listed(ids) => ids.contains(&id),
        }
    }
}

/// The users for whom a client may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Users {
    /// Those that it names, with these groups.
    Asserted {
        /// Users.
        uids: Ids,
        /// Groups; others are left out.
        gids: Ids,
    },
    /// One, whatever user it names.
    One {
        /// The user.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its other groups.
        groups: Vec<u32>,
    },
}

/// What a client may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// For whom.
    pub users: Users,
    /// Whether its root is root; otherwise it is [`NOBODY`].
    pub keeps_root: bool,
    /// Whether it changes nothing.
    pub read_only: bool,
    /// The volumes that it may use; none listed: all.
    pub volumes: Vec<String>,
}

/// Why a client's call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It may not ask for this user.
    User(u32),
    /// Too many groups.
    Groups,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::User(uid) => {
                write!(f, "this client's certificate does not let it ask for user {uid}")
            }
            Refusal::Groups => write!(f, "more than {GROUPS_MAX} groups"),
        }
    }
}

/// Whether a text may name a volume.
pub fn is_volume_name(name: &str) -> bool {
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty()
        && name.len() <= VOLUME_NAME_BYTES_MAX
        && name.bytes().all(ordinary)
        && !name.starts_with('.')
}

impl Grant {
    /// Everything.
    pub fn all() -> Grant {
        let users = Users::Asserted { uids: Ids::All, gids: Ids::All };
        Grant { users, keeps_root: true, read_only: false, volumes: Vec::new() }
    }

    /// Whether a volume may be used.
    pub fn has_volume(&self, name: &str) -> bool {
        self.volumes.is_empty() || self.volumes.iter().any(|volume| volume == name)
    }

    /// The caller for whom a client asks. Its permissions are checked here, whatever the client's
    /// kernel checked.
    pub fn caller(&self, who: &Asker) -> Result<Caller, Refusal> {
        if who.groups.len() > GROUPS_MAX {
            return Err(Refusal::Groups);
        }
        let (uid, gid, groups) = match &self.users {
            Users::One { uid, gid, groups } => {
                let squashed = |id: u32| if id == 0 && !self.keeps_root { NOBODY } else { id };
                let groups = groups.iter().copied().map(squashed).collect();
                (squashed(*uid), squashed(*gid), groups)
            }
            Users::Asserted { uids, gids } => {
                if !uids.has(who.uid) {
                    return Err(Refusal::User(who.uid));
                }
                let is_in = |gid: u32| gids.has(gid) && (gid != 0 || self.keeps_root);
                let uid = if who.uid == 0 && !self.keeps_root { NOBODY } else { who.uid };
                let gid = if is_in(who.gid) { who.gid } else { NOBODY };
                let groups = who.groups.iter().copied().filter(|gid| is_in(*gid)).collect();
                (uid, gid, groups)
            }
        };
        // Only root keeps what a change would end: a client that claims the right gains
        // nothing.
        let ends = match uid {
            0 => Ends { set_id: who.ends & 1 != 0, capabilities: who.ends & 2 != 0 },
            _ => Ends { set_id: true, capabilities: true },
        };
        let umask = who.umask & 0o777;
        Ok(Caller { uid, gid, groups, umask, pid: 0, enforce: Enforce::Here, ends })
    }

    /// The URI of the grant.
    pub fn to_uri(&self) -> String {
        let list = |ids: &[u32]| {
            let texts: Vec<_> = ids.iter().map(u32::to_string).collect();
            texts.join(",")
        };
        let ids = |ids: &Ids| match ids {
            Ids::All => "all".to_owned(),
            Ids::Listed(ids) => list(ids),
        };
        let users = match &self.users {
            Users::Asserted { uids, gids } => format!("uids={}&gids={}", ids(uids), ids(gids)),
            Users::One { uid, gid, groups } => {
                let all: Vec<u32> = [*gid].iter().chain(groups).copied().collect();
                format!("one={uid}&gids={}", list(&all))
            }
        };
        let root = if self.keeps_root { "keep" } else { "squash" };
        let access = if self.read_only { "ro" } else { "rw" };
        let volumes = if self.volumes.is_empty() { "*".to_owned() } else { self.volumes.join(",") };
        format!("{SCHEME}{users}&root={root}&access={access}&volumes={volumes}")
    }

    /// The grant of a URI; `None`: it is no grant, or one that this program does not understand
    /// whole.
    pub fn from_uri(uri: &str) -> Option<Grant> {
        let rest = uri.strip_prefix(SCHEME)?;
        let mut found: [Option<&str>; 6] = [None; 6];
        const KEYS: [&str; 6] = ["uids", "gids", "one", "root", "access", "volumes"];
        for pair in rest.split('&') {
            let (key, value) = pair.split_once('=')?;
            let at = KEYS.iter().position(|known| *known == key)?;
            if found[at].replace(value).is_some() {
                return None;
            }
        }
        let [uids, gids, one, root, access, volumes] = found;
        let users = match (uids, one, ids(gids?)?) {
            (Some(uids), None, gids) => Users::Asserted { uids: ids(uids)?, gids },
            (None, Some(uid), Ids::Listed(gids)) => {
                let (gid, groups) = gids.split_first()?;
                Users::One { uid: uid.parse().ok()?, gid: *gid, groups: groups.to_vec() }
            }
            _ => return None,
        };
        let volumes = match volumes? {
            "*" => Vec::new(),
            list => list.split(',').map(str::to_owned).collect(),
        };
        if !volumes.iter().all(|name| is_volume_name(name)) {
            return None;
        }
        let keeps_root = match root? {
            "keep" => true,
            "squash" => false,
            _ => return None,
        };
        let read_only = match access? {
            "ro" => true,
            "rw" => false,
            _ => return None,
        };
        Some(Grant { users, keeps_root, read_only, volumes })
    }
}

fn ids(text: &str) -> Option<Ids> {
    if text == "all" {
        return Some(Ids::All);
    }
    text.split(',').map(|id| id.parse().ok()).collect::<Option<Vec<u32>>>().map(Ids::Listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(uid: u32, gid: u32, groups: &[u32]) -> Asker {
        Asker { uid, gid, groups: groups.to_vec(), umask: 0o7022, ends: 0 }
    }

    fn listed(uids: &[u32], gids: &[u32]) -> Grant {
        let (uids, gids) = (Ids::Listed(uids.to_vec()), Ids::Listed(gids.to_vec()));
        Grant { users: Users::Asserted { uids, gids }, keeps_root: false, ..Grant::all() }
    }

    #[test]
    fn a_grant_is_read_as_it_was_written_and_a_damaged_one_is_refused() {
        let one = Users::One { uid: 7, gid: 8, groups: vec![9, 10] };
        let grants = [
            Grant::all(),
            listed(&[1, 2], &[3]),
            Grant {
                users: one,
                read_only: true,
                volumes: vec!["a".into(), "b-1".into()],
                ..listed(&[1], &[1])
            },
        ];
        for grant in grants {
            let uri = grant.to_uri();
            assert_eq!(Grant::from_uri(&uri).as_ref(), Some(&grant), "{uri}");
            for end in 0..uri.len() {
                let cut = Grant::from_uri(&uri[..end]);
                // A list that lost its end is a shorter list of what was granted.
                assert!(cut.is_none_or(|cut| cut.volumes != grant.volumes), "{}", &uri[..end]);
            }
            assert_eq!(Grant::from_uri(&format!("{uri}&until=monday")), None);
            assert_eq!(Grant::from_uri(&format!("{uri}&root=keep")), None, "twice");
        }
    }

    #[test]
    fn a_client_asks_for_nobody_but_those_it_may() {
        let grant = listed(&[1000, 0], &[1000, 0, 27]);
        assert_eq!(grant.caller(&asker(1001, 1000, &[])), Err(Refusal::User(1001)));
        let caller = grant.caller(&asker(1000, 0, &[27, 0, 42])).unwrap();
        assert_eq!((caller.uid, caller.gid, &caller.groups[..]), (1000, NOBODY, &[27][..]));
        assert_eq!(caller.enforce, Enforce::Here);
        assert_eq!(caller.umask, 0o022);
        assert!(caller.ends.set_id && caller.ends.capabilities, "it is not root");
        let root = grant.caller(&asker(0, 0, &[0])).unwrap();
        assert_eq!((root.uid, root.gid, root.groups.len()), (NOBODY, NOBODY, 0));
        let kept = Grant { keeps_root: true, ..grant };
        assert_eq!(kept.caller(&asker(0, 0, &[0])).unwrap().uid, 0);
        let one = Users::One { uid: 7, gid: 8, groups: vec![9] };
        let one = Grant { users: one, ..kept };
        let caller = one.caller(&asker(0, 0, &[0])).unwrap();
        assert_eq!((caller.uid, caller.gid, &caller.groups[..]), (7, 8, &[9][..]));
        let squashed = Grant {
            users: Users::One { uid: 0, gid: 0, groups: vec![0, 9] },
            keeps_root: false,
            ..one.clone()
        };
        let caller = squashed.caller(&asker(5, 5, &[])).unwrap();
        assert_eq!(
            (caller.uid, caller.gid, &caller.groups[..]),
            (NOBODY, NOBODY, &[NOBODY, 9][..])
        );
        let many = vec![5; GROUPS_MAX + 1];
        assert_eq!(one.caller(&asker(7, 8, &many)), Err(Refusal::Groups));
    }

    #[test]
    fn names_of_volumes_are_plain_words() {
        for name in ["home", "a.b-c_1"] {
            assert!(is_volume_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a b", "a:b", "a,b", "\u{e4}"] {
            assert!(!is_volume_name(name), "{name}");
        }
        assert!(!is_volume_name(&"a".repeat(65)));
    }
}
