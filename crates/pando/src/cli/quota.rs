//! Options of `pando quota`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const SET_HELP: &str = "\
Root sets quotas. A directory without one must be empty: what is made in it from then on is counted.
A limit that is not given is none; to set one anew, give both.

Examples:
  pando quota set /mnt/vol/home/ada --bytes 10G --files 100000
  pando quota set /data/vol:/home/ada --bytes 20G";

#[derive(Debug, Subcommand)]
pub(crate) enum QuotaVerb {
    /// Set the limits of a directory and all that is made in it
    #[command(after_help = SET_HELP)]
    Set(QuotaSetArgs),
    /// Show the quota that a path is charged to
    Get {
        /// The path
        path: PathBuf,
    },
    /// Show all quotas of a volume
    List {
        /// A volume, or a path in one
        path: PathBuf,
    },
    /// Count anew what is charged to each quota, and compare
    Check {
        /// A volume, or a path in one
        path: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct QuotaSetArgs {
    /// The directory
    pub(crate) dir: PathBuf,
    /// Most files, directories and other inodes
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<u64>,
    /// Most bytes of contents, with K, M, G or T for powers of 1024
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) bytes: Option<u64>,
    /// No limits: what is there goes on being counted
    #[arg(long, conflicts_with_all = ["files", "bytes"])]
    #[arg(required_unless_present_any = ["files", "bytes"])]
    pub(crate) unlimited: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        other => return Err(format!("{other} is no unit: K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no number of bytes"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too much"))
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("17"), Ok(17));
        assert_eq!(bytes("3k"), Ok(3 << 10));
        assert_eq!(bytes("10G"), Ok(10 << 30));
        for text in ["", "K", "-1", "1.5G", "1X", "99999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
