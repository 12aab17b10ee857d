//! Pages of `docs/format/` against the code. Each structure's table shows the fields that its
//! `LAYOUT` has, in order, without gaps. Every module of `format` has a page.
//!
//! A page names the file that its tables describe (``source: `crates/format/src/x.rs` ``). The
//! tables up to the next such line show the layouts of that file, in the order of the file. A
//! field whose size varies has a word in the size column; what follows it has no fixed offset.

use format::layout::Field;

use super::Tree;

/// A layout that the code states.
struct Stated {
    /// Module of `format`.
    module: &'static str,
    /// Name of the constant.
    name: &'static str,
    fields: &'static [Field],
}

macro_rules! layouts {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$(Stated {
            module: stringify!($module),
            name: stringify!($name),
            fields: format::$module::$name,
        }),*]
    };
}

/// All layouts. A test fails when `format` has one that is not here.
const STATED: &[Stated] = layouts![
    acl::LAYOUT,
    answer_record::SESSION_LAYOUT,
    answer_record::LAYOUT,
    answer_record::EXECUTED_LAYOUT,
    cluster::LAYOUT,
    cluster::COLUMN_LAYOUT,
    base_record::LAYOUT,
    cached_chunk::LAYOUT,
    candidate::LAYOUT,
    cluster_directories::LAYOUT,
    cluster_groups::LAYOUT,
    cluster_groups::ITEM_LAYOUT,
    cluster_groups::NAMED_LAYOUT,
    cluster_limits::LAYOUT,
    directory_record::LAYOUT,
    directory_record::ELSEWHERE_LAYOUT,
    directory_record::CHARGE_LAYOUT,
    detached_record::LAYOUT,
    detached_record::INODES_LAYOUT,
    entry_record::LAYOUT,
    extent::LAYOUT,
    inherited_record::LAYOUT,
    inode_record::LAYOUT,
    inode_record::LINKED_LAYOUT,
    kept_twice::LAYOUT,
    key::ENTRY_LAYOUT,
    log_object::LAYOUT,
    log_record::LAYOUT,
    log_segment::LAYOUT,
    manifest::LAYOUT,
    manifest::CLUSTER_LAYOUT,
    map_directory::LAYOUT,
    node::LAYOUT,
    numbers::LAYOUT,
    owner_quota::STATE_LAYOUT,
    owner_quota::LAYOUT,
    pointer::LAYOUT,
    presence::LAYOUT,
    quota::LAYOUT,
    quota::CHARGED_LAYOUT,
    received_record::LAYOUT,
    run_block::LAYOUT,
    run_index::BLOB_LAYOUT,
    run_index::LAYOUT,
    run_index::BLOCK_LAYOUT,
    run_manifest::LAYOUT,
    run_manifest::BLOB_LAYOUT,
    run_manifest::RUN_LAYOUT,
    run_manifest::VALUES_LAYOUT,
    run_manifest::LOG_LAYOUT,
    run_manifest::USE_LAYOUT,
    run_manifest::PREFIX_LAYOUT,
    run_manifest::ORIGIN_LAYOUT,
    row_pointer::LAYOUT,
    scan_record::LAYOUT,
    segment::LAYOUT,
    stream::LAYOUT,
    stream::FRAME_LAYOUT,
    stream::HEAD_LAYOUT,
    stream::ORIGIN_LAYOUT,
    stream::ATTR_LAYOUT,
    stream::END_LAYOUT,
    subvolume_record::LAYOUT,
    subvolume_record::USAGE_LAYOUT,
    superblock::LAYOUT,
    retention::LAYOUT,
    retention::HOLD_LAYOUT,
    trace::LAYOUT,
    trace::BLOCK_LAYOUT,
    trash::LAYOUT,
    usage::LAYOUT,
    volume::LAYOUT,
    xattr_record::LAYOUT,
];

/// Modules of `format` that describe no structure.
const NOT_STRUCTURES: [&str; 1] = ["layout"];

const SOURCE: &str = "crates/format/src/";

/// One row of a table: offset, size, type and field, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row<'a> {
    offset: &'a str,
    size: &'a str,
    kind: &'a str,
    field: &'a str,
}

/// A table of a page, with the module it describes.
#[derive(Debug)]
struct Table<'a> {
    module: &'a str,
    rows: Vec<Row<'a>>,
    /// The stated sum of the sizes.
    total: Option<&'a str>,
}

/// All rules about pages.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let mut described: Vec<(&str, Vec<Table<'_>>, &str)> = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.starts_with("docs/format/")) {
        for module in sources(text) {
            let tables = tables(text).into_iter().filter(|table| table.module == module).collect();
            described.push((path, tables, module));
        }
    }
    for module in modules(tree) {
        if !described.iter().any(|(_, _, described)| *described == module) {
            problems.push(format!("{SOURCE}{module}.rs: has no page in docs/format/"));
        }
    }
    for (page, tables, module) in &described {
        let stated: Vec<_> = STATED.iter().filter(|stated| stated.module == *module).collect();
        if stated.len() != tables.len() {
            let (has, shows) = (stated.len(), tables.len());
            problems.push(format!("{page}: {module} states {has} layouts, the page shows {shows}"));
        }
        for (stated, table) in stated.iter().zip(tables) {
            let name = format!("{page}: {module}::{}", stated.name);
            problems.extend(compare(&name, stated.fields, table));
        }
    }
    unregistered(tree, &mut problems);
    problems
}

/// The modules that a page describes, by its header.
fn sources(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(source)
}

fn source(line: &str) -> Option<&str> {
    let named = line.split("source: ").nth(1)?.trim_start_matches('`').strip_prefix(SOURCE)?;
    named.split(".rs").next()
}

/// The public modules of `format`.
fn modules(tree: &Tree) -> impl Iterator<Item = &str> {
    let code = tree.text("crates/format/src/lib.rs").unwrap_or_default();
    code.lines()
        .filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';'))
        .filter(|module| !NOT_STRUCTURES.contains(module))
}

/// The tables of fields of a page.
fn tables(text: &str) -> Vec<Table<'_>> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    let mut module = "";
    let mut inside = false;
    for line in text.lines() {
        if let Some(found) = source(line) {
            module = found;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells.as_slice() {
            ["", "offset", "size", "type", "field", ..] => {
                tables.push(Table { module, rows: Vec::new(), total: None });
                inside = true;
            }
            ["", rule @ ..] if inside && rule.iter().all(|cell| is_rule(cell)) => {}
            ["", offset, size, kind, field, ..] if inside => {
                if let Some(table) = tables.last_mut() {
                    let field = field.trim_matches('`');
                    table.rows.push(Row { offset, size, kind, field });
                }
            }
            _ => inside = false,
        }
        if let (Some(total), Some(table)) = (line.trim().strip_prefix("total: "), tables.last_mut())
        {
            table.total.get_or_insert(total.trim_end_matches(" bytes").trim_end_matches(" byte"));
        }
    }
    tables
}

/// Whether a cell belongs to the line between a table's heading and its rows.
fn is_rule(cell: &str) -> bool {
    cell.is_empty() || (cell.len() > 1 && cell.chars().all(|c| c == '-' || c == ':'))
}

/// Compares a table with the layout in the code.
fn compare(name: &str, fields: &[Field], table: &Table<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    if fields.len() != table.rows.len() {
        let (has, shows) = (fields.len(), table.rows.len());
        return vec![format!("{name}: {has} fields in the code, {shows} in the table")];
    }
    let mut offset = Some(0_usize);
    for (field, row) in fields.iter().zip(&table.rows) {
        if row.field != field.name || row.kind != field.kind {
            let (name_there, kind_there) = (row.field, row.kind);
            problems.push(format!(
                "{name}: the code has {} ({}), the table {name_there} ({kind_there})",
                field.name, field.kind
            ));
        }
        let size = row.size.parse::<usize>().ok();
        if size != (field.size > 0).then_some(field.size) {
            problems.push(format!("{name}: {} has size {} in the table", field.name, row.size));
        }
        if row.offset.parse::<usize>().ok() != offset {
            problems.push(format!("{name}: {} has offset {} in the table", field.name, row.offset));
        }
        offset = offset.filter(|_| field.size > 0).map(|offset| offset + field.size);
    }
    if let Some(sum) = offset
        && table.total.and_then(|total| total.parse::<usize>().ok()) != Some(sum)
    {
        problems.push(format!("{name}: the page must end the table with 'total: {sum} bytes'"));
    }
    problems
}

/// Layouts in the code that nobody compares.
fn unregistered(tree: &Tree, problems: &mut Vec<String>) {
    for (path, text) in tree.texts() {
        let Some(module) = path.strip_prefix(SOURCE).and_then(|rest| rest.strip_suffix(".rs"))
        else {
            continue;
        };
        for line in text.lines() {
            let Some((name, _)) =
                line.strip_prefix("pub const ").and_then(|l| l.split_once(": &[Field]"))
            else {
                continue;
            };
            if name.starts_with("fn ") {
                continue;
            }
            let known = |stated: &Stated| stated.module == module && stated.name == name;
            if !STATED.iter().any(known) {
                problems.push(format!("{path}: {name} is not in the list of layouts (xtask)"));
            }
        }
    }
}

/// The tables as pages must show them, to start a page from.
pub(crate) fn print() -> String {
    let mut lines = Vec::new();
    for stated in STATED {
        lines.push(format!("{}::{}", stated.module, stated.name));
        lines.push("| offset | size | type | field | meaning | check on read |".to_owned());
        lines.push("|-------:|-----:|------|-------|---------|---------------|".to_owned());
        let mut offset = Some(0_usize);
        for field in stated.fields {
            let at = offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
            let size = if field.size > 0 { field.size.to_string() } else { "var".to_owned() };
            lines.push(format!("| {at} | {size} | {} | {} |  |  |", field.kind, field.name));
            offset = offset.filter(|_| field.size > 0).map(|offset| offset + field.size);
        }
        lines.push(String::new());
        lines.extend(offset.map(|sum| format!("total: {sum} bytes\n")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[Field::fixed("kind", "u8", 1), Field::fixed("length", "u32 LE", 4)];

    fn page(rows: &str, total: &str) -> String {
        format!(
            "source: `crates/format/src/x.rs`   version: 1\n\n\
             | offset | size | type | field | meaning |\n|--:|--:|--|--|--|\n{rows}\n\n{total}\n"
        )
    }

    fn check_page(rows: &str, total: &str) -> Vec<String> {
        let text = page(rows, total);
        let tables = tables(&text);
        assert_eq!((tables.len(), tables[0].module), (1, "x"));
        compare("x", FIELDS, &tables[0])
    }

    #[test]
    fn a_correct_table_passes() {
        let rows = "| 0 | 1 | u8 | kind | a |\n| 1 | 4 | u32 LE | `length` | b |";
        assert_eq!(check_page(rows, "total: 5 bytes"), Vec::<String>::new());
    }

    #[test]
    fn wrong_tables_are_reported() {
        let right = "| 0 | 1 | u8 | kind | a |\n";
        for (rows, total) in [
            (format!("{right}| 2 | 4 | u32 LE | length | b |"), "total: 5 bytes"),
            (format!("{right}| 1 | 8 | u32 LE | length | b |"), "total: 5 bytes"),
            (format!("{right}| 1 | 4 | u32 LE | size | b |"), "total: 5 bytes"),
            (format!("{right}| 1 | 4 | u64 LE | length | b |"), "total: 5 bytes"),
            (format!("{right}| 1 | 4 | u32 LE | length | b |"), "total: 6 bytes"),
            (format!("{right}| 1 | 4 | u32 LE | length | b |"), ""),
            (right.to_owned(), "total: 1 bytes"),
        ] {
            assert!(!check_page(&rows, total).is_empty(), "{rows} {total}");
        }
    }

    #[test]
    fn missing_page_and_unlisted_layout_are_found() {
        let tree = Tree::of(&[
            ("crates/format/src/lib.rs", "pub mod newcomer;\npub mod layout;\n"),
            ("crates/format/src/newcomer.rs", "pub const OTHER: &[Field] = &[];\n"),
        ]);
        let problems = check(&tree);
        assert!(problems.iter().any(|p| p.contains("newcomer.rs: has no page")), "{problems:?}");
        assert!(problems.iter().any(|p| p.contains("OTHER is not in the list")), "{problems:?}");
        assert_eq!(problems.len(), 2);
    }
}
