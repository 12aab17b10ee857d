//! A dump in columns: a Parquet file with one row for each line of a dump, in the same order. It
//! has a column for each field.
//!
//! Bytes that are no text are in a column `_bytes` beside the text, where the lines have
//! hexadecimal digits. A mode is a number, and times have a type. A group of rows is in memory
//! until it is written, within a bound. The caller takes the bytes of the file as they are made. A
//! file that is cut has no end, and is refused by every program.
//!
//! Nothing reads such a file here: the library stops the process at some damaged files.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};

use crate::dump::{First, Last, Line, VERSION};
use crate::error::{Error, Result};
use crate::load::bytes;

/// The bytes that every Parquet file begins with.
pub const MAGIC: &[u8; 4] = b"PAR1";

/// The name under which the file has the version of the dump.
const VERSION_NAME: &str = "pando_dump";

/// The columns. DO NOT CHANGE: files have them.
const SCHEMA: &str = "
message dump {
    required binary path (STRING);
    optional binary path_bytes;
    required binary kind (STRING);
    optional binary link_to (STRING);
    optional binary link_to_bytes;
    required int32 mode (INTEGER(16,false));
    required int32 uid (INTEGER(32,false));
    required int32 gid (INTEGER(32,false));
    optional int64 size (INTEGER(64,false));
    optional int32 device (INTEGER(32,false));
    optional binary target (STRING);
    optional binary target_bytes;
    required int64 atime (TIMESTAMP(NANOS,true));
    required int64 mtime (TIMESTAMP(NANOS,true));
    required int64 ctime (TIMESTAMP(NANOS,true));
    required int64 btime (TIMESTAMP(NANOS,true));
    required group xattrs (LIST) {
        repeated group list {
            required group element {
                required binary name (STRING);
                optional binary name_bytes;
                required binary value;
            }
        }
    }
}";

/// Most rows of a group: what a reader has to skip or read at once.
const ROWS_MAX: u64 = 128 << 10;
/// Most bytes of a group in memory, and the least that make sense.
const GROUP_BYTES_MAX: usize = 32 << 20;
const GROUP_BYTES_MIN: usize = 256 << 10;

/// Turns the lines of a dump into a Parquet file.
pub struct ColumnWriter {
    file: SerializedFileWriter<Vec<u8>>,
    rows: Rows,
    group_bytes: usize,
    lines: u64,
    is_complete: bool,
}

/// Values of a column, and which rows have one; nothing of the latter if all have.
struct Column<T> {
    values: Vec<T>,
    present: Vec<i16>,
}

impl<T> Default for Column<T> {
    fn default() -> Column<T> {
        Column { values: Vec::new(), present: Vec::new() }
    }
}

impl<T> Column<T> {
    fn push(&mut self, value: Option<T>) {
        self.present.push(value.is_some().into());
        self.values.extend(value);
    }
}

/// Extended attributes: a list in each row. An attribute's level of repetition is 0 if it is the
/// first of its row; a row without has a level of definition 0.
#[derive(Default)]
struct Xattrs {
    repeated: Vec<i16>,
    listed: Vec<i16>,
    names: Vec<ByteArray>,
    name_bytes: Vec<ByteArray>,
    /// As `listed`, and 2 where there are bytes of a name.
    name_bytes_defined: Vec<i16>,
    values: Vec<ByteArray>,
}

/// A group of rows.
#[derive(Default)]
struct Rows {
    count: u64,
    bytes: usize,
    paths: Vec<ByteArray>,
    path_bytes: Column<ByteArray>,
    kinds: Vec<ByteArray>,
    links: Column<ByteArray>,
    link_bytes: Column<ByteArray>,
    numbers: [Vec<i32>; 3],
    sizes: Column<i64>,
    devices: Column<i32>,
    targets: Column<ByteArray>,
    target_bytes: Column<ByteArray>,
    times: [Vec<i64>; 4],
    xattrs: Xattrs,
}

impl ColumnWriter {
    /// A file that keeps about so many bytes of rows in memory, and no more than 32 MiB.
    pub fn new(memory: usize) -> Result<ColumnWriter> {
        let version = KeyValue::new(VERSION_NAME.to_owned(), VERSION.to_string());
        let plain = |column: &str| ColumnPath::from(column);
        let properties = WriterProperties::builder()
            .set_created_by("pando".to_owned())
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(vec![version]))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            // No two lines have the same, so a dictionary is work for nothing.
            .set_column_dictionary_enabled(plain("path"), false)
            .set_column_dictionary_enabled(plain("path_bytes"), false)
            .build();
        let file = SerializedFileWriter::new(Vec::new(), schema()?, Arc::new(properties));
        Ok(ColumnWriter {
            file: file.map_err(failed)?,
            rows: Rows::default(),
            group_bytes: (memory / 4).clamp(GROUP_BYTES_MIN, GROUP_BYTES_MAX),
            lines: 0,
            is_complete: false,
        })
    }

    /// Takes the next line of the dump, without its end.
    pub fn line(&mut self, line: &[u8]) -> Result<()> {
        self.lines += 1;
        let bad = |why: &dyn std::fmt::Display| {
            let what = format!("a line of the dump that is none: {why}");
            Error::refused(what, "dump the snapshot again")
        };
        if self.lines == 1 {
            let first: First = serde_json::from_slice(line).map_err(|error| bad(&error))?;
            return match first.pando_dump {
                VERSION => Ok(()),
                other => Err(bad(&format!("version {other}, expected {VERSION}"))),
            };
        }
        // The last line has one field, and no other line has it.
        if line.starts_with(b"{\"lines\"") {
            let last: Last = serde_json::from_slice(line).map_err(|error| bad(&error))?;
            if last.lines + 2 != self.lines {
                return Err(bad(&format!("{} lines were dumped", last.lines)));
            }
            self.write()?;
            self.file.finish().map_err(failed)?;
            self.is_complete = true;
            return Ok(());
        }
        let parsed: Line = serde_json::from_slice(line).map_err(|error| bad(&error))?;
        self.rows.push(parsed).map_err(|why| bad(&why))?;
        if self.rows.count >= ROWS_MAX || self.rows.bytes >= self.group_bytes {
            self.write()?;
        }
        Ok(())
    }

    /// Whether the last line has come: all of the file is made.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The bytes of the file that were made since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.file.inner_mut())
    }

    fn write(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows.count == 0 {
            return Ok(());
        }
        let mut group = self.file.next_row_group().map_err(failed)?;
        rows.write(&mut group)?;
        group.close().map_err(failed)?;
        Ok(())
    }
}

/// Text, and its bytes if it is no text.
type Both = (ByteArray, Option<ByteArray>);

fn both(text: String, hex: Option<&str>) -> std::result::Result<Both, String> {
    let raw = hex.map(|hex| bytes("", Some(hex), usize::MAX)).transpose()?;
    Ok((text.into_bytes().into(), raw.map(ByteArray::from)))
}

fn optional(
    text: Option<String>,
    hex: Option<&str>,
    (texts, raws): (&mut Column<ByteArray>, &mut Column<ByteArray>),
) -> std::result::Result<(), String> {
    let found = text.map(|text| both(text, hex)).transpose()?;
    let (text, raw) = found.map_or((None, None), |(text, raw)| (Some(text), raw));
    texts.push(text);
    raws.push(raw);
    Ok(())
}

impl Rows {
    fn push(&mut self, line: Line) -> std::result::Result<(), String> {
        let length = line.path.len()
            + line.link_to.as_ref().map_or(0, String::len)
            + line.target.as_ref().map_or(0, String::len)
            + line.path_hex.as_ref().map_or(0, String::len)
            + line
                .xattrs
                .iter()
                .map(|one| one.name.len() + one.value_hex.len() + 100)
                .sum::<usize>();
        // The values of a row in memory, and as much again while they are encoded.
        self.bytes += 2 * length + 600;
        self.count += 1;
        let (path, path_bytes) = both(line.path, line.path_hex.as_deref())?;
        self.paths.push(path);
        self.path_bytes.push(path_bytes);
        self.kinds.push(line.kind.into_bytes().into());
        let links = (&mut self.links, &mut self.link_bytes);
        optional(line.link_to, line.link_to_hex.as_deref(), links)?;
        let mode = i32::from_str_radix(&line.mode, 8);
        let mode = mode.map_err(|_| "a mode is octal digits".to_owned())?;
        // A column of unsigned numbers has their bits.
        for (column, number) in
            self.numbers.iter_mut().zip([mode, line.uid as i32, line.gid as i32])
        {
            column.push(number);
        }
        self.sizes.push(line.size.map(|size| size as i64));
        self.devices.push(line.device.map(|device| device as i32));
        let targets = (&mut self.targets, &mut self.target_bytes);
        optional(line.target, line.target_hex.as_deref(), targets)?;
        let times = [line.atime_ns, line.mtime_ns, line.ctime_ns, line.btime_ns];
        for (column, time) in self.times.iter_mut().zip(times) {
            column.push(time);
        }
        let xattrs = &mut self.xattrs;
        if line.xattrs.is_empty() {
            xattrs.repeated.push(0);
            xattrs.listed.push(0);
            xattrs.name_bytes_defined.push(0);
        }
        for (number, one) in line.xattrs.into_iter().enumerate() {
            let (name, name_bytes) = both(one.name, one.name_hex.as_deref())?;
            xattrs.repeated.push((number > 0).into());
            xattrs.listed.push(1);
            xattrs.name_bytes_defined.push(if name_bytes.is_some() { 2 } else { 1 });
            xattrs.names.push(name);
            xattrs.name_bytes.extend(name_bytes);
            xattrs.values.push(bytes("", Some(&one.value_hex), usize::MAX)?.into());
        }
        Ok(())
    }

    /// Writes the columns, in the order of the schema.
    fn write(self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<()> {
        let [modes, uids, gids] = &self.numbers;
        required::<ByteArrayType>(group, &self.paths)?;
        some::<ByteArrayType>(group, &self.path_bytes)?;
        required::<ByteArrayType>(group, &self.kinds)?;
        some::<ByteArrayType>(group, &self.links)?;
        some::<ByteArrayType>(group, &self.link_bytes)?;
        required::<Int32Type>(group, modes)?;
        required::<Int32Type>(group, uids)?;
        required::<Int32Type>(group, gids)?;
        some::<Int64Type>(group, &self.sizes)?;
        some::<Int32Type>(group, &self.devices)?;
        some::<ByteArrayType>(group, &self.targets)?;
        some::<ByteArrayType>(group, &self.target_bytes)?;
        for times in &self.times {
            required::<Int64Type>(group, times)?;
        }
        let Xattrs { repeated, listed, names, name_bytes, name_bytes_defined, values } =
            &self.xattrs;
        column::<ByteArrayType>(group, names, Some(listed), Some(repeated))?;
        column::<ByteArrayType>(group, name_bytes, Some(name_bytes_defined), Some(repeated))?;
        column::<ByteArrayType>(group, values, Some(listed), Some(repeated))
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn required<T: DataType>(group: &mut Group<'_>, values: &[T::T]) -> Result<()> {
    column::<T>(group, values, None, None)
}

fn some<T: DataType>(group: &mut Group<'_>, values: &Column<T::T>) -> Result<()> {
    column::<T>(group, &values.values, Some(&values.present), None)
}

fn column<T: DataType>(
    group: &mut Group<'_>,
    values: &[T::T],
    defined: Option<&[i16]>,
    repeated: Option<&[i16]>,
) -> Result<()> {
    let next = group.next_column().map_err(failed)?;
    let mut column = next.expect("invariant: as many columns are written as the schema has");
    column.typed::<T>().write_batch(values, defined, repeated).map_err(failed)?;
    column.close().map_err(failed)
}

fn schema() -> Result<TypePtr> {
    Ok(Arc::new(parse_message_type(SCHEMA).map_err(failed)?))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of `map_err`")]
fn failed(error: ParquetError) -> Error {
    Error::refused(format!("the Parquet file: {error}"), "dump the snapshot again")
}
