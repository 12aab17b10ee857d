//! Objects in a bucket.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use device::{Blobs, Clock, Device, Error, File, Result};
use rusty_s3::actions::{ListObjectsV2, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use ureq::{Agent, SendBody};

use crate::request::{answered, patiently, refused, status};

/// How long a signature holds: longer than any request.
const SIGNED_FOR: Duration = Duration::from_secs(3600);
/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most that one request makes.
const OBJECT_BYTES_MAX: u64 = 5 << 30;
/// Most bytes of a part of a list.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// The object that is made, twice, to find out whether the server heeds conditions.
const PROBE: &str = "probe";

/// Where objects are.
#[derive(Clone)]
pub struct Place {
    /// The server, such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The bucket, which must exist; it stands in the path of requests.
    pub bucket: String,
    /// The region that requests are signed for.
    pub region: String,
    /// What the names of all objects begin with.
    pub prefix: String,
    /// The access key and the secret key.
    pub keys: (String, String),
}

/// Immutable objects below a prefix of a bucket.
pub struct S3Blobs {
    bucket: Bucket,
    credentials: Credentials,
    prefix: String,
    agent: Agent,
    clock: Arc<dyn Clock>,
}

impl S3Blobs {
    /// Finds out that the server is there and makes objects only where there is none.
    pub fn open(place: &Place, clock: Arc<dyn Clock>) -> Result<S3Blobs> {
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
            .timeout_global(Some(PATIENCE))
            .proxy(None);
        let blobs = S3Blobs {
            bucket,
            credentials: Credentials::new(&place.keys.0, &place.keys.1),
            prefix: place.prefix.clone(),
            agent: config.build().into(),
            clock,
        };
        blobs.create(PROBE, b"first")?;
        let heeds = !blobs.create(PROBE, b"second")?;
        blobs.delete(PROBE)?;
        if heeds {
            return Ok(blobs);
        }
        let why = "this server overwrites objects that it was asked to make only where none is";
        Err(wrong("use as a server", why.to_owned()))
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Makes an object of what a reader has.
    fn put(&self, name: &str, length: u64, reader: &mut dyn Read) -> Result<bool> {
        let key = self.key(name);
        let mut action = self.bucket.put_object(Some(&self.credentials), &key);
        action.headers_mut().insert("if-none-match", "*");
        let url = action.sign(SIGNED_FOR);
        let request = self.agent.put(url.as_str()).header("if-none-match", "*");
        let request = request.header("content-length", length.to_string());
        let answer = answered("create", name, request.send(SendBody::from_reader(reader)))?;
        match status(&answer) {
            200 | 201 => Ok(true),
            412 => Ok(false),
            _ => Err(refused("create", name, answer)),
        }
    }
}

/// Reads a file from its begin on.
struct FileReader<'f> {
    file: &'f dyn File,
    at: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at);
        let read = read.map_err(|error| io::Error::new(error.kind, error.to_string()))?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Blobs for S3Blobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.put(name, bytes.len() as u64, &mut &*bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let file = device.open(path)?;
        let length = file.len()?;
        if length > OBJECT_BYTES_MAX {
            let why = format!("{length} bytes, and an object has at most {OBJECT_BYTES_MAX}");
            let error = io::Error::new(io::ErrorKind::FileTooLarge, why);
            return Err(Error::new("create", name, error));
        }
        let made = self.put(name, length, &mut FileReader { file: &*file, at: 0 })?;
        if made {
            device.remove(path)?;
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let Some(last) = (offset + buffer.len() as u64).checked_sub(1).filter(|l| *l >= offset)
        else {
            return Ok(0);
        };
        let key = self.key(name);
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        let range = format!("bytes={offset}-{last}");
        let ask = || self.agent.get(url.as_str()).header("range", &range).call();
        let mut answer = patiently(&*self.clock, "read", name, ask)?;
        let skipped = match status(&answer) {
            206 => 0,
            // The whole object: the server has no ranges, or it is all of it.
            200 => offset,
            416 => return Ok(0),
            _ => return Err(refused("read", name, answer)),
        };
        let failed = |error| Error::new("read", name, error);
        let mut body = answer.body_mut().as_reader();
        io::copy(&mut body.by_ref().take(skipped), &mut io::sink()).map_err(failed)?;
        let mut filled = 0;
        while filled < buffer.len() {
            match body.read(&mut buffer[filled..]).map_err(failed)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        let key = self.key(name);
        let url = self.bucket.head_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        let ask = || self.agent.head(url.as_str()).call();
        let answer = patiently(&*self.clock, "stat", name, ask)?;
        let length = answer.headers().get("content-length");
        let length = length.and_then(|text| text.to_str().ok()?.parse().ok());
        match (status(&answer), length) {
            (200, Some(length)) => Ok(Some(length)),
            (404, _) => Ok(None),
            _ => Err(refused("stat", name, answer)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let (mut names, mut token) = (Vec::new(), None);
        loop {
            let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
            action.with_prefix(self.key(prefix));
            if let Some(token) = token.take() {
                let token: String = token;
                action.with_continuation_token(token);
            }
            let url = action.sign(SIGNED_FOR);
            let ask = || self.agent.get(url.as_str()).call();
            let mut answer = patiently(&*self.clock, "list", prefix, ask)?;
            if status(&answer) != 200 {
                return Err(refused("list", prefix, answer));
            }
            let broken = |why: String| {
                Error::new("list", prefix, io::Error::new(io::ErrorKind::InvalidData, why))
            };
            let text = answer.body_mut().with_config().limit(LIST_BYTES_MAX).read_to_string();
            let text = text.map_err(|error| broken(error.to_string()))?;
            let part = ListObjectsV2::parse_response(&text);
            let part = part.map_err(|error| broken(error.to_string()))?;
            let below =
                part.contents.iter().filter_map(|found| found.key.strip_prefix(&self.prefix));
            names.extend(below.filter(|name| !name.contains('/')).map(str::to_owned));
            match part.next_continuation_token {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        names.sort();
        Ok(names)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let key = self.key(name);
        let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        let ask = || self.agent.delete(url.as_str()).call();
        let answer = patiently(&*self.clock, "delete", name, ask)?;
        match status(&answer) {
            200 | 204 | 404 => Ok(()),
            _ => Err(refused("delete", name, answer)),
        }
    }

    fn punch(&self, _name: &str, _offset: u64, _length: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.length(name)?.unwrap_or(0))
    }
}
