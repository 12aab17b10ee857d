//! What is written is read back; a damaged archive ends with an error, and with bounded memory.

use fastrand::Rng;
use wire::{Attr, Kind};

use super::padding;
use super::read::{Member, MemberKind, ReadError, Reader};
use super::write::{self, Member as Written};

/// One member of an archive, and what its file holds.
struct Made {
    path: Vec<u8>,
    attr: Attr,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    link: Vec<u8>,
    hard: bool,
    ranges: Option<Vec<(u64, u64)>>,
    contents: Vec<u8>,
}

fn seeded() -> Rng {
    Rng::with_seed(testing::run::seed())
}

fn bytes(random: &mut Rng, most: usize) -> Vec<u8> {
    // Not NUL and no slash: they end names and parts.
    let length = random.usize(1..=most);
    (0..length).map(|_| *random.choice(b"abc=%\xff\n \\".iter()).unwrap_or(&b'x')).collect()
}

fn made(random: &mut Rng) -> Made {
    let kinds = [
        Kind::File,
        Kind::File,
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::CharDevice,
        Kind::BlockDevice,
    ];
    let kind = *random.choice(kinds.iter()).unwrap_or(&Kind::File);
    let mut path = [b"./", &bytes(random, 250)[..]].concat();
    if kind == Kind::Directory {
        path.push(b'/');
    }
    let hard = kind == Kind::File && random.u8(..) < 40;
    let link = if hard || kind == Kind::Symlink { bytes(random, 250) } else { Vec::new() };
    let mut ranges = None;
    let (mut size, mut stored) = (0, 0);
    if kind == Kind::File && !hard {
        size = random.u64(..5000);
        stored = size;
        if random.bool() {
            let mut list = Vec::new();
            let mut end = 0;
            while end < size {
                let start = end + random.u64(1..2000);
                let length = random.u64(1..2000).min(size.saturating_sub(start));
                if length == 0 {
                    break;
                }
                list.push((start, length));
                end = start + length;
            }
            stored = list.iter().map(|(_, length)| length).sum();
            ranges = Some(list);
        }
    }
    let count = random.usize(..3);
    let mut xattrs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for at in 0..count {
        let name = [format!("user.{at}").as_bytes(), &bytes(random, 20)].concat();
        xattrs.push((name, bytes(random, 300)));
    }
    let large = random.bool();
    let mut id = || if large { random.u32(..) } else { random.u32(..2_000_000) };
    let (uid, gid) = (id(), id());
    let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
    let time = if random.bool() {
        random.i64(..)
    } else {
        random.i64(-4_000_000..4_000_000) * 1_000_000_000
    };
    let attr = Attr {
        node: 1,
        kind,
        mode: random.u32(..0o10000),
        nlink: 1,
        uid,
        gid,
        rdev: if device { random.u32(..) } else { 0 },
        size,
        blocks: 0,
        atime: random.i64(..),
        mtime: time,
        ctime: 0,
        btime: 0,
    };
    let contents = (0..stored).map(|_| random.u8(..)).collect();
    Made { path, attr, xattrs, link, hard, ranges, contents }
}

fn archive(all: &[Made]) -> Vec<u8> {
    let mut out = Vec::new();
    for made in all {
        let xattrs: Vec<_> =
            made.xattrs.iter().map(|(n, v)| (n.as_slice(), v.as_slice())).collect();
        let stored = write::member(
            &Written {
                path: &made.path,
                attr: &made.attr,
                xattrs: &xattrs,
                link: &made.link,
                hard: made.hard,
                ranges: made.ranges.as_deref(),
            },
            &mut out,
        );
        assert_eq!(stored, made.contents.len() as u64);
        out.extend_from_slice(&made.contents);
        out.resize(out.len() + padding(stored), 0);
    }
    write::end(out.len() as u64, &mut out);
    out
}

fn contents(reader: &mut Reader<&[u8]>) -> Result<Vec<u8>, ReadError> {
    let mut all = Vec::new();
    let mut part = [0; 700];
    loop {
        let length = reader.contents(&mut part)?;
        if length == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&part[..length]);
    }
}

fn assert_same(read: &Member, made: &Made) {
    let path = made.path.escape_ascii();
    assert_eq!(read.path, made.path, "{path}");
    let kind = if made.hard { MemberKind::Link } else { MemberKind::Node(made.attr.kind) };
    assert_eq!(read.kind, kind, "{path}");
    assert_eq!(read.link, made.link, "{path}");
    assert_eq!(read.mode, made.attr.mode, "{path}");
    assert_eq!((read.uid, read.gid), (made.attr.uid, made.attr.gid), "{path}");
    assert_eq!(read.mtime, made.attr.mtime, "{path}");
    assert_eq!((read.size, read.rdev), (made.attr.size, made.attr.rdev), "{path}");
    if !made.hard {
        assert_eq!(read.xattrs, made.xattrs, "{path}");
        let whole = if made.attr.size > 0 { vec![(0, made.attr.size)] } else { Vec::new() };
        assert_eq!(&read.ranges, made.ranges.as_ref().unwrap_or(&whole), "{path}");
    }
}

#[test]
fn what_is_written_is_read() {
    let mut random = seeded();
    for _ in 0..300 {
        let all: Vec<_> = (0..random.usize(..8)).map(|_| made(&mut random)).collect();
        let archive = archive(&all);
        assert_eq!(archive.len() % 10_240, 0);
        let mut reader = Reader::new(&archive[..]);
        for made in &all {
            let member = reader.next().unwrap().expect("a member");
            assert_same(&member, made);
            // Contents that are not read are skipped.
            if random.bool() {
                assert_eq!(contents(&mut reader).unwrap(), made.contents);
            }
        }
        assert_eq!(reader.next().unwrap(), None);
        reader.drain().unwrap();
    }
}

/// Reads all of an archive; the error, if it has one.
fn read(archive: &[u8]) -> Result<usize, ReadError> {
    let mut reader = Reader::new(archive);
    let mut count = 0;
    while let Some(member) = reader.next()? {
        count += 1;
        let read = contents(&mut reader)?;
        let announced: u64 = member.ranges.iter().map(|(_, length)| length).sum();
        assert!(announced == 0 || read.len() as u64 == announced, "{member:?}");
        let end = member.ranges.last().map_or(0, |(start, length)| start + length);
        assert!(end <= member.size, "{member:?}");
        assert!(member.ranges.is_sorted_by(|one, two| one.0 + one.1 <= two.0), "{member:?}");
    }
    assert!(reader.position() <= archive.len() as u64);
    Ok(count)
}

#[test]
fn an_archive_that_is_cut_is_an_error() {
    let mut random = seeded();
    let all: Vec<_> = (0..6).map(|_| made(&mut random)).collect();
    let archive = archive(&all);
    // The end is the first block of zeros after the last member.
    let end = (0..archive.len() / 512)
        .rev()
        .find(|block| archive[block * 512..block * 512 + 512].iter().any(|&byte| byte != 0))
        .map_or(0, |block| (block + 1) * 512);
    for length in (0..end).step_by(97).chain([end - 1, end]) {
        match read(&archive[..length]) {
            Err(ReadError::Cut(at)) => assert!(at <= length as u64),
            other => panic!("{length} of {}: {other:?}", archive.len()),
        }
    }
    assert_eq!(read(&archive[..end + 512]).unwrap(), 6);
    assert_eq!(read(&archive[..end + 1024]).unwrap(), 6);
    assert!(matches!(read(&archive[..end + 700]), Err(ReadError::Cut(_))));
    // One block of zeros does not hide what follows.
    let hidden = [&archive[..end + 512], &archive[..]].concat();
    assert!(matches!(read(&hidden), Err(ReadError::Malformed(..))));
}

/// Any bytes end with a result, also where the checksums of headers are right.
#[test]
fn a_damaged_archive_does_no_harm() {
    let mut random = seeded();
    let (mut good, mut bad) = (0, 0);
    for _ in 0..3000 {
        let all: Vec<_> = (0..random.usize(1..5)).map(|_| made(&mut random)).collect();
        let mut archive = archive(&all);
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..archive.len());
            let interesting =
                [0, b'0', b'7', b'9', b'=', b'\n', b' ', 0x80, 0xff, b'S', b'x', b'L'];
            archive[at] = *random.choice(interesting.iter()).unwrap_or(&1);
            if random.bool() {
                archive[at] = random.u8(..);
            }
        }
        for block in archive.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        }
        match read(&archive) {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    assert!(good > 100 && bad > 100, "{good} and {bad}: the damage finds nothing");
}

#[test]
fn memory_is_bounded_by_the_input() {
    let header = |kind: u8, size: &str| {
        let mut block = vec![0; 512];
        block[..4].copy_from_slice(b"name");
        block[100..108].copy_from_slice(b"0000644\0");
        block[108..116].copy_from_slice(b"0000000\0");
        block[116..124].copy_from_slice(b"0000000\0");
        block[124..136].copy_from_slice(size.as_bytes());
        block[136..148].copy_from_slice(b"00000000000\0");
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    };
    // A name, a pax header, a member of 8 GiB each, of which nothing is there.
    for kind in *b"LKxg" {
        assert!(matches!(read(&header(kind, "77777777777\0")), Err(ReadError::Malformed(0, _))));
    }
    assert!(matches!(read(&header(b'0', "77777777777\0")), Err(ReadError::Cut(512))));
    assert!(matches!(read(&header(b'0', "7777777777x\0")), Err(ReadError::Malformed(0, _))));
    // Headers that extend each other without end.
    let mut many = Vec::new();
    for _ in 0..100 {
        many.extend(header(b'L', "00000000000\0"));
    }
    assert!(matches!(read(&many), Err(ReadError::Malformed(..))));
    assert!(matches!(read(b"GIF89a"), Err(ReadError::Cut(6))));
    assert!(matches!(read(&[7; 1024]), Err(ReadError::Malformed(0, _))));
}
