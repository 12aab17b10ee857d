//! The table of mount options: the one place that lists them.
//!
//! An option is a row of [`TABLE`]. The rows determine parsing, the message about an unknown or
//! incomplete option, and `pando mount --help` with its man page. They also determine what a
//! remount may change, and what `pando serve -o` takes. The tests below refuse a row without a line
//! in `docs/guide/mounting.md`, and the reverse.

use std::path::PathBuf;
use std::time::Duration;

use super::{Atime, MountOptions};

/// More threads than this only queue up at the kernel's single request queue.
const THREADS_MAX: usize = 64;
/// Longest accepted time-out, in seconds: a year.
const TIMEOUT_SECONDS_MAX: f64 = 31_536_000.0;
/// Largest file that may be stored with its name: records of it are in memory until a checkpoint.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest time between two commits: what is not synced becomes durable after as much.
const COMMIT_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// Where help texts begin.
const HELP_COLUMN: usize = 26;

/// What an option does.
#[derive(Clone, Copy)]
pub(super) enum Set {
    /// Sets fields; it takes no value.
    Flag(fn(&mut MountOptions)),
    /// What its value is called, and how that sets fields. An error names the right values.
    Value(&'static str, fn(&mut MountOptions, &str) -> Result<(), &'static str>),
    /// Refused, for this reason.
    Refused(&'static str),
}

/// Options that one line of help explains.
struct Row {
    options: &'static [(&'static str, Set)],
    /// Further lines of it are indented when printed.
    help: &'static str,
    /// Whether a remount can change it.
    remount: bool,
    /// Whether it concerns the volume and not the kernel, so that `pando serve` takes it.
    served: bool,
}

use Set::{Flag, Refused, Value};

const TABLE: &[Row] = &[
    Row {
        options: &[("ro", Flag(|o| o.read_only = true)), ("rw", Flag(|o| o.read_only = false))],
        help: "read-only or not",
        remount: true,
        served: false,
    },
    Row {
        options: &[
            ("allow_other", Flag(|o| o.allow_other = true)),
            ("noallow_other", Flag(|o| o.allow_other = false)),
        ],
        help: "let other users in (the default for root's mounts)",
        remount: false,
        served: false,
    },
    Row {
        options: &[
            ("noatime", Flag(|o| o.atime = Atime::Never)),
            ("relatime", Flag(|o| o.atime = Atime::Relative)),
        ],
        help: "whether reading updates the access time",
        remount: true,
        served: true,
    },
    Row {
        options: &[("subdir", Value("PATH", subdir))],
        help: "mount a directory of the volume instead of its root",
        remount: false,
        served: false,
    },
    Row {
        options: &[(
            "attr-timeout",
            Value("SECONDS", |o, value| set(&mut o.attr_timeout, seconds(value))),
        )],
        help: "how long the kernel keeps attributes",
        remount: false,
        served: false,
    },
    Row {
        options: &[("entry-timeout", Value("SECONDS", entry_timeout))],
        help: "how long the kernel keeps names",
        remount: false,
        served: false,
    },
    Row {
        options: &[(
            "negative-timeout",
            Value("SECONDS", |o, value| set(&mut o.negative_timeout, seconds(value))),
        )],
        help: "how long the kernel keeps that a name does not exist",
        remount: false,
        served: false,
    },
    Row {
        options: &[("sync", Flag(|o| o.sync = true)), ("async", Flag(|o| o.sync = false))],
        help: "whether every write is durable when it returns",
        remount: true,
        served: false,
    },
    Row {
        options: &[("dirsync", Flag(|o| o.dirsync = true))],
        help: "every change of a directory is durable when it returns",
        remount: false,
        served: false,
    },
    Row {
        options: &[("suid", Flag(|o| o.suid = true)), ("nosuid", Flag(|o| o.suid = false))],
        help: "whether set-id bits work (the default: nosuid)",
        remount: true,
        served: false,
    },
    Row {
        options: &[("dev", Flag(|o| o.dev = true)), ("nodev", Flag(|o| o.dev = false))],
        help: "whether device nodes work (the default: nodev)",
        remount: true,
        served: false,
    },
    Row {
        options: &[("exec", Flag(|o| o.exec = true)), ("noexec", Flag(|o| o.exec = false))],
        help: "whether programs can be run (the default: exec)",
        remount: true,
        served: false,
    },
    Row {
        options: &[("remount", Refused("only as an option of `pando mount` or mount(8)"))],
        help: "change ro, suid, dev, exec, sync of an existing mount",
        remount: true,
        served: false,
    },
    Row {
        options: &[("cache-size", Value("SIZE", |o, value| some(&mut o.cache_bytes, value)))],
        help: "like --cache-size",
        remount: false,
        served: false,
    },
    Row {
        options: &[(
            "merge-rate",
            Value("SIZE", |o, value| some(&mut o.merge_bytes_per_second, value)),
        )],
        help: "most bytes per second that merges of --engine lsm write",
        remount: false,
        served: true,
    },
    Row {
        options: &[("small-files", Value("SIZE", small_files))],
        help: "files that are stored with their names, in an object store",
        remount: false,
        served: true,
    },
    Row {
        options: &[("commit-interval", Value("SECONDS", commit_interval))],
        help: "least time between two commits to an object store",
        remount: false,
        served: true,
    },
    Row {
        options: &[("threads", Value("N", threads))],
        help: "threads that serve requests, 1 to 64",
        remount: false,
        served: false,
    },
    Row {
        options: &[
            ("clone_fd", Flag(|o| o.clone_fd = true)),
            ("noclone_fd", Flag(|o| o.clone_fd = false)),
        ],
        help: "whether each thread has its own channel to the kernel",
        remount: false,
        served: false,
    },
    Row {
        options: &[("snapshot-inodes", Value("unique|alike", snapshot_inodes))],
        help: "whether a file has one inode number in each snapshot, or one in all",
        remount: false,
        served: false,
    },
    Row {
        options: &[("trace_opens", Flag(|o| o.trace_opens = true))],
        help: "the kernel reports every open and close, for --trace",
        remount: false,
        served: false,
    },
    Row {
        options: &[(
            "fsname",
            Value("NAME", |o, value| set(&mut o.fsname, Ok(Some(value.to_owned())))),
        )],
        help: "the source that mount and df show",
        remount: false,
        served: false,
    },
];

/// Other names of flags, which mount(8) uses.
const ALIASES: [(&str, &str); 2] = [("norelatime", "noatime"), ("atime", "relatime")];

/// Options of other file systems that would not do here what they promise.
const REFUSED: [(&str, Set); 2] = [
    (
        "strictatime",
        Refused(
            "reads that the kernel answers from its cache cannot be counted: relatime or noatime",
        ),
    ),
    (
        "no_default_permissions",
        Refused(
            "the kernel opens FIFOs, sockets and devices without a request to the daemon, so it \
             must check permissions: leave the option out",
        ),
    ),
];

/// Options that mount(8) or systemd act on before we are called, and options that change nothing
/// here: of times, and `default_permissions`, which every mount has.
const GENERIC: [&str; 17] = [
    "default_permissions",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "diratime",
    "nodiratime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
];

/// How further ones of the same begin.
const GENERIC_PREFIXES: [&str; 6] = ["x-", "X-", "comment=", "user=", "uhelper=", "helper="];

/// Whether an option is for mount(8), systemd or init only: it is accepted and has no effect.
pub fn is_for_mount_program(option: &str) -> bool {
    GENERIC.contains(&option) || GENERIC_PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

/// The options of `-o`, as `pando mount --help` shows them.
pub fn help() -> String {
    let line = |row: &Row| {
        let names: Vec<String> = row.options.iter().map(shown).collect();
        let names = format!("  {:<HELP_COLUMN$}", names.join(", "));
        let separator = if names.ends_with(' ') { "" } else { "  " };
        [names.as_str(), separator, row.help, "\n"].concat()
    };
    TABLE.iter().map(line).collect()
}

/// What the option `NAME` or `NAME=VALUE` does; `None` for one that is not in the table.
pub(super) fn find(option: &str) -> Option<Set> {
    find_row(option)
        .map(|(_, set)| set)
        .or_else(|| REFUSED.iter().find(|(refused, _)| *refused == option).map(|(_, set)| *set))
}

/// Whether a remount can change what an option sets.
pub(crate) fn is_changeable(option: &str) -> bool {
    find_row(option).is_some_and(|(row, _)| row.remount)
}

/// Whether `pando serve` takes an option for the volumes that it serves.
pub fn is_for_served(option: &str) -> bool {
    find_row(option).is_some_and(|(row, _)| row.served)
}

/// The names of these options.
pub fn names_for_served() -> Vec<&'static str> {
    let rows = TABLE.iter().filter(|row| row.served);
    rows.flat_map(|row| row.options.iter().map(|(name, _)| *name)).collect()
}

/// All options that the table has, for a message.
pub(super) fn names() -> String {
    let names: Vec<String> = TABLE.iter().flat_map(|row| row.options.iter().map(shown)).collect();
    names.join(", ")
}

fn find_row(option: &str) -> Option<(&'static Row, Set)> {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, meant)| meant);
    let dashed = name.replace('_', "-");
    TABLE.iter().find_map(|row| {
        let found = row.options.iter().find(|(known, set)| match set {
            // libfuse's spelling has underscores.
            Value(..) => *known == dashed,
            Flag(_) | Refused(_) => *known == name,
        });
        found.map(|(_, set)| (row, *set))
    })
}

fn shown((name, set): &(&str, Set)) -> String {
    match set {
        Value(value, _) => format!("{name}={value}"),
        Flag(_) | Refused(_) => (*name).to_owned(),
    }
}

fn subdir(options: &mut MountOptions, value: &str) -> Result<(), &'static str> {
    let below = value.trim_matches('/');
    if below.split('/').any(|part| part == "..") {
        return Err("the path of a directory in the volume, without '..'");
    }
    options.subdir = (!below.is_empty()).then(|| PathBuf::from(below));
    Ok(())
}

fn entry_timeout(options: &mut MountOptions, value: &str) -> Result<(), &'static str> {
    set(&mut options.entry_timeout, seconds(value))?;
    options.negative_timeout = options.entry_timeout;
    Ok(())
}

fn threads(options: &mut MountOptions, value: &str) -> Result<(), &'static str> {
    let threads = value.parse().ok().filter(|n| (1..=THREADS_MAX).contains(n));
    set(&mut options.threads, threads.ok_or("a number from 1 to 64"))
}

fn small_files(options: &mut MountOptions, value: &str) -> Result<(), &'static str> {
    let bytes = inode::parse_bytes(value).filter(|bytes| *bytes <= SMALL_FILE_BYTES_MAX);
    set(&mut options.small_file_bytes, bytes.map(Some).ok_or("a number of bytes, at most 1M"))
}

fn commit_interval(options: &mut MountOptions, value: &str) -> Result<(), &'static str> {
    let interval = seconds(value).ok().filter(|interval| *interval <= COMMIT_INTERVAL_MAX);
    let wrong = "a time in seconds, at most 5";
    set(&mut options.commit_interval, interval.map(Some).ok_or(wrong))
}

fn snapshot_inodes(options: &mut MountOptions, value: &str) -> Result<(), &'static str> {
    options.snapshots_alike = match value {
        "alike" => true,
        "unique" => false,
        _ => return Err("unique or alike"),
    };
    Ok(())
}

fn set<T>(field: &mut T, value: Result<T, &'static str>) -> Result<(), &'static str> {
    *field = value?;
    Ok(())
}

fn some(field: &mut Option<u64>, value: &str) -> Result<(), &'static str> {
    let bytes = inode::parse_bytes(value).ok_or("a number of bytes, such as 512M or 4G");
    set(field, bytes.map(Some))
}

fn seconds(value: &str) -> Result<Duration, &'static str> {
    let seconds: Option<f64> = value.strip_suffix('s').unwrap_or(value).parse().ok();
    seconds
        .filter(|seconds| (0.0..=TIMEOUT_SECONDS_MAX).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or("a time in seconds, such as 60 or 0.5")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const GUIDE: &str = include_str!("../../../../docs/guide/mounting.md");

    fn parse(option: &str) -> Result<MountOptions, super::super::OptionError> {
        let mut options = MountOptions::new(Path::new("/v"), Path::new("/m"));
        options.parse(option).map(|()| options)
    }

    #[test]
    fn every_option_with_a_value_reports_that_it_has_none() {
        let all = TABLE.iter().flat_map(|row| row.options);
        let named: Vec<_> = all.filter(|(_, set)| matches!(set, Value(..))).collect();
        assert!(named.len() >= 9, "{}", named.len());
        for (name, _) in named {
            for spelt in [(*name).to_owned(), name.replace('-', "_")] {
                let message = parse(&spelt).unwrap_err().to_string();
                assert!(message.contains(&format!("{spelt}=")), "{spelt}: {message}");
                assert!(message.contains("needs a value"), "{spelt}: {message}");
            }
        }
    }

    #[test]
    fn every_flag_is_accepted_and_changes_something() {
        let is_flag = |(_, set): &&(&str, Set)| matches!(set, Flag(_));
        for row in TABLE {
            for (name, _) in row.options.iter().filter(is_flag) {
                let opposites = row.options.iter().filter(|(other, _)| other != name);
                let from: Vec<&str> = opposites.map(|(other, _)| *other).collect();
                let from = from.join(",");
                let before = parse(&from).unwrap();
                assert_ne!(parse(&format!("{from},{name}")).unwrap(), before, "{name}");
                let valued = parse(&format!("{name}=1")).unwrap_err().to_string();
                assert!(valued.contains("takes no value"), "{valued}");
            }
        }
    }

    /// What a mount keeps for as long as it lives is not taken over by another mount of it.
    #[test]
    fn each_option_but_those_of_a_place_makes_a_difference() {
        let default = parse("").unwrap();
        for row in TABLE {
            let named = row.options[0].0;
            for (name, set) in row.options {
                let option = match set {
                    Flag(_) => (*name).to_owned(),
                    Value("unique|alike", _) => format!("{name}=alike"),
                    Value(..) => format!("{name}=3"),
                    Refused(_) => continue,
                };
                let changed = parse(&option).unwrap();
                let is_kept = changed != default && !["suid", "dev", "exec"].contains(&named);
                let found = default.difference(&changed);
                assert_eq!(found, is_kept.then_some(named), "{option}");
                assert_eq!(changed.difference(&changed.clone()), None, "{option}");
            }
        }
    }

    #[test]
    fn no_option_is_in_the_table_twice_or_also_generic() {
        let mut seen = BTreeSet::new();
        for (name, _) in TABLE.iter().flat_map(|row| row.options).chain(&REFUSED) {
            assert!(seen.insert(*name), "{name} twice");
            assert!(!is_for_mount_program(name), "{name} is generic");
        }
        for (alias, meant) in ALIASES {
            assert!(seen.contains(meant) && !seen.contains(alias), "{alias}");
        }
    }

    #[test]
    fn guide_lists_the_options_of_the_table() {
        let rows = GUIDE.lines().skip_while(|line| *line != "## Options").skip(1);
        let rows = rows.take_while(|line| !line.starts_with("## "));
        let cells = rows.filter_map(|row| row.strip_prefix("| `")?.split('|').next());
        let quoted = cells.flat_map(|cell| cell.split('`').step_by(2));
        let listed: BTreeSet<String> = quoted
            .map(|option| option.split('=').next().unwrap_or_default().trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        let named: BTreeSet<String> =
            TABLE.iter().flat_map(|row| row.options).map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed, named, "docs/guide/mounting.md, Options: first column");
    }

    #[test]
    fn help_and_the_message_name_every_option() {
        let message = parse("noexce").unwrap_err().to_string();
        for option in TABLE.iter().flat_map(|row| row.options).map(shown) {
            assert!(help().contains(&option), "{option} in {}", help());
            assert!(message.contains(&option), "{option} in {message}");
        }
        assert!(help().lines().all(|line| line.len() <= 100), "{}", help());
    }
}
