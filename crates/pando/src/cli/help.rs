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

/// Makes `pando help VERB...` what it stands for: `pando VERB... --help`.
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

    #[test]
    fn guide_has_a_row_for_each_verb() {
        let guide = include_str!("../../../../docs/guide/cli.md");
        let rows = guide.lines().filter_map(|line| line.strip_prefix("| `"));
        let listed: Vec<&str> = rows
            .filter_map(|row| row.split([' ', '`']).next())
            .filter(|verb| !verb.is_empty())
            .collect();
        for verb in GROUPS.iter().flat_map(|(_, verbs)| *verbs) {
            assert!(listed.contains(verb), "docs/guide/cli.md has no row of {verb}: {listed:?}");
        }
    }
}
