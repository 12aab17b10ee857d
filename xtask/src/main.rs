//! Checks of the repository that no compiler makes: `cargo xtask tidy`, also run by `cargo test`.
//!
//! `cargo xtask ci` runs all that CI runs. `cargo xtask layouts` prints the tables that the pages
//! in `docs/format/` must show, `cargo xtask lines` the lines of code by crate.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports")]

mod lines;
mod tidy;

use std::path::Path;
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask tidy | ci | layouts | lines";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => report(&tidy::check(root)),
        Some("ci") => run(Command::new("bash").arg("scripts/test.sh").current_dir(root)),
        Some("layouts") => {
            println!("{}", tidy::layouts());
            ExitCode::SUCCESS
        }
        Some("lines") => match tidy::Tree::read(root) {
            Ok(tree) => {
                print!("{}", lines::table(&tree));
                ExitCode::SUCCESS
            }
            Err(problem) => report(&[problem]),
        },
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn report(problems: &[String]) -> ExitCode {
    for problem in problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        println!("tidy");
        ExitCode::SUCCESS
    } else {
        println!("{} problems", problems.len());
        ExitCode::FAILURE
    }
}

fn run(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot start it: {error}");
            ExitCode::FAILURE
        }
    }
}
