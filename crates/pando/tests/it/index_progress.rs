//! The progress of `pando index` and `pando import`: a count on a terminal, and nothing elsewhere.

use std::fs;
use std::process::{Command, Stdio};

use crate::world::{IDLE_SECONDS, PANDO, World};

/// Runs a shell command with a terminal for its output; returns the output.
fn on_terminal(words: &str) -> String {
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", words, "/dev/null"])
        .env("PANDO_IDLE_SECONDS", IDLE_SECONDS)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words}: {text}");
    text
}

/// The counts of progress that were shown: `123 names  45/s`.
fn counts(text: &str) -> Vec<u64> {
    let parts = text.split(" names  ");
    let count = |part: &str| {
        let digits = part.rsplit(' ').next().unwrap_or_default().replace(',', "");
        digits.parse().ok()
    };
    let mut all: Vec<&str> = parts.collect();
    all.pop();
    all.into_iter().filter_map(count).collect()
}

#[test]
fn progress_is_shown_on_a_terminal_only() {
    if Command::new("script").arg("--version").output().is_err() {
        return;
    }
    const FILES: usize = 3000;
    let world = World::without_volume();
    let source = world.path().join("source");
    for number in 0..FILES {
        let directory = source.join(format!("d{}", number % 100));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), []).unwrap();
    }
    let (source, volume) = (source.to_str().unwrap(), world.vol());
    let text = on_terminal(&format!("{PANDO} index {source} --into {volume}"));
    let counts_shown = counts(&text);
    // Includes the directories; the first of them is the source itself.
    let all = (FILES + 101) as u64;
    assert!(!counts_shown.is_empty(), "{text:?}");
    assert!(counts_shown.is_sorted() && counts_shown.iter().all(|count| *count <= all), "{text:?}");
    // The result is at the end, on a line of its own.
    let last = text.trim_end().lines().last().unwrap();
    assert!(last.contains("3,101 names, of them 101 directories"), "{text:?}");
    for (words, what) in [
        (format!("{PANDO} --quiet index {source} --into {volume} 2>&1 >/dev/null"), "quiet"),
        (format!("{PANDO} index {source} --into {volume} 2>&1 | cat"), "into a pipe"),
        (format!("{PANDO} index {source} --into {volume} --json 2>&1 | cat"), "objects"),
    ] {
        let text = on_terminal(&words);
        assert_eq!(counts(&text), [0; 0], "{what}: {text:?}");
        assert!(!text.contains('\u{1b}'), "{what}: {text:?}");
    }
    let reported = world.run(&["index", source, "--into", volume, "--json"]);
    assert_eq!((reported.code, reported.err.as_str()), (0, ""));
    let object: serde_json::Value = serde_json::from_str(reported.out.trim_end()).unwrap();
    assert_eq!(object["names"], all);
}

/// Files that are sent in several parts count once, and rates are whole numbers.
#[test]
fn progress_of_an_import_never_exceeds_its_total() {
    if Command::new("script").arg("--version").output().is_err() {
        return;
    }
    let world = World::new();
    let source = world.source();
    for number in 0..600 {
        let file = fs::File::create_new(source.join(number.to_string())).unwrap();
        file.set_len((64 << 10) + 1).unwrap();
    }
    let (source, copy) = (source.to_str().unwrap(), world.at("/copy"));
    let text = on_terminal(&format!("{PANDO} import {source} {copy}"));
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    let mut shown = 0;
    for part in text.split(['\r', '\n']).filter(|part| part.contains(" names  ")) {
        let (at, behind) = part.split_once(" names  ").unwrap();
        let at = at.rsplit(' ').next().unwrap();
        let (done, all) = at.split_once('/').unwrap_or((at, "601"));
        assert!(number(done) <= number(all), "{part:?}");
        let (rate, _) = behind.split_once("/s").unwrap();
        assert!(number(rate) < u64::MAX, "{part:?}");
        shown += 1;
    }
    assert!(shown > 0, "{text:?}");
    assert!(text.contains("imported 600 names"), "{text:?}");
}
