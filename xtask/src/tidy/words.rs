//! Words and phrases that slow a reader down, and for which the field has a word.
//!
//! They are refused in prose, code, names of files, and as parts of names. `_`, an apostrophe and a
//! capital letter separate words, and so does the end of a line in a paragraph. A line that must
//! keep one, a quotation for example, ends with `tidy: keep` and the reason.

use std::collections::BTreeMap;

use super::Tree;
use super::source::is_test;

/// A word or phrase, and what to write instead; `*` is any one word.
const REFUSED: [(&str, &str); 98] = [
    ("medium", "disk, storage device, or object store: which one"),
    ("room", "space; size or capacity of a buffer"),
    ("rooms", "space"),
    ("roomy", "with spare capacity, large"),
    ("whoever", "the caller, a thread, the daemon: who"),
    ("who asks", "the caller"),
    ("who asked", "the caller"),
    ("one who", "the caller, the user, the thread: which one"),
    ("who wants", "the caller that wants"),
    ("who needs", "the caller that needs"),
    ("he", "it; the user, the process"),
    ("his", "its; the user's"),
    ("him", "it; the user"),
    ("himself", "itself; the user"),
    ("anew", "again; rebuilt, recomputed"),
    ("tell", "report, print, return, name; distinguish"),
    ("tells", "reports, prints, returns, names; distinguishes"),
    ("telling", "reporting, printing; distinguishing"),
    ("told", "reported, printed, returned"),
    ("untold", "unreported, silent"),
    ("say", "print, record, name; give (an option); for example"),
    ("says", "prints, contains, has, records"),
    ("said", "reported, printed, recorded"),
    ("saying", "reporting, printing"),
    ("lie", "be stored, be"),
    ("lies", "is stored, is"),
    ("stand", "be stored, be; represent"),
    ("stands", "is stored, is; represents, means"),
    ("stood", "was stored, was"),
    ("what is wanted", "what is requested"),
    ("asked for", "requested"),
    ("at rest", "idle"),
    ("aside", "ignored; parked; apart"),
    ("in the way", "blocks, conflicts; has the name"),
    ("lent", "reserved"),
    ("loan", "reservation, reserved range"),
    ("loans", "reservations, reserved ranges"),
    ("owner process", "daemon (an owner is a file's)"),
    ("last owner", "the last daemon, server (an owner is a file's)"),
    ("next owner", "the next daemon, server (an owner is a file's)"),
    ("earlier owners", "earlier daemons, openings (an owner is a file's)"),
    ("owner's key", "the volume's key, the server's key (an owner is a file's)"),
    ("proof of the owner", "proof that this server has the volume"),
    ("proof of its owner", "proof that this server has the volume"),
    ("owners of the model", "writers of the model (an owner is a file's)"),
    ("beside its owner", "beside its daemon (an owner is a file's)"),
    ("hollow", "sparse"),
    ("light node", "underfull node"),
    ("light nodes", "underfull nodes"),
    ("written early", "pre-flushed"),
    ("mend", "repair; rebalance (of nodes)"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("mending", "repairing"),
    ("mendable", "repairable"),
    ("be come to", "reach, reachable"),
    ("come to", "reach, become"),
    ("comes to", "reaches, becomes"),
    ("came to", "reached, became"),
    ("comes about", "happens"),
    ("lead to", "point to"),
    ("leads to", "points to"),
    ("led to", "pointed to; caused"),
    ("lead here", "point to it"),
    ("leads here", "points to it"),
    ("leads back", "points back"),
    ("lead nowhere", "point to nothing; are broken"),
    ("leads nowhere", "points to nothing; is broken"),
    ("passed over", "skipped; traversed"),
    ("log is cut off", "log is truncated"),
    ("cut * off", "truncate, close, separate"),
    ("cut * * off", "truncate, close, separate"),
    ("cut * * * off", "truncate, close, separate"),
    ("cuts off", "truncates, closes, separates"),
    ("leads there", "points there"),
    ("lead there", "point there"),
    ("leads into", "points into"),
    ("lead into", "point into"),
    ("log that is cut off", "log that is truncated"),
    ("space comes back", "space is reclaimed"),
    ("space * comes back", "space is reclaimed"),
    ("space * * comes back", "space is reclaimed"),
    ("space * * * comes back", "space is reclaimed"),
    ("sees to its", "does for its: what"),
    ("go on", "continue, proceed"),
    ("goes on", "continues"),
    ("went on", "continued"),
    ("for want of", "because there is no"),
    ("to be had", "available"),
    ("merge may return", "compaction may free space"),
    ("while wanted", "with cancellation"),
    ("nothing is believed", "recovery re-syncs, verifies: what"),
    ("what is needed of", "live"),
    ("looks at everything", "verifies every structure"),
    ("are none of", "are not"),
    ("is not reached but", "is exceeded only"),
    ("for as long as the time alone", "while ... only by timeout"),
    ("another * than", "a different ... from, other than"),
];

/// Names of types that describe nothing, and what such a type is called.
const REFUSED_TYPES: [(&str, &str); 7] = [
    ("Place", "what it is: MountPoint, BlockId, Destination"),
    ("Thing", "Target"),
    ("Spot", "EntrySlot"),
    ("Sight", "ReadSet"),
    ("TwoTrees", "MirroredStore"),
    ("Given", "IdAllocator"),
    ("Outlook", "CompactionCandidates"),
];

/// Names of modules and functions that describe nothing, as they are declared and as comments refer
/// to them.
const REFUSED_NAMES: [(&str, &str); 10] = [
    ("mod passed", "quarantine"),
    ("(`passed`)", "(`quarantine`)"),
    ("mod twice", "what is there twice: separated"),
    ("mod leads", "what points where: named_state"),
    ("fn own(", "what of its own: own_node, own_totals"),
    ("fn apart(", "what is apart of what"),
    ("fn ground(", "the base, the state below"),
    ("fn fires(", "what begins, and when"),
    ("leaf_is_light(", "is_underfull"),
    ("writes_early", "preflushes"),
];

/// The same only in texts of the product, which people read: in quotes, outside of tests.
const REFUSED_IN_TEXTS: [(&str, &str); 1] = [("leads", "points")];

/// Phrases that one file may have: others gave them their form.
const KEPT: [(&str, &str, &str); 1] =
    [("scripts/install.sh", "medium", "Debian's name for an ordinary urgency of a package")];

/// This file holds the words.
const SELF: &str = "xtask/src/tidy/words.rs";
/// Ends a line that must keep a word; the reason follows.
const KEEP: &str = "tidy: keep ";

/// A phrase in words, as it is listed, and what to write instead.
type Phrase = (Vec<&'static str>, &'static str, &'static str);
/// Phrases by their first word.
type Phrases = BTreeMap<&'static str, Vec<Phrase>>;

/// A word of a text, in lower case.
struct Word<'t> {
    text: &'t str,
    /// The number of its line, from 0.
    line: usize,
    /// Whether nothing but spaces, `_`, an apostrophe and the beginning of a line separates it
    /// from the one before.
    follows: bool,
}

/// A phrase that was found: its first and last line, the phrase, and what to write instead.
type Hit = (std::ops::RangeInclusive<usize>, &'static str, &'static str);

/// All rules about words.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut phrases = Phrases::new();
    for (phrase, instead) in REFUSED {
        let words: Vec<&str> = phrase.split([' ', '\'']).collect();
        phrases.entry(words[0]).or_default().push((words, phrase, instead));
    }
    let mut problems = Vec::new();
    for (path, _) in tree.sizes() {
        for (_, phrase, instead) in found(path, &phrases) {
            problems.push(format!("{path}: \"{phrase}\" in its name: write {instead}"));
        }
    }
    for (path, text) in tree.texts().filter(|(path, _)| *path != SELF) {
        let kept: Vec<bool> = text.lines().map(is_kept).collect();
        for (lines, phrase, instead) in found(text, &phrases) {
            let may = KEPT.iter().any(|(file, words, _)| *file == path && *words == phrase);
            if !may && !kept[lines.clone()].contains(&true) {
                let line = lines.start() + 1;
                problems.push(format!("{path}:{line}: \"{phrase}\": write {instead}"));
            }
        }
        if path.strip_suffix(".rs").is_some() {
            names(path, text, &kept, &mut problems);
        }
    }
    in_texts(tree, &mut problems);
    problems
}

/// Reports refused names of types and modules in a file of code, except in lines that are kept.
fn names(path: &str, text: &str, kept: &[bool], problems: &mut Vec<String>) {
    // Most files have none of them in any form.
    let types: Vec<_> = REFUSED_TYPES.iter().filter(|(name, _)| text.contains(name)).collect();
    let modules: Vec<_> = REFUSED_NAMES.iter().filter(|(name, _)| text.contains(name)).collect();
    if types.is_empty() && modules.is_empty() {
        return;
    }
    for (at, line) in text.lines().enumerate().filter(|(at, _)| !kept[*at]) {
        let types = types.iter().filter(|(name, _)| line.contains(name) && declares(line, name));
        for (name, instead) in types.chain(modules.iter().filter(|(name, _)| has(line, name))) {
            problems.push(format!("{path}:{}: {name}: write {instead}", at + 1));
        }
    }
}

/// Reports what is refused only in texts of the product.
fn in_texts(tree: &Tree, problems: &mut Vec<String>) {
    let product = tree.texts().filter(|(path, _)| {
        let is_code = path.strip_suffix(".rs").is_some() && !is_test(path);
        is_code && (path.starts_with("crates/") || path.starts_with("bench/"))
    });
    for (path, text) in product {
        for (line, words) in quoted(text) {
            let words = words.to_ascii_lowercase();
            for (word, instead) in REFUSED_IN_TEXTS.iter().filter(|(word, _)| has(&words, word)) {
                problems.push(format!("{path}:{line}: \"{word}\" in a text: write {instead}"));
            }
        }
    }
}

/// The phrases in a text or path.
fn found(text: &str, phrases: &Phrases) -> Vec<Hit> {
    let lower = text.to_ascii_lowercase();
    let words = words(text, &lower);
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        for (parts, phrase, instead) in phrases.get(word.text).into_iter().flatten() {
            let Some(here) = words.get(at..at + parts.len()) else { continue };
            let is_same = |(word, part): (&Word<'_>, &&str)| *part == "*" || word.text == *part;
            if here.iter().zip(parts).all(is_same) && here[1..].iter().all(|word| word.follows) {
                found.push((word.line..=here[parts.len() - 1].line, *phrase, *instead));
            }
        }
    }
    found
}

/// The words of a text, with those that names consist of; `lower` is the text in lower case.
fn words<'t>(text: &str, lower: &'t str) -> Vec<Word<'t>> {
    let mut words = Vec::new();
    let (mut follows, mut offset) = (false, 0);
    for (number, line) in text.split('\n').enumerate() {
        let (mut begin, mut is_start, mut before) = (None, true, ' ');
        for (at, letter) in line.char_indices().chain([(line.len(), ' ')]) {
            let is_inside = letter.is_alphanumeric();
            let is_next = letter.is_uppercase() && before.is_lowercase();
            if (is_next || !is_inside)
                && let Some(from) = begin.take()
            {
                let text = &lower[offset + from..offset + at];
                words.push(Word { text, line: number, follows });
                follows = true;
            }
            if is_inside {
                begin.get_or_insert(at);
                is_start = false;
            } else if !matches!(letter, ' ' | '_') && (letter != '\'' || !before.is_alphanumeric())
            {
                // What begins a line of a comment or table, and what continues a text.
                let is_marker = is_start && "/!#*>|-".contains(letter);
                follows &= is_marker || letter == '\\' && at + 1 == line.len();
            }
            before = letter;
        }
        // An empty line ends a paragraph.
        follows &= !is_start;
        offset += line.len() + 1;
    }
    words
}

/// The parts of lines that are in quotes, outside of tests and comments, without what braces
/// insert; and the numbers of their lines.
fn quoted(text: &str) -> Vec<(usize, String)> {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let (mut found, mut in_text) = (Vec::new(), false);
    for (at, line) in product.lines().enumerate() {
        let is_kept = is_kept(line);
        let (mut words, mut inserted, mut before) = (String::new(), 0_usize, ' ');
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => drop(letters.next()),
                // A quote as a character is none.
                '"' if !in_text && (before == '\'' && letters.peek() == Some(&'\'')) => {}
                '"' => {
                    in_text = !in_text;
                    words.push(' ');
                }
                '/' if !in_text && before == '/' => break,
                '{' if in_text => inserted += 1,
                '}' if in_text => inserted = inserted.saturating_sub(1),
                _ if in_text && inserted == 0 => words.push(letter),
                _ => {}
            }
            before = letter;
        }
        if !is_kept && !words.trim().is_empty() {
            found.push((at + 1, words));
        }
    }
    found
}

/// Whether a line may keep its words, with a reason.
fn is_kept(line: &str) -> bool {
    line.split_once(KEEP).is_some_and(|(_, reason)| !reason.trim().is_empty())
}

/// Whether a line declares a type of this name.
fn declares(line: &str, name: &str) -> bool {
    ["struct", "enum", "trait", "type"].iter().any(|kind| has(line, &format!("{kind} {name}")))
}

/// Whether a line has a phrase as whole words: where the phrase begins or ends inside a word, that
/// word does not continue.
fn has(line: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let is_one = |one, other| is_word(one) && is_word(other);
    line.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + phrase.len()..]);
        !is_one(before.chars().next_back(), phrase.chars().next())
            && !is_one(phrase.chars().next_back(), after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::{REFUSED, REFUSED_IN_TEXTS, REFUSED_NAMES, REFUSED_TYPES, check};

    /// What is found in one file.
    fn of(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn refused_words_are_reported_with_their_lines_unless_kept() {
        let found = of("a.md", "Fine.\nWhoever asks\nwhoevers\n");
        assert_eq!(found, ["a.md:2: \"whoever\": write the caller, a thread, the daemon: who"]);
        assert!(of("b.rs", "// whoever: tidy: keep a quotation\n").is_empty());
        assert_eq!(of("c.rs", "// whoever: tidy: keep \n").len(), 1, "without a reason");
    }

    #[test]
    fn every_row_of_the_table_is_refused() {
        for (phrase, instead) in REFUSED {
            let found = of("a.md", &format!("{}\n", phrase.replace('*', "x")));
            let expected = format!("a.md:1: \"{phrase}\": write {instead}");
            assert!(found.contains(&expected), "{phrase}: {found:?}");
        }
        for (name, instead) in REFUSED_TYPES {
            for kind in ["struct", "pub(crate) enum", "trait", "type"] {
                let found = of("a.rs", &format!("{kind} {name};\n"));
                assert_eq!(found, [format!("a.rs:1: {name}: write {instead}")], "{kind}");
            }
            assert!(
                of("a.rs", &format!("struct {name}s;\nstruct A{name};\n")).is_empty(),
                "{name}"
            );
        }
        for (name, instead) in REFUSED_NAMES {
            let found = of("a.rs", &format!("pub {name};\n"));
            assert_eq!(found, [format!("a.rs:1: {name}: write {instead}")]);
        }
        for (word, instead) in REFUSED_IN_TEXTS {
            let found = of("crates/a/src/a.rs", &format!("f(\"it {word} so\");\n"));
            assert_eq!(
                found,
                [format!("crates/a/src/a.rs:1: \"{word}\" in a text: write {instead}")]
            );
        }
    }

    #[test]
    fn a_refused_module_is_a_whole_word() {
        assert!(of("a.rs", "mod passed_on;\nmod passedby;\n").is_empty());
        assert!(of("a.rs", "submod passed;\n").is_empty());
        assert_eq!(of("a.rs", "mod passed {\n").len(), 1);
        assert_eq!(of("a.rs", "// See there (`passed`).\n").len(), 1);
    }

    #[test]
    fn an_apostrophe_separates_words_of_a_phrase() {
        assert_eq!(of("a.md", "It asks for the owner's key.\n").len(), 1);
        assert_eq!(of("a.rs", "// The owner's\n// key\n").len(), 1);
        assert!(of("a.md", "The 'owner' 's key'.\n").is_empty(), "quotes");
    }

    /// What the project's table of words has on its left side, row by row.
    #[test]
    fn the_wording_that_the_table_replaced_is_refused() {
        for row in [
            "the medium",
            "there is no room",
            "whoever",
            "who asks",
            "one who has the lock",
            "he has it, his lock",
            "made anew",
            "it tells",
            "is told",
            "they say",
            "it said",
            "come to",
            "can be come to",
            "leads to",
            "mendable",
            "it lies there",
            "it stands there",
            "what is wanted",
            "what is asked for",
            "at rest",
            "left aside",
            "in the way of a merge",
            "a lock is in the way",
            "lent numbers",
            "a loan of numbers",
            "its space then comes back",
            "no name leads there",
            "the snapshot sees to its heirs",
            "the owner process",
            "a hollow blob",
            "a light node",
            "written early",
            "merge_may_return",
            "while_wanted",
            "name_that_can_be_come_to",
            "Who needs room sees that it comes",
            "What is needed of a sparse blob is moved",
            "Nothing is believed that is only in memory",
            "Looks at everything that a volume has",
            "Cut a damaged log off",
            "How all directories stand towards a question at once",
            "Tags of names are none of a row's",
            "it is not reached but when too much else is changed",
            "goes on for as long as the time alone ends its searches",
        ] {
            assert!(!of("a.md", &format!("{row}\n")).is_empty(), "{row}");
        }
        for declared in ["mod twice;", "fn own(&self)", "fn leaf_is_light(&self)"] {
            assert_eq!(of("a.rs", &format!("{declared}\n")).len(), 1, "{declared}");
        }
        assert!(of("a.rs", "fn own_node(&self)\n").is_empty());
    }

    #[test]
    fn a_star_in_a_phrase_is_any_one_word() {
        let found = of("a.md", "It is on another disk than the log.\n");
        assert!(found[0].starts_with("a.md:1: \"another * than\""), "{found:?}");
        assert!(of("a.md", "Another disk. Than? Another, larger disk than that.\n").is_empty());
    }

    #[test]
    fn refused_words_are_found_in_names() {
        for name in ["keep_room", "KEEP_ROOM", "KeepRoom", "keepRoom", "room", "ROOM_MAX"] {
            assert_eq!(of("a.rs", &format!("fn f({name}: u8)\n")).len(), 1, "{name}");
        }
        assert_eq!(of("scripts/install.sh", "urgency=medium\nthe room\n").len(), 1, "kept there");
        assert_eq!(of("scripts/other.sh", "urgency=medium\n").len(), 1);
        for name in ["keep_rooms_in", "write_anew_now", "it_goes_on", "is_come_to_be", "at_rest"] {
            assert_eq!(of("a.rs", &format!("let {name} = 1;\n")).len(), 1, "{name}");
        }
        for name in ["broom", "roomba", "essays", "retold", "other", "there", "whose"] {
            assert!(of("a.rs", &format!("let {name} = 1;\n")).is_empty(), "{name}");
        }
        assert_eq!(
            of("src/room.rs", ""),
            ["src/room.rs: \"room\" in its name: write \
                                           space; size or capacity of a buffer"]
        );
        assert_eq!(of("a.rs", "struct Spot;\n"), ["a.rs:1: Spot: write EntrySlot"]);
        assert!(of("a.rs", "// Given a Spot.\n").is_empty(), "they are words in prose");
    }

    #[test]
    fn a_phrase_is_found_over_the_end_of_a_line_and_not_over_a_sentence() {
        let found = of("a.rs", "/// What is kept, and goes\n    /// on.\n");
        assert_eq!(found, ["a.rs:1: \"goes on\": write continues"]);
        assert_eq!(of("a.rs", "f(\"it goes \\\n   on\")\n").len(), 1, "a text");
        assert_eq!(of("a.md", "* it goes\n  on\n").len(), 1, "an item");
        assert!(of("a.md", "It goes.\nOn the disk\n").is_empty());
        assert!(of("a.md", "It goes\n\non the disk\n").is_empty());
        assert!(of("a.rs", "f(goes, on)\n").is_empty());
        let kept = "// It goes tidy: keep a quotation\n// on\n";
        assert!(of("a.rs", kept).is_empty(), "{kept}");
    }

    #[test]
    fn some_words_are_refused_only_in_texts_of_the_product() {
        let code = "//! A \"leads\".\nfn f() {\n    let leads = '\"';\n    g(\"it {leads} \\\n     \
                    leads so\"); // \"leads\"\n}\n\
                    #[cfg(test)]\nmod tests {\n    g(\"it leads\");\n}\n";
        let tree = Tree::of(&[("crates/a/src/a.rs", code), ("crates/a/tests/it/a.rs", code)]);
        assert_eq!(check(&tree), ["crates/a/src/a.rs:5: \"leads\" in a text: write points"]);
    }
}
