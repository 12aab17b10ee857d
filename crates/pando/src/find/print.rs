//! What `find` does with rows: the actions, each into its file or standard output; JSON; counts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jiff::tz::TimeZone;
use search::query::{Action, What};
use wire::Kind;

use super::format;
use super::item::Item;
use super::list::Columns;
use crate::failure::{self, Result};
use crate::names::Names;
use crate::output::{Output, printable, put_bytes};
use crate::verbs::attr_text;

/// Executes the actions.
pub(crate) struct Printer {
    actions: Vec<Action>,
    counts: Vec<u64>,
    files: BTreeMap<Vec<u8>, BufWriter<File>>,
    names: Names,
    columns: Columns,
    zone: TimeZone,
    now: i64,
    line: Vec<u8>,
    terminal: bool,
}

impl Printer {
    /// Opens the output files. They are created even if nothing is ever written.
    pub(crate) fn new(
        actions: Vec<Action>,
        now: i64,
        zone: TimeZone,
        terminal: bool,
    ) -> Result<Printer> {
        let mut files = BTreeMap::new();
        for file in actions.iter().filter_map(|action| action.file.as_ref()) {
            if files.contains_key(file) {
                continue;
            }
            let path = Path::new(OsStr::from_bytes(file));
            let opened = OpenOptions::new().write(true).create(true).truncate(true).open(path);
            let opened = opened.map_err(|error| failure::io("write", path, &error))?;
            files.insert(file.clone(), BufWriter::new(opened));
        }
        let counts = vec![0; actions.len()];
        let (names, columns) = (Names::default(), Columns::new());
        let line = Vec::new();
        Ok(Printer { actions, counts, files, names, columns, zone, now, line, terminal })
    }

    /// Executes one action.
    pub(crate) fn act(
        &mut self,
        number: usize,
        item: &Item<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let Some(action) = self.actions.get(number) else { return Ok(()) };
        self.line.clear();
        let line = &mut self.line;
        match &action.what {
            What::Print => {
                if action.file.is_none() && self.terminal {
                    // Bytes that would control a terminal are escaped.
                    line.extend_from_slice(printable(item.path).as_bytes());
                } else {
                    line.extend_from_slice(item.path);
                }
                line.push(b'\n');
            }
            What::Print0 => {
                line.extend_from_slice(item.path);
                line.push(0);
            }
            What::Printf(format) => {
                let terminal = action.file.is_none() && self.terminal;
                format::render(format, item, &mut self.names, (&self.zone, terminal), line);
            }
            What::Ls => self.columns.row(item, &mut self.names, self.now, &self.zone, line),
            What::Count => self.counts[number] += 1,
        }
        match action.file.as_ref().and_then(|file| Some((file, self.files.get_mut(file)?))) {
            None => output.raw(line),
            Some((file, writer)) => writer
                .write_all(line)
                .map_err(|error| failure::io("write", Path::new(OsStr::from_bytes(file)), &error)),
        }
    }

    /// Adds to the counts of all `-count` actions: rows that the daemon counted.
    pub(crate) fn counted(&mut self, rows: u64) {
        for (action, count) in self.actions.iter().zip(&mut self.counts) {
            if action.what == What::Count {
                *count += rows;
            }
        }
    }

    /// Prints the counts and closes the files.
    pub(crate) fn finish(&mut self, output: &mut Output) -> Result<()> {
        for (action, count) in self.actions.iter().zip(&self.counts) {
            if action.what == What::Count {
                if output.is_json() {
                    output.object(&serde_json::json!({ "count": count }))?;
                } else {
                    output.line(&count.to_string())?;
                }
            }
        }
        for (file, writer) in &mut self.files {
            writer.flush().map_err(|error| {
                failure::io("write", Path::new(OsStr::from_bytes(file)), &error)
            })?;
        }
        Ok(())
    }
}

/// A row as JSON.
pub(crate) fn object(item: &Item<'_>) -> serde_json::Value {
    let target = wire::Bytes(item.target.to_vec());
    let target = (item.attr.kind == Kind::Symlink).then_some(&target);
    let mut object = attr_text::json(item.attr, target);
    put_bytes(&mut object, "path", item.path);
    object["depth"] = serde_json::json!(item.depth);
    object
}
