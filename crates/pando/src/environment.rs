//! Environment variables that set a daemon's options. The command that starts the daemon reads
//! them: the daemon would report errors in them as errors in options that the user did not type.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use program::{cache_size, index_cache};
use wire::{Failure, FailureKind};

use crate::failure::Result;

/// Sets `--cache-size` when the command line does not.
pub(crate) const CACHE_SIZE: &str = "PANDO_CACHE_SIZE";
/// Sets `--index-cache` when the command line does not.
pub(crate) const INDEX_CACHE: &str = "PANDO_INDEX_CACHE";
/// How long a daemon without a mount stays idle, in seconds.
pub(crate) const IDLE_SECONDS: &str = "PANDO_IDLE_SECONDS";

/// The directory of this host's directories of volumes in object stores.
pub(crate) const HOST_DIRECTORY: &str = "PANDO_HOST_DIRECTORY";
/// Prices of an object store: dollars for a thousand writes, a thousand reads, a gigabyte a month.
pub(crate) const OBJECT_PRICES: &str = "PANDO_OBJECT_PRICES";

/// Bytes of the cache of a volume in an object store, on this host's disk; 0: none.
pub(crate) const OBJECT_CACHE: &str = "PANDO_OBJECT_CACHE";

/// Parses the value of a variable, or returns what is wrong with it.
type Read = fn(&str) -> std::result::Result<u64, String>;

/// Each variable, its option, and its parser.
const ALL: [(&str, &str, Read); 3] = [
    (CACHE_SIZE, "--cache-size", cache_size::parse),
    (INDEX_CACHE, "--index-cache", index_cache::parse),
    (IDLE_SECONDS, "--idle-seconds", seconds),
];

fn seconds(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| "expected a number of seconds".to_owned())
}

/// Refuses a variable that cannot be parsed, unless its option was given.
pub(crate) fn check(given: &[OsString]) -> Result<()> {
    for (variable, option, read) in ALL {
        let Some(value) = std::env::var_os(variable) else { continue };
        if given.iter().any(|argument| argument == option) {
            continue;
        }
        let value = value.to_string_lossy();
        if let Err(why) = read(&value) {
            let message = format!("{variable} is '{value}': {why}");
            let hint = format!("set {variable} to another value, or unset it");
            return Err(Failure::new(FailureKind::Invalid, message).hint(hint));
        }
    }
    Ok(())
}

/// Whether an error is about the invalid value of a variable, by the option that the variable
/// sets.
pub(crate) fn is_about(error: &clap::Error) -> bool {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (argument, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let named = argument.split_whitespace().next();
    ALL.iter().any(|(variable, option, read)| {
        let of_variable = std::env::var(variable).unwrap_or_default();
        read(&of_variable).is_err() && value == of_variable && named == Some(*option)
    })
}
