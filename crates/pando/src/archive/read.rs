//! Reads members of any archive: pax, GNU, ustar, v7; sparse files of all formats of GNU tar.
//!
//! The input may be hostile. Whatever it is, a read ends with a member, the end of the archive, or
//! an error with its place. [`EXTENDED_MAX`] and [`pax::RANGES_MAX`] bound the memory. The contents
//! of a member are exactly as many bytes as its ranges have together.

use std::io::{self, ErrorKind, Read};

use wire::Kind;

use super::pax::{self, Records};
use super::{BLOCK, padding};

/// Most bytes of a header that extends another: names and extended attributes of one member.
const EXTENDED_MAX: u64 = 1 << 20;
/// Most headers that extend the same member.
const EXTENSIONS_MAX: u32 = 16;
/// Most digits of a number in the map of a sparse file.
const DIGITS_MAX: usize = 20;

/// Most bytes of a name in an error.
const SHOWN_MAX: usize = 4096;

/// Why an archive cannot be read further.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The input failed.
    Input(io::Error),
    /// The archive ends in the middle: how many bytes were read.
    Cut(u64),
    /// It is malformed: where, and how.
    Malformed(u64, String),
}

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    /// A file, directory or special file.
    Node(Kind),
    /// A further name of an earlier member.
    Link,
    /// A type that is not known, by its letter.
    Unknown(u8),
}

/// One member; its contents are read by [`Reader::contents`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: MemberKind,
    /// The target of a link.
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Names of user and group; empty: not known.
    pub(crate) user: Vec<u8>,
    pub(crate) group: Vec<u8>,
    /// Times in nanoseconds since 1970.
    pub(crate) mtime: i64,
    pub(crate) atime: Option<i64>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Length of the file.
    pub(crate) size: u64,
    /// Offsets and lengths of the contents in the archive, ascending and within the file.
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) rdev: u32,
}

/// A reader of members.
pub(crate) struct Reader<R> {
    input: R,
    /// Bytes read so far.
    at: u64,
    /// Contents of the present member that were not read, and what fills them up.
    left: u64,
    pad: u64,
    global: Records,
}

type Block = [u8; BLOCK];

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Reader<R> {
        Reader { input, at: 0, left: 0, pad: 0, global: Records::default() }
    }

    /// How many bytes of the archive were read.
    #[cfg(test)]
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The next member; `None` at the end of the archive.
    pub(crate) fn next(&mut self) -> Result<Option<Member>, ReadError> {
        self.skip()?;
        // The member's own headers, which have precedence over global ones whatever their order.
        let mut own: Vec<Vec<u8>> = Vec::new();
        let (mut name, mut link) = (None, None);
        let mut extensions = 0;
        loop {
            let at = self.at;
            let Some(block) = self.header()? else {
                if extensions > 0 {
                    return Err(ReadError::Cut(self.at));
                }
                return Ok(None);
            };
            let kind = block[156];
            if !matches!(kind, b'x' | b'X' | b'g' | b'L' | b'K') {
                let mut records = self.global.clone();
                for bytes in &own {
                    let malformed = |what: &str| ReadError::Malformed(at, what.to_owned());
                    records.apply(bytes).map_err(malformed)?;
                }
                return self.member(at, &block, records, (name, link)).map(Some);
            }
            extensions += 1;
            if extensions > EXTENSIONS_MAX {
                return Err(ReadError::Malformed(at, "a member with too many headers".into()));
            }
            let bytes = self.extended(at, &block)?;
            let malformed = |what: &str| ReadError::Malformed(at, what.to_owned());
            match kind {
                b'g' => self.global.apply(&bytes).map_err(malformed)?,
                b'L' => name = Some(until_nul(&bytes).to_vec()),
                b'K' => link = Some(until_nul(&bytes).to_vec()),
                _ => {
                    // Reported at the header itself.
                    Records::default().apply(&bytes).map_err(malformed)?;
                    own.push(bytes);
                }
            }
        }
    }

    /// Reads contents of the present member; less than requested only at their end.
    pub(crate) fn contents(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let length = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let Some(buffer) = buffer.get_mut(..length) else { return Ok(0) };
        self.exactly(buffer)?;
        self.left -= length as u64;
        Ok(length)
    }

    /// Reads the input to its end, so that who writes it does not fail, and a checksum of the
    /// compression is verified.
    pub(crate) fn drain(&mut self) -> Result<(), ReadError> {
        match io::copy(&mut self.input, &mut io::sink()) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Skips what is left of the present member.
    fn skip(&mut self) -> Result<(), ReadError> {
        let mut rest = std::mem::take(&mut self.left) + std::mem::take(&mut self.pad);
        let mut buffer = vec![0; usize::try_from(rest.min(64 << 10)).unwrap_or_default()];
        while rest > 0 {
            let length = buffer.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            self.exactly(&mut buffer[..length])?;
            rest -= length as u64;
        }
        Ok(())
    }

    /// The next header; `None` at the end of the archive: two blocks of zeros, or one and then
    /// the end of the input.
    fn header(&mut self) -> Result<Option<Block>, ReadError> {
        let at = self.at;
        let mut block = [0; BLOCK];
        self.exactly(&mut block)?;
        if block == [0; BLOCK] {
            return match self.fill(&mut block)? {
                0 => Ok(None),
                BLOCK if block == [0; BLOCK] => Ok(None),
                BLOCK => {
                    let what = "a block of zeros is in it, and its end is two of them";
                    Err(ReadError::Malformed(at, what.into()))
                }
                _ => Err(ReadError::Cut(self.at)),
            };
        }
        let sum = field(&block[148..156]);
        if sum != Some(unsigned_sum(&block)) && sum != Some(signed_sum(&block)) {
            let what = if at == 0 { "it is not a tar archive" } else { "a header is damaged" };
            return Err(ReadError::Malformed(at, what.into()));
        }
        Ok(Some(block))
    }

    /// The contents of a header that extends another.
    fn extended(&mut self, at: u64, block: &Block) -> Result<Vec<u8>, ReadError> {
        let size = field(&block[124..136]).and_then(|size| u64::try_from(size).ok());
        let Some(size) = size.filter(|&size| size <= EXTENDED_MAX) else {
            let what = "a header that extends another is longer than 1 MiB";
            return Err(ReadError::Malformed(at, what.into()));
        };
        let mut bytes = vec![0; size as usize + padding(size)];
        self.exactly(&mut bytes)?;
        bytes.truncate(size as usize);
        Ok(bytes)
    }

    #[expect(clippy::too_many_lines, reason = "one field after the other")]
    fn member(
        &mut self,
        at: u64,
        block: &Block,
        records: Records,
        (name, link): (Option<Vec<u8>>, Option<Vec<u8>>),
    ) -> Result<Member, ReadError> {
        let malformed = |what: &str| ReadError::Malformed(at, what.to_owned());
        let is_gnu = block.get(257..265) == Some(b"ustar  \0");
        let is_pax = records != Records::default();
        let sparse = &records.sparse;
        let path = sparse.name.clone().or(records.path.clone()).or(name);
        let path = path.unwrap_or_else(|| own_path(block, is_gnu));
        if records.too_many {
            let shown = path.get(..SHOWN_MAX).unwrap_or(&path).escape_ascii();
            return Err(malformed(&format!("{shown} has more attributes than a file may have")));
        }
        let link = records.link.clone().or(link);
        let link = link.unwrap_or_else(|| until_nul(&block[157..257]).to_vec());
        let kind = kind_of(block[156], &path);
        let size = match records.size {
            Some(size) => size,
            None => field(&block[124..136])
                .and_then(|size| u64::try_from(size).ok())
                .ok_or_else(|| malformed("a header with a malformed size"))?,
        };
        // Only a pax archive has contents with a hard link; a header of others may hold the size.
        let stored = match kind {
            MemberKind::Link if !is_pax => 0,
            MemberKind::Node(Kind::File | Kind::Directory)
            | MemberKind::Link
            | MemberKind::Unknown(_) => size,
            MemberKind::Node(_) => 0,
        };
        // Offsets in the archive must not overflow.
        if stored > i64::MAX as u64 {
            return Err(malformed("a header with a malformed size"));
        }
        (self.left, self.pad) = (stored, padding(stored) as u64);
        let own = |range: std::ops::Range<usize>| field(&block[range]);
        let id = |pax: Option<u32>, range, what: &str| match pax {
            Some(id) => Ok(id),
            None => own(range).and_then(|id| u32::try_from(id).ok()).ok_or_else(|| malformed(what)),
        };
        let owners = block[257..262] == *b"ustar";
        let text = |pax: &Option<Vec<u8>>, range: std::ops::Range<usize>| match pax {
            Some(text) => text.clone(),
            None if owners => until_nul(&block[range]).to_vec(),
            None => Vec::new(),
        };
        let mtime = match records.mtime {
            Some(mtime) => mtime,
            None => own(136..148)
                .map(nanos)
                .ok_or_else(|| malformed("a header with a malformed time"))?,
        };
        let mode = own(100..108).ok_or_else(|| malformed("a header with a malformed mode"))?;
        let rdev = match kind {
            MemberKind::Node(Kind::CharDevice | Kind::BlockDevice) => {
                let number = |range| own(range).and_then(|number| u32::try_from(number).ok());
                let (major, minor) = (number(329..337), number(337..345));
                let numbers = major.zip(minor);
                numbers.and_then(device).ok_or_else(|| malformed("a malformed device number"))?
            }
            _ => 0,
        };
        let mut member = Member {
            kind,
            link,
            mode: (mode & 0o7777) as u32,
            uid: id(records.uid, 108..116, "a header with a malformed user")?,
            gid: id(records.gid, 116..124, "a header with a malformed group")?,
            user: text(&records.user, 265..297),
            group: text(&records.group, 297..329),
            mtime,
            atime: records.atime,
            xattrs: records.xattrs.clone(),
            size: stored,
            ranges: if stored > 0 { vec![(0, stored)] } else { Vec::new() },
            rdev,
            path,
        };
        if kind == MemberKind::Node(Kind::File) {
            let map = if block[156] == b'S' {
                Some(self.old_sparse(at, block)?)
            } else if records.sparse.is_any() {
                Some(self.pax_sparse(at, records.sparse)?)
            } else {
                None
            };
            if let Some((ranges, size)) = map {
                self.check_map(at, &ranges, size)?;
                member.size = size;
                member.ranges = ranges;
                member.ranges.retain(|(_, length)| *length > 0);
            }
        } else {
            member.size = 0;
            member.ranges.clear();
        }
        Ok(member)
    }

    /// The map of a sparse file is in its header, and in blocks that follow.
    fn old_sparse(&mut self, at: u64, block: &Block) -> Result<(Vec<(u64, u64)>, u64), ReadError> {
        let malformed = || ReadError::Malformed(at, "a malformed map of a sparse file".into());
        let number = |bytes: &[u8]| field(bytes).and_then(|number| u64::try_from(number).ok());
        let mut ranges = Vec::new();
        let mut take = |bytes: &[u8]| -> Option<()> {
            for entry in bytes.chunks_exact(24) {
                if entry[0] == 0 {
                    break;
                }
                ranges.push((number(&entry[..12])?, number(&entry[12..])?));
            }
            Some(())
        };
        take(&block[386..482]).ok_or_else(malformed)?;
        let mut more = block[482] != 0;
        let mut blocks = 0;
        while more {
            blocks += 1;
            if blocks * 21 > pax::RANGES_MAX {
                return Err(malformed());
            }
            let mut block = [0; BLOCK];
            self.exactly(&mut block)?;
            take(&block[..504]).ok_or_else(malformed)?;
            more = block[504] != 0;
        }
        let size = number(&block[483..495]).ok_or_else(malformed)?;
        Ok((ranges, size))
    }

    /// The map of a sparse file is in its pax records, or precedes its contents.
    fn pax_sparse(
        &mut self,
        at: u64,
        sparse: pax::Sparse,
    ) -> Result<(Vec<(u64, u64)>, u64), ReadError> {
        let malformed = || ReadError::Malformed(at, "a malformed map of a sparse file".into());
        let size = sparse.real_size.ok_or_else(malformed)?;
        if !sparse.map_in_contents {
            return Ok((sparse.ranges, size));
        }
        let mut map = Map { block: [0; BLOCK], at: BLOCK };
        let count = self.map_number(at, &mut map)?;
        if count > pax::RANGES_MAX as u64 {
            return Err(malformed());
        }
        let mut ranges = Vec::new();
        for _ in 0..count {
            ranges.push((self.map_number(at, &mut map)?, self.map_number(at, &mut map)?));
        }
        Ok((ranges, size))
    }

    /// The next number of a map that precedes the contents, which end on a block.
    fn map_number(&mut self, at: u64, map: &mut Map) -> Result<u64, ReadError> {
        let malformed = || ReadError::Malformed(at, "a malformed map of a sparse file".into());
        let mut digits = Vec::new();
        loop {
            if map.at == BLOCK {
                if self.contents(&mut map.block)? < BLOCK {
                    return Err(malformed());
                }
                map.at = 0;
            }
            let byte = map.block[map.at];
            map.at += 1;
            if byte == b'\n' {
                return pax::number(&digits).ok_or_else(malformed);
            }
            if digits.len() == DIGITS_MAX {
                return Err(malformed());
            }
            digits.push(byte);
        }
    }

    /// The ranges of a sparse file are ascending, within its length, and all its contents.
    fn check_map(&self, at: u64, ranges: &[(u64, u64)], size: u64) -> Result<(), ReadError> {
        let (mut end, mut sum) = (0_u64, 0_u64);
        for &(start, length) in ranges {
            let next = start.checked_add(length).filter(|&next| start >= end && next <= size);
            let Some(next) = next else {
                let what = "a malformed map of a sparse file: its ranges overlap, or are too long";
                return Err(ReadError::Malformed(at, what.into()));
            };
            (end, sum) = (next, sum + length);
        }
        if sum != self.left || size > i64::MAX as u64 {
            let what = "a malformed map of a sparse file: it is not what the archive holds of it";
            return Err(ReadError::Malformed(at, what.into()));
        }
        Ok(())
    }

    fn exactly(&mut self, buffer: &mut [u8]) -> Result<(), ReadError> {
        let filled = self.fill(buffer)?;
        if filled < buffer.len() { Err(ReadError::Cut(self.at)) } else { Ok(()) }
    }

    /// Reads until the buffer is full or the input ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(length) => {
                    filled += length;
                    self.at += length as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(filled)
    }

    fn failed(&self, error: io::Error) -> ReadError {
        match error.kind() {
            // The message of a decoder about compressed data that ends too soon.
            ErrorKind::UnexpectedEof => ReadError::Cut(self.at),
            _ => ReadError::Input(error),
        }
    }
}

struct Map {
    block: Block,
    at: usize,
}

/// The checksum of a header: the sum of all bytes, its own taken as spaces.
fn unsigned_sum(block: &Block) -> i128 {
    let (before, after) = (&block[..148], &block[156..]);
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    (sum(before) + sum(after) + 8 * u32::from(b' ')).into()
}

/// The same as some old programs compute it.
fn signed_sum(block: &Block) -> i128 {
    let (before, after) = (&block[..148], &block[156..]);
    let sum = |bytes: &[u8]| bytes.iter().map(|&byte| i32::from(byte.cast_signed())).sum::<i32>();
    (sum(before) + sum(after) + 8 * i32::from(b' ')).into()
}

/// A number: octal digits with spaces around them, or 256 as the base where the first bit is set.
fn field(bytes: &[u8]) -> Option<i128> {
    let (&first, rest) = bytes.split_first()?;
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        let mut number =
            if negative { i128::from(first | 0x80) - 256 } else { (first & 0x3f).into() };
        for &byte in rest {
            number = (number << 8) | i128::from(byte);
        }
        return Some(number);
    }
    let text = until_nul(bytes).trim_ascii();
    let mut number = 0;
    for &digit in text {
        match digit {
            b'0'..=b'7' => number = number << 3 | i128::from(digit - b'0'),
            _ => return None,
        }
    }
    Some(number)
}

fn nanos(seconds: i128) -> i64 {
    let nanos = seconds.saturating_mul(1_000_000_000);
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn own_path(block: &Block, is_gnu: bool) -> Vec<u8> {
    let name = until_nul(&block[..100]);
    let is_ustar = block[257..262] == *b"ustar" && !is_gnu;
    let prefix = if is_ustar { until_nul(&block[345..500]) } else { b"" };
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}

fn kind_of(letter: u8, path: &[u8]) -> MemberKind {
    match letter {
        // A file of old archives with a slash at the end is a directory.
        0 | b'0' if path.ends_with(b"/") => MemberKind::Node(Kind::Directory),
        0 | b'0' | b'7' | b'S' => MemberKind::Node(Kind::File),
        b'1' => MemberKind::Link,
        b'2' => MemberKind::Node(Kind::Symlink),
        b'3' => MemberKind::Node(Kind::CharDevice),
        b'4' => MemberKind::Node(Kind::BlockDevice),
        b'5' | b'D' => MemberKind::Node(Kind::Directory),
        b'6' => MemberKind::Node(Kind::Fifo),
        letter => MemberKind::Unknown(letter),
    }
}

/// A device number in 32 bits, as Linux packs it.
fn device((major, minor): (u32, u32)) -> Option<u32> {
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}
