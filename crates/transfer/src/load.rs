//! Makes a stream of a dump: a tree with all metadata, and files of the right length without
//! contents. The stream is received as any other, so a bad line leaves nothing.

use format::stream::{
    Attributes, Head, NAME_BYTES_MAX, NewKind, Origin, PATH_BYTES_MAX, Record, TARGET_BYTES_MAX,
    VALUE_BYTES_MAX, XATTRS_MAX, preamble,
};
use xxhash_rust::xxh3::Xxh3;

use crate::dump::{First, Last, Line, VERSION};
use crate::error::{Error, Result};

/// A directory whose attributes follow when all below it is made.
type Waiting = (Vec<u8>, Own);

/// Attributes of a line.
#[derive(Debug, Default)]
struct Own {
    mode: u32,
    uid: u32,
    gid: u32,
    times: [i64; 4],
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Own {
    /// What it takes of memory while it waits.
    fn bytes(&self, path: &[u8]) -> usize {
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 48);
        path.len() + xattrs.sum::<usize>() + size_of::<Waiting>()
    }
}

/// Turns lines into the bytes of a stream. In memory are the attributes of the directories that the
/// current path goes through, within a bound.
pub struct Loader {
    memory: usize,
    used: usize,
    digest: Xxh3,
    number: u64,
    records: u64,
    levels: Vec<Waiting>,
    is_complete: bool,
}

impl Loader {
    /// A loader that keeps so many bytes of attributes in memory.
    pub fn new(memory: usize) -> Loader {
        Loader {
            memory,
            used: 0,
            digest: Xxh3::default(),
            number: 0,
            records: 0,
            levels: Vec::new(),
            is_complete: false,
        }
    }

    /// The next line, without its end: appends bytes of the stream.
    pub fn line(&mut self, line: &[u8], name: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.number += 1;
        let start = out.len();
        let result = self.convert(line, name, out);
        if !self.is_complete {
            self.digest.update(&out[start..]);
        }
        result
            .map_err(|what| Error::refused(format!("line {} of the dump: {what}", self.number), ""))
    }

    /// Whether the last line has come.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn convert(
        &mut self,
        line: &[u8],
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), String> {
        let start = out.len();
        if self.is_complete {
            return Err("something follows the last line".to_owned());
        }
        if self.number == 1 {
            let first: First = parse(line)?;
            if first.pando_dump != VERSION {
                return Err(format!("version {}, expected {VERSION}", first.pando_dump));
            }
            out.extend_from_slice(&preamble());
            // Nothing is a base for an increment from here: there are no contents.
            let origins = vec![Origin { volume: [0; 16], snapshot: 0 }];
            Record::Head(Head { name, origins, ..Head::default() }).encode(out);
            return Ok(());
        }
        if let Ok(last) = serde_json::from_slice::<Last>(line) {
            if last.lines.checked_add(2) != Some(self.number) {
                return Err(format!("{} lines were dumped", last.lines));
            }
            while let Some(waiting) = self.levels.pop() {
                self.attributes(&waiting.0, &waiting.1, out);
            }
            self.digest.update(&out[start..]);
            let digest = self.digest.digest128().to_be_bytes();
            Record::End { records: self.records, bytes: 0, digest }.encode(out);
            self.is_complete = true;
            return Ok(());
        }
        self.inode(&parse(line)?, out)
    }

    fn inode(&mut self, line: &Line, out: &mut Vec<u8>) -> std::result::Result<(), String> {
        let path = bytes(&line.path, line.path_hex.as_deref(), PATH_BYTES_MAX)?;
        let own = attributes(line)?;
        let kind = kind(&line.kind).ok_or("an unknown kind")?;
        while let Some((above, _)) = self.levels.last() {
            let is_below = above.is_empty()
                || path.strip_prefix(&above[..]).is_some_and(|rest| rest.starts_with(b"/"));
            if is_below {
                break;
            }
            if let Some((path, own)) = self.levels.pop() {
                self.used -= own.bytes(&path);
                self.attributes(&path, &own, out);
            }
        }
        if self.levels.is_empty() != path.is_empty() {
            return Err("the directory itself comes first, and once".to_owned());
        }
        if path.is_empty() {
            return self.wait(path, own);
        }
        if let Some(first) = &line.link_to {
            let target = bytes(first, line.link_to_hex.as_deref(), PATH_BYTES_MAX)?;
            self.push(&Record::Link { path: &path, target: &target }, out);
            self.attributes(&path, &own, out);
            return Ok(());
        }
        let target = match &line.target {
            Some(target) => bytes(target, line.target_hex.as_deref(), TARGET_BYTES_MAX)?,
            None => Vec::new(),
        };
        let device = line.device.unwrap_or(0);
        self.push(&Record::Make { path: &path, kind, device, target: &target }, out);
        if let Some(size) = line.size.filter(|size| *size > 0) {
            self.push(&Record::Size { size }, out);
        }
        if kind == NewKind::Directory {
            return self.wait(path, own);
        }
        self.attributes(&path, &own, out);
        Ok(())
    }

    /// Keeps the attributes of a directory until all below it is made.
    fn wait(&mut self, path: Vec<u8>, own: Own) -> std::result::Result<(), String> {
        self.used += own.bytes(&path);
        if self.used > self.memory {
            let limit = self.memory;
            return Err(format!(
                "the attributes of directories take more than {limit} bytes of memory: raise \
                 --memory"
            ));
        }
        self.levels.push((path, own));
        Ok(())
    }

    fn attributes(&mut self, path: &[u8], own: &Own, out: &mut Vec<u8>) {
        let [atime, mtime, ctime, btime] = own.times;
        let attributes = Attributes {
            mode: own.mode,
            uid: own.uid,
            gid: own.gid,
            atime,
            mtime,
            ctime,
            btime,
            xattrs: own.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
        };
        self.push(&Record::Attr { path, attributes }, out);
    }

    fn push(&mut self, record: &Record<'_>, out: &mut Vec<u8>) {
        self.records += 1;
        record.encode(out);
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(line: &'a [u8]) -> std::result::Result<T, String> {
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

fn attributes(line: &Line) -> std::result::Result<Own, String> {
    let mode = u32::from_str_radix(&line.mode, 8).ok().filter(|mode| *mode <= 0o7777);
    if line.xattrs.len() > XATTRS_MAX {
        return Err("too many extended attributes".to_owned());
    }
    let mut xattrs = Vec::new();
    for xattr in &line.xattrs {
        let name = bytes(&xattr.name, xattr.name_hex.as_deref(), NAME_BYTES_MAX)?;
        xattrs.push((name, bytes("", Some(&xattr.value_hex), VALUE_BYTES_MAX)?));
    }
    Ok(Own {
        mode: mode.ok_or("a mode is up to four octal digits")?,
        uid: line.uid,
        gid: line.gid,
        times: [line.atime_ns, line.mtime_ns, line.ctime_ns, line.btime_ns],
        xattrs,
    })
}

/// Bytes of text, or of hexadecimal digits where there are such.
pub(crate) fn bytes(
    text: &str,
    hex: Option<&str>,
    most: usize,
) -> std::result::Result<Vec<u8>, String> {
    let bytes = match hex {
        None => text.as_bytes().to_vec(),
        Some(hex) => {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let pair = |pair: &[u8]| match pair {
                [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
                _ => None,
            };
            let decoded: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(pair).collect();
            decoded.ok_or("expected pairs of hexadecimal digits")?
        }
    };
    if bytes.len() > most { Err(format!("longer than {most} bytes")) } else { Ok(bytes) }
}

fn kind(name: &str) -> Option<NewKind> {
    Some(match name {
        "file" => NewKind::File,
        "directory" => NewKind::Directory,
        "symlink" => NewKind::Symlink,
        "fifo" => NewKind::Fifo,
        "socket" => NewKind::Socket,
        "char-device" => NewKind::CharDevice,
        "block-device" => NewKind::BlockDevice,
        _ => return None,
    })
}
