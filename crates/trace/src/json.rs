//! Events as lines of JSON, and back: one object a line, the header first, and last how many events
//! were dropped.
//!
//! A field is there if the call has it. Bytes that are not UTF-8 are also there in hexadecimal,
//! under the name of the field with `_hex`, which is read in their place.

use format::trace::{Call, CallField, Ended, Event, Header, Listed, Shown};
use serde_json::{Map, Value, json};

use crate::TraceError;

type Object = Map<String, Value>;

/// Names of kinds of inodes, by number.
pub const KINDS: [&str; 7] =
    ["file", "directory", "symlink", "fifo", "socket", "char-device", "block-device"];

/// The header as an object.
pub fn of_header(header: &Header) -> Value {
    json!({
        "trace": 1,
        "id": hex(&header.id),
        "started": header.started,
        "root": header.root,
        "anonymised": header.anonymised,
        "generated": header.generated,
        "opens": header.opens,
    })
}

/// An event as an object.
pub fn of_event(event: &Event<'_>) -> Value {
    let mut out = Object::new();
    let mut put = |key: &str, value: Value| drop(out.insert(key.to_owned(), value));
    put("at", json!(event.at));
    put("took", json!(event.took));
    put("uid", json!(event.uid));
    put("gid", json!(event.gid));
    put("pid", json!(event.pid));
    put("call", json!(event.call.name()));
    put("ended", json!(event.ended.name()));
    let done = event.ended == Ended::Done;
    for field in CallField::ALL.into_iter().filter(|field| event.call.fields().has(*field)) {
        match field {
            CallField::Node => put("node", json!(event.node)),
            CallField::Name => bytes("name", event.name, &mut put),
            CallField::Other => put("other", json!(event.other)),
            CallField::OtherName => bytes("other_name", event.other_name, &mut put),
            CallField::Offset => put("offset", json!(event.offset)),
            CallField::OtherOffset => put("other_offset", json!(event.other_offset)),
            CallField::Length => put("length", json!(event.length)),
            CallField::Mode => put("mode", json!(event.mode)),
            CallField::Device => put("device", json!(event.device)),
            CallField::How => put("how", json!(event.how)),
            CallField::Uid => put("new_uid", json!(event.new_uid)),
            CallField::Gid => put("new_gid", json!(event.new_gid)),
            CallField::Atime => put("atime", json!(event.atime)),
            CallField::Mtime => put("mtime", json!(event.mtime)),
            CallField::Returned if done => put("returned", json!(event.returned)),
            CallField::Found if done => put("found", of_shown(&event.found, true)),
            CallField::Returned | CallField::Found => {}
            CallField::Entries => {
                put("entries", event.entries.iter().map(of_listed).collect());
            }
        }
    }
    Value::Object(out)
}

fn of_shown(shown: &Shown, whole: bool) -> Value {
    let kind = KINDS.get(usize::from(shown.kind)).copied().unwrap_or_default();
    let mut out = json!({ "node": shown.node, "kind": kind });
    if whole {
        out["mode"] = json!(shown.mode);
        out["uid"] = json!(shown.uid);
        out["gid"] = json!(shown.gid);
        out["size"] = json!(shown.size);
    }
    out
}

fn of_listed(entry: &Listed<'_>) -> Value {
    let mut out = of_shown(&entry.shown, entry.with_attributes);
    bytes("name", entry.name, &mut |key: &str, value| out[key] = value);
    out
}

fn bytes(key: &str, bytes: &[u8], put: &mut impl FnMut(&str, Value)) {
    put(key, json!(String::from_utf8_lossy(bytes)));
    if std::str::from_utf8(bytes).is_err() {
        put(&format!("{key}_hex"), json!(hex(bytes)));
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect::<Vec<_>>().concat()
}

fn of_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// Reads one line. Keeps the bytes of names, which the event refers to.
#[derive(Debug)]
pub struct Line {
    object: Object,
    name: Vec<u8>,
    other_name: Vec<u8>,
    entries: Vec<(Vec<u8>, Shown, bool)>,
    number: u64,
}

impl Line {
    /// Parses the line of this number.
    pub fn parse(number: u64, text: &str) -> Result<Line, TraceError> {
        let parsed = serde_json::from_str(text);
        let object: Object =
            parsed.map_err(|error| TraceError::Line { line: number, what: error.to_string() })?;
        let (name, other_name, entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut line = Line { object, name, other_name, entries, number };
        line.name = line.bytes(&line.object, "name")?;
        line.other_name = line.bytes(&line.object, "other_name")?;
        if let Some(entries) = line.object.get("entries") {
            let entries = entries.as_array().ok_or_else(|| line.wrong("entries: not a list"))?;
            let read = |entry: &Value| {
                let entry = entry.as_object().ok_or_else(|| line.wrong("entries: no object"))?;
                let whole = entry.contains_key("mode");
                Ok::<_, TraceError>((line.bytes(entry, "name")?, line.shown(entry)?, whole))
            };
            line.entries = entries.iter().map(read).collect::<Result<_, _>>()?;
        }
        Ok(line)
    }

    /// The header that it is.
    pub fn header(&self) -> Result<Header, TraceError> {
        if self.number_of(&self.object, "trace")? != Some(1) {
            return Err(self.wrong("expected the header of a trace, {\"trace\":1, ...}"));
        }
        let id = self.object.get("id").and_then(Value::as_str).and_then(of_hex);
        let id = id.and_then(|id| id.try_into().ok());
        let is = |key: &str| self.object.get(key).and_then(Value::as_bool).unwrap_or(false);
        Ok(Header {
            id: id.ok_or_else(|| self.wrong("id: expected 32 digits in hexadecimal"))?,
            started: self.signed("started")?,
            root: self.number_of(&self.object, "root")?.unwrap_or(1),
            anonymised: is("anonymised"),
            generated: is("generated"),
            opens: is("opens"),
        })
    }

    /// The number of events that were not recorded, if it is the line with that number, the last
    /// one.
    pub fn dropped(&self) -> Result<Option<u64>, TraceError> {
        if self.object.contains_key("call") {
            return Ok(None);
        }
        self.number_of(&self.object, "dropped")
    }

    /// The event that it is.
    pub fn event(&self) -> Result<Event<'_>, TraceError> {
        let word = |key: &str| self.object.get(key).and_then(Value::as_str).unwrap_or_default();
        let call = Call::ALL.iter().copied().find(|call| call.name() == word("call"));
        let call = call.ok_or_else(|| self.wrong("call: expected the name of a call"))?;
        let ended = Ended::ALL.iter().copied().find(|ended| ended.name() == word("ended"));
        let ended = ended.ok_or_else(|| self.wrong("ended: expected done, or an error"))?;
        let long = |key| Ok::<u64, TraceError>(self.number_of(&self.object, key)?.unwrap_or(0));
        let short = |key| {
            u32::try_from(long(key)?).map_err(|_| self.wrong(&format!("{key}: it is too large")))
        };
        let found = match self.object.get("found").and_then(Value::as_object) {
            Some(found) => self.shown(found)?,
            None => Shown::default(),
        };
        let entries = self.entries.iter().map(|(name, shown, with_attributes)| Listed {
            name,
            shown: *shown,
            with_attributes: *with_attributes,
        });
        Ok(Event {
            at: long("at")?,
            took: long("took")?,
            uid: short("uid")?,
            gid: short("gid")?,
            pid: short("pid")?,
            ended,
            node: long("node")?,
            name: &self.name,
            other: long("other")?,
            other_name: &self.other_name,
            offset: long("offset")?,
            other_offset: long("other_offset")?,
            length: long("length")?,
            mode: short("mode")?,
            device: short("device")?,
            how: short("how")?,
            new_uid: short("new_uid")?,
            new_gid: short("new_gid")?,
            atime: self.signed("atime")?,
            mtime: self.signed("mtime")?,
            returned: long("returned")?,
            found,
            entries: entries.collect(),
            ..Event::new(call)
        })
    }

    fn wrong(&self, what: &str) -> TraceError {
        TraceError::Line { line: self.number, what: what.to_owned() }
    }

    fn number_of(&self, object: &Object, key: &str) -> Result<Option<u64>, TraceError> {
        match object.get(key) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(&format!("{key}: expected a number from 0"))),
            },
        }
    }

    fn signed(&self, key: &str) -> Result<i64, TraceError> {
        let wrong = || self.wrong(&format!("{key}: expected a number"));
        self.object.get(key).map_or(Ok(0), |value| value.as_i64().ok_or_else(wrong))
    }

    fn bytes(&self, object: &Object, key: &str) -> Result<Vec<u8>, TraceError> {
        if let Some(hex) = object.get(&format!("{key}_hex")) {
            let bytes = hex.as_str().and_then(of_hex);
            return bytes.ok_or_else(|| self.wrong(&format!("{key}_hex: expected hexadecimal")));
        }
        match object.get(key) {
            None => Ok(Vec::new()),
            Some(Value::String(text)) => Ok(text.clone().into_bytes()),
            Some(_) => Err(self.wrong(&format!("{key}: expected a string"))),
        }
    }

    fn shown(&self, object: &Object) -> Result<Shown, TraceError> {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let kind = KINDS.iter().position(|name| *name == kind);
        let kind = kind.ok_or_else(|| self.wrong("kind: expected file, directory, ..."))?;
        let long = |key| Ok::<u64, TraceError>(self.number_of(object, key)?.unwrap_or(0));
        let short = |key| {
            u32::try_from(long(key)?).map_err(|_| self.wrong(&format!("{key}: it is too large")))
        };
        Ok(Shown {
            node: long("node")?,
            kind: kind as u8,
            mode: short("mode")?,
            uid: short("uid")?,
            gid: short("gid")?,
            size: long("size")?,
        })
    }
}
