//! Names of members, which are below the destination whatever they contain.
//!
//! A leading slash is ignored, as by other programs, and so are `.` and empty parts. A name with
//! `..` is refused: it could only be meant to lead out, or around something.

/// The parts of a member's path below the destination; none: the destination itself.
pub(crate) type Parts = Vec<Vec<u8>>;

/// Why a path is refused.
pub(crate) const LEADS_OUT: &str = "a name with `..` in it is not imported";
const WITH_NUL: &str = "a name with a NUL in it is not imported";

const TOO_LONG: &str = "a name of more than 255 bytes is not imported";
const TOO_DEEP: &str = "a name of more than 4,096 parts is not imported";

/// Most parts of a path: each directory on it is kept in memory with its path.
const PARTS_MAX: usize = 4096;

/// Longest part: a volume keeps no longer names.
const PART_BYTES_MAX: usize = 255;

/// Divides a path. The error is the reason why it is refused.
pub(crate) fn parts(path: &[u8]) -> Result<Parts, &'static str> {
    if path.contains(&0) {
        return Err(WITH_NUL);
    }
    let mut parts = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(LEADS_OUT),
            _ if parts.len() == PARTS_MAX => return Err(TOO_DEEP),
            part if part.len() > PART_BYTES_MAX => return Err(TOO_LONG),
            part => parts.push(part.to_vec()),
        }
    }
    Ok(parts)
}

/// A path without what it begins with, if that is whole parts: `/a` is not the beginning of `/ab`.
pub(crate) fn stripped<'a>(path: &'a [u8], prefix: &[u8]) -> &'a [u8] {
    match path.strip_prefix(prefix) {
        Some(rest) if rest.is_empty() || rest[0] == b'/' || prefix.ends_with(b"/") => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_parts_are_stripped() {
        for (prefix, rest) in [
            (&b""[..], &b"/mnt/ab/x"[..]),
            (b"/mnt/a", b"/mnt/ab/x"),
            (b"/mnt/ab", b"/x"),
            (b"/mnt/ab/", b"x"),
            (b"/mnt/ab/x", b""),
            (b"mnt", b"/mnt/ab/x"),
        ] {
            assert_eq!(stripped(b"/mnt/ab/x", prefix), rest, "{}", prefix.escape_ascii());
        }
    }

    #[test]
    fn a_path_stays_below() {
        assert_eq!(parts(b"./a//b/./c/"), parts(b"/a/b/c"));
        assert_eq!(parts(b"/a/b/c").unwrap(), [b"a", b"b", b"c"]);
        assert_eq!(parts(b"./").unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(parts(b"...").unwrap(), [b"..."]);
        for refused in [&b".."[..], b"../a", b"a/../b", b"a/..", b"/..", b"a\0b"] {
            let why = if refused.contains(&0) { WITH_NUL } else { LEADS_OUT };
            assert_eq!(parts(refused), Err(why), "{}", refused.escape_ascii());
        }
        assert_eq!(parts(&b"a/".repeat(4096)).unwrap().len(), 4096);
        assert_eq!(parts(&b"a/".repeat(4097)), Err(TOO_DEEP));
        assert_eq!(parts(&[&b"d/"[..], &[b'n'; 255]].concat()).unwrap().len(), 2);
        assert_eq!(parts(&[&[b'n'; 256][..], b"/f"].concat()), Err(TOO_LONG));
    }
}
