//! Access control lists (`docs/format/acl.md`): the value of the extended attributes
//! `system.posix_acl_access` and `system.posix_acl_default`, in the form that Linux gives them.
//!
//! A list that decodes is valid in the sense of acl(5). The owner, the group and the others have
//! one entry each, and a list that names users or groups has a mask.

use crate::layout::Field;
use crate::xattr_record::XattrRecord;
use crate::{Malformed, Reader, Writer};

/// Layout: the version once, then the other fields once for each entry.
pub const LAYOUT: &[Field] = &[
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("tag", "u16 LE", 2),
    Field::fixed("permissions", "u16 LE", 2),
    Field::fixed("id", "u32 LE", 4),
];

/// Name of the attribute with the list that controls access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the attribute with the list that new children of a directory inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

// DO NOT CHANGE THESE VALUES: they are on disk, and the kernel's.
const VERSION: u32 = 2;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of an entry that names no user or group.
const NOBODY: u32 = u32::MAX;

/// Bit of an inode's mode: it has an access list. DO NOT CHANGE.
pub const IN_MODE: u32 = 0o10000;

/// Most bytes of a list: Linux requests no more from a mounted file system.
pub const BYTES_MAX: usize = 4096;

/// The access list among the attributes of an inode; `None` if there is none, or none that is
/// valid.
pub fn access_of(xattrs: &XattrRecord) -> Option<Acl> {
    Acl::decode(xattrs.get(ACCESS)?).ok().flatten()
}

/// An access control list. Permissions are the sum of read (4), write (2) and execute (1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// Permissions of the owner.
    pub owner: u32,
    /// Numbers of users with their permissions, in the order in which they were given.
    pub users: Vec<(u32, u32)>,
    /// Permissions of the owning group.
    pub group: u32,
    /// Numbers of groups with their permissions, in the order in which they were given.
    pub groups: Vec<(u32, u32)>,
    /// The maximum of what users and groups have, except the owner and the others.
    pub mask: Option<u32>,
    /// Permissions of all others.
    pub other: u32,
}

impl Acl {
    /// The list that is equivalent to permission bits.
    pub fn of_mode(mode: u32) -> Acl {
        Acl {
            owner: mode >> 6 & 7,
            users: Vec::new(),
            group: mode >> 3 & 7,
            groups: Vec::new(),
            mask: None,
            other: mode & 7,
        }
    }

    /// Whether permission bits are equivalent to the list.
    pub fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// The permission bits of the list: those of the group class are the mask, if there is one.
    pub fn mode(&self) -> u32 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// Sets owner, group class and others to permission bits.
    pub fn set_mode(&mut self, mode: u32) {
        self.owner = mode >> 6 & 7;
        match &mut self.mask {
            Some(mask) => *mask = mode >> 3 & 7,
            None => self.group = mode >> 3 & 7,
        }
        self.other = mode & 7;
    }

    /// The attribute's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(VERSION);
        let mut put = |tag: u16, permissions: u32, id: u32| {
            out.put_u16(tag);
            // At most 7.
            out.put_u16(u16::try_from(permissions).unwrap_or(u16::MAX));
            out.put_u32(id);
        };
        put(OWNER, self.owner, NOBODY);
        for (uid, permissions) in &self.users {
            put(USER, *permissions, *uid);
        }
        put(OWNING_GROUP, self.group, NOBODY);
        for (gid, permissions) in &self.groups {
            put(GROUP, *permissions, *gid);
        }
        if let Some(mask) = self.mask {
            put(MASK, mask, NOBODY);
        }
        put(OTHER, self.other, NOBODY);
        out
    }

    /// Reads a list; `None` for one without any entry, which Linux uses to mean that there is none.
    pub fn decode(bytes: &[u8]) -> Result<Option<Acl>, Malformed> {
        let mut reader = Reader::new("access control list", bytes);
        let version = reader.u32()?;
        if version != VERSION {
            return Err(reader.malformed("version 2", version.to_string()));
        }
        if reader.remaining() == 0 {
            return Ok(None);
        }
        let (mut acl, mut last) = (Acl::of_mode(0), 0);
        while reader.remaining() > 0 {
            let tag = reader.u16()?;
            let permissions = u32::from(reader.u16()?);
            let id = reader.u32()?;
            if permissions > 7 {
                return Err(reader.malformed("permissions", permissions.to_string()));
            }
            let repeats = matches!(tag, USER | GROUP) && tag == last;
            if tag <= last && !repeats {
                return Err(reader.malformed("entries in order", format!("{tag:#x}")));
            }
            if matches!(tag, USER | GROUP) && id == NOBODY {
                return Err(reader.malformed("a user or a group", "nobody"));
            }
            match tag {
                OWNER => acl.owner = permissions,
                USER => acl.users.push((id, permissions)),
                OWNING_GROUP => acl.group = permissions,
                GROUP => acl.groups.push((id, permissions)),
                MASK => acl.mask = Some(permissions),
                OTHER => acl.other = permissions,
                _ => return Err(reader.malformed("a kind of entry", format!("{tag:#x}"))),
            }
            // What comes first, and what comes behind users and behind all, must have been there.
            let first = last == 0 && tag != OWNER;
            let group_is_missing = matches!((last, tag), (OWNER | USER, GROUP | MASK | OTHER));
            if first || group_is_missing {
                return Err(reader.malformed("owner, group and others", format!("{tag:#x}")));
            }
            last = tag;
        }
        let named = !acl.users.is_empty() || !acl.groups.is_empty();
        if last != OTHER || named && acl.mask.is_none() {
            return Err(reader.malformed("others, and a mask with names", format!("{last:#x}")));
        }
        Ok(Some(acl))
    }
}

#[cfg(test)]
mod tests {
    use super::Acl;

    fn sample() -> Acl {
        Acl {
            owner: 7,
            users: vec![(1000, 6), (5, 0)],
            group: 4,
            groups: vec![(20, 5)],
            mask: Some(5),
            other: 1,
        }
    }

    #[test]
    fn lists_round_trip_and_partial_ones_are_refused() {
        for acl in [sample(), Acl::of_mode(0o754), Acl { mask: Some(0), ..Acl::of_mode(0o700) }] {
            let bytes = acl.encode();
            assert_eq!(Acl::decode(&bytes), Ok(Some(acl)));
            for length in (0..bytes.len()).filter(|length| *length != 4) {
                assert!(Acl::decode(&bytes[..length]).is_err(), "{length}");
            }
            assert_eq!(Acl::decode(&bytes[..4]), Ok(None));
        }
    }

    #[test]
    fn access_lists_that_acl_5_forbids_are_refused() {
        let entries = |entries: &[(u16, u16, u32)]| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (tag, permissions, id) in entries {
                bytes.extend(tag.to_le_bytes());
                bytes.extend(permissions.to_le_bytes());
                bytes.extend(id.to_le_bytes());
            }
            Acl::decode(&bytes).is_ok()
        };
        let none = u32::MAX;
        assert!(entries(&[(1, 7, none), (4, 7, none), (0x20, 7, none)]));
        assert!(entries(&[(1, 7, 3), (4, 7, 4), (0x20, 7, 5)]), "ids of no meaning");
        for (what, list) in [
            ("no others", &[(1, 7, none), (4, 7, none)][..]),
            ("no group", &[(1, 7, none), (0x20, 7, none)]),
            ("no owner", &[(4, 7, none), (0x20, 7, none)]),
            ("no group behind users", &[(1, 7, none), (2, 7, 1), (0x10, 7, none), (0x20, 7, none)]),
            ("no mask", &[(1, 7, none), (2, 7, 1), (4, 7, none), (0x20, 7, none)]),
            ("no mask", &[(1, 7, none), (4, 7, none), (8, 7, 1), (0x20, 7, none)]),
            ("twice", &[(1, 7, none), (1, 7, none), (4, 7, none), (0x20, 7, none)]),
            ("order", &[(4, 7, none), (1, 7, none), (0x20, 7, none)]),
            ("permissions", &[(1, 8, none), (4, 7, none), (0x20, 7, none)]),
            ("kind", &[(1, 7, none), (3, 7, 1), (4, 7, none), (0x20, 7, none)]),
            ("kind", &[(1, 7, none), (4, 7, none), (0x20, 7, none), (0x40, 7, none)]),
            (
                "nobody named",
                &[(1, 7, none), (2, 7, none), (4, 7, none), (0x10, 7, none), (0x20, 7, none)],
            ),
        ] {
            assert!(!entries(list), "{what}: {list:?}");
        }
        assert!(Acl::decode(&3_u32.to_le_bytes()).is_err());
    }

    #[test]
    fn the_group_class_is_the_mask() {
        let mut acl = sample();
        assert_eq!((acl.mode(), acl.is_minimal()), (0o751, false));
        acl.set_mode(0o624);
        assert_eq!((acl.mode(), acl.mask, acl.group), (0o624, Some(2), 4));
        let mut plain = Acl::of_mode(0o640);
        plain.set_mode(0o604);
        assert_eq!((plain.mode(), plain.is_minimal(), plain.group), (0o604, true, 0));
    }
}
