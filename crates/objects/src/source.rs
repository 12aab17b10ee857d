//! Objects that others wrote, to be read: their keys may be any text. Nothing is created, so keys
//! that may only list and read suffice, and no rule of the bucket matters.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::{Error, Result};
use jiff::Timestamp;
use rusty_s3::actions::list_objects_v2::ListObjectsContent;
use rusty_s3::actions::{ListObjectsV2, S3Action};
use ureq::Body;
use ureq::http::Response;

use crate::location::{LocationError, check_bucket};
use crate::open;
use crate::request::{Tried, status};
use crate::s3;
use crate::server::{LIST_BYTES, SIGNED_FOR, Server, fill, length_of_whole, text_of};
use crate::settings::{Seams, Settings};
use crate::traffic::Kind;

/// A bucket, and what the keys of its objects begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePrefix {
    /// The bucket.
    pub bucket: String,
    /// Empty, or text with a `/` at its end.
    pub prefix: String,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceObject {
    /// Its whole key.
    pub key: String,
    /// Its length.
    pub size: u64,
    /// When it was written, in nanoseconds since 1970.
    pub modified: i64,
    /// What the server calls these contents.
    etag: Option<String>,
}

/// A bucket that is read.
pub struct Source {
    server: Server,
    /// The same for reads of objects.
    reads: Server,
}

impl SourcePrefix {
    /// Reads `s3://BUCKET/PREFIX`. A `/` at the end is added: the objects are those below it.
    pub fn parse(url: &str) -> std::result::Result<SourcePrefix, LocationError> {
        let failed = |why: String| LocationError::new(url, why);
        let rest = url.strip_prefix("s3://");
        let rest = rest.ok_or_else(|| failed("write s3://BUCKET/PREFIX".to_owned()))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.contains(['@', ':']) {
            let why = "write s3://BUCKET/PREFIX; keys and the server's address are settings of \
                       their own (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL)";
            return Err(failed(why.to_owned()));
        }
        check_bucket(bucket).map_err(failed)?;
        if prefix.split('/').any(|part| part == "." || part == "..") {
            let why = "a URL cannot name objects whose keys have `.` or `..` between slashes";
            return Err(failed(why.to_owned()));
        }
        let end = if prefix.is_empty() || prefix.ends_with('/') { "" } else { "/" };
        Ok(SourcePrefix { bucket: bucket.to_owned(), prefix: format!("{prefix}{end}") })
    }
}

impl Source {
    /// Finds the server and the keys; nothing is sent yet.
    pub fn open(bucket: &str, settings: &Settings, seams: &Seams) -> Result<Source> {
        let place = open::place(bucket, "", settings, seams)?;
        let (clock, random) = (Arc::clone(&seams.clock), Arc::clone(&seams.random));
        let server = s3::reader(&place, clock, random)?;
        Ok(Source { reads: server.clone(), server })
    }

    /// Repeats reads of objects for so long only, and lists as long as before.
    #[must_use]
    pub fn read_within(mut self, limit: Duration) -> Source {
        self.reads.patience = self.reads.patience.within(limit);
        self
    }

    /// A page of the objects whose keys begin with a prefix, in the order of the server, and the
    /// token for the next page.
    pub fn list(
        &self,
        prefix: &str,
        token: Option<&str>,
    ) -> Result<(Vec<SourceObject>, Option<String>)> {
        let asked = self.server.asked("list", prefix);
        self.server.ask((Kind::List, 0), |keys| {
            let mut action = self.server.bucket.list_objects_v2(Some(keys));
            action.with_prefix(prefix.to_owned());
            if let Some(token) = token {
                action.with_continuation_token(token.to_owned());
            }
            let url = action.sign(SIGNED_FOR);
            let request = self.server.within(LIST_BYTES, self.server.agent.get(url.as_str()));
            asked.answered(request.call(), |answer| {
                if status(answer) != 200 {
                    return asked.unexpected(answer);
                }
                let broken =
                    |why: String| asked.failed(io::Error::new(io::ErrorKind::InvalidData, why));
                let text = match text_of(answer) {
                    Ok(text) => text,
                    Err(error) => return broken(error.to_string()),
                };
                let part = match ListObjectsV2::parse_response(&text) {
                    Ok(part) => part,
                    Err(error) => return broken(format!("the answer is not a list: {error}")),
                };
                let found = part.contents.into_iter().map(|found| listed(found, prefix));
                match found.collect::<std::result::Result<_, String>>() {
                    Ok(objects) => Tried::Done((objects, part.next_continuation_token)),
                    Err(why) => {
                        let error = io::Error::new(io::ErrorKind::InvalidData, why);
                        Tried::Refused(asked.error(error))
                    }
                }
            })
        })
    }

    /// Fills a buffer from an object. `false`: it is not the object that was listed.
    pub fn read(&self, object: &SourceObject, buffer: &mut [u8], offset: u64) -> Result<bool> {
        let end = offset.checked_add(buffer.len() as u64).filter(|&end| end <= object.size);
        let Some(last) = end.filter(|&end| end > offset).map(|end| end - 1) else {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::new("read", &object.key, error));
        };
        let server = &self.reads;
        let asked = server.asked("read", &object.key);
        let range = format!("bytes={offset}-{last}");
        let is_same = server.ask((Kind::Read, 0), |keys| {
            let action = server.bucket.get_object(Some(keys), &object.key);
            let url = action.sign(SIGNED_FOR);
            let agent = server.agent.get(url.as_str());
            let request = server.within(buffer.len() as u64, agent);
            let answer = request.header("range", &range).call();
            asked.answered_by_any_type(answer, is_object, |answer| {
                let (skipped, whole) = match status(answer) {
                    206 if first_of(answer).is_some_and(|first| first != offset) => {
                        return asked.failed(io::Error::other("the answer is of another range"));
                    }
                    206 => (0, length_of_whole(answer)),
                    200 => (offset, answer.body().content_length()),
                    // It is shorter now, or gone.
                    416 => return Tried::Done(false),
                    404 => {
                        return match asked.unexpected(answer) {
                            Tried::Refused(error) if error.is_not_found() => Tried::Done(false),
                            other => other,
                        };
                    }
                    // It alone: the server has a rule for it, or needs the key that encrypts it.
                    400 | 405 | 409 | 410 => return of_one_object(asked.unexpected(answer)),
                    _ => return asked.unexpected(answer),
                };
                let etag = answer.headers().get("etag").and_then(|etag| etag.to_str().ok());
                let other = |(listed, read): (&String, &str)| unquoted(listed) != unquoted(read);
                if object.etag.as_ref().zip(etag).is_some_and(other)
                    || whole.is_some_and(|whole| whole != object.size)
                {
                    return Tried::Done(false);
                }
                match fill(answer, skipped, buffer) {
                    Ok(filled) if filled == buffer.len() => Tried::Done(true),
                    Ok(_) => asked.failed(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => asked.failed(error),
                }
            })
        })?;
        server.patience.traffic.receives(if is_same { buffer.len() as u64 } else { 0 });
        Ok(is_same)
    }
}

/// Whether an answer is an object, whose type is what its writer gave. Servers send a tag with it.
fn is_object(answer: &Response<Body>) -> bool {
    matches!(status(answer), 200 | 206) && answer.headers().contains_key("etag")
}

/// Where the range of an answer begins, if it has one.
fn first_of(answer: &Response<Body>) -> Option<u64> {
    let range = answer.headers().get("content-range")?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

/// Marks a refusal, for which there is no advice, as one of this object.
fn of_one_object<T>(tried: Tried<T>) -> Tried<T> {
    match tried {
        Tried::Refused(error) if error.kind == io::ErrorKind::Other => {
            Tried::Refused(Error { kind: io::ErrorKind::Unsupported, ..error })
        }
        other => other,
    }
}

/// An object of a list of those with a prefix.
fn listed(found: ListObjectsContent, prefix: &str) -> std::result::Result<SourceObject, String> {
    let ListObjectsContent { key, size, last_modified, etag, .. } = found;
    if !key.starts_with(prefix) {
        return Err(format!("the list has {key:?}, which does not begin with {prefix:?}"));
    }
    let modified = last_modified.and_then(|time| {
        let time: Timestamp = time.parse().ok()?;
        i64::try_from(time.as_nanosecond()).ok()
    });
    match (size, modified) {
        (Some(size), Some(modified)) => Ok(SourceObject { key, size, modified, etag }),
        _ => Err(format!("the list has no length or no time of {key:?}")),
    }
}

/// A tag without its quotation marks, which some servers leave out in lists, and without the mark
/// that proxies add which compress.
fn unquoted(etag: &str) -> &str {
    etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::SourcePrefix;

    #[test]
    fn prefixes_are_any_text() {
        for (url, bucket, prefix) in [
            ("s3://bucket", "bucket", ""),
            ("s3://bucket/", "bucket", ""),
            ("s3://bucket/a b/.c", "bucket", "a b/.c/"),
            ("s3://bucket/a//", "bucket", "a//"),
            ("s3://bucket//a?x#y", "bucket", "/a?x#y/"),
        ] {
            let parsed = SourcePrefix::parse(url).expect(url);
            assert_eq!((parsed.bucket.as_str(), parsed.prefix.as_str()), (bucket, prefix));
        }
        for (url, why) in [
            ("s3://", "letters"),
            ("s3:bucket", "s3://BUCKET"),
            ("file:///srv", "s3://BUCKET"),
            ("s3://bucket/./x", "between slashes"),
            ("s3://bucket/x/../../other", "between slashes"),
            ("s3://KEY:hunter2@bucket/x", "AWS_ACCESS_KEY_ID"),
            ("s3://localhost:9000/x", "AWS_ENDPOINT_URL"),
        ] {
            let error = SourcePrefix::parse(url).expect_err(url).to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
    }
}
