//! `pando dump --format parquet`: a file with a row for each line, of one moment, or no whole file.

use std::fs::File;
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

use crate::world::{PANDO, World, answer, engines};

#[test]
fn a_dump_in_columns_has_the_rows_of_the_lines() {
    for engine in engines("lsm") {
        let world = World::on(engine);
        let source = world.source();
        for file in 0..3000 {
            std::fs::write(source.join(format!("file-{file}")), vec![0; file % 7]).unwrap();
        }
        let at = world.at("/d");
        world.ok(&["import", source.to_str().unwrap(), &at]);
        world.ok(&["snapshot", "create", &at, "one"]);
        let lines = world.ok(&["dump", &at]);
        let path = world.path().join("d.parquet");
        // With the least memory, which ends groups of rows early.
        for words in [
            &["dump", "--format", "parquet", "--memory", "1M"][..],
            &["dump", "--format", "parquet"],
        ] {
            let file = File::options().write(true).create(true).truncate(true).open(&path).unwrap();
            let dumped =
                Command::new(PANDO).args(words).arg(format!("{at}@one")).stdout(file).output();
            let dumped = answer(&dumped.unwrap());
            assert_eq!(dumped.code, 0, "{}", dumped.err);
            let reader =
                SerializedFileReader::new(File::options().read(true).open(&path).unwrap()).unwrap();
            let groups = reader.num_row_groups();
            assert_eq!(groups > 1, words.len() > 3, "{groups} groups");
            let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
            let expected: Vec<serde_json::Value> =
                lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(rows.len(), expected.len() - 2);
            for (row, line) in rows.iter().zip(&expected[1..]) {
                assert_eq!(*row.get_string(0).unwrap(), line["path"].as_str().unwrap());
                assert_eq!(row.get_long(13).ok(), line["mtime_ns"].as_i64());
                assert_eq!(row.get_ulong(8).ok(), line["size"].as_u64());
            }
        }
        // A disk that is full, and what cannot be loaded.
        let full = File::options().write(true).open("/dev/full").unwrap();
        let failed = Command::new(PANDO)
            .args(["dump", "--format", "parquet", &at])
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(answer(&failed).code, 1, "{}", answer(&failed).err);
        let refused = Command::new(PANDO)
            .args(["load", &world.at("/loaded")])
            .stdin(File::options().read(true).open(&path).unwrap())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        let refused = answer(&refused);
        assert_eq!(refused.code, 1, "{}", refused.err);
        assert!(refused.err.contains("this is a Parquet file"), "{}", refused.err);
        world.fails(3, &["stat", &world.at("/loaded")]);
        world.close();
    }
}
