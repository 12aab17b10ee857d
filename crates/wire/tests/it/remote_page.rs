//! Compares `docs/protocol/remote.md` with the types of `src/remote/`: a client can be written from
//! the page alone.

use crate::page::{assert_in_order, assert_variants, sentence, table, types, word};

const PAGE: &str = include_str!("../../../../docs/protocol/remote.md");
const SOURCES: [&str; 3] = [
    include_str!("../../src/remote/answer.rs"),
    include_str!("../../src/remote/call.rs"),
    include_str!("../../src/remote/hello.rs"),
];

#[test]
fn page_has_the_fields_of_the_code_in_their_order() {
    let (page, types) = (PAGE, types(&SOURCES));
    let of = |name: &str| types.get(name).unwrap_or_else(|| panic!("the code has no {name}"));
    for name in ["RemoteHello", "RemoteWelcome", "Resume"] {
        let rows = table(page, &format!("`{name}`"));
        let fields: Vec<&str> = rows.iter().flat_map(|row| row[0].split(", ")).collect();
        assert_eq!(fields, of(name).fields, "{name}");
        for row in &rows {
            let (names, types) = (row[0].split(", ").count(), row[1].split(", ").count());
            assert!(names == types, "{name}: {} has {} types", row[0], row[1]);
        }
    }
    for name in ["Asked", "Asker", "Changes", "LockRange"] {
        assert_in_order(&of(name).fields, sentence(page, name), name);
    }
    for (name, head) in [("FsCall", "variant | call"), ("FsAnswer", "variant | answer")] {
        assert_variants(page, head, (name, of(name)), 2);
    }
    let answers = table(page, "variant | answer");
    let fields_of = |variant: &str| {
        let row = answers.iter().find(|row| row[1] == variant);
        row.unwrap_or_else(|| panic!("no answer {variant}"))[2].clone()
    };
    for (variant, name) in [("Attr", "RemoteAttr"), ("Space", "Space"), ("Listing", "Listed")] {
        assert_in_order(&of(name).fields, &fields_of(variant), name);
    }
    for (variant, _) in &of("FsCall").variants {
        let answer =
            table(page, "variant | call").iter().find(|row| row[1] == *variant).unwrap()[3].clone();
        let named = of("FsAnswer").variants.iter().any(|(known, _)| *known == word(&answer));
        assert!(named, "{variant} is answered by {answer}");
    }
    let failures = page.split("in the order of `FsFailure`:").nth(1).unwrap();
    let failures = failures.split("\n\n").next().unwrap().replace('\n', " ");
    let listed: Vec<&str> = failures.split(", ").map(|one| one.trim_end_matches('.')).collect();
    let listed: Vec<String> = listed.iter().map(|one| one.replace(" (text)", "")).collect();
    let variants = of("FsFailure").variants.iter().enumerate();
    let expected: Vec<String> =
        variants.map(|(number, (name, _))| format!("{number} {name}")).collect();
    assert_eq!(listed.iter().map(|one| one.trim()).collect::<Vec<_>>(), expected);
    for (name, text) in [("Use", "use_for"), ("Renaming", "Rename"), ("LockKind", "LockRange")] {
        assert!(types.contains_key(name), "{name}, which the page describes in {text}, is gone");
    }
}
