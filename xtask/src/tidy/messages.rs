//! Messages of the control socket: when their types change, so does their version.
//!
//! Both sides of a connection compare `VERSION`, because messages have no field names. With changed
//! types and an equal version, one side would misread the other. [`FINGERPRINT`] is the checksum of
//! all types that cross the socket, without comments; a change of it must come with a new version.
//! And the daemon answers every call: its `match` has a default, so no compiler reports that one
//! was forgotten.

use super::Tree;

/// The version, and the checksum of the types that it had.
const FINGERPRINT: (u32, u32) = (33, 0x26d53bd0);

/// Crates whose types cross the socket.
const SOURCES: [&str; 3] = ["crates/wire/src/", "crates/search/src/", "crates/inode/src/"];
const VERSIONED: &str = "crates/wire/src/call.rs";
const DAEMON: &str = "crates/pando/src/daemon/";
const SELF: &str = "xtask/src/tidy/messages.rs";

/// All rules about messages.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = unanswered(tree);
    problems.extend(changed(tree));
    problems
}

/// Calls that no file of the daemon names.
fn unanswered(tree: &Tree) -> Vec<String> {
    let calls = types(tree.text(VERSIONED).unwrap_or_default());
    let Some(calls) = calls.iter().find(|one| one.starts_with("pub enum Call")) else {
        return vec![format!("{VERSIONED}: has no enum of calls")];
    };
    let mut depth = 0;
    let mut problems = Vec::new();
    for line in calls.lines() {
        let name = line.split([' ', '(', ',', '{']).next().unwrap_or_default();
        let is_call = depth == 1 && name.starts_with(|c: char| c.is_ascii_uppercase());
        depth += line.matches('{').count();
        depth -= line.matches('}').count();
        let named = |(path, text): (&str, &str)| {
            let mut named = text.split("Call::").skip(1);
            let is_word = |c: char| c.is_ascii_alphanumeric();
            path.starts_with(DAEMON)
                && named
                    .any(|rest| rest.strip_prefix(name).is_some_and(|r| !r.starts_with(is_word)))
        };
        if is_call && !tree.texts().any(named) {
            problems.push(format!("{VERSIONED}: nothing in {DAEMON} answers Call::{name}"));
        }
    }
    problems
}

fn changed(tree: &Tree) -> Vec<String> {
    let Some(version) = tree.text(VERSIONED).and_then(version) else {
        return vec![format!("{VERSIONED}: has no version of the messages")];
    };
    let sum = sum(tree);
    match ((version, sum) == FINGERPRINT, version == FINGERPRINT.0) {
        (true, _) => Vec::new(),
        (false, true) => vec![format!(
            "{VERSIONED}: the types of messages changed: raise VERSION, unless all are encoded as \
             before, and set FINGERPRINT in {SELF} to ({}, {sum:#010x})",
            version + 1
        )],
        (false, false) => {
            vec![format!("{SELF}: set FINGERPRINT to ({version}, {sum:#010x}), as in VERSION")]
        }
    }
}

fn version(code: &str) -> Option<u32> {
    let line = code.lines().find_map(|line| line.strip_prefix("pub const VERSION: u32 = "))?;
    line.trim_end_matches(';').parse().ok()
}

/// The checksum of all types that derive an encoding, in the order of their files.
fn sum(tree: &Tree) -> u32 {
    let sources =
        tree.texts().filter(|(path, _)| SOURCES.iter().any(|folder| path.starts_with(folder)));
    let types: Vec<String> = sources.flat_map(|(_, text)| types(text)).collect();
    crc32(types.join("\n").as_bytes())
}

/// The definitions in a source that derive `Serialize`, without comments and attributes of others.
fn types(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !(line.starts_with("#[derive(") && line.contains("Serialize")) {
            continue;
        }
        let mut definition = String::new();
        for line in lines.by_ref() {
            let code = line.split("//").next().unwrap_or_default().trim();
            if !code.is_empty() && !line.starts_with("#[") {
                definition.push_str(code);
                definition.push('\n');
            }
            if line == "}" || line.ends_with(';') && !line.starts_with(' ') {
                break;
            }
        }
        found.push(definition);
    }
    found
}

/// CRC-32 (IEEE), bit by bit: there is little to sum.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "/// One.\n#[derive(Debug, Serialize, Deserialize)]\npub enum Call {\n\
                        \x20   /// A.\n    A,\n    B { path: u8 },\n}\n\
                        pub const VERSION: u32 = 3;\nfn other() {}\n";

    fn of(text: &str) -> u32 {
        sum(&Tree::of(&[(VERSIONED, text)]))
    }

    #[test]
    fn checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn only_types_that_cross_the_socket_count() {
        assert_eq!(types(CALL), ["pub enum Call {\nA,\nB { path: u8 },\n}\n"]);
        for same in [
            CALL.replace("/// A.", "/// The first."),
            CALL.replace("fn other() {}", "fn another() {}"),
            CALL.replace("Debug, ", ""),
        ] {
            assert_eq!(of(&same), of(CALL), "{same}");
        }
        for changed in [
            CALL.replace("A,", "A,\n    C,"),
            CALL.replace("u8", "u16"),
            CALL.replace("    A,\n    B { path: u8 },\n", "    B { path: u8 },\n    A,\n"),
        ] {
            assert_ne!(of(&changed), of(CALL), "{changed}");
        }
    }

    #[test]
    fn change_of_types_without_a_new_version_is_reported() {
        let text = CALL.replace("= 3", &format!("= {}", FINGERPRINT.0));
        let found = changed(&Tree::of(&[(VERSIONED, &text)]));
        assert!(found.len() == 1 && found[0].contains("raise VERSION"), "{found:?}");
        let text = CALL.replace("= 3", &format!("= {}", FINGERPRINT.0 + 1));
        let found = changed(&Tree::of(&[(VERSIONED, &text)]));
        assert!(found.len() == 1 && found[0].contains("as in VERSION"), "{found:?}");
    }

    #[test]
    fn call_that_the_daemon_does_not_answer_is_reported() {
        let daemon = "match call {\n    Call::A => 1,\n    Call::Bee => 2,\n    _ => 3,\n}\n";
        let tree = [(VERSIONED, CALL), ("crates/pando/src/daemon/calls.rs", daemon)];
        let found = unanswered(&Tree::of(&tree));
        assert_eq!(found, [format!("{VERSIONED}: nothing in {DAEMON} answers Call::B")]);
    }
}
