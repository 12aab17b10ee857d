//! The events of a block: one call each, with the fields that `Call::fields` lists.

use super::calls::{Call, Ended, Field, Fields};
use crate::{Malformed, Reader, Writer};

/// Longest name or target of a link, in bytes: longer ones are cut when they are recorded.
pub const NAME_BYTES_MAX: usize = 4096;
/// Most entries in the event of a listing.
pub const DIRECTORY_ENTRIES_MAX: usize = 1 << 16;
/// The user and group of calls that the mount makes for no process in particular.
pub const UNKNOWN_CALLER: u32 = u32::MAX;

const STRUCTURE: &str = "trace event";

/// The caller differs from that of the event before.
const NEW_CALLER: u8 = 0x80;
/// An entry has attributes.
const HAS_ATTRIBUTES: u8 = 0x80;
/// Kinds of inodes: file, directory, symbolic link, fifo, socket, character and block device.
const KINDS: u8 = 7;

/// The attributes of an inode, as far as a trace has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its number.
    pub node: u64,
    /// What it is: 0 file, 1 directory, 2 symbolic link, 3 fifo, 4 socket, 5 character device, 6
    /// block device.
    pub kind: u8,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length.
    pub size: u64,
}

/// An entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Number and kind, and the rest if `with_attributes`.
    pub shown: Shown,
    /// Whether the listing returned attributes.
    pub with_attributes: bool,
}

/// A call that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// When it began, in nanoseconds since the trace began.
    pub at: u64,
    /// How long it took, in nanoseconds.
    pub took: u64,
    /// User, or [`UNKNOWN_CALLER`].
    pub uid: u32,
    /// Group, or [`UNKNOWN_CALLER`].
    pub gid: u32,
    /// Process, or 0.
    pub pid: u32,
    /// The call. Fields that it does not have are zero or empty.
    pub call: Call,
    /// How it ended.
    pub ended: Ended,
    /// See [`Field::Node`].
    pub node: u64,
    /// See [`Field::Name`].
    pub name: &'a [u8],
    /// See [`Field::Other`].
    pub other: u64,
    /// See [`Field::OtherName`].
    pub other_name: &'a [u8],
    /// See [`Field::Offset`].
    pub offset: u64,
    /// See [`Field::OtherOffset`].
    pub other_offset: u64,
    /// See [`Field::Length`].
    pub length: u64,
    /// See [`Field::Mode`].
    pub mode: u32,
    /// See [`Field::Device`].
    pub device: u32,
    /// See [`Field::How`].
    pub how: u32,
    /// See [`Field::Uid`].
    pub new_uid: u32,
    /// See [`Field::Gid`].
    pub new_gid: u32,
    /// See [`Field::Atime`].
    pub atime: i64,
    /// See [`Field::Mtime`].
    pub mtime: i64,
    /// See [`Field::Returned`].
    pub returned: u64,
    /// See [`Field::Found`].
    pub found: Shown,
    /// See [`Field::Entries`].
    pub entries: Vec<Listed<'a>>,
}

impl Event<'_> {
    /// A call without arguments that succeeded at once, to set fields of.
    pub const fn new(call: Call) -> Event<'static> {
        const NOTHING: Shown = Shown { node: 0, kind: 0, mode: 0, uid: 0, gid: 0, size: 0 };
        Event {
            at: 0,
            took: 0,
            uid: 0,
            gid: 0,
            pid: 0,
            call,
            ended: Ended::Done,
            node: 0,
            name: &[],
            other: 0,
            other_name: &[],
            offset: 0,
            other_offset: 0,
            length: 0,
            mode: 0,
            device: 0,
            how: 0,
            new_uid: 0,
            new_gid: 0,
            atime: 0,
            mtime: 0,
            returned: 0,
            found: NOTHING,
            entries: Vec::new(),
        }
    }

    /// Appends the fields: all of the event but its head, which depends on the event before it.
    pub fn put_fields(&self, out: &mut Vec<u8>) {
        let fields = self.call.fields();
        let numbers = |out: &mut Vec<u8>, list: &[(Field, u64)]| {
            for (field, value) in list {
                if fields.has(*field) {
                    out.put_varint(*value);
                }
            }
        };
        let cut = |name: &[u8]| name.len().min(NAME_BYTES_MAX);
        numbers(out, &[(Field::Node, self.node)]);
        if fields.has(Field::Name) {
            out.put_bytes(self.name.get(..cut(self.name)).unwrap_or_default());
        }
        numbers(out, &[(Field::Other, self.other)]);
        if fields.has(Field::OtherName) {
            out.put_bytes(self.other_name.get(..cut(self.other_name)).unwrap_or_default());
        }
        numbers(
            out,
            &[
                (Field::Offset, self.offset),
                (Field::OtherOffset, self.other_offset),
                (Field::Length, self.length),
                (Field::Mode, self.mode.into()),
                (Field::Device, self.device.into()),
                (Field::How, self.how.into()),
                (Field::Uid, self.new_uid.into()),
                (Field::Gid, self.new_gid.into()),
                (Field::Atime, zigzag(self.atime)),
                (Field::Mtime, zigzag(self.mtime)),
            ],
        );
        if self.ended == Ended::Done {
            numbers(out, &[(Field::Returned, self.returned)]);
            if fields.has(Field::Found) {
                out.put_varint(self.found.node);
                out.put_u8(self.found.kind);
                put_attributes(out, &self.found);
            }
        }
        if fields.has(Field::Entries) {
            let entries = self.entries.get(..DIRECTORY_ENTRIES_MAX).unwrap_or(&self.entries);
            out.put_varint(u64::try_from(entries.len()).unwrap_or(u64::MAX));
            for entry in entries {
                put_entry(out, entry);
            }
        }
    }
}

/// Appends an entry of a listing.
fn put_entry(out: &mut Vec<u8>, entry: &Listed<'_>) {
    let name = entry.name.get(..NAME_BYTES_MAX).unwrap_or(entry.name);
    out.put_bytes(name);
    out.put_varint(entry.shown.node);
    out.put_u8(entry.shown.kind | if entry.with_attributes { HAS_ATTRIBUTES } else { 0 });
    if entry.with_attributes {
        put_attributes(out, &entry.shown);
    }
}

fn put_attributes(out: &mut Vec<u8>, shown: &Shown) {
    out.put_varint(shown.mode.into());
    out.put_varint(shown.uid.into());
    out.put_varint(shown.gid.into());
    out.put_varint(shown.size);
}

/// What the head of the next event refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Before {
    at: u64,
    caller: (u32, u32, u32),
}

/// Writes the events of one block.
#[derive(Debug, Default)]
pub struct Writing {
    payload: Vec<u8>,
    events: u32,
    before: Before,
}

impl Writing {
    /// Adds an event. `fields` are those that [`Event::put_fields`] made of it.
    #[inline]
    pub fn push(&mut self, event: &Event<'_>, fields: &[u8]) {
        let caller = (event.uid, event.gid, event.pid);
        let is_new = caller != self.before.caller;
        self.payload.put_u8(event.call.number() | if is_new { NEW_CALLER } else { 0 });
        self.payload.put_u8(event.ended.number());
        self.payload.put_varint(zigzag(signed(event.at.wrapping_sub(self.before.at))));
        self.payload.put_varint(event.took);
        if is_new {
            self.payload.put_varint(event.uid.into());
            self.payload.put_varint(event.gid.into());
            self.payload.put_varint(event.pid.into());
        }
        self.payload.raw(fields);
        self.events = self.events.saturating_add(1);
        self.before = Before { at: event.at, caller };
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// Number of events, and their bytes: a payload.
    pub fn parts(&self) -> (u32, &[u8]) {
        (self.events, &self.payload)
    }
}

/// The events of a payload. After an error there are no more.
#[derive(Debug, Clone)]
pub struct Events<'a> {
    reader: Reader<'a>,
    left: u32,
    before: Before,
}

impl<'a> Events<'a> {
    /// The events of the payload of a block that has so many.
    pub fn new(payload: &'a [u8], events: u32) -> Events<'a> {
        Events { reader: Reader::new(STRUCTURE, payload), left: events, before: Before::default() }
    }

    fn read(&mut self) -> Result<Event<'a>, Malformed> {
        let reader = &mut self.reader;
        let (number, ended) = (reader.u8()?, reader.u8()?);
        let Some(call) = Call::of(number & !NEW_CALLER) else {
            return Err(reader.malformed("a call", (number & !NEW_CALLER).to_string()));
        };
        let Some(ended) = Ended::of(ended) else {
            return Err(reader.malformed("how the call ended", ended.to_string()));
        };
        let step = reader.varint()?;
        let at = self.before.at.wrapping_add(unsigned(unzigzag(step)));
        let took = reader.varint()?;
        let (uid, gid, pid) = if number & NEW_CALLER == 0 {
            self.before.caller
        } else {
            (number32(reader)?, number32(reader)?, number32(reader)?)
        };
        self.before = Before { at, caller: (uid, gid, pid) };
        let mut event = Event { at, took, uid, gid, pid, ended, ..Event::new(call) };
        read_fields(reader, call.fields(), &mut event)?;
        Ok(event)
    }
}

fn read_fields<'a>(
    reader: &mut Reader<'a>,
    fields: Fields,
    event: &mut Event<'a>,
) -> Result<(), Malformed> {
    for field in Field::ALL.into_iter().filter(|field| fields.has(*field)) {
        match field {
            Field::Node => event.node = reader.varint()?,
            Field::Name => event.name = name(reader)?,
            Field::Other => event.other = reader.varint()?,
            Field::OtherName => event.other_name = name(reader)?,
            Field::Offset => event.offset = reader.varint()?,
            Field::OtherOffset => event.other_offset = reader.varint()?,
            Field::Length => event.length = reader.varint()?,
            Field::Mode => event.mode = number32(reader)?,
            Field::Device => event.device = number32(reader)?,
            Field::How => event.how = number32(reader)?,
            Field::Uid => event.new_uid = number32(reader)?,
            Field::Gid => event.new_gid = number32(reader)?,
            Field::Atime => event.atime = unzigzag(reader.varint()?),
            Field::Mtime => event.mtime = unzigzag(reader.varint()?),
            Field::Returned if event.ended == Ended::Done => event.returned = reader.varint()?,
            Field::Found if event.ended == Ended::Done => {
                let (node, kind) = (reader.varint()?, reader.u8()?);
                event.found = attributes(reader, node, kind)?;
            }
            Field::Returned | Field::Found => {}
            Field::Entries => event.entries = entries(reader)?,
        }
    }
    Ok(())
}

fn name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = reader.length(NAME_BYTES_MAX)?;
    reader.take(length)
}

fn number32(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let value = reader.varint()?;
    u32::try_from(value).map_err(|_| reader.malformed("a number of 32 bits", value.to_string()))
}

fn known(reader: &Reader<'_>, kind: u8) -> Result<u8, Malformed> {
    let is_known = kind < KINDS;
    is_known.then_some(kind).ok_or_else(|| reader.malformed("a kind of inode", kind.to_string()))
}

fn attributes(reader: &mut Reader<'_>, node: u64, kind: u8) -> Result<Shown, Malformed> {
    let kind = known(reader, kind)?;
    let (mode, uid, gid) = (number32(reader)?, number32(reader)?, number32(reader)?);
    Ok(Shown { node, kind, mode, uid, gid, size: reader.varint()? })
}

fn entries<'a>(reader: &mut Reader<'a>) -> Result<Vec<Listed<'a>>, Malformed> {
    let count = reader.length(DIRECTORY_ENTRIES_MAX)?;
    // An entry takes three bytes and more.
    let mut entries = Vec::with_capacity(count.min(reader.remaining() / 3));
    for _ in 0..count {
        let (name, node, kind) = (name(reader)?, reader.varint()?, reader.u8()?);
        let with_attributes = kind & HAS_ATTRIBUTES != 0;
        let shown = if with_attributes {
            attributes(reader, node, kind & !HAS_ATTRIBUTES)?
        } else {
            Shown { node, kind: known(reader, kind)?, ..Shown::default() }
        };
        entries.push(Listed { name, shown, with_attributes });
    }
    Ok(entries)
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<Event<'a>, Malformed>;

    fn next(&mut self) -> Option<Result<Event<'a>, Malformed>> {
        if self.left == 0 {
            return None;
        }
        self.left = self.left.saturating_sub(1);
        let last = self.left == 0;
        let event = self.read().and_then(|event| {
            if last {
                self.reader.end()?;
            }
            Ok(event)
        });
        if event.is_err() {
            self.left = 0;
        }
        Some(event)
    }
}

/// A signed number with its sign in the lowest bit.
fn zigzag(value: i64) -> u64 {
    unsigned((value << 1) ^ (value >> 63))
}

fn unzigzag(value: u64) -> i64 {
    signed(value >> 1) ^ signed(value & 1).wrapping_neg()
}

fn signed(value: u64) -> i64 {
    i64::from_le_bytes(value.to_le_bytes())
}

fn unsigned(value: i64) -> u64 {
    u64::from_le_bytes(value.to_le_bytes())
}
