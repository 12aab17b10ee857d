//! Options of `pando quota`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use nix::unistd::{Group, User};
use wire::{LimitChange, QuotaOwner};

const SET_HELP: &str = "\
Root sets quotas: of a directory with everything in it, or with --user or --group of everything that
a user or a group owns on the volume. Existing files are counted first, by a walk. A limit that is
not named stays as it is; `none` removes it. The resulting limits are printed. Limits of users and
groups do not apply to root; those of directories apply to everybody.

Examples:
  pando quota set /mnt/vol/home/ada --bytes 10G --inodes 100000
  pando quota set /data/vol:/home/ada --bytes 20G       the limit of inodes stays
  pando quota set /mnt/vol/home/ada --inodes none       the limit of bytes stays
  pando quota set /mnt/vol --user ada --bytes 50G
  pando quota set /mnt/vol --group 1200 --inodes 1000000";

const GET_HELP: &str = "\
Examples:
  pando quota get /mnt/vol/home/ada/notes     the quota of the directory that it is in
  pando quota get /mnt/vol --user ada         what a user is charged on the volume
  pando quota get /mnt/vol --group 1200 --json";

const LIST_HELP: &str = "\
Examples:
  pando quota list /mnt/vol
  pando quota list /data/vol --json";

pub(super) const HELP: &str = "\
Examples:
  pando quota set /mnt/vol/home/ada --bytes 10G --inodes 100000
  pando quota get /mnt/vol/home/ada
  pando quota list /mnt/vol";

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum QuotaVerb {
    /// Set limits for a directory, a user or a group
    #[command(after_help = SET_HELP)]
    Set(QuotaSetArgs),
    /// Show the quota and usage of a path, a user or a group
    #[command(after_help = GET_HELP)]
    Get {
        /// The path; with --user or --group a volume, or a path in one
        path: PathBuf,
        #[command(flatten)]
        owner: OwnerArgs,
    },
    /// Show all quotas of a volume
    #[command(after_help = LIST_HELP)]
    List {
        /// A volume, or a path in one
        path: PathBuf,
    },
    /// Recount the usage of each quota, and compare
    #[command(after_help = "Example:\n  pando quota check /mnt/vol")]
    Check {
        /// A volume, or a path in one
        path: PathBuf,
    },
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("limits").required(true).multiple(true))]
pub(crate) struct QuotaSetArgs {
    /// The directory; with --user or --group a volume, or a path in one
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
    /// Most files, directories and other inodes
    #[arg(long, alias = "files", value_name = "N|none", value_parser = inodes, group = "limits")]
    inodes: Option<LimitChange>,
    /// Most bytes of contents and hard links, such as 500M or 1.5G, in powers of 1024
    #[arg(long, value_name = "SIZE|none", value_parser = bytes, group = "limits")]
    bytes: Option<LimitChange>,
    /// No limits, as with `none` for both; usage is still counted
    #[arg(long, conflicts_with_all = ["inodes", "bytes"], group = "limits")]
    unlimited: bool,
}

impl QuotaSetArgs {
    /// What becomes of the limits of inodes and of bytes.
    pub(crate) fn changes(&self) -> (LimitChange, LimitChange) {
        if self.unlimited {
            return (LimitChange::Remove, LimitChange::Remove);
        }
        (self.inodes.unwrap_or_default(), self.bytes.unwrap_or_default())
    }
}

#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// All that a user owns, by name or number
    #[arg(long, value_name = "NAME|UID", value_parser = user, conflicts_with = "group")]
    user: Option<u32>,
    /// All that a group owns, by name or number
    #[arg(long, value_name = "NAME|GID", value_parser = group)]
    group: Option<u32>,
}

impl OwnerArgs {
    /// Who was named, if anybody.
    pub(crate) fn named(&self) -> Option<QuotaOwner> {
        self.user.map(QuotaOwner::User).or(self.group.map(QuotaOwner::Group))
    }
}

fn user(text: &str) -> Result<u32, String> {
    text.parse().or_else(|_| match User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("there is no user {text}")),
        Err(error) => Err(format!("the users cannot be read: {error}")),
    })
}

fn group(text: &str) -> Result<u32, String> {
    text.parse().or_else(|_| match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("there is no group {text}")),
        Err(error) => Err(format!("the groups cannot be read: {error}")),
    })
}

fn inodes(text: &str) -> Result<LimitChange, String> {
    let most = || text.parse().ok().map(LimitChange::Set);
    none(text)
        .or_else(most)
        .ok_or_else(|| "expected a whole number of inodes, or `none`".to_owned())
}

fn bytes(text: &str) -> Result<LimitChange, String> {
    let most = || inode::parse_limit(text).map(LimitChange::Set);
    none(text).or_else(most).ok_or_else(|| {
        "expected a whole number of bytes, such as 512 or 1.5G, or `none`".to_owned()
    })
}

fn none(text: &str) -> Option<LimitChange> {
    (text == "none").then_some(LimitChange::Remove)
}

#[cfg(test)]
mod tests {
    use super::{group, user};

    #[test]
    fn users_and_groups_have_names_and_numbers() {
        assert_eq!((user("root"), group("root")), (Ok(0), Ok(0)));
        assert_eq!((user("4001"), group("4001")), (Ok(4001), Ok(4001)));
        let (user, group) = (user("no such user"), group("4294967296"));
        assert_eq!(user, Err("there is no user no such user".to_owned()));
        assert_eq!(group, Err("there is no group 4294967296".to_owned()));
    }
}
