//! The number of long sentences in documents and comments may only shrink.
//!
//! A sentence has one thought; more than [`WORDS_MAX`] words are too many. [`LEFT`] has the number
//! of longer sentences by folder: the folder of a document, the top two folders of a source file.
//! More is a problem, and [`SLACK`] fewer is one until the table has the new count.
//!
//! Code blocks, headings and addresses of links do not count; each cell of a table is a paragraph
//! of its own. Comment lines of one kind (`//`, `///` or `//!`) that follow each other are one
//! text.

use std::collections::BTreeMap;

use super::Tree;

/// Most words of a sentence.
const WORDS_MAX: usize = 25;
/// Long lists that read as one sentence, by folder: damage in a generated table, numbers without a
/// page, the failures in their order. MAY ONLY SHRINK.
const LEFT: [(&str, usize); 3] = [("docs", 10), ("docs/decisions", 1), ("docs/protocol", 1)];
/// How many fewer there may be before the table has to be lowered.
const SLACK: usize = 20;

/// A sentence: the number of its first line, from 1, its words, and its beginning.
struct Sentence {
    line: usize,
    words: usize,
    begin: String,
}

/// Counts the long sentences of each folder.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &LEFT)
}

fn check_against(tree: &Tree, left: &[(&str, usize)]) -> Vec<String> {
    let mut folders: BTreeMap<&str, Vec<(&str, Sentence)>> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let folder = path.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let (folder, found) = match path.rsplit_once('.') {
            Some((_, "md")) => (folder, sentences((1..).zip(text.lines()))),
            Some((_, "rs")) => (top_two(folder), of_comments(text)),
            _ => continue,
        };
        let long = found.into_iter().filter(|sentence| sentence.words > WORDS_MAX);
        folders.entry(folder).or_default().extend(long.map(|sentence| (path, sentence)));
    }
    let mut problems = Vec::new();
    for (folder, mut found) in folders {
        let allowed = left.iter().find(|(known, _)| *known == folder).map_or(0, |(_, most)| *most);
        if found.len() > allowed {
            found.sort_by_key(|(_, sentence)| std::cmp::Reverse(sentence.words));
            let one = |(path, long): &(&str, Sentence)| {
                format!("{path}:{} ({} words): {}...", long.line, long.words, long.begin)
            };
            let longest: Vec<String> = found.iter().take(3).map(one).collect();
            problems.push(format!(
                "{folder}: {} sentences of more than {WORDS_MAX} words, and the table in \
                 xtask/src/tidy/sentences.rs allows {allowed}: split some, such as {}",
                found.len(),
                longest.join("; ")
            ));
        } else if found.len() + SLACK < allowed {
            problems.push(format!(
                "{folder}: {} sentences of more than {WORDS_MAX} words are left: write that \
                 number for {allowed} into xtask/src/tidy/sentences.rs",
                found.len()
            ));
        }
    }
    problems
}

/// The first two names of a folder.
fn top_two(folder: &str) -> &str {
    folder.match_indices('/').nth(1).map_or(folder, |(at, _)| &folder[..at])
}

/// The sentences of the comments of a source file.
fn of_comments(text: &str) -> Vec<Sentence> {
    let (mut found, mut kind) = (Vec::new(), "");
    let mut comment: Vec<(usize, &str)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let mark = mark(line);
        if mark != kind {
            found.extend(sentences(comment.drain(..)));
            kind = mark;
        }
        if !mark.is_empty() {
            comment.push((number, &line[mark.len()..]));
        }
    }
    found.extend(sentences(comment.drain(..)));
    found
}

/// The mark of the comment that fills a line, or nothing.
fn mark(line: &str) -> &'static str {
    let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(*mark));
    mark.filter(|_| !line.starts_with("////")).unwrap_or("")
}

/// The sentences of a document, given as lines with their numbers.
fn sentences<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Sentence> {
    let (mut found, mut paragraph, mut in_block) = (Vec::new(), Vec::new(), false);
    for (number, line) in lines {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        let item = ["* ", "- "].iter().find_map(|mark| line.strip_prefix(mark)).or_else(|| {
            let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
            rest.strip_prefix(". ").filter(|_| rest.len() < line.len())
        });
        if in_block || is_fence || line.is_empty() || line.starts_with('#') {
            split(&mut paragraph, &mut found);
        } else if line.starts_with('|') {
            split(&mut paragraph, &mut found);
            for cell in line.split('|') {
                split(&mut vec![(number, cell)], &mut found);
            }
        } else if let Some(item) = item {
            split(&mut paragraph, &mut found);
            paragraph.push((number, item));
        } else {
            paragraph.push((number, line));
        }
    }
    split(&mut paragraph, &mut found);
    found
}

/// Splits a paragraph, lines with their numbers, into sentences, and empties it.
fn split(paragraph: &mut Vec<(usize, &str)>, found: &mut Vec<Sentence>) {
    let words = paragraph
        .iter()
        .flat_map(|(number, line)| line.split_whitespace().map(move |word| (*number, word)));
    let words: Vec<(usize, &str)> = words.collect();
    let mut begin = 0;
    for at in 0..words.len() {
        let next = words.get(at + 1).map(|(_, word)| *word);
        let is_end =
            words[at].1.trim_end_matches(['"', '\'', ')', '*', '_']).ends_with(['.', '!', '?'])
                && next.is_none_or(|next| !next.starts_with(|c: char| c.is_lowercase()));
        if is_end || next.is_none() {
            let sentence = &words[begin..=at];
            let is_word = |(_, word): &&(usize, &str)| word.contains(char::is_alphanumeric);
            let start: Vec<&str> = sentence.iter().take(6).map(|(_, word)| *word).collect();
            found.push(Sentence {
                line: sentence[0].0,
                words: sentence.iter().filter(is_word).count(),
                begin: start.join(" "),
            });
            begin = at + 1;
        }
    }
    paragraph.clear();
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::{SLACK, check_against};

    /// A document with this many sentences of 26 words, and others.
    fn document(long: usize) -> String {
        let sentence = format!("It{} (thus).\n", " is so".repeat(12));
        let short = format!("# {}\n\nIt{}.\nIt is.\n\n", "a ".repeat(40), " is".repeat(24));
        let code = format!("```\n{}\n```\n", "a ".repeat(40));
        let table = format!("| {} | {} |\n", "a ".repeat(25), "b ".repeat(25));
        let list = format!("* {}\n* {}\n", "a ".repeat(25), "b ".repeat(25));
        format!("{short}{code}{table}{list}\n{}", sentence.repeat(long))
    }

    fn found(long: usize, allowed: usize) -> Vec<String> {
        let text = document(long);
        check_against(&Tree::of(&[("docs/a.md", &text)]), &[("docs", allowed)])
    }

    #[test]
    fn more_long_sentences_than_are_left_are_reported() {
        assert!(found(3, 3).is_empty());
        let problems = found(4, 3);
        assert!(problems[0].starts_with("docs: 4 sentences of more than 25 words"), "{problems:?}");
        assert!(problems[0].contains("docs/a.md:13 (26 words): It is so"), "{problems:?}");
    }

    #[test]
    fn a_count_that_shrank_is_to_be_lowered() {
        assert!(found(3, 3 + SLACK).is_empty());
        assert_eq!(found(3, 4 + SLACK).len(), 1);
    }

    /// The problems of a source file with this text.
    fn found_in_source(text: &str) -> Vec<String> {
        check_against(&Tree::of(&[("crates/a/src/b/c.rs", text)]), &[])
    }

    #[test]
    fn a_long_sentence_of_a_comment_is_reported_for_the_top_two_folders() {
        let text = format!(
            "fn a() {{}}\n\n    /// It{}\n    /// and{}.\n",
            " is".repeat(15),
            " so".repeat(9)
        );
        let problems = found_in_source(&text);
        assert!(problems[0].starts_with("crates/a: 1 sentences of more than 25"), "{problems:?}");
        assert!(problems[0].contains("crates/a/src/b/c.rs:3 (26 words): It is"), "{problems:?}");
    }

    #[test]
    fn comments_of_different_kinds_and_code_between_them_are_apart() {
        let words = "a ".repeat(20);
        let text = format!(
            "//! {words}\n/// {words}\n// {words}\nfn a() {{}}\n// {words}\n\n// {words}\n"
        );
        assert!(found_in_source(&text).is_empty());
    }

    #[test]
    fn code_and_blocks_and_headings_of_comments_do_not_count() {
        let words = "a ".repeat(40);
        let text = format!(
            "//// {words}\n/// # {words}\n///\n/// ```\n/// {words}\n/// ```\n\
             const A: &str = \"{words}\";\n"
        );
        assert!(found_in_source(&text).is_empty());
        assert_eq!(found_in_source(&format!("// {words}\n")).len(), 1);
    }
}
