//! Access control lists as the text that archives hold: `user::rwx,user:1000:r-x,...`.

use format::acl::Acl;
use nix::unistd::{Group, User};

/// The text of a list in the form of Linux; `None` if it is not valid.
pub(crate) fn text(value: &[u8]) -> Option<String> {
    let acl = Acl::decode(value).ok().flatten()?;
    let bits = |permissions: u32| -> String {
        let letters = [(4, 'r'), (2, 'w'), (1, 'x')];
        letters.iter().map(|&(bit, c)| if permissions & bit == 0 { '-' } else { c }).collect()
    };
    let mut parts = vec![format!("user::{}", bits(acl.owner))];
    parts.extend(acl.users.iter().map(|(uid, rights)| format!("user:{uid}:{}", bits(*rights))));
    parts.push(format!("group::{}", bits(acl.group)));
    parts.extend(acl.groups.iter().map(|(gid, rights)| format!("group:{gid}:{}", bits(*rights))));
    parts.extend(acl.mask.map(|mask| format!("mask::{}", bits(mask))));
    parts.push(format!("other::{}", bits(acl.other)));
    Some(parts.join(","))
}

/// The list of a text, in the form of Linux; `None` if it is none. Accepts names and
/// numbers, a number as a fourth field, and entries on lines of their own. Effective rights after
/// `#` are ignored.
pub(crate) fn parse(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut acl = Acl::of_mode(0);
    let mut found = [false; 3];
    for entry in text.split([',', '\n']) {
        let entry = entry.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        let entry = entry.strip_prefix("default:").unwrap_or(entry);
        let mut fields = entry.split(':').map(str::trim);
        let (tag, who, rights) = (fields.next()?, fields.next()?, fields.next());
        let number = fields.next();
        // `mask:r-x` and `other:r-x` occur too.
        let (who, rights) = match rights {
            Some(rights) => (who, rights),
            None => ("", who),
        };
        let rights = permissions(rights)?;
        match (tag, who) {
            ("user" | "u", "") => (acl.owner, found[0]) = (rights, true),
            ("group" | "g", "") => (acl.group, found[1]) = (rights, true),
            ("other" | "o", "") => (acl.other, found[2]) = (rights, true),
            ("mask" | "m", "") => acl.mask = Some(rights),
            ("user" | "u", name) => acl.users.push((user(name, number)?, rights)),
            ("group" | "g", name) => acl.groups.push((group(name, number)?, rights)),
            _ => return None,
        }
    }
    let complete = found == [true; 3];
    let masked = acl.mask.is_some() || (acl.users.is_empty() && acl.groups.is_empty());
    (complete && masked).then(|| acl.encode())
}

fn permissions(text: &str) -> Option<u32> {
    let mut rights = 0;
    for letter in text.chars() {
        rights |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    Some(rights)
}

/// A user by number, by the number that follows, or by a name of this machine.
fn user(name: &str, number: Option<&str>) -> Option<u32> {
    let known = || User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    name.parse().ok().or_else(|| number?.parse().ok()).or_else(known)
}

fn group(name: &str, number: Option<&str>) -> Option<u32> {
    let known = || Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    name.parse().ok().or_else(|| number?.parse().ok()).or_else(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives_its_text() {
        let list = Acl {
            owner: 7,
            users: vec![(1000, 5), (0, 0)],
            group: 4,
            groups: vec![(65_534, 2)],
            mask: Some(7),
            other: 1,
        };
        let written = text(&list.encode()).unwrap();
        let want = "user::rwx,user:1000:r-x,user:0:---,group::r--,group:65534:-w-,mask::rwx,\
                    other::--x";
        assert_eq!(written, want);
        assert_eq!(parse(want.as_bytes()), Some(list.encode()));
        assert_eq!(text(b"not a list"), None);
    }

    #[test]
    fn other_programs_texts_are_read() {
        let want = Acl { users: vec![(1000, 5)], mask: Some(5), ..Acl::of_mode(0o740) };
        for text in [
            "user::rwx,user:nosuchname:r-x:1000,group::r--,mask::r-x,other::---",
            "user::rwx\nuser:1000:r-x\t#effective:r-x\ngroup::r--\nmask:r-x\nother:---\n",
            "u::rwx,u:1000:rx,g::r,m::rx,o::-",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(want.encode()), "{text}");
        }
        for refused in [
            "user::rwx,group::r--",
            "user::rwx,user:1000:r-x,group::r--,other::---",
            "user::rwz,group::r--,other::---",
            "user::rwx,user:nosuchname:r-x,group::r--,mask::r-x,other::---",
            "what::rwx,group::r--,other::---",
            "user",
            "\u{e9}",
        ] {
            assert_eq!(parse(refused.as_bytes()), None, "{refused}");
        }
        assert_eq!(parse(b"\xff"), None);
    }
}
