//! Environment variables and configuration files of the user who runs the process: what other
//! programs (AWS tools) keep outside the volume, and a person expects to be used.

use std::io::{self, Read};

/// Maximum bytes of a configuration file.
const BYTES_MAX: u64 = 1 << 20;

/// What a user has set, real or that of a test.
pub trait UserConfig: Send + Sync {
    /// An environment variable; `None` if it is unset, empty or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// A whole configuration file; `None` if it does not exist.
    fn read(&self, path: &str) -> io::Result<Option<String>>;
}

/// That of this process.
#[derive(Debug, Clone, Copy)]
pub struct SystemConfig;

impl UserConfig for SystemConfig {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    fn read(&self, path: &str) -> io::Result<Option<String>> {
        let file = match std::fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = String::new();
        if file.take(BYTES_MAX + 1).read_to_string(&mut text)? as u64 > BYTES_MAX {
            let why = format!("the file has more than {BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        Ok(Some(text))
    }
}
