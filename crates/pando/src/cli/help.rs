//! `pando --help`, with its verbs in groups, and `pando help VERB`. Man pages and completions are
//! generated from the same command.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use clap::{Command, CommandFactory};

use super::Cli;

/// Verbs by what they are for, in the order in which a user meets them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Volumes", &["format", "mount", "umount", "status", "session", "sync", "fsck", "gc"]),
    ("On other machines", &["serve", "cluster"]),
    ("Filling and copying them", &["import", "export", "index", "receive", "load"]),
    ("Snapshots and clones", &["snapshot", "clone", "rollback", "send", "subvolume", "rmr"]),
    (
        "Looking",
        &[
            "ls", "stat", "cat", "info", "find", "du", "summary", "history", "diff", "dump",
            "search",
        ],
    ),
    ("Limits and trash", &["quota", "trash", "restore"]),
    ("Measuring", &["bench", "trace", "replay"]),
];

/// The whole command line.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let verbs = grouped(&command);
    command
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{verbs}Options:\n{{options}}\
             {{after-help}}"
        ))
        // It parses its arguments itself, and has its own help.
        .mut_subcommand("find", |find| find.after_help(crate::find::HELP))
}

fn grouped(command: &Command) -> String {
    let mut text = String::new();
    for (group, verbs) in GROUPS {
        writeln!(text, "{group}:").unwrap_or_default();
        for verb in verbs {
            let found = command.find_subcommand(verb);
            let about = found.and_then(Command::get_about).map(ToString::to_string);
            writeln!(text, "  {verb:<10} {}", about.unwrap_or_default()).unwrap_or_default();
        }
        text.push('\n');
    }
    text.push_str("`pando help VERB` shows the options of a verb, with examples.\n\n");
    text
}

/// Replaces `pando help VERB...` by what it means: `pando VERB... --help`.
pub(crate) fn rewrite(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let verb = arguments.iter().skip(1).position(|argument| !argument.as_bytes().starts_with(b"-"));
    if let Some(at) = verb.map(|at| at + 1)
        && arguments[at] == "help"
    {
        arguments.remove(at);
        arguments.push("--help".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use wire::FailureKind;

    use super::*;

    #[test]
    fn each_verb_is_in_one_group() {
        let command = command();
        command.clone().debug_assert();
        let mut shown: Vec<_> = command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut grouped: Vec<_> =
            GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
    }

    /// A verb has its arguments only when it is used, and their types may have texts, too.
    #[test]
    fn a_verb_keeps_its_text_when_it_gets_its_arguments() {
        let about = |verb: &Command| verb.get_about().map(ToString::to_string);
        let (plain, mut built) = (command(), command());
        built.build();
        for verb in plain.get_subcommands() {
            let name = verb.get_name();
            assert_eq!(built.find_subcommand(name).and_then(about), about(verb), "{name}");
        }
    }

    const GUIDE: &str = include_str!("../../../../docs/guide/cli.md");

    /// The commands in the first column of the guide's table: those in backquotes there.
    fn rows() -> impl Iterator<Item = Vec<&'static str>> {
        let table = GUIDE.split("\n## Verbs\n\n").nth(1).unwrap().split("\n\n").next().unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let first = rows.map(|row| row[2..].split(" | ").next().unwrap());
        let named = first.map(|cell| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>());
        named.map(|commands| {
            commands.into_iter().map(|command| command.trim_start_matches("pando ")).collect()
        })
    }

    /// Verbs, each with its sub-verbs behind a blank.
    fn verbs() -> Vec<String> {
        let command = command();
        let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
        let mut all = Vec::new();
        for verb in command.get_subcommands().filter(shown) {
            let name = verb.get_name();
            let below: Vec<_> = verb.get_subcommands().filter(shown).collect();
            all.extend(below.iter().map(|sub| format!("{name} {}", sub.get_name())));
            if below.is_empty() {
                all.push(name.to_owned());
            }
        }
        all
    }

    /// What a command of a row names: `search a|b VOLUME` names two.
    fn named(command: &str) -> Vec<String> {
        let mut words = command.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let is_word = |c: char| c.is_ascii_lowercase() || c == '|' || c == '\\';
        let sub = words.next().filter(|word| word.chars().all(is_word));
        match sub {
            Some(subs) => subs
                .split('|')
                .map(|sub| format!("{verb} {}", sub.trim_end_matches('\\')))
                .collect(),
            None => vec![verb.to_owned()],
        }
    }

    #[test]
    fn guide_has_a_row_for_each_verb() {
        let listed: Vec<String> = rows().flatten().flat_map(named).collect();
        let verbs = verbs();
        for verb in &verbs {
            assert!(listed.contains(verb), "docs/guide/cli.md has no row of {verb}: {listed:?}");
        }
    }

    #[test]
    fn guide_has_rows_of_verbs_alone() {
        let verbs = verbs();
        for row in rows() {
            // What follows the first command may be its other arguments.
            for one in named(row[0]) {
                assert!(verbs.contains(&one), "docs/guide/cli.md has a row of {one}: {verbs:?}");
            }
        }
    }

    #[test]
    fn guide_has_the_table_of_exit_codes() {
        let rows: Vec<_> = GUIDE
            .split("\n## Exit codes\n")
            .nth(1)
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| ") && !line.starts_with("| code"))
            .collect();
        let codes = program::exit::CODES;
        let expected: Vec<_> =
            codes.iter().map(|(code, meaning)| format!("| {code} | {meaning} |")).collect();
        assert_eq!(rows[..codes.len()], expected);
        // Every failure has one of them, and the help has them all.
        for kind in [
            FailureKind::NotFound,
            FailureKind::Exists,
            FailureKind::Permission,
            FailureKind::Invalid,
            FailureKind::ReadOnly,
            FailureKind::Damaged,
            FailureKind::Interrupted,
            FailureKind::NotVolume,
            FailureKind::Other,
        ] {
            let number = program::exit::number(kind);
            assert!(number > 0 && codes.iter().any(|(code, _)| *code == number), "{kind:?}");
        }
        let help = command().render_long_help().to_string();
        for (code, meaning) in codes {
            assert!(help.contains(&format!("  {code}  {meaning}")), "{help}");
        }
    }
}
