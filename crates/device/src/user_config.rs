//! Environment variables and configuration files of the user who runs the process. Other programs
//! (AWS tools) keep them outside the volume, and a person expects them to be used.

use std::io::{self, Read};

/// Maximum bytes of a configuration file.
const BYTES_MAX: u64 = 1 << 20;

/// What a user has set, real or that of a test.
pub trait UserConfig: Send + Sync {
    /// An environment variable; `None` if it is unset, empty or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;

    /// The user's own directory.
    fn home(&self) -> Option<String> {
        self.variable("HOME")
    }

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

    /// A service has no `HOME`, but its user may have a directory.
    fn home(&self) -> Option<String> {
        let entry = || {
            let users = self.read("/etc/passwd").ok()??;
            home_of(&users, rustix::process::geteuid().as_raw())
        };
        self.variable("HOME").or_else(entry)
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

/// The directory of a user in the text of `/etc/passwd`.
fn home_of(users: &str, uid: u32) -> Option<String> {
    let id = uid.to_string();
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = fields.into_iter().find(|fields| fields.get(2) == Some(&id.as_str()))?;
    entry.get(5).filter(|home| home.starts_with('/')).map(|home| (*home).to_owned())
}

#[cfg(test)]
mod tests {
    use super::home_of;

    #[test]
    fn a_service_has_the_home_of_its_user() {
        let users = "root:x:0:0:root:/root:/bin/sh\nme:x:10:10::/home/me:/bin/sh\nbad:x:11\n";
        assert_eq!(home_of(users, 0).as_deref(), Some("/root"));
        assert_eq!(home_of(users, 10).as_deref(), Some("/home/me"));
        assert_eq!(home_of(users, 11), None);
        assert_eq!(home_of(users, 1), None);
    }
}
