//! Dumps in columns: read by the library's own reader of rows, they have what the lines have.

use std::fs::File;
use std::io::{Seek, Write};

use fs::Engine;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Value, json};
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
            (name, Field::Bytes(bytes)) if name == "value" => {
                ("value_hex".to_owned(), hex(bytes.data()).into())
            }
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
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
const ODD: &str = r#"{"pando_dump":1}
{"path":"","kind":"directory","mode":"7777","uid":4294967295,"gid":0,"atime_ns":-9223372036854775808,"mtime_ns":9223372036854775807,"ctime_ns":0,"btime_ns":-1}
{"path":"\ufffd","path_hex":"ff","kind":"file","mode":"0000","uid":1,"gid":4294967295,"size":18446744073709551615,"atime_ns":1,"mtime_ns":2,"ctime_ns":3,"btime_ns":4,"xattrs":[{"name":"user.a","value_hex":""},{"name":"user.\ufffd","name_hex":"757365722efe","value_hex":"00ff"}]}
{"path":"b","kind":"file","link_to":"\ufffd","link_to_hex":"ff","mode":"0644","uid":1,"gid":2,"size":0,"atime_ns":1,"mtime_ns":2,"ctime_ns":3,"btime_ns":4,"xattrs":[{"name":"user.b","value_hex":"62"}]}
{"path":"c","kind":"char-device","mode":"0600","uid":0,"gid":0,"device":4294967295,"atime_ns":1,"mtime_ns":2,"ctime_ns":3,"btime_ns":4}
{"path":"l","kind":"symlink","mode":"0777","uid":0,"gid":0,"target":"\u0001 \"\ufffd","target_hex":"012022fe","atime_ns":1,"mtime_ns":2,"ctime_ns":3,"btime_ns":4}
{"lines":5}
"#;

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
    for cut in [0, 4, file.len() / 2, file.len() - 1] {
        rows(&file[..cut]).expect_err("a part of a file");
    }
    let bad = [
        ("{\"lines\":5}", "{\"lines\":6}"),
        ("\"mode\":\"7777\"", "\"mode\":\"9\""),
        ("\"pando_dump\":1", "\"pando_dump\":2"),
        ("\"value_hex\":\"00ff\"", "\"value_hex\":\"0\""),
        ("\"gid\":2,", "\"gid\":2,\"more\":1,"),
    ];
    for (good, bad) in bad {
        assert!(ODD.contains(good), "{good}");
        columns(&ODD.replace(good, bad), 1 << 20).expect_err(bad);
    }
    let cut: Vec<&str> = ODD.lines().take(3).collect();
    assert!(matches!(columns(&cut.join("\n"), 1 << 20), Err(Error::Cut)));
}
