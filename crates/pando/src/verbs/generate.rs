//! `pando generate`: man pages and completions, from the definitions that `--help` prints, for
//! `make install` and packages.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_complete::aot::generate;

use crate::cli::{self, GenerateArgs};
use crate::failure::{self, Result};

/// mount(8) starts this; its options are those of `pando mount -o`.
const MOUNT_HELPER: &str = ".so man1/pando-mount.1\n";

pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    let command = visible(&cli::command());
    let man1 = made(&args.dir, "man/man1")?;
    clap_mangen::generate_to(command.clone(), &man1)
        .map_err(|error| failure::io("write man pages into", &man1, &error))?;
    write(&made(&args.dir, "man/man8")?.join("mount.pando.8"), MOUNT_HELPER.as_bytes())?;
    for (shell, place, name) in [
        (Shell::Bash, "bash", "pando"),
        (Shell::Zsh, "zsh", "_pando"),
        (Shell::Fish, "fish", "pando.fish"),
    ] {
        let mut script = Vec::new();
        generate(shell, &mut command.clone(), "pando", &mut script);
        write(&made(&args.dir, place)?.join(name), &script)?;
    }
    Ok(())
}

/// The command line without hidden verbs, which completions would otherwise offer.
fn visible(all: &Command) -> Command {
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("pando")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .disable_help_subcommand(true)
        .about(all.get_about().cloned().unwrap_or_default())
        .after_help(all.get_after_help().cloned().unwrap_or_default())
        .args(all.get_arguments().cloned())
        .subcommands(verbs)
}

fn made(above: &Path, below: &str) -> Result<std::path::PathBuf> {
    let directory = above.join(below);
    fs::create_dir_all(&directory).map_err(|error| failure::io("create", &directory, &error))?;
    Ok(directory)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|error| failure::io("write", path, &error))
}
