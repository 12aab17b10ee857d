//! Compares `docs/protocol/control.md` with the types of the control socket: its numbers, fields
//! and bytes are the code's.

use wire::{
    Bytes, FRAME_BYTES_MAX, HELLO_MAGIC, Hello, PAYLOAD_BYTES_MAX, VERSION, Welcome, encode,
    write_frame,
};

use crate::page::{assert_in_order, assert_variants, sentence, table, types};

const PAGE: &str = include_str!("../../../../docs/protocol/control.md");
const SOURCES: [&str; 3] = [
    include_str!("../../src/call.rs"),
    include_str!("../../src/failure.rs"),
    include_str!("../../src/reply.rs"),
];

#[test]
fn page_has_the_types_of_the_code_in_their_order() {
    let types = types(&SOURCES);
    let of = |name: &str| types.get(name).unwrap_or_else(|| panic!("the code has no {name}"));
    for name in ["Hello", "Welcome"] {
        let rows = table(PAGE, &format!("`{name}`"));
        let fields: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(fields, of(name).fields, "{name}");
    }
    for name in ["Request", "Reply", "Failure"] {
        assert_in_order(&of(name).fields, sentence(PAGE, name), name);
    }
    for (name, head) in [("Call", "call"), ("Body", "body"), ("Answer", "answer")] {
        assert_variants(PAGE, &format!("variant | {head}"), (name, of(name)), 2);
    }
    assert_variants(PAGE, "kind | name", ("FailureKind", of("FailureKind")), 2);
    // What calls are answered with is there.
    let has =
        |name: &str, variant: &str| of(name).variants.iter().any(|(known, _)| known == variant);
    for row in table(PAGE, "variant | call") {
        let (parts, end) = row[3].rsplit_once(") ").unwrap_or(("", &row[3]));
        let parts = parts.trim_start_matches('(').split(", ").filter(|part| !part.is_empty());
        parts.for_each(|part| assert!(has("Body", part), "{}: a part {part}", row[1]));
        let end = end.split(',').next().unwrap();
        assert!(end == "none" || has("Answer", end), "{}: the end {end}", row[1]);
    }
}

/// The frame of a message in hexadecimal digits.
fn frame(message: &impl serde::Serialize) -> String {
    let (mut encoded, mut framed) = (Vec::new(), Vec::new());
    encode(message, &mut encoded);
    write_frame(&mut framed, &encoded).expect("it is short");
    framed.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
}

#[test]
fn page_has_the_bytes_and_bounds_of_the_code() {
    let hello = Hello { magic: HELLO_MAGIC, version: VERSION };
    let mount_point = Some(Bytes::from(&b"/m"[..]));
    let welcome = Welcome { magic: HELLO_MAGIC, version: VERSION, pid: 300, mount_point };
    for (name, of_code) in [("hello", frame(&hello)), ("welcome", frame(&welcome))] {
        let is_of = |line: &&str| line.starts_with('0') && line.ends_with(&format!(" {name}"));
        let line = PAGE.lines().find(is_of);
        let line = line.unwrap_or_else(|| panic!("the page has no bytes of a {name}"));
        let digits: String = line.trim_end_matches(name).split_whitespace().collect();
        assert_eq!(digits, of_code, "{name}");
    }
    assert!(PAGE.contains(&format!("the version of all other messages: {VERSION}")));
    for (what, bytes) in
        [("; at most ", FRAME_BYTES_MAX), ("sender puts at most ", PAYLOAD_BYTES_MAX)]
    {
        let (_, rest) = PAGE.split_once(what).unwrap_or_else(|| panic!("the page lacks {what}"));
        let digits = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',');
        let digits: String = digits.filter(|c| *c != ',').collect();
        assert_eq!(digits, bytes.to_string(), "{what}");
    }
}
