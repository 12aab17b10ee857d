//! Objects in a bucket.

use std::cell::Cell;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use device::{Blobs, Clock, Device, Error, Found, Random, ReadPart, Result, compare, part_of};
use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use ureq::http::Response;
use ureq::{Agent, Body, SendBody};

use crate::request::{Asked, Tried, patiently, status};

/// Validity of a signature: longer than any request.
const SIGNED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);
/// Multiples of the `silence` to wait for an answer when everything was sent. A whole request has
/// no limit: its duration depends on its length and on the network.
const SILENCES_OF_ANSWER: u32 = 4;
/// Maximum bytes of an object. The protocol allows 5 GiB for one request.
const OBJECT_BYTES_MAX: u64 = 4 << 30;
/// Maximum bytes of a page of a listing.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// Bytes read per step to checksum a file.
const SUMMED_BYTES: usize = 1 << 20;
/// Name prefix of the object that is created twice, to test whether the server heeds conditions.
const PROBE_PREFIX: &str = "probe-";

/// Location of the objects.
#[derive(Clone)]
pub struct Place {
    /// The server, such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The bucket, which must exist; requests name it in their path.
    pub bucket: String,
    /// The region that requests are signed for.
    pub region: String,
    /// Prefix of the names of all objects.
    pub prefix: String,
    /// The access key and the secret key.
    pub keys: (String, String),
    /// Maximum time without sent or received data, after which a request is abandoned and retried.
    pub silence: Duration,
}

impl Place {
    /// The default `silence`.
    pub const SILENCE: Duration = Duration::from_secs(30);
}

/// Immutable objects below a prefix of a bucket.
pub struct S3Blobs {
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
    agent: Agent,
    clock: Arc<dyn Clock>,
    endpoint: String,
    /// The random part of its probes' names, and how many there were.
    own: u64,
    probes: AtomicU64,
    /// Whether the server honours conditional creation: not known of a server that accepted nothing
    /// when it was opened.
    heeds: AtomicBool,
}

impl S3Blobs {
    /// Checks that the server is reachable and honours conditional creation; the latter before the
    /// first creation, if it accepts none now.
    pub fn open(place: &Place, clock: Arc<dyn Clock>, random: &dyn Random) -> Result<S3Blobs> {
        let wrong = |what: &'static str, why: String| {
            Error::new(what, &place.endpoint, io::Error::new(io::ErrorKind::InvalidInput, why))
        };
        let endpoint = place.endpoint.parse();
        let endpoint = endpoint.map_err(|error| wrong("parse", format!("{error}")))?;
        let (name, region) = (place.bucket.clone(), place.region.clone());
        let bucket = Bucket::new(endpoint, UrlStyle::Path, name, region)
            .map_err(|error| wrong("use as a server", error.to_string()))?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(place.silence))
            .timeout_per_write(Some(place.silence))
            .timeout_recv_response(Some(place.silence * SILENCES_OF_ANSWER))
            .proxy(None);
        let mut own = [0; 8];
        random.fill(&mut own);
        let blobs = S3Blobs {
            bucket,
            credentials: Credentials::new(&place.keys.0, &place.keys.1),
            prefix: place.prefix.clone(),
            agent: config.build().into(),
            clock,
            endpoint: place.endpoint.clone(),
            own: u64::from_le_bytes(own),
            probes: AtomicU64::new(0),
            heeds: AtomicBool::new(false),
        };
        let probe = blobs.fresh_probe();
        let probed = blobs.make(&probe, b"first").and_then(|made| blobs.probed(&probe, made));
        match probed {
            Ok(Ok(())) => Ok(blobs),
            Ok(Err(verdict)) => Err(verdict),
            // A full server, or one whose keys are read-only, still serves reads.
            Err(_) if blobs.list_part("", None).result().is_ok() => {
                // It may have been created, and does no harm.
                blobs.delete(&probe).ok();
                Ok(blobs)
            }
            Err(error) => Err(error),
        }
    }

    /// A name that is unused, because other clients may probe concurrently, and that was not tried
    /// before.
    fn fresh_probe(&self) -> String {
        let number = self.probes.fetch_add(1, Ordering::Relaxed);
        format!("{PROBE_PREFIX}{:016x}-{number:x}", self.own)
    }

    /// Checks that the server honours conditions, before the first creation relies on it.
    fn heed(&self) -> Result<()> {
        if self.heeds.load(Ordering::Relaxed) {
            return Ok(());
        }
        let probe = self.fresh_probe();
        let made = self.make(&probe, b"first")?;
        self.probed(&probe, made)?
    }

    /// Evaluates the second creation of the same probe: a verdict, or an error if the server
    /// prevented one.
    fn probed(&self, probe: &str, made: bool) -> Result<Result<()>> {
        let again = self.make(probe, b"second");
        let deleted = self.delete(probe);
        let again = again?;
        let why = match (made, again) {
            (true, false) => {
                deleted?;
                self.heeds.store(true, Ordering::Relaxed);
                return Ok(Ok(()));
            }
            (_, true) => {
                "this server overwrites objects that it was asked to make only where none is"
            }
            (false, false) => "this server says of a new name that it is taken",
        };
        let error = io::Error::new(io::ErrorKind::InvalidInput, why);
        Ok(Err(Error::new("use as a server", &self.endpoint, error)))
    }

    fn make(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let part = |buffer: &mut [u8], at: u64| Ok(part_of(bytes, buffer, at));
        self.put(name, bytes.len() as u64, &part)
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Creates an object. The request may be repeated: if an answer was lost, the object found
    /// afterwards shows whose it is.
    fn put(&self, name: &str, length: u64, part: ReadPart<'_>) -> Result<bool> {
        let sum = BASE64_STANDARD.encode(sum_of(length, part)?);
        let lost = Cell::new(false);
        let made = patiently(&*self.clock, || {
            let tried = self.put_once(name, length, part, &sum);
            if matches!(tried, Tried::Failed(_)) {
                lost.set(true);
            }
            tried
        });
        match made {
            Ok(false) if lost.get() => match compare(self, name, length, part)? {
                Found::Same => Ok(true),
                Found::Other => Ok(false),
                Found::Nothing => {
                    let gone = io::Error::other("it was said to be there, and is gone");
                    Err(Error::new("create", name, gone))
                }
            },
            Err(_) if lost.get() && self.is_made(name, length, part) => Ok(true),
            made => made,
        }
    }

    fn is_made(&self, name: &str, length: u64, part: ReadPart<'_>) -> bool {
        compare(self, name, length, part).is_ok_and(|found| found == Found::Same)
    }

    fn put_once(&self, name: &str, length: u64, part: ReadPart<'_>, sum: &str) -> Tried<bool> {
        let asked = Asked { operation: "create", name };
        let key = self.key(name);
        let mut action = self.bucket.put_object(Some(&self.credentials), &key);
        let headers = [("if-none-match", "*"), ("x-amz-checksum-crc32c", sum)];
        for (header, value) in headers {
            action.headers_mut().insert(header, value);
        }
        let url = action.sign(SIGNED_FOR);
        let mut request = self.agent.put(url.as_str()).header("content-length", length.to_string());
        for (header, value) in headers {
            request = request.header(header, value);
        }
        let mut reader = PartReader { part, at: 0 };
        let answer = request.send(SendBody::from_reader(&mut reader));
        asked.answered(answer, |answer| match status(&answer) {
            200 | 201 => Tried::Done(true),
            412 => Tried::Done(false),
            _ => asked.unexpected(answer),
        })
    }

    /// Reads a page of a listing: objects whose names begin with the prefix, and the token for the
    /// next page.
    fn list_part(&self, prefix: &str, token: Option<&str>) -> Tried<Listed> {
        let asked = Asked { operation: "list", name: prefix };
        let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
        action.with_prefix(self.key(prefix));
        if let Some(token) = token {
            action.with_continuation_token(token);
        }
        let url = action.sign(SIGNED_FOR);
        asked.answered(self.agent.get(url.as_str()).call(), |mut answer| {
            if status(&answer) != 200 {
                return asked.unexpected(answer);
            }
            let broken =
                |why: String| asked.failed(io::Error::new(io::ErrorKind::InvalidData, why));
            let text = answer.body_mut().with_config().limit(LIST_BYTES_MAX).read_to_string();
            match text.map(|text| ListObjectsV2::parse_response(&text)) {
                Ok(Ok(part)) => {
                    let below = part.contents.into_iter().filter_map(|found| {
                        let name = found.key.strip_prefix(&self.prefix)?;
                        Some((name.to_owned(), found.size.unwrap_or(0)))
                    });
                    Tried::Done((below.collect(), part.next_continuation_token))
                }
                Ok(Err(error)) => broken(error.to_string()),
                Err(error) => broken(error.to_string()),
            }
        })
    }

    /// Names that begin with a prefix, and their lengths.
    fn list_all(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let (mut all, mut token): (Vec<_>, Option<String>) = (Vec::new(), None);
        loop {
            let (found, next) =
                patiently(&*self.clock, || self.list_part(prefix, token.as_deref()))?;
            all.extend(found);
            token = Some(match next {
                Some(next) => next,
                None => break,
            });
        }
        all.sort();
        Ok(all)
    }
}

/// Objects of a page of a listing, and the token for the next page.
type Listed = (Vec<(String, u64)>, Option<String>);

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
fn fill(answer: &mut Response<Body>, skipped: u64, buffer: &mut [u8]) -> io::Result<usize> {
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
fn length_of_whole(answer: &Response<Body>) -> Option<u64> {
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

impl Blobs for S3Blobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.heed()?;
        self.make(name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let file = device.open(path)?;
        let length = file.len()?;
        if length > OBJECT_BYTES_MAX {
            let why = format!("{length} bytes, and an object has at most {OBJECT_BYTES_MAX}");
            let error = io::Error::new(io::ErrorKind::FileTooLarge, why);
            return Err(Error::new("create", name, error));
        }
        self.heed()?;
        let part = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
        let made = self.put(name, length, &part)?;
        if made {
            device.remove(path)?;
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let end = offset.checked_add(buffer.len() as u64);
        let Some(last) = end.filter(|end| *end > offset).map(|end| end - 1) else {
            return Ok(0);
        };
        let asked = Asked { operation: "read", name };
        let key = self.key(name);
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        let range = format!("bytes={offset}-{last}");
        patiently(&*self.clock, || {
            let answer = self.agent.get(url.as_str()).header("range", &range).call();
            asked.answered(answer, |mut answer| {
                let skipped = match status(&answer) {
                    206 => 0,
                    // The whole object: the server ignores ranges, or the range covers it.
                    200 => offset,
                    416 => return Tried::Done(0),
                    _ => return asked.unexpected(answer),
                };
                let whole = length_of_whole(&answer);
                match fill(&mut answer, skipped, buffer) {
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
        })
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        let asked = Asked { operation: "stat", name };
        let key = self.key(name);
        let url = self.bucket.head_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        patiently(&*self.clock, || {
            asked.answered(self.agent.head(url.as_str()).call(), |answer| {
                let length = answer.headers().get("content-length");
                let length = length.and_then(|text| text.to_str().ok()?.parse().ok());
                match (status(&answer), length) {
                    (200, Some(length)) => Tried::Done(Some(length)),
                    (404, _) => Tried::Done(None),
                    _ => asked.unexpected(answer),
                }
            })
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self.list_all(prefix)?.into_iter().map(|(name, _)| name).collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        let asked = Asked { operation: "delete", name };
        let key = self.key(name);
        let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        patiently(&*self.clock, || {
            asked.answered(self.agent.delete(url.as_str()).call(), |answer| match status(&answer) {
                200 | 204 | 404 => Tried::Done(()),
                _ => asked.unexpected(answer),
            })
        })
    }

    fn punch(&self, _name: &str, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.length(name)?.unwrap_or(0))
    }

    /// One request per thousand objects, which returns their lengths.
    fn disk_bytes_all(&self) -> Result<u64> {
        Ok(self.list_all("")?.into_iter().map(|(_, bytes)| bytes).sum())
    }

    fn bytes_max(&self) -> u64 {
        OBJECT_BYTES_MAX
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}
