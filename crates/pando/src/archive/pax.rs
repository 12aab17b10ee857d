//! Pax records: what a header has no field for.

use format::acl::{ACCESS, DEFAULT};
use format::stream::XATTRS_MAX;
use format::xattr_record::{NAME_BYTES_MAX, TOTAL_BYTES_MAX, VALUE_BYTES_MAX};

use super::{ACCESS_TEXT, DEFAULT_TEXT, XATTR, acl};

/// Most ranges of a sparse file that are read.
pub(crate) const RANGES_MAX: usize = 1 << 20;

/// The records that apply to a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) group: Option<Vec<u8>>,
    /// Times in nanoseconds.
    pub(crate) mtime: Option<i64>,
    pub(crate) atime: Option<i64>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether there are more attributes than a file of a volume may have: those are not here.
    pub(crate) too_many: bool,
    pub(crate) sparse: Sparse,
}

/// Records of GNU's sparse formats 0.0, 0.1 and 1.0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sparse {
    /// Format 1.0: the map precedes the contents.
    pub(crate) map_in_contents: bool,
    pub(crate) real_size: Option<u64>,
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) ranges: Vec<(u64, u64)>,
    /// An offset that waits for its length.
    offset: Option<u64>,
}

impl Sparse {
    /// Whether the member is sparse.
    pub(crate) fn is_any(&self) -> bool {
        self.map_in_contents || self.real_size.is_some()
    }
}

impl Records {
    /// Applies the records of a header. The error names what is wrong with it.
    pub(crate) fn apply(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        const MALFORMED: &str = "a pax header with a malformed record";
        while !bytes.is_empty() {
            // Some programs fill up with NUL.
            if bytes.iter().all(|&byte| byte == 0) {
                break;
            }
            let space = bytes.iter().take(20).position(|&byte| byte == b' ').ok_or(MALFORMED)?;
            let length = number(&bytes[..space]).ok_or(MALFORMED)?;
            let length = usize::try_from(length).map_err(|_| MALFORMED)?;
            let record = bytes.get(space + 1..length).ok_or(MALFORMED)?;
            let record = record.strip_suffix(b"\n").ok_or(MALFORMED)?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or(MALFORMED)?;
            self.record(&record[..equals], &record[equals + 1..])?;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        // An empty value takes back what a global header set.
        let text = || (!value.is_empty()).then(|| value.to_vec());
        let counted = |what| if value.is_empty() { Ok(None) } else { some(number(value), what) };
        match key {
            b"path" => self.path = text(),
            b"linkpath" => self.link = text(),
            b"uname" => self.user = text(),
            b"gname" => self.group = text(),
            b"size" => self.size = counted("a pax header with a malformed size")?,
            b"uid" => self.uid = id(value)?,
            b"gid" => self.gid = id(value)?,
            b"mtime" => self.mtime = time(value)?,
            b"atime" => self.atime = time(value)?,
            ACCESS_TEXT => self.list(ACCESS, value)?,
            DEFAULT_TEXT => self.list(DEFAULT, value)?,
            _ if key.starts_with(XATTR) => {
                let name = unescaped(&key[XATTR.len()..]);
                self.xattr(name, value.to_vec());
            }
            _ if key.starts_with(b"GNU.sparse.") => return self.sparse(key, value),
            _ => {}
        }
        Ok(())
    }

    fn list(&mut self, name: &[u8], text: &[u8]) -> Result<(), &'static str> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let list = acl::parse(text).ok_or("a malformed access list, or one of an unknown user")?;
        self.xattr(name.to_vec(), list);
        Ok(())
    }

    fn xattr(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.xattrs.retain(|(other, _)| *other != name);
        let bytes = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len();
        let before: usize = self.xattrs.iter().map(bytes).sum();
        let fits = name.len() <= NAME_BYTES_MAX
            && value.len() <= VALUE_BYTES_MAX
            && before + name.len() + value.len() <= TOTAL_BYTES_MAX
            && self.xattrs.len() < XATTRS_MAX;
        if fits {
            self.xattrs.push((name, value));
        } else {
            self.too_many = true;
        }
    }

    fn sparse(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        const MALFORMED: &str = "a pax header with a malformed sparse map";
        let sparse = &mut self.sparse;
        let counted = || number(value).ok_or(MALFORMED);
        match key {
            b"GNU.sparse.major" => sparse.map_in_contents = counted()? == 1,
            b"GNU.sparse.name" => sparse.name = Some(value.to_vec()),
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => sparse.real_size = Some(counted()?),
            b"GNU.sparse.offset" => sparse.offset = Some(counted()?),
            b"GNU.sparse.numbytes" => {
                let offset = sparse.offset.take().ok_or(MALFORMED)?;
                sparse.ranges.push((offset, counted()?));
            }
            b"GNU.sparse.map" => {
                sparse.ranges.clear();
                let mut numbers = value.split(|&byte| byte == b',').map(number);
                while let Some(offset) = numbers.next() {
                    let length = numbers.next().ok_or(MALFORMED)?;
                    sparse.ranges.push((offset.ok_or(MALFORMED)?, length.ok_or(MALFORMED)?));
                }
            }
            _ => {}
        }
        if sparse.ranges.len() > RANGES_MAX {
            return Err("a sparse file of more than 1,048,576 parts");
        }
        Ok(())
    }
}

/// A decimal number.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn some<T>(value: Option<T>, what: &'static str) -> Result<Option<T>, &'static str> {
    value.map(Some).ok_or(what)
}

fn id(value: &[u8]) -> Result<Option<u32>, &'static str> {
    if value.is_empty() {
        return Ok(None);
    }
    let id = number(value).and_then(|id| u32::try_from(id).ok());
    some(id, "a pax header with an owner of more than 32 bits")
}

/// Seconds with a fraction, in nanoseconds; digits beyond those are ignored.
fn time(value: &[u8]) -> Result<Option<i64>, &'static str> {
    const MALFORMED: &str = "a pax header with a malformed time";
    if value.is_empty() {
        return Ok(None);
    }
    let (negative, value) = match value.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let mut halves = value.splitn(2, |&byte| byte == b'.');
    let seconds = halves.next().and_then(number).ok_or(MALFORMED)?;
    let mut fraction = halves.next().unwrap_or_default().to_vec();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(MALFORMED);
    }
    fraction.resize(9, b'0');
    let nanos = number(&fraction).ok_or(MALFORMED)?;
    let all = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let all = if negative { -all } else { all };
    // A volume keeps times from 1677 to 2262.
    Ok(Some(i64::try_from(all).unwrap_or(if negative { i64::MIN } else { i64::MAX })))
}

/// The name of an attribute, as GNU tar escapes it.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [first, behind @ ..] = rest {
        let (byte, left) = match rest {
            [b'%', b'3', b'D', left @ ..] => (b'=', left),
            [b'%', b'2', b'5', left @ ..] => (b'%', left),
            _ => (*first, behind),
        };
        out.push(byte);
        rest = left;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Records, &'static str> {
        let mut records = Records::default();
        records.apply(text.as_bytes()).map(|()| records)
    }

    #[test]
    fn records_are_read() {
        let text = "9 path=a\n18 mtime=-1.25001\n\
                    31 SCHILY.xattr.user.a%3Db=x=y\n";
        let read = one(text).unwrap();
        assert_eq!(read.path, Some(b"a".to_vec()));
        assert_eq!(read.mtime, Some(-1_250_010_000));
        assert_eq!(read.xattrs, [(b"user.a=b".to_vec(), b"x=y".to_vec())]);
        let read = one("26 GNU.sparse.map=1,2,3,4\n23 GNU.sparse.size=100\n").unwrap();
        assert_eq!((read.sparse.ranges, read.sparse.real_size), (vec![(1, 2), (3, 4)], Some(100)));
    }

    #[test]
    fn malformed_records_are_refused() {
        for text in [
            "x path=a\n",
            "9 path=ab\n",
            "99 path=a\n",
            "0 path=a\n",
            "8 pathaa\n",
            "18446744073709551615 path=a\n",
            "99999999999999999999 path=a\n",
            "12 mtime=1x\n",
            "11 mtime=-\n",
            "11 uid=-10\n",
            "18 uid=4294967296\n",
            "9 size=x\n",
            "24 GNU.sparse.map=1,2,3\n",
            "25 GNU.sparse.numbytes=1\n",
            "25 SCHILY.acl.access=ugo\n",
        ] {
            let why = one(text).map_or_else(|why| why, |_| "");
            assert!(why.contains("malformed") || why.contains("32 bits"), "{text}: {why}");
        }
    }

    #[test]
    fn attributes_are_bounded_as_in_a_volume() {
        let count = |count: usize, bytes: usize| {
            let mut records = Records::default();
            for at in 0..count {
                records.xattr(format!("user.{at}").into_bytes(), vec![0; bytes]);
            }
            (records.xattrs.len(), records.too_many)
        };
        assert_eq!(count(XATTRS_MAX, 1), (XATTRS_MAX, false));
        assert_eq!(count(XATTRS_MAX + 1, 1), (XATTRS_MAX, true));
        assert_eq!(count(1, VALUE_BYTES_MAX), (1, false));
        assert_eq!(count(1, VALUE_BYTES_MAX + 1), (0, true));
        assert_eq!(count(4, VALUE_BYTES_MAX), (3, true));
    }

    #[test]
    fn times_have_nanoseconds() {
        for nanos in [0, 1, -1, 1_500_000_000, i64::MIN, i64::MAX] {
            let text = super::super::write::time(nanos);
            assert_eq!(time(text.as_bytes()), Ok(Some(nanos)), "{text}");
        }
        assert_eq!(time(b"1.2345678901"), Ok(Some(1_234_567_890)));
        assert_eq!(time(b"99999999999999"), Ok(Some(i64::MAX)));
    }
}
