//! Dumps in columns: read by the library's own reader of rows, they have what the lines have.

use std::fs::File;
use std::io::{Seek, Write};

use fs::Engine;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Value, json};
use testing::fails;
use transfer::{COLUMNS_MAGIC, ColumnWriter, Error};

use crate::dumps::dumped;
use crate::random::history;
use crate::world::World;

/// The columns of lines.
fn columns(text: &str, memory: usize) -> Result<Vec<u8>, Error> {
    let (mut writer, mut file) = (ColumnWriter::new(memory)?, Vec::new());
    for line in text.lines() {
        writer.line(line.as_bytes())?;
        file.extend(writer.take());
    }
    if writer.is_complete() { Ok(file) } else { Err(Error::Cut) }
}

/// The rows of a file, and how many groups it has.
fn rows(file: &[u8]) -> Result<(Vec<Value>, usize), ParquetError> {
    let mut on_disk: File = tempfile::tempfile().unwrap();
    on_disk.write_all(file).unwrap();
    on_disk.rewind().unwrap();
    let reader = SerializedFileReader::new(on_disk)?;
    let groups = reader.num_row_groups();
    let rows = reader.get_row_iter(None)?.map(|row| Ok(Value::Object(fields(&row?))));
    Ok((rows.collect::<Result<_, ParquetError>>()?, groups))
}

/// A row with the names and values that the line has.
fn fields(row: &Row) -> Map<String, Value> {
    let mut line = Map::new();
    for (name, field) in row.get_column_iter() {
        let (name, value) = match (name.as_str(), field) {
            (_, Field::Null) => continue,
            ("value", Field::Bytes(bytes)) => ("value_hex".to_owned(), hex(bytes.data()).into()),
            (name, Field::Bytes(bytes)) => {
                (name.replace("_bytes", "_hex"), hex(bytes.data()).into())
            }
            (name, Field::Str(text)) => (name.to_owned(), json!(text)),
            ("mode", Field::UShort(mode)) => ("mode".to_owned(), format!("{mode:04o}").into()),
            (name, Field::UInt(number)) => (name.to_owned(), json!(number)),
            (name, Field::ULong(number)) => (name.to_owned(), json!(number)),
            (name, Field::Long(time)) => (format!("{name}_ns"), json!(time)),
            (_, Field::ListInternal(list)) if list.elements().is_empty() => continue,
            (name, Field::ListInternal(list)) => {
                let xattr = |field: &Field| match field {
                    Field::Group(row) => Value::Object(fields(row)),
                    other => panic!("{other:?}"),
                };
                (name.to_owned(), list.elements().iter().map(xattr).collect())
            }
            (name, other) => panic!("{name}: {other:?}"),
        };
        line.insert(name, value);
    }
    line
}

fn hex(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The lines without the first and the last.
fn lines(text: &str) -> Vec<Value> {
    let mut lines: Vec<Value> =
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.pop();
    lines
}

#[test]
fn rows_have_what_lines_have() {
    for seed in 0..6 {
        println!("seed {seed}");
        let world = World::new(if seed % 2 == 0 { Engine::Btree } else { Engine::Lsm }, seed);
        history(&world, seed);
        let taken = world.snapshot("/top", "taken");
        let text = dumped(&world, taken.root, 1 << 20).expect("a dump");
        let file = columns(&text, 1 << 20).expect("columns");
        assert!(file.starts_with(COLUMNS_MAGIC) && file.ends_with(COLUMNS_MAGIC));
        let (rows, _) = rows(&file).expect("rows");
        assert_eq!(rows.len(), lines(&text).len(), "seed {seed}");
        for (row, line) in rows.iter().zip(lines(&text)) {
            assert_eq!(*row, line, "seed {seed}");
        }
    }
}

/// Every field, with values at their ends, and bytes that are no text.
const ODD: &str = include_str!("odd.jsonl");

#[test]
fn every_field_has_a_column() {
    let (read, groups) = rows(&columns(ODD, 1 << 20).expect("columns")).expect("rows");
    assert_eq!((read, groups), (lines(ODD), 1));
    // A directory alone, and no rows at all.
    let start: Vec<&str> = ODD.lines().take(2).collect();
    let one = format!("{}\n{{\"lines\":1}}\n", start.join("\n"));
    assert_eq!(rows(&columns(&one, 1 << 20).unwrap()).unwrap(), (lines(&one), 1));
    let none = format!("{}\n{{\"lines\":0}}\n", start[0]);
    assert_eq!(rows(&columns(&none, 1 << 20).unwrap()).unwrap(), (vec![], 0));
}

/// Rows are written in groups, so that memory is bounded.
#[test]
fn groups_of_rows_are_bounded() {
    let line = ODD.lines().nth(3).unwrap();
    let count = 3000;
    let body: Vec<String> =
        (0..count).map(|row| line.replace("\"b\"", &format!("\"b{row}\""))).collect();
    let text = format!("{{\"pando_dump\":1}}\n{}\n{{\"lines\":{count}}}\n", body.join("\n"));
    let (few, groups) = rows(&columns(&text, 1 << 30).unwrap()).unwrap();
    assert_eq!((few.len(), groups), (count, 1));
    let (many, groups) = rows(&columns(&text, 0).unwrap()).unwrap();
    // 256 KiB of rows are about 390 of these.
    assert!((6..20).contains(&groups), "{groups}");
    assert!(many == few, "the same rows");
    // The longest lines: one in a group.
    let value = "00".repeat(200 << 10);
    let long: Vec<String> = body[..5]
        .iter()
        .map(|line| line.replace("\"value_hex\":\"62\"", &format!("\"value_hex\":\"{value}\"")))
        .collect();
    let text = format!("{{\"pando_dump\":1}}\n{}\n{{\"lines\":5}}\n", long.join("\n"));
    assert_eq!(rows(&columns(&text, 0).unwrap()).unwrap().1, 5);
}

#[test]
fn what_is_no_dump_is_refused() {
    let file = columns(ODD, 1 << 20).unwrap();
    for (cut, error) in [
        (0, "too small"),
        (4, "too small"),
        (file.len() / 2, "Corrupt footer"),
        (file.len() - 1, "Corrupt footer"),
    ] {
        fails(rows(&file[..cut]), error);
    }
    let bad = [
        ("{\"lines\":5}", "{\"lines\":6}", "6 lines were dumped"),
        ("\"mode\":\"7777\"", "\"mode\":\"9\"", "octal digits"),
        ("\"pando_dump\":1", "\"pando_dump\":2", "version 2, expected 1"),
        ("\"value_hex\":\"00ff\"", "\"value_hex\":\"0\"", "pairs of hexadecimal digits"),
        ("\"gid\":2,", "\"gid\":2,\"more\":1,", "unknown field `more`"),
    ];
    for (good, bad, error) in bad {
        assert!(ODD.contains(good), "{good}");
        fails(columns(&ODD.replace(good, bad), 1 << 20), error);
    }
    let cut: Vec<&str> = ODD.lines().take(3).collect();
    assert!(matches!(columns(&cut.join("\n"), 1 << 20), Err(Error::Cut)));
}
