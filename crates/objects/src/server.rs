//! The requests of the protocol, to one endpoint.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use device::sync::Mutex;
use device::{Clock, Compared, Error, ReadPart, Result, part_of};
use rusty_s3::actions::{DeleteObjects, GetObject, ListObjectsV2, ObjectIdentifier, S3Action};
use rusty_s3::{Bucket, Credentials};
use ureq::http::Response;
use ureq::{Agent, Body, RequestBuilder, SendBody};

use crate::aws::{Keys, Renew};
use crate::explain::{Target, element};
use crate::request::{Asked, Patience, Tried, status};
use crate::traffic::{Kind, Traffic};

/// Validity of a signature, which a server checks when a request begins.
pub(crate) const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);
/// Maximum bytes of a page of a listing, and of other answers in XML.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a usual page of a listing.
pub(crate) const LIST_BYTES: u64 = 1 << 20;
/// Bytes read per step to checksum a file.
const SUMMED_BYTES: usize = 1 << 20;
/// Bytes from which an object is large.
const UPLOAD_BYTES: u64 = 8 << 20;
/// Bytes a second that a link must carry at least: an attempt that takes longer is ended.
const BYTES_A_SECOND_MIN: u64 = 64 << 10;
/// Maximum objects of a request that deletes several.
const DELETED_MAX: usize = 1000;

/// A bucket as one endpoint serves it.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) bucket: Bucket,
    pub(crate) keys: Arc<KeyRing>,
    /// What the keys of all objects begin with.
    pub(crate) prefix: String,
    pub(crate) agent: Agent,
    /// Sends large objects: a server may take long to answer when it has received all.
    pub(crate) uploads: Agent,
    /// Longest time of an attempt apart from what its bytes take.
    pub(crate) limit: Duration,
    pub(crate) target: Target,
    pub(crate) patience: Patience,
}

/// Objects of a page of a listing, and the token for the next page.
type Listed = (Vec<(String, u64)>, Option<String>);

/// The keys that sign requests, and where newer ones come from.
pub(crate) struct KeyRing {
    credentials: Mutex<Credentials>,
    renew: Option<Renew>,
}

impl KeyRing {
    pub(crate) fn new(keys: &Keys, renew: Option<Renew>) -> Arc<KeyRing> {
        Arc::new(KeyRing { credentials: Mutex::new(credentials(keys)), renew })
    }

    fn get(&self) -> Credentials {
        self.credentials.lock().clone()
    }

    /// Reads the keys again; whether they differ from those that were refused.
    fn renewed(&self, refused: &Credentials) -> bool {
        let Some(keys) = self.renew.as_ref().and_then(|renew| renew()) else { return false };
        let newer = credentials(&keys);
        let differs = same(&newer) != same(refused);
        if differs {
            *self.credentials.lock() = newer;
        }
        differs
    }
}

fn credentials(Keys { id, secret, token }: &Keys) -> Credentials {
    match token {
        Some(token) => Credentials::new_with_token(id, secret, token),
        None => Credentials::new(id, secret),
    }
}

fn same(keys: &Credentials) -> (&str, &str, Option<&str>) {
    (keys.key(), keys.secret(), keys.token())
}

impl Server {
    /// Sends a request, repeatedly if it fails. Sends it once more with newer keys if the keys were
    /// refused: temporary ones expire while a volume is mounted.
    pub(crate) fn ask<T>(
        &self,
        kind: (Kind, u64),
        mut once: impl FnMut(&Credentials) -> Tried<T>,
    ) -> Result<T> {
        let keys = self.keys.get();
        match self.patience.patiently(kind, || once(&keys)) {
            Err(error)
                if error.kind == io::ErrorKind::PermissionDenied && self.keys.renewed(&keys) =>
            {
                let keys = self.keys.get();
                self.patience.patiently(kind, || once(&keys))
            }
            answer => answer,
        }
    }

    pub(crate) fn asked<'a>(&'a self, operation: &'static str, name: &'a str) -> Asked<'a> {
        Asked { operation, name, target: &self.target, clock: self.clock() }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.patience.clock
    }

    fn traffic(&self) -> &Arc<Traffic> {
        &self.patience.traffic
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Bounds an attempt that carries so many bytes: a server that sends a byte now and then would
    /// hold a caller for ever.
    pub(crate) fn within<B>(&self, bytes: u64, request: RequestBuilder<B>) -> RequestBuilder<B> {
        let carried = Duration::from_secs(bytes.div_ceil(BYTES_A_SECOND_MIN));
        request.config().timeout_global(Some(self.limit + carried)).build()
    }

    /// Creates an object of these bytes.
    pub(crate) fn make(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let part = |buffer: &mut [u8], at: u64| Ok(part_of(bytes, buffer, at));
        self.put(name, bytes.len() as u64, &part)
    }

    /// Creates an object. The request may be repeated: if an answer was lost, the object found
    /// afterwards shows whose it is.
    pub(crate) fn put(&self, name: &str, length: u64, part: ReadPart<'_>) -> Result<bool> {
        let sum = BASE64_STANDARD.encode(sum_of(length, part)?);
        let (lost, unread) = (Cell::new(false), RefCell::new(None));
        let noting = |buffer: &mut [u8], at: u64| {
            part(buffer, at).inspect_err(|error| *unread.borrow_mut() = Some(error.clone()))
        };
        let made = self.ask((Kind::Create, length), |keys| {
            let tried = self.put_once(keys, name, (length, &noting), &sum);
            if let Some(error) = unread.take() {
                // The bytes cannot be read, which is no failure of the request.
                return Tried::Refused(error);
            }
            if matches!(tried, Tried::Failed(_)) {
                lost.set(true);
            }
            tried
        });
        match made {
            Ok(false) if lost.get() => match self.compare(name, length, part)? {
                Compared::Same => Ok(true),
                Compared::Other => Ok(false),
                Compared::Nothing => {
                    let gone = "the server reported that it exists, and then that it does not";
                    Err(Error::new("create", name, io::Error::other(gone)))
                }
            },
            // Not worth another deadline.
            Err(_) if lost.get() && self.briefly().is_made(name, length, part) => Ok(true),
            made => made,
        }
    }

    /// The same server, asked once.
    fn briefly(&self) -> Server {
        Server { patience: self.patience.within(Duration::ZERO), ..self.clone() }
    }

    fn is_made(&self, name: &str, length: u64, part: ReadPart<'_>) -> bool {
        self.compare(name, length, part).is_ok_and(|found| found == Compared::Same)
    }

    /// Compares an object with the bytes that it should have.
    fn compare(&self, name: &str, length: u64, part: ReadPart<'_>) -> Result<Compared> {
        match self.length(name)? {
            None => return Ok(Compared::Nothing),
            Some(found) if found != length => return Ok(Compared::Other),
            Some(_) => {}
        }
        let mut at = 0;
        while at < length {
            let bytes = (length - at).min(SUMMED_BYTES as u64) as usize;
            let (mut found, mut expected) = (vec![0; bytes], vec![0; bytes]);
            let read = self.read_at(name, &mut found, at)?;
            if read != bytes || part(&mut expected, at)? != bytes || found != expected {
                return Ok(Compared::Other);
            }
            at += bytes as u64;
        }
        Ok(Compared::Same)
    }

    fn put_once(
        &self,
        keys: &Credentials,
        name: &str,
        (length, part): (u64, ReadPart<'_>),
        sum: &str,
    ) -> Tried<bool> {
        let asked = self.asked("create", name);
        let key = self.key(name);
        let mut action = self.bucket.put_object(Some(keys), &key);
        let headers = [("if-none-match", "*"), ("x-amz-checksum-crc32c", sum)];
        for (header, value) in headers {
            action.headers_mut().insert(header, value);
        }
        let url = action.sign(SIGNED_FOR);
        let agent = if length > UPLOAD_BYTES { &self.uploads } else { &self.agent };
        let request = self.within(length, agent.put(url.as_str()));
        let mut request = request.header("content-length", length.to_string());
        for (header, value) in headers {
            request = request.header(header, value);
        }
        let mut reader = PartReader { part, at: 0 };
        let answer = request.send(SendBody::from_reader(&mut reader));
        asked.answered(answer, |answer| match status(answer) {
            200 | 201 => Tried::Done(true),
            412 => Tried::Done(false),
            _ => asked.unexpected(answer),
        })
    }

    /// Reads a page of a listing: objects whose names begin with the prefix, and the token for the
    /// next page.
    fn list_part(&self, keys: &Credentials, prefix: &str, token: Option<&str>) -> Tried<Listed> {
        let asked = self.asked("list", prefix);
        let mut action = self.bucket.list_objects_v2(Some(keys));
        action.with_prefix(self.key(prefix));
        if let Some(token) = token {
            action.with_continuation_token(token);
        }
        let url = action.sign(SIGNED_FOR);
        let request = self.within(LIST_BYTES, self.agent.get(url.as_str()));
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
            match ListObjectsV2::parse_response(&text) {
                Ok(part) => {
                    let below = part.contents.into_iter().filter_map(|found| {
                        let name = found.key.strip_prefix(&self.prefix)?;
                        Some((name.to_owned(), found.size.unwrap_or(0)))
                    });
                    Tried::Done((below.collect(), part.next_continuation_token))
                }
                Err(error) => {
                    let endpoint = &self.target.endpoint;
                    broken(format!(
                        "{endpoint} answered a list request with something other than a list: \
                         {error}"
                    ))
                }
            }
        })
    }

    /// Reads a page of a listing, for at most so long.
    pub(crate) fn list_within(&self, prefix: &str, deadline: Duration) -> Result<()> {
        let server = Server { patience: self.patience.within(deadline), ..self.clone() };
        server.ask((Kind::List, 0), |keys| server.list_part(keys, prefix, None)).map(drop)
    }

    /// Names that begin with a prefix, and their lengths.
    pub(crate) fn list_all(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let (mut all, mut token): (Vec<_>, Option<String>) = (Vec::new(), None);
        loop {
            let part = |keys: &Credentials| self.list_part(keys, prefix, token.as_deref());
            let (found, next) = self.ask((Kind::List, 0), part)?;
            all.extend(found);
            token = Some(match next {
                Some(next) => next,
                None => break,
            });
        }
        all.sort();
        Ok(all)
    }

    pub(crate) fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let end = offset.checked_add(buffer.len() as u64);
        let Some(last) = end.filter(|end| *end > offset).map(|end| end - 1) else {
            return Ok(0);
        };
        let asked = self.asked("read", name);
        let key = self.key(name);
        let range = format!("bytes={offset}-{last}");
        let read = self.ask((Kind::Read, 0), |keys| {
            let url = self.bucket.get_object(Some(keys), &key).sign(SIGNED_FOR);
            let request = self.within(buffer.len() as u64, self.agent.get(url.as_str()));
            let answer = request.header("range", &range).call();
            asked.answered(answer, |answer| {
                let skipped = match status(answer) {
                    206 => 0,
                    // The whole object: the server ignores ranges, or the range covers it.
                    200 => offset,
                    416 => return Tried::Done(0),
                    _ => return asked.unexpected(answer),
                };
                let whole = length_of_whole(answer);
                match fill(answer, skipped, buffer) {
                    Err(error) => asked.failed(error),
                    Ok(filled) => {
                        let there = whole.map_or(0, |whole| whole.saturating_sub(offset));
                        if (filled as u64) < there.min(buffer.len() as u64) {
                            return asked.failed(io::ErrorKind::UnexpectedEof.into());
                        }
                        Tried::Done(filled)
                    }
                }
            })
        })?;
        self.traffic().receives(read as u64);
        Ok(read)
    }

    /// Reads the first byte, whose answer states the length. A `HEAD` request would be shorter, but
    /// the refusal of one has no code. An absent bucket, and on some servers an unknown key, look
    /// like an absent object.
    pub(crate) fn length(&self, name: &str) -> Result<Option<u64>> {
        let asked = self.asked("stat", name);
        let key = self.key(name);
        self.ask((Kind::Head, 0), |keys| {
            let url = self.bucket.get_object(Some(keys), &key).sign(SIGNED_FOR);
            let request = self.within(0, self.agent.get(url.as_str()));
            let answer = request.header("range", "bytes=0-0").call();
            asked.answered(answer, |answer| {
                let length = match status(answer) {
                    206 => length_of_whole(answer),
                    200 => answer.body().content_length(),
                    // It has no first byte.
                    416 => Some(0),
                    404 => {
                        return match asked.unexpected(answer) {
                            Tried::Refused(error) if error.is_not_found() => Tried::Done(None),
                            other => other,
                        };
                    }
                    _ => return asked.unexpected(answer),
                };
                match length {
                    Some(length) => Tried::Done(Some(length)),
                    None => asked.failed(io::Error::other("the answer states no length")),
                }
            })
        })
    }

    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        let asked = self.asked("delete", name);
        let key = self.key(name);
        self.ask((Kind::Delete, 0), |keys| {
            let url = self.bucket.delete_object(Some(keys), &key).sign(SIGNED_FOR);
            let request = self.within(0, self.agent.delete(url.as_str()));
            asked.answered(request.call(), |answer| match status(answer) {
                200 | 204 => Tried::Done(()),
                404 => match asked.unexpected(answer) {
                    // It is gone; if the bucket is gone, that is an error.
                    Tried::Refused(error) if error.is_not_found() => Tried::Done(()),
                    other => other,
                },
                _ => asked.unexpected(answer),
            })
        })
    }

    /// Deletes many objects by few requests, or one by one where the server does not support that.
    pub(crate) fn delete_all(&self, names: &[String]) -> Result<()> {
        for names in names.chunks(DELETED_MAX) {
            let asked = self.asked("delete", &names[0]);
            let deleted = match names {
                [_] => false,
                _ => self.ask((Kind::Delete, 0), |keys| self.delete_some(keys, &asked, names))?,
            };
            if !deleted {
                names.iter().try_for_each(|name| self.delete(name))?;
            }
        }
        Ok(())
    }

    /// `false`: the server does not support such a request.
    fn delete_some(&self, keys: &Credentials, asked: &Asked<'_>, names: &[String]) -> Tried<bool> {
        let objects: Vec<ObjectIdentifier> =
            names.iter().map(|name| ObjectIdentifier::new(self.key(name))).collect();
        let mut action = DeleteObjects::new(&self.bucket, Some(keys), objects.iter());
        action.set_quiet(true);
        let url = action.sign(SIGNED_FOR);
        let (body, md5) = action.body_with_md5();
        let request = self.within(LIST_BYTES, self.agent.post(url.as_str()));
        let request = request.header("content-md5", md5);
        asked.answered(request.send(&body), |answer| {
            match status(answer) {
                200 => {}
                400 | 403 | 404 | 405 | 501 => return Tried::Done(false),
                _ => return asked.unexpected(answer),
            }
            let broken =
                |why: String| asked.failed(io::Error::new(io::ErrorKind::InvalidData, why));
            let text = match text_of(answer) {
                Ok(text) => text,
                Err(error) => return broken(error.to_string()),
            };
            // Servers differ in the namespace of the answer, so it is not parsed. The request for
            // one object alone reports why.
            if text.contains("DeleteResult") {
                Tried::Done(!text.contains("<Error>"))
            } else {
                broken("the answer to a deletion is malformed".to_owned())
            }
        })
    }

    /// Reads a setting of the bucket, such as `versioning`. `None`: the server has no such setting,
    /// does not know it, or the key may not read it.
    pub(crate) fn setting(&self, name: &'static str) -> Result<Option<String>> {
        let asked = self.asked("read the settings of", name);
        self.ask((Kind::List, 0), |keys| {
            let mut action = GetObject::new(&self.bucket, Some(keys), "");
            action.query_mut().insert(name, "");
            let url = action.sign(SIGNED_FOR);
            let request = self.within(0, self.agent.get(url.as_str()));
            asked.answered(request.call(), |answer| {
                match status(answer) {
                    200 => match text_of(answer) {
                        Ok(text) => Tried::Done(Some(text)),
                        Err(error) => asked.failed(error),
                    },
                    // Answers under 503 and the like are repeated.
                    400..=499 | 501 => Tried::Done(None),
                    _ => asked.unexpected(answer),
                }
            })
        })
    }
}

/// The text of an answer.
pub(crate) fn text_of(answer: &mut Response<Body>) -> io::Result<String> {
    let text = answer.body_mut().with_config().limit(LIST_BYTES_MAX).read_to_string();
    let text = text.map_err(|error| io::Error::other(error.to_string()))?;
    // Some servers report an error under a status of success, when it happens late.
    match (text.contains("<Error>"), element(&text, "Code")) {
        (true, Some(code)) if !text.contains("DeleteResult") => {
            Err(io::Error::other(format!("the server reported {code}")))
        }
        _ => Ok(text),
    }
}

/// CRC32C of bytes, in the protocol's form.
fn sum_of(length: u64, part: ReadPart<'_>) -> Result<[u8; 4]> {
    let mut buffer = vec![0; SUMMED_BYTES.min(length as usize)];
    let (mut at, mut sum) = (0, 0);
    while at < length {
        let read = part(&mut buffer, at)?;
        if read == 0 {
            break;
        }
        sum = crc32c::crc32c_append(sum, &buffer[..read]);
        at += read as u64;
    }
    #[expect(clippy::big_endian_bytes, reason = "so does the protocol")]
    Ok(sum.to_be_bytes())
}

/// Fills a buffer from the body of an answer, after skipping `skipped` bytes; returns the bytes
/// read.
pub(crate) fn fill(
    answer: &mut Response<Body>,
    skipped: u64,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut body = answer.body_mut().as_reader();
    io::copy(&mut body.by_ref().take(skipped), &mut io::sink())?;
    let mut filled = 0;
    while filled < buffer.len() {
        match body.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// The length of the whole object, if the answer with a part of it states it.
pub(crate) fn length_of_whole(answer: &Response<Body>) -> Option<u64> {
    let range = answer.headers().get("content-range")?.to_str().ok()?;
    range.rsplit_once('/')?.1.parse().ok()
}

/// Reads the data to send from its start.
struct PartReader<'p> {
    part: ReadPart<'p>,
    at: u64,
}

impl Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = (self.part)(buffer, self.at);
        let read = read.map_err(|error| io::Error::new(error.kind, error.to_string()))?;
        self.at += read as u64;
        Ok(read)
    }
}
