//! `-ls`: a row as `ls -dils` lists it, in columns that grow when something does not fit.

use jiff::tz::TimeZone;
use wire::Kind;

use super::item::Item;
use super::times;
use crate::names::Names;
use crate::verbs::attr_text;

/// The current widths of the columns.
pub(super) struct Columns {
    ino: usize,
    blocks: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
}

impl Columns {
    /// The initial widths.
    pub(super) fn new() -> Columns {
        Columns { ino: 9, blocks: 6, links: 3, user: 8, group: 8, size: 8 }
    }

    /// Lists a row.
    pub(super) fn row(
        &mut self,
        item: &Item<'_>,
        names: &mut Names,
        now: i64,
        zone: &TimeZone,
        out: &mut Vec<u8>,
    ) {
        let attr = item.attr;
        let (ino, blocks) = (attr.node.to_string(), attr.blocks.div_ceil(2).to_string());
        let (links, user) = (attr.nlink.to_string(), names.user(attr.uid));
        let (group, size) = (names.group(attr.gid), attr_text::size_or_device(attr));
        let fit = |width: &mut usize, text: &str| *width = text.len().max(*width);
        fit(&mut self.ino, &ino);
        fit(&mut self.blocks, &blocks);
        fit(&mut self.links, &links);
        fit(&mut self.user, &user);
        fit(&mut self.group, &group);
        fit(&mut self.size, &size);
        let line = format!(
            "{ino:>i$} {blocks:>b$} {} {links:>l$} {user:<u$} {group:<g$} {size:>s$} {} ",
            attr_text::mode_letters(attr),
            times::listed(attr.mtime, now, zone),
            i = self.ino,
            b = self.blocks,
            l = self.links,
            u = self.user,
            g = self.group,
            s = self.size,
        );
        out.extend_from_slice(line.as_bytes());
        quote(item.path, out);
        if attr.kind == Kind::Symlink {
            out.extend_from_slice(b" -> ");
            quote(item.target, out);
        }
        out.push(b'\n');
    }
}

/// A name with characters that would disturb a list escaped as in C.
fn quote(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            8 => out.extend_from_slice(b"\\b"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            12 => out.extend_from_slice(b"\\f"),
            b' ' => out.extend_from_slice(b"\\ "),
            b'"' => out.extend_from_slice(b"\\\""),
            b'!'..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
        }
    }
}
