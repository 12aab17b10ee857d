//! The stream of `pando send` (`docs/format/stream.md`): a preamble, then frames. Each frame is one
//! record with a checksum of its own; the last record has a digest of everything before it.
//!
//! Decoders bound every length before they use it, so that a hostile stream costs no more memory
//! than one frame. What a record means in a tree, and who may have it applied, is not known here.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// The first bytes of a stream.
pub const MAGIC: [u8; 8] = *b"PANDOSND";
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes before the first frame.
pub const PREAMBLE_BYTES: usize = 12;
/// Bytes of a frame before its payload.
pub const FRAME_HEAD_BYTES: usize = 9;
/// Maximum bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of a path.
pub const PATH_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of contents in one record.
pub const DATA_BYTES_MAX: usize = 256 << 10;
/// Maximum bytes of the target of a symbolic link.
pub const TARGET_BYTES_MAX: usize = 4096;
/// Maximum bytes of the name of a snapshot.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum bytes of the value of an extended attribute.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of extended attributes of one inode.
pub const XATTRS_MAX: usize = 4096;
/// Maximum number of identities of one snapshot.
pub const ORIGINS_MAX: usize = 16;

/// Layout of the preamble.
pub const LAYOUT: &[Field] =
    &[Field::fixed("magic", "bytes", 8), Field::fixed("version", "u32 LE", 4)];
const _: () = assert!(size_of(LAYOUT) == PREAMBLE_BYTES);

/// Layout of a frame.
pub const FRAME_LAYOUT: &[Field] = &[
    Field::fixed("length", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("kind", "u8", 1),
    Field::variable("payload", "bytes"),
];

/// Layout of the payload of the first record.
pub const HEAD_LAYOUT: &[Field] = &[
    Field::fixed("created", "i64 LE", 8),
    Field::fixed("skipped", "u64 LE", 8),
    Field::fixed("bytes", "u64 LE", 8),
    Field::fixed("changes", "u64 LE", 8),
    Field::variable("name_length", "varint"),
    Field::variable("name", "bytes"),
    Field::variable("origins", "varint, origins"),
    Field::variable("bases", "varint, origins"),
];

/// Layout of an identity of a snapshot.
pub const ORIGIN_LAYOUT: &[Field] =
    &[Field::fixed("volume", "bytes", 16), Field::fixed("snapshot", "u64 LE", 8)];
const _: () = assert!(size_of(ORIGIN_LAYOUT) == 24);

/// Layout of attributes.
pub const ATTR_LAYOUT: &[Field] = &[
    Field::fixed("mode", "u32 LE", 4),
    Field::fixed("uid", "u32 LE", 4),
    Field::fixed("gid", "u32 LE", 4),
    Field::fixed("atime", "i64 LE", 8),
    Field::fixed("mtime", "i64 LE", 8),
    Field::fixed("ctime", "i64 LE", 8),
    Field::fixed("btime", "i64 LE", 8),
    Field::variable("xattrs", "varint, names and values"),
];

/// Layout of the payload of the last record.
pub const END_LAYOUT: &[Field] = &[
    Field::fixed("records", "u64 LE", 8),
    Field::fixed("bytes", "u64 LE", 8),
    Field::fixed("digest", "bytes", 16),
];
const _: () = assert!(size_of(END_LAYOUT) == 32);

/// The identity of a snapshot: a volume, and the number of a subvolume, which that volume never
/// uses again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The volume's id.
    pub volume: [u8; 16],
    /// The snapshot's number.
    pub snapshot: u64,
}

/// What a stream has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head<'a> {
    /// When the snapshot was taken, in nanoseconds since 1970.
    pub created: i64,
    /// How many records, from the first after this one on, are left out because the receiver has
    /// applied them.
    pub skipped: u64,
    /// About how many bytes of contents follow; 0: unknown.
    pub bytes: u64,
    /// About how many inodes follow; 0: unknown.
    pub changes: u64,
    /// The snapshot's name.
    pub name: &'a [u8],
    /// The snapshot's identities: its own, and those of the snapshots that it was received from.
    pub origins: Vec<Origin>,
    /// The identities of the base; none: the stream is complete.
    pub bases: Vec<Origin>,
}

/// What a new inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl NewKind {
    const ALL: [NewKind; 7] = [
        NewKind::File,
        NewKind::Directory,
        NewKind::Symlink,
        NewKind::Fifo,
        NewKind::Socket,
        NewKind::CharDevice,
        NewKind::BlockDevice,
    ];

    fn number(self) -> u8 {
        match self {
            NewKind::File => 1,
            NewKind::Directory => 2,
            NewKind::Symlink => 3,
            NewKind::Fifo => 4,
            NewKind::Socket => 5,
            NewKind::CharDevice => 6,
            NewKind::BlockDevice => 7,
        }
    }
}

/// Attributes of an inode. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Permission bits, with set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last read.
    pub atime: i64,
    /// Last change of contents.
    pub mtime: i64,
    /// Last change of attributes.
    pub ctime: i64,
    /// Birth.
    pub btime: i64,
    /// All extended attributes and access lists.
    pub xattrs: Vec<(&'a [u8], &'a [u8])>,
}

/// One step. Paths are relative to the directory that is sent, which is the empty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// The first record.
    Head(Head<'a>),
    /// Removes a name.
    Remove {
        /// Its path.
        path: &'a [u8],
        /// Whether it is of a directory, which is empty by now.
        is_directory: bool,
    },
    /// Parks an inode under a number.
    Park {
        /// A path of it.
        path: &'a [u8],
        /// The number.
        number: u64,
        /// Whether the name stays.
        keeps_name: bool,
    },
    /// Gives an inode that was parked a name.
    Place {
        /// The path of the name.
        path: &'a [u8],
        /// The number.
        number: u64,
        /// Whether further names follow.
        keeps_parked: bool,
    },
    /// Creates an inode. Contents that follow are its own.
    Make {
        /// Its path.
        path: &'a [u8],
        /// What it is.
        kind: NewKind,
        /// Device number.
        device: u32,
        /// The target of a symbolic link.
        target: &'a [u8],
    },
    /// Names the file that the contents that follow belong to.
    Open {
        /// Its path.
        path: &'a [u8],
    },
    /// Contents of the file.
    Data {
        /// Their offset.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A range of the file is a hole.
    Hole {
        /// Its offset.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// The length of the file.
    Size {
        /// Bytes.
        size: u64,
    },
    /// Gives an inode another name.
    Link {
        /// The path of the new name.
        path: &'a [u8],
        /// A path of the inode.
        target: &'a [u8],
    },
    /// The attributes of an inode.
    Attr {
        /// Its path.
        path: &'a [u8],
        /// The attributes.
        attributes: Attributes<'a>,
    },
    /// The first record of the rest of a stream, if that begins within the contents of a file. It
    /// is not counted.
    Resume {
        /// The path of the file.
        path: &'a [u8],
    },
    /// The last record.
    End {
        /// How many records precede it, without the first and those that were left out.
        records: u64,
        /// Bytes of contents in them.
        bytes: u64,
        /// XXH3-128 of everything before this frame, big-endian.
        digest: [u8; 16],
    },
}

// DO NOT CHANGE THESE VALUES: they are in streams that users keep.
const HEAD: u8 = 1;
const REMOVE: u8 = 2;
const PARK: u8 = 3;
const PLACE: u8 = 4;
const MAKE: u8 = 5;
const OPEN: u8 = 6;
const DATA: u8 = 7;
const HOLE: u8 = 8;
const SIZE: u8 = 9;
const LINK: u8 = 10;
const ATTR: u8 = 11;
const END: u8 = 12;
const RESUME: u8 = 13;

/// The preamble of a stream.
pub fn preamble() -> [u8; PREAMBLE_BYTES] {
    let [a, b, c, d, e, f, g, h] = MAGIC;
    let [i, j, k, l] = VERSION.to_le_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l]
}

/// Reads a preamble.
pub fn decode_preamble(bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new("preamble of a stream", bytes);
    if reader.array::<8>()? != MAGIC {
        return Err(Reader::new("stream", bytes).malformed("a stream of `pando send`", "another"));
    }
    let version = reader.u32()?;
    if version != VERSION {
        return Err(reader.malformed("version 1", format!("version {version}")));
    }
    reader.end()
}

impl Record<'_> {
    /// Appends the record's frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.raw(&[0; FRAME_HEAD_BYTES]);
        let kind = self.payload(out);
        let Some(frame) = out.get_mut(start..) else { return };
        let Some((head, payload)) = frame.split_at_mut_checked(FRAME_HEAD_BYTES) else { return };
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let checksum = checksum(length, kind, payload).to_le_bytes();
        let bytes = length.into_iter().chain(checksum).chain([kind]);
        for (place, byte) in head.iter_mut().zip(bytes) {
            *place = byte;
        }
    }

    fn payload(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Record::Head(head) => {
                out.put_i64(head.created);
                out.put_u64(head.skipped);
                out.put_u64(head.bytes);
                out.put_u64(head.changes);
                out.put_bytes(head.name);
                put_origins(out, &head.origins);
                put_origins(out, &head.bases);
                HEAD
            }
            Record::Remove { path, is_directory } => {
                out.put_u8(u8::from(*is_directory));
                out.put_bytes(path);
                REMOVE
            }
            Record::Park { path, number, keeps_name } => {
                out.put_u8(u8::from(*keeps_name));
                out.put_u64(*number);
                out.put_bytes(path);
                PARK
            }
            Record::Place { path, number, keeps_parked } => {
                out.put_u8(u8::from(*keeps_parked));
                out.put_u64(*number);
                out.put_bytes(path);
                PLACE
            }
            Record::Make { path, kind, device, target } => {
                out.put_u8(kind.number());
                out.put_u32(*device);
                out.put_bytes(path);
                out.put_bytes(target);
                MAKE
            }
            Record::Open { path } => {
                out.put_bytes(path);
                OPEN
            }
            Record::Data { offset, bytes } => {
                out.put_u64(*offset);
                out.put_bytes(bytes);
                DATA
            }
            Record::Hole { offset, length } => {
                out.put_u64(*offset);
                out.put_u64(*length);
                HOLE
            }
            Record::Size { size } => {
                out.put_u64(*size);
                SIZE
            }
            Record::Link { path, target } => {
                out.put_bytes(path);
                out.put_bytes(target);
                LINK
            }
            Record::Attr { path, attributes } => {
                put_attributes(out, attributes);
                out.put_bytes(path);
                ATTR
            }
            Record::Resume { path } => {
                out.put_bytes(path);
                RESUME
            }
            Record::End { records, bytes, digest } => {
                out.put_u64(*records);
                out.put_u64(*bytes);
                out.raw(digest);
                END
            }
        }
    }
}

fn put_origins(out: &mut Vec<u8>, origins: &[Origin]) {
    out.put_varint(u64::try_from(origins.len()).unwrap_or(0));
    for origin in origins {
        out.raw(&origin.volume);
        out.put_u64(origin.snapshot);
    }
}

fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes<'_>) {
    out.put_u32(attributes.mode);
    out.put_u32(attributes.uid);
    out.put_u32(attributes.gid);
    for time in [attributes.atime, attributes.mtime, attributes.ctime, attributes.btime] {
        out.put_i64(time);
    }
    out.put_varint(u64::try_from(attributes.xattrs.len()).unwrap_or(0));
    for (name, value) in &attributes.xattrs {
        out.put_bytes(name);
        out.put_bytes(value);
    }
}

fn checksum(length: [u8; 4], kind: u8, payload: &[u8]) -> u32 {
    let [a, b, c, d] = length;
    crc32c::crc32c_append(crc32c::crc32c(&[a, b, c, d, kind]), payload)
}

/// Takes the first frame off some bytes of a stream: its record, and the number of its bytes.
/// `None`: the bytes end within the frame.
pub fn decode_frame(bytes: &[u8]) -> Result<Option<(Record<'_>, usize)>, Malformed> {
    let mut reader = Reader::new("frame of a stream", bytes);
    if reader.remaining() < FRAME_HEAD_BYTES {
        return Ok(None);
    }
    let length = reader.u32()?;
    let payload_bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if payload_bytes > PAYLOAD_BYTES_MAX {
        return Err(reader.malformed("a payload of at most 1 MiB", length.to_string()));
    }
    let (expected, kind) = (reader.u32()?, reader.u8()?);
    if reader.remaining() < payload_bytes {
        return Ok(None);
    }
    let payload = reader.take(payload_bytes)?;
    let found = checksum(length.to_le_bytes(), kind, payload);
    if found != expected {
        let message = format!("{expected:#010x}, but {found:#010x} is right");
        return Err(reader.malformed("the checksum of its bytes", message));
    }
    let record = decode(kind, payload)?;
    Ok(Some((record, payload_bytes.saturating_add(FRAME_HEAD_BYTES))))
}

/// Decodes the payload of a record of a kind.
pub fn decode(kind: u8, payload: &[u8]) -> Result<Record<'_>, Malformed> {
    let mut reader = Reader::new("record of a stream", payload);
    let record = match kind {
        HEAD => Record::Head(Head {
            created: reader.i64()?,
            skipped: reader.u64()?,
            bytes: reader.u64()?,
            changes: reader.u64()?,
            name: bounded(&mut reader, NAME_BYTES_MAX)?,
            origins: origins(&mut reader)?,
            bases: origins(&mut reader)?,
        }),
        REMOVE => Record::Remove { is_directory: flag(&mut reader)?, path: path(&mut reader)? },
        PARK => Record::Park {
            keeps_name: flag(&mut reader)?,
            number: reader.u64()?,
            path: path(&mut reader)?,
        },
        PLACE => Record::Place {
            keeps_parked: flag(&mut reader)?,
            number: reader.u64()?,
            path: path(&mut reader)?,
        },
        MAKE => Record::Make {
            kind: new_kind(&mut reader)?,
            device: reader.u32()?,
            path: path(&mut reader)?,
            target: bounded(&mut reader, TARGET_BYTES_MAX)?,
        },
        OPEN => Record::Open { path: path(&mut reader)? },
        DATA => {
            Record::Data { offset: reader.u64()?, bytes: bounded(&mut reader, DATA_BYTES_MAX)? }
        }
        HOLE => Record::Hole { offset: reader.u64()?, length: reader.u64()? },
        SIZE => Record::Size { size: reader.u64()? },
        LINK => Record::Link { path: path(&mut reader)?, target: path(&mut reader)? },
        ATTR => Record::Attr { attributes: attributes(&mut reader)?, path: path(&mut reader)? },
        RESUME => Record::Resume { path: path(&mut reader)? },
        END => {
            Record::End { records: reader.u64()?, bytes: reader.u64()?, digest: reader.array()? }
        }
        _ => return Err(reader.malformed("a known kind of record", kind.to_string())),
    };
    reader.end()?;
    Ok(record)
}

fn bounded<'a>(reader: &mut Reader<'a>, most: usize) -> Result<&'a [u8], Malformed> {
    let length = reader.length(most)?;
    reader.take(length)
}

fn path<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    bounded(reader, PATH_BYTES_MAX)
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(reader.malformed("0 or 1", other.to_string())),
    }
}

fn new_kind(reader: &mut Reader<'_>) -> Result<NewKind, Malformed> {
    let number = reader.u8()?;
    let found = NewKind::ALL.into_iter().find(|kind| kind.number() == number);
    found.ok_or_else(|| reader.malformed("a kind of inode", number.to_string()))
}

fn origins(reader: &mut Reader<'_>) -> Result<Vec<Origin>, Malformed> {
    let count = reader.length(ORIGINS_MAX)?;
    (0..count).map(|_| Ok(Origin { volume: reader.array()?, snapshot: reader.u64()? })).collect()
}

fn attributes<'a>(reader: &mut Reader<'a>) -> Result<Attributes<'a>, Malformed> {
    let mut attributes = Attributes {
        mode: reader.u32()?,
        uid: reader.u32()?,
        gid: reader.u32()?,
        atime: reader.i64()?,
        mtime: reader.i64()?,
        ctime: reader.i64()?,
        btime: reader.i64()?,
        xattrs: Vec::new(),
    };
    if attributes.mode > 0o7777 {
        return Err(reader.malformed("a mode of 12 bits", format!("{:o}", attributes.mode)));
    }
    let count = reader.length(XATTRS_MAX)?;
    for _ in 0..count {
        let name = bounded(reader, NAME_BYTES_MAX)?;
        attributes.xattrs.push((name, bounded(reader, VALUE_BYTES_MAX)?));
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests;
