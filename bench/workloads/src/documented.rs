//! The commands of `pando-bench` that the documents and the scripts have still parse, and the
//! scripts that the documents name exist and can be run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, ValueEnum};
use walkdir::WalkDir;

use crate::cli::{Cli, Workload};

const PROGRAM: &str = "pando-bench";
/// How scripts call the program.
const CALLS: [&str; 4] = ["\"$bench\" ", "\"$program\" ", "$bench ", "bench "];
/// Scripts whose `$program` is another program.
const OF_OTHERS: [&str; 2] = ["bench/engines.sh", "bench/totals.sh"];
/// What documents have instead of a value.
const EXAMPLE_VALUES: [(&str, &str); 5] = [
    ("N", "1000"),
    ("P", "web"),
    ("WORKLOAD", "lookup"),
    ("rodeh-*", "rodeh-append"),
    ("E", "lsm"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files with an extension below a folder, with their texts.
fn texts(below: &str, extension: &str) -> Vec<(String, String)> {
    let root = root();
    let files = WalkDir::new(root.join(below)).sort_by_file_name().into_iter().map(Result::unwrap);
    let named = files.filter(|file| file.path().extension().is_some_and(|e| e == extension));
    let read = |file: walkdir::DirEntry| {
        let path = file.path().strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        (path, std::fs::read_to_string(file.path()).unwrap())
    };
    named.map(read).collect()
}

/// Commands in backquotes, also over two lines, and in blocks of code, from the program's name on.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block || line.starts_with("    ") {
            found.push(line.to_owned());
        } else {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    let from_name = |text: String| {
        let command = text.split([';', '|', '#', '>']).next().unwrap_or_default().to_owned();
        let at = command.find(PROGRAM)?;
        let rest = command[at + PROGRAM.len()..].strip_prefix(' ')?.trim();
        let path = command[..at].rsplit(' ').next().unwrap_or_default();
        let is_program = (path.is_empty() || path.ends_with('/')) && !path.contains('=');
        (is_program && !rest.is_empty() && !command.contains("--package")).then(|| rest.to_owned())
    };
    found.into_iter().filter_map(from_name).collect()
}

/// Why a command does not parse.
fn refusal(command: &str) -> Option<String> {
    let word = |word: &str| {
        let word = word.trim_matches(['[', ']']).to_owned();
        let known = EXAMPLE_VALUES.iter().find(|(name, _)| *name == word);
        known.map_or(word, |(_, value)| (*value).to_owned())
    };
    let words: Vec<String> = command.split_whitespace().map(word).filter(|w| w != "...").collect();
    let parsed = Cli::try_parse_from([PROGRAM.to_owned()].into_iter().chain(words));
    parsed.err().map(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// What is wrong with a call in a script, whose values are variables: its workload or an option.
fn misuse(call: &str) -> Option<String> {
    let command = Cli::command();
    let known = |option: &str| {
        let mut arguments = command.get_arguments();
        option == "help"
            || arguments.any(|one| {
                let others = one.get_visible_aliases().unwrap_or_default();
                one.get_long() == Some(option) || others.contains(&option)
            })
    };
    let mut words = call.split_whitespace();
    let workload = words.next().unwrap_or_default();
    let is_value = !workload.contains('$');
    if is_value && Workload::from_str(workload, false).is_err() {
        return Some(format!("no workload {workload}"));
    }
    let mut options = words.filter_map(|word| word.trim_matches(['"', '\'']).strip_prefix("--"));
    let wrong = options.find(|option| {
        let name = option.split('=').next().unwrap_or_default();
        !name.is_empty() && !known(name)
    });
    wrong.map(|option| format!("no option --{option}"))
}

/// Calls in a script, each with its continued lines.
fn calls(script: &str) -> Vec<String> {
    let joined = script.replace("\\\n", " ");
    let code = joined.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let call = |line: &str| {
        let line = line.rsplit_once("$(").map_or(line, |(_, inner)| inner);
        let words = line.split_whitespace().skip_while(|word| word.contains('='));
        let line = words.collect::<Vec<_>>().join(" ");
        let rest = CALLS.iter().find_map(|begin| line.strip_prefix(begin))?;
        Some(rest.split(['|', '>', ';', ')', '&']).next().unwrap_or_default().trim().to_owned())
    };
    code.filter_map(call).collect()
}

#[test]
fn commands_of_the_documents_parse() {
    let mut count = 0;
    for (path, text) in texts("docs", "md") {
        for command in commands(&text) {
            assert_eq!(refusal(&command), None, "{path}: {PROGRAM} {command}");
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} commands were found");
    assert!(refusal("create-round --files 5").is_some());
    assert!(refusal("create-flat --filez 5").is_some());
}

#[test]
fn calls_of_the_scripts_name_known_workloads_and_options() {
    let mut count = 0;
    for (path, text) in texts("bench", "sh") {
        for call in calls(&text).iter().filter(|_| !OF_OTHERS.contains(&path.as_str())) {
            assert_eq!(misuse(call), None, "{path}: {call}");
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} calls were found");
    assert!(misuse("serch --json").is_some() && misuse("search --jsn").is_some());
    assert_eq!(calls("a=$(\"$bench\" \\\n  search --json | tee x)"), ["search --json"]);
}

#[test]
fn scripts_that_documents_name_exist_and_can_be_run() {
    let root = root();
    let mut count = 0;
    for (path, text) in texts("docs", "md") {
        let words = text.split(|c: char| c.is_whitespace() || "`()[],;:".contains(c));
        let words = words.map(|word| word.trim_end_matches('.'));
        let is_script = |word: &&str| [".sh", ".py"].iter().any(|end| word.ends_with(end));
        let of_folders = |word: &&str| word.starts_with("bench/") || word.starts_with("scripts/");
        for named in words.filter(of_folders).filter(is_script) {
            let file = root.join(named);
            let found = file.metadata().unwrap_or_else(|error| panic!("{path}: {named}: {error}"));
            let script = std::fs::read_to_string(&file).unwrap();
            // What is run by an interpreter, or read by another script, needs no bit.
            let begins = script.starts_with("#!");
            let runs = found.permissions().mode() & 0o111 != 0;
            assert!(!begins || runs, "{path}: {named} is not executable");
            count += 1;
        }
    }
    assert!(count >= 20, "only {count} scripts were found");
}
