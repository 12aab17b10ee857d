//! Options of `pando trash` and `pando restore`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

pub(crate) const RESTORE_HELP: &str = "\
PATH is where it was: nothing need be there any more. The newest comes back, a tree with all
below it. Nothing is overwritten: what finds its name taken stays in the trash.

Examples:
  pando restore /mnt/vol/report.txt
  pando restore /mnt/vol/project --to /mnt/vol/project.old
  pando restore --at '2 hours ago' /mnt/vol/report.txt
  pando restore --list /mnt/vol/project";

const ON_HELP: &str = "\
Examples:
  pando trash on /mnt/vol
  pando trash on /mnt/vol/home --keep 30d";

const LIST_HELP: &str = "\
PATH is a directory that has a trash or is below one, or where something was in one.

Examples:
  pando trash list /mnt/vol/home/ada
  pando trash list --json /mnt/vol/home/ada/report";

pub(super) const HELP: &str = "\
Examples:
  pando trash on /mnt/vol --keep 30d
  pando trash list /mnt/vol/home/ada
  pando restore /mnt/vol/home/ada/report";

#[derive(Debug, Subcommand)]
pub(crate) enum TrashVerb {
    /// Keep what is removed in a directory and below: unlink, rmdir, rename over it, pando rmr
    #[command(after_help = ON_HELP)]
    On {
        /// The directory; the root for the whole volume
        dir: PathBuf,
        /// How long: a number with s, m, h, d or w
        #[arg(long, value_name = "TIME", default_value = "7d", value_parser = seconds)]
        keep: u64,
    },
    /// Delete what is removed from now on; what is in .trash stays, as ordinary files
    #[command(after_help = "Example:\n  pando trash off /mnt/vol/home")]
    Off {
        /// The directory
        dir: PathBuf,
    },
    /// Show what can be restored
    #[command(after_help = LIST_HELP)]
    List {
        /// The directory, or where something was
        path: PathBuf,
    },
    /// Delete all that is in the trash
    #[command(after_help = "Example:\n  pando trash empty /mnt/vol")]
    Empty {
        /// The directory
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Where it was
    pub(crate) path: PathBuf,
    /// Restore to there instead
    #[arg(long, value_name = "PATH")]
    pub(crate) to: Option<PathBuf>,
    /// What was removed at TIME or before: as `pando find -newermt` reads it
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// With a directory, all that was removed from it since TIME [default: an hour before it]
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Restore nothing; show what is in the trash
    #[arg(long, conflicts_with_all = ["to", "at", "since"])]
    pub(crate) list: bool,
}

fn seconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        other => return Err(format!("'{other}' is no unit: s, m, h, d or w")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no time"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is too long"))
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_have_units() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("7d"), Ok(604_800));
        assert_eq!(seconds("2w"), Ok(1_209_600));
        for text in ["", "7", "d", "-1d", "1.5h", "1y", "99999999999999999w"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
