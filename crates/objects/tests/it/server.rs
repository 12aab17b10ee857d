//! A server that knows as much of the protocol of S3 as these tests need. It has whole objects and
//! ranges of them, conditions on making them, and lists in parts of a thousand. It checks no
//! signatures, but that there is one, and the sums of what is sent. What goes wrong is ordered by
//! tests ([`Mishap`]).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use device::sync::Mutex;
use device::{Clock, SystemClock};

/// Objects of a part of a list.
const PART: usize = 1000;

/// What goes wrong with one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// It is not carried out, and answered with a status and words.
    Status(u16, String),
    /// It is not carried out, and answered with a status, header lines and a body.
    Answer(u16, String, String),
    /// It is not carried out, and the connection ends.
    LostRequest,
    /// It is carried out, and the connection ends without an answer.
    LostAnswer,
    /// It is carried out, and the connection ends in the middle of the answer's body.
    ShortBody,
    /// A part of the range is answered, as if that were all that was requested.
    ShortPart,
    /// A bit of what is sent is changed on the way.
    Flipped,
    /// It is not carried out, and there is no answer before the client gives up.
    Silence,
    /// It is answered by a byte now and then, without an end.
    Trickle,
    /// Somebody else makes the object first, of these bytes, and the connection ends.
    Overtaken(Vec<u8>),
}

/// The objects of a server, and what is to go wrong.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) by_path: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Whether conditions are not heeded.
    careless: bool,
    /// Whether a condition is checked some time before the object is made.
    racy: bool,
    /// Whether several objects cannot be deleted by one request.
    no_bulk: bool,
    /// Settings of the bucket by name, such as `versioning`.
    settings: Mutex<BTreeMap<&'static str, String>>,
    mishaps: Mutex<Vec<(&'static str, Mishap)>>,
    /// Paths of objects that lists report with other contents.
    pub(crate) replaced: Mutex<BTreeSet<String>>,
    /// Paths of objects of which no request is answered.
    pub(crate) silent: Mutex<BTreeSet<String>>,
    /// Paths of objects whose writer gave them the type of a web page.
    pub(crate) pages: Mutex<BTreeSet<String>>,
    /// Paths of objects that are not read, and what each request of them gets.
    pub(crate) unreadable: Mutex<BTreeMap<String, Mishap>>,
    /// What all prefixes begin with that the keys may list.
    pub(crate) lists_below: Mutex<String>,
    /// What every request of a method gets.
    always: Mutex<BTreeMap<&'static str, Mishap>>,
    requests: AtomicU64,
    connections: AtomicU64,
}

impl Objects {
    /// Orders a mishap of the next request of a method.
    pub(crate) fn order(&self, method: &'static str, mishap: Mishap) {
        self.mishaps.lock().push((method, mishap));
    }

    /// From now on every request of these methods has this mishap; `None`: no request has any.
    pub(crate) fn always(&self, methods: &[&'static str], mishap: Option<&Mishap>) {
        let mut always = self.always.lock();
        always.clear();
        always.extend(methods.iter().filter_map(|method| mishap.map(|it| (*method, it.clone()))));
    }

    /// Paths and bytes.
    pub(crate) fn all(&self) -> BTreeMap<String, Vec<u8>> {
        self.by_path.lock().clone()
    }

    /// How many mishaps did not come.
    pub(crate) fn left(&self) -> usize {
        self.mishaps.lock().len()
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// The bytes of the one object whose path ends so.
    pub(crate) fn bytes(&self, end: &str) -> Option<Vec<u8>> {
        let objects = self.by_path.lock();
        objects.iter().find(|(path, _)| path.ends_with(end)).map(|(_, bytes)| bytes.clone())
    }

    /// Gives the bucket a setting.
    pub(crate) fn set(&self, name: &'static str, text: &str) {
        self.settings.lock().insert(name, text.to_owned());
    }

    fn mishap(&self, method: &str) -> Option<Mishap> {
        let mut mishaps = self.mishaps.lock();
        match mishaps.iter().position(|(of, _)| *of == method) {
            Some(at) => Some(mishaps.remove(at).1),
            None => self.always.lock().get(method).cloned(),
        }
    }
}

/// Starts one; answers where it is. It ends with the process.
pub(crate) fn start() -> String {
    listen(Arc::default())
}

/// Starts one of which something is ordered.
pub(crate) fn start_ordered() -> (String, Arc<Objects>) {
    let objects = Arc::<Objects>::default();
    (listen(Arc::clone(&objects)), objects)
}

/// Starts one that overwrites whatever it is asked to make.
pub(crate) fn start_careless() -> String {
    listen(Arc::new(Objects { careless: true, ..Objects::default() }))
}

/// Starts one that decides conditions one after the other, and not at once.
pub(crate) fn start_racy() -> String {
    listen(Arc::new(Objects { racy: true, ..Objects::default() }))
}

/// Starts one that cannot delete several objects by one request.
pub(crate) fn start_without_bulk() -> (String, Arc<Objects>) {
    let objects = Arc::new(Objects { no_bulk: true, ..Objects::default() });
    (listen(Arc::clone(&objects)), objects)
}

fn listen(objects: Arc<Objects>) -> String {
    format!("http://{}", accept(objects, Ok))
}

/// Starts one over connections that something is done to first; answers its address.
pub(crate) fn accept<S: Read + Write + 'static>(
    objects: Arc<Objects>,
    wrap: impl Fn(TcpStream) -> std::io::Result<S> + Clone + Send + 'static,
) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    device::spawn("objects", move || {
        for stream in listener.incoming().flatten() {
            objects.connections.fetch_add(1, Ordering::Relaxed);
            let (objects, wrap) = (Arc::clone(&objects), wrap.clone());
            let run = move || {
                drop(stream.set_nodelay(true).and_then(|()| serve(&objects, wrap(stream)?)));
            };
            device::spawn("connection", run).expect("a thread");
        }
    })
    .expect("a thread");
    address
}

struct Request {
    method: String,
    path: String,
    query: String,
    range: Option<(usize, usize)>,
    conditional: bool,
    sum: Option<String>,
    body: Vec<u8>,
}

/// Answers requests until the connection ends.
fn serve(objects: &Objects, stream: impl Read + Write) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(mut request) = read(&mut reader)? {
        objects.requests.fetch_add(1, Ordering::Relaxed);
        let is_silent = objects.silent.lock().contains(&request.path);
        let mishap =
            if is_silent { Some(Mishap::Silence) } else { objects.mishap(&request.method) };
        let mishap = mishap.or_else(|| objects.unreadable.lock().get(&request.path).cloned());
        match &mishap {
            Some(Mishap::LostRequest) => return Ok(()),
            Some(Mishap::Silence) => {
                // Until the other side hangs up.
                std::io::copy(&mut reader, &mut std::io::sink())?;
                return Ok(());
            }
            Some(Mishap::Trickle) => loop {
                reader.get_mut().write_all(b"H")?;
                reader.get_mut().flush()?;
                SystemClock::new().sleep(Duration::from_millis(20));
            },
            Some(Mishap::Overtaken(bytes)) => {
                objects.by_path.lock().insert(request.path, bytes.clone());
                return Ok(());
            }
            Some(Mishap::Flipped) => request.body[0] ^= 1,
            Some(Mishap::ShortPart) => {
                request.range = request.range.map(|(from, to)| (from, from.midpoint(to)));
            }
            _ => {}
        }
        let (status, headers, body) = match &mishap {
            Some(Mishap::Status(status, words)) => {
                (*status, String::new(), words.as_bytes().to_vec())
            }
            Some(Mishap::Answer(status, headers, body)) => {
                (*status, headers.clone(), body.as_bytes().to_vec())
            }
            _ => objects.answer(&request),
        };
        if mishap == Some(Mishap::LostAnswer) {
            return Ok(());
        }
        let length = format!("content-length: {}\r\n", body.len());
        // At once: what is sent in two pieces waits for the first to be acknowledged.
        let mut sent = format!("HTTP/1.1 {status} x\r\n{length}{headers}\r\n").into_bytes();
        if mishap == Some(Mishap::ShortBody) {
            sent.extend_from_slice(&body[..body.len() / 2]);
            reader.get_mut().write_all(&sent)?;
            reader.get_mut().flush()?;
            return Ok(());
        }
        if request.method != "HEAD" {
            sent.extend_from_slice(&body);
        }
        reader.get_mut().write_all(&sent)?;
        reader.get_mut().flush()?;
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let (path, query) = {
        let target = words.next().unwrap_or_default();
        target.split_once('?').map_or((target, ""), |parts| parts)
    };
    assert!(query.contains("X-Amz-Signature="), "requests are signed: {line}");
    let (path, query) = (path.to_owned(), query.to_owned());
    let (range, sum, body) = (None, None, Vec::new());
    let mut request = Request { method, path, query, range, conditional: false, sum, body };
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("x-amz-checksum-crc32c", value) => request.sum = Some(value.to_owned()),
            ("content-length", value) => length = value.parse().expect("a number"),
            ("if-none-match", "*") => request.conditional = true,
            ("range", value) => {
                let (from, to) = value
                    .strip_prefix("bytes=")
                    .and_then(|r| r.split_once('-'))
                    .expect("one range");
                request.range =
                    Some((from.parse().expect("a number"), to.parse().expect("a number")));
            }
            _ => {}
        }
    }
    request.body = vec![0; length];
    reader.read_exact(&mut request.body)?;
    Ok(Some(request))
}

type Answer = (u16, String, Vec<u8>);

impl Objects {
    fn answer(&self, request: &Request) -> Answer {
        if self.racy && request.method == "PUT" {
            if self.by_path.lock().contains_key(&request.path) && request.conditional {
                return (412, String::new(), Vec::new());
            }
            // Others check meanwhile.
            SystemClock::new().sleep(Duration::from_millis(20));
            self.by_path.lock().insert(request.path.clone(), request.body.clone());
            return (200, String::new(), Vec::new());
        }
        let setting = ["versioning", "lifecycle", "object-lock"]
            .into_iter()
            .find(|name| request.query.split('&').any(|pair| pair.split('=').next() == Some(name)));
        if let Some(setting) = setting.filter(|_| request.method == "GET") {
            return match self.settings.lock().get(setting) {
                Some(text) => (200, String::new(), text.as_bytes().to_vec()),
                None => (501, String::new(), b"<Error><Code>NotImplemented</Code></Error>".into()),
            };
        }
        let mut objects = self.by_path.lock();
        let none = |status| (status, String::new(), Vec::new());
        match request.method.as_str() {
            "PUT" => {
                let there = objects.contains_key(&request.path);
                let sum = crc32c::crc32c(&request.body).to_be_bytes();
                if request.sum != Some(BASE64_STANDARD.encode(sum)) {
                    let words = "<Error><Code>BadDigest</Code></Error>";
                    return (400, String::new(), words.as_bytes().to_vec());
                }
                if there && request.conditional && !self.careless {
                    return none(412);
                }
                objects.insert(request.path.clone(), request.body.clone());
                none(200)
            }
            "DELETE" => {
                objects.remove(&request.path);
                none(204)
            }
            "POST" if request.query.contains("delete=") && !self.no_bulk => {
                let text = String::from_utf8(request.body.clone()).expect("text");
                let bucket = request.path.trim_end_matches('/');
                for key in text.split("<Key>").skip(1) {
                    let key = key.split("</Key>").next().expect("it ends");
                    objects.remove(&format!("{bucket}/{key}"));
                }
                let done = "<DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";
                (200, String::new(), done.as_bytes().to_vec())
            }
            "GET" if request.query.contains("list-type=2") => {
                let field = |pair: &str| pair.strip_prefix("prefix=").map(str::to_owned);
                let prefix = request.query.split('&').find_map(field).unwrap_or_default();
                if !prefix.replace("%2F", "/").starts_with(self.lists_below.lock().as_str()) {
                    let words = "<Error><Code>AccessDenied</Code></Error>";
                    return (403, String::new(), words.as_bytes().to_vec());
                }
                list(&objects, &self.replaced.lock(), request)
            }
            "GET" | "HEAD" => match (objects.get(&request.path), request.range) {
                (None, _) => none(404),
                (Some(bytes), Some((from, _))) if from >= bytes.len() => none(416),
                (Some(bytes), Some((from, to))) => {
                    let to = to.min(bytes.len() - 1);
                    let (length, etag) = (bytes.len(), etag(bytes));
                    let mut headers = format!(
                        "content-range: bytes {from}-{to}/{length}\r\netag: \"{etag}\"\r\n"
                    );
                    if self.pages.lock().contains(&request.path) {
                        headers += "content-type: text/html; charset=utf-8\r\n";
                    }
                    (206, headers, bytes[from..=to].to_vec())
                }
                (Some(bytes), None) => (200, String::new(), bytes.clone()),
            },
            _ => none(405),
        }
    }
}

/// What names contents.
fn etag(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// When all objects changed last.
pub(crate) const MODIFIED: &str = "2026-01-02T03:04:05.678Z";

/// A part of a list; the token is the last name of the part before.
fn list(
    objects: &BTreeMap<String, Vec<u8>>,
    replaced: &BTreeSet<String>,
    request: &Request,
) -> Answer {
    let field = |name: &str| {
        let found = request.query.split('&').find_map(|pair| pair.strip_prefix(name));
        found.unwrap_or_default().replace("%2F", "/")
    };
    let (prefix, after) = (field("prefix="), field("continuation-token="));
    let bucket = format!("{}/", request.path.trim_end_matches('/'));
    // From the first name that may be in this part: there are those of many stores.
    let from = format!("{bucket}{}", prefix.as_str().max(after.as_str()));
    let names: Vec<(&str, &Vec<u8>)> = objects
        .range(from..)
        .map_while(|(path, bytes)| Some((path.strip_prefix(&bucket)?, bytes)))
        .take_while(|(name, _)| name.starts_with(&prefix))
        .filter(|(name, _)| *name > after.as_str())
        .take(PART + 1)
        .collect();
    let mut text =
        String::from("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (name, bytes) in names.iter().take(PART) {
        let size = bytes.len().to_string();
        let is_replaced = replaced.contains(&format!("{bucket}{name}"));
        let etag = if is_replaced { "other".to_owned() } else { etag(bytes) };
        text.extend(["<Contents><Key>", name, "</Key><Size>", &size, "</Size>"]);
        text.extend(["<LastModified>", MODIFIED, "</LastModified><ETag>&quot;", &etag]);
        text += "&quot;</ETag></Contents>";
    }
    if names.len() > PART {
        let last = names[PART - 1].0;
        text += "<IsTruncated>true</IsTruncated>";
        text.extend(["<NextContinuationToken>", last, "</NextContinuationToken>"]);
    }
    text += "</ListBucketResult>";
    (200, "content-type: application/xml\r\n".to_owned(), text.into_bytes())
}
