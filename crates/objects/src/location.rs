//! Names of object stores, as users write them: `s3://bucket/prefix` and `file:///shared/dir`.
//!
//! Invariant: a location never holds a key or a password, so it may be printed and stored.

use std::fmt;

use device::valid_name;

/// Maximum bytes of a prefix; names of objects follow it.
const PREFIX_BYTES_MAX: usize = 100;

/// Where a volume's objects are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A bucket of a server that speaks S3.
    S3 {
        /// The bucket's name.
        bucket: String,
        /// What the objects' names begin with, without a `/` at its end; empty for the whole
        /// bucket.
        prefix: String,
    },
    /// A directory of a file system that several hosts may share.
    Directory {
        /// The absolute path.
        path: String,
    },
}

/// Text that does not name an object store: what is wrong, and what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text} does not name an object store: {why}")]
pub struct LocationError {
    text: String,
    why: String,
}

impl LocationError {
    pub(crate) fn new(text: &str, why: String) -> LocationError {
        LocationError { text: without_secret(text), why }
    }
}

impl Location {
    /// Whether text is meant to be an object store rather than a directory of this host.
    pub fn is_url(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let named = |scheme: &str| {
            scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !scheme.is_empty()
        };
        scheme.is_some_and(named) || text.starts_with("s3:") || text.starts_with("file:")
    }

    /// Reads a name. Errors never contain a password that the text has.
    pub fn parse(text: &str) -> Result<Location, LocationError> {
        let located = match text.split_once("://") {
            Some(("s3", rest)) => s3(rest),
            Some(("file", rest)) => directory(rest),
            Some(("http" | "https", _)) => {
                Err("write s3://BUCKET/PREFIX, and give the server's address as the endpoint"
                    .into())
            }
            Some(("gs" | "gcs" | "az" | "abfs" | "wasb", _)) => {
                Err("only s3:// and file:// are supported; use an endpoint of that provider that \
                     speaks S3"
                    .into())
            }
            Some((scheme, _)) => {
                Err(format!("the scheme '{scheme}' is unknown; use s3:// or file://"))
            }
            None if text.starts_with("s3:") => Err("write s3://BUCKET/PREFIX, with two '/'".into()),
            None if text.starts_with("file:") => {
                Err("write file:///DIRECTORY, with three '/'".into())
            }
            None => Err("write s3://BUCKET/PREFIX or file:///DIRECTORY".into()),
        };
        located.map_err(|why| LocationError::new(text, why))
    }
}

impl fmt::Display for Location {
    /// The one name that all spellings of a location share.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Location::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Location::Directory { path } => {
                f.write_str("file://")?;
                for byte in path.bytes() {
                    match byte {
                        b'/' | b'-' | b'_' | b'.' | b'~' | b'+' | b'@' | b',' => {
                            write!(f, "{}", byte as char)?;
                        }
                        byte if byte.is_ascii_alphanumeric() => write!(f, "{}", byte as char)?,
                        byte => write!(f, "%{byte:02X}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// Text without the part before an `@` in its first component.
fn without_secret(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (first, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match first.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{after}"),
        None => text.to_owned(),
    }
}

fn s3(rest: &str) -> Result<Location, String> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        return Err("a URL must not contain keys, because others can read it; set \
                    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
            .to_owned());
    }
    if bucket.contains(':') {
        return Err(
            "the first part is the bucket; give the server's address as the endpoint, and write \
             s3://BUCKET/PREFIX"
                .to_owned(),
        );
    }
    if rest.contains(['?', '#']) {
        return Err("the URL must not contain options; remove '?' or '#' and what \
                    follows"
            .to_owned());
    }
    if bucket.is_empty() {
        return Err("the bucket is missing; write s3://BUCKET/PREFIX".to_owned());
    }
    check_bucket(bucket)?;
    let prefix = prefix.trim_end_matches('/');
    if !prefix.is_empty() && !valid_name(prefix) {
        return Err(format!(
            "the prefix '{prefix}' must have letters, digits, '-', '_' and '.' between single '/', \
             and no part may begin with '.'"
        ));
    }
    if prefix.len() > PREFIX_BYTES_MAX {
        let length = prefix.len();
        return Err(format!("the prefix has {length} bytes, at most {PREFIX_BYTES_MAX}"));
    }
    Ok(Location::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

/// Whether a bucket can have this name.
pub(crate) fn check_bucket(bucket: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = bucket.as_bytes();
    if !(3..=63).contains(&bytes.len())
        || !bytes.iter().all(|byte| allowed(*byte))
        || !ends(bytes.first())
        || !ends(bytes.last())
        || bucket.contains("..")
    {
        return Err(format!(
            "'{bucket}' is not the name of a bucket, which has 3 to 63 letters, digits, '-' and \
             '.' and begins and ends with a letter or digit"
        ));
    }
    Ok(())
}

fn directory(rest: &str) -> Result<Location, String> {
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if !matches!(host, "" | "localhost") {
        return Err(format!(
            "'{host}' would be a host; write file:///DIRECTORY, with three '/', for a directory \
             that is mounted here"
        ));
    }
    let path = decode(path)?;
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                return Err("the URL must not contain '..'; write the directory's path".to_owned());
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() {
        return Err("the directory is missing; write file:///DIRECTORY".to_owned());
    }
    Ok(Location::Directory { path: format!("/{}", parts.join("/")) })
}

/// Replaces `%XX` by the byte.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => {
                return Err("'%' must be followed by two hexadecimal digits; write % as %25".into());
            }
        }
    }
    let decoded = String::from_utf8(bytes).map_err(|_| "the path is not UTF-8".to_owned())?;
    if decoded.contains('\0') {
        return Err("a path has no NUL".to_owned());
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::Location;

    #[test]
    fn locations_have_one_name() {
        for (text, name) in [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("s3://my-bucket.eu/a/b_c/", "s3://my-bucket.eu/a/b_c"),
            ("file:///srv/vol", "file:///srv/vol"),
            ("file:///srv//vol/./", "file:///srv/vol"),
            ("file://localhost/srv/vol", "file:///srv/vol"),
            ("file:///srv/my%20vol%25", "file:///srv/my%20vol%25"),
            ("file:///srv/my vol", "file:///srv/my%20vol"),
        ] {
            assert!(Location::is_url(text), "{text}");
            let location = Location::parse(text).expect(text);
            assert_eq!(location.to_string(), name);
            assert_eq!(Location::parse(name), Ok(location), "its name names it");
        }
        let parsed = Location::parse("file:///srv/my%20vol").expect("valid");
        assert_eq!(parsed, Location::Directory { path: "/srv/my vol".to_owned() });
    }

    #[test]
    fn other_text_is_refused_with_what_to_write() {
        for (text, why) in [
            ("s3://", "bucket is missing"),
            ("s3:bucket", "two '/'"),
            ("s3:///prefix", "bucket is missing"),
            ("s3://ab", "3 to 63"),
            ("s3://-bucket", "begins and ends"),
            ("s3://a..b", "3 to 63"),
            ("s3://localhost:9000/bucket", "endpoint"),
            ("s3://bucket/a//b", "single '/'"),
            ("s3://bucket//a", "single '/'"),
            ("s3://bucket/../b", "begin with '.'"),
            ("s3://bucket/a?region=x", "options"),
            ("https://bucket.s3.amazonaws.com/x", "endpoint"),
            ("gs://bucket/x", "speaks S3"),
            ("ftp://x/y", "'ftp' is unknown"),
            ("file://srv/vol", "three '/'"),
            ("file:/srv/vol", "three '/'"),
            ("file:///", "directory is missing"),
            ("file:///srv/../etc", "'..'"),
            ("file:///srv/%2e%2e/etc", "'..'"),
            ("file:///srv/%zz", "%25"),
            ("/srv/vol", "s3://BUCKET"),
        ] {
            let error = Location::parse(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
        let long = format!("s3://bucket/{}", "a".repeat(101));
        assert!(Location::parse(&long).expect_err("long").to_string().contains("101 bytes"));
        assert!(!Location::is_url("/srv/vol") && !Location::is_url("./a:b"));
    }

    #[test]
    fn passwords_in_names_are_refused_and_not_printed() {
        let error = Location::parse("s3://KEY:hunter2@bucket/x").expect_err("refused").to_string();
        assert!(!error.contains("hunter2") && error.contains("AWS_ACCESS_KEY_ID"), "{error}");
    }
}
