//! Keys and values in the coordinator (`docs/protocol/cluster.md`). Values are JSON, so that an
//! administrator can read them there; fields that are not known are ignored.

use serde::{Deserialize, Serialize};

use crate::coordinator::{Error, Result};

/// Longest value that is read.
pub const VALUE_BYTES_MAX: usize = 4096;
/// Longest name of a server.
pub const NAME_BYTES_MAX: usize = 64;

/// What all keys begin with. A change of values that earlier programs would misread gets another.
const ROOT: &str = "pando/1/";
/// Name of the key of a volume's holder, below the volume. Servers of other releases read it.
const HOLDER: &str = "/owner";

/// What a server announces of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advertised {
    /// Random, of this process: another one with the same name has another.
    pub instance: String,
    /// Where clients reach it: HOST:PORT.
    pub address: String,
}

/// Who owns a volume, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The server's name.
    pub server: String,
    /// Its process.
    pub instance: String,
    /// Where clients reach it.
    pub address: String,
}

/// Whether a server can have this name: 1 to 64 letters, digits, `.`, `-` and `_`.
pub fn is_server_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(fits)
}

/// The key of a server.
pub fn server_key(name: &str) -> String {
    format!("{ROOT}servers/{name}")
}

/// The key of the holder of a volume.
pub fn holder_key(volume: &[u8; 16]) -> String {
    format!("{ROOT}volumes/{:032x}{HOLDER}", u128::from_be_bytes(*volume))
}

/// The volume of a holder's key.
pub fn volume_of_key(key: &str) -> Option<[u8; 16]> {
    let volume = key.strip_prefix(ROOT)?.strip_prefix("volumes/")?.strip_suffix(HOLDER)?;
    let number = u128::from_str_radix(volume, 16).ok()?;
    let volume = number.to_be_bytes();
    (holder_key(&volume) == key).then_some(volume)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("invariant: text has a form in JSON")
}

fn decode<'v, T: Deserialize<'v>>(value: &'v [u8]) -> Result<T> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::Foreign(format!("a value of {} bytes", value.len())));
    }
    serde_json::from_slice(value).map_err(|error| Error::Foreign(format!("a value: {error}")))
}

impl Advertised {
    /// Its value.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a value.
    pub fn decode(value: &[u8]) -> Result<Advertised> {
        decode(value)
    }
}

impl Holder {
    /// Its value.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a value.
    pub fn decode(value: &[u8]) -> Result<Holder> {
        decode(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_of_the_document() {
        let mut volume = [0; 16];
        volume[0] = 0xab;
        let key = "pando/1/volumes/ab000000000000000000000000000000/owner";
        assert_eq!(holder_key(&volume), key);
        assert_eq!(volume_of_key(key), Some(volume));
        assert_eq!(server_key("a"), "pando/1/servers/a");
        for wrong in ["", "pando/1/volumes//owner", "pando/1/volumes/1/owner", &server_key("a")] {
            assert_eq!(volume_of_key(wrong), None, "{wrong}");
        }
        let holder = Holder {
            server: "a".to_owned(),
            instance: "00ff".to_owned(),
            address: "[::1]:7440".to_owned(),
        };
        let text = r#"{"server":"a","instance":"00ff","address":"[::1]:7440"}"#;
        assert_eq!(holder.encode(), text.as_bytes());
        assert_eq!(Holder::decode(text.as_bytes()), Ok(holder.clone()));
        let newer = r#"{"address":"[::1]:7440","rack":7,"instance":"00ff","server":"a"}"#;
        assert_eq!(Holder::decode(newer.as_bytes()), Ok(holder));
        let is_foreign = |bytes: &[u8]| matches!(Holder::decode(bytes), Err(Error::Foreign(_)));
        for length in 0..text.len() {
            assert!(is_foreign(&text.as_bytes()[..length]), "{length}");
        }
        assert!(is_foreign(&[b' '; VALUE_BYTES_MAX + 1]));
        let server = Advertised { instance: "1".to_owned(), address: "h:1".to_owned() };
        assert_eq!(Advertised::decode(&server.encode()), Ok(server));
    }

    #[test]
    fn names_of_servers_are_plain() {
        for good in ["a", "files-1.example_2", &"x".repeat(64)] {
            assert!(is_server_name(good), "{good}");
        }
        for wrong in ["", "a/b", "\u{e4}", "a b", &"x".repeat(65)] {
            assert!(!is_server_name(wrong), "{wrong}");
        }
    }
}
