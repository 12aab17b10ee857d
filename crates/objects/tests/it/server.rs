//! A server that knows as much of the protocol of S3 as these tests need: whole objects and ranges
//! of them, conditions on making them, lists in parts of a thousand. It checks no signatures, but
//! that there is one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

/// Objects of a part of a list.
const PART: usize = 1000;

#[derive(Default)]
struct Objects {
    by_path: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Whether conditions are not heeded.
    careless: bool,
}

/// Starts one; answers where it is. It ends with the process.
pub(crate) fn start() -> String {
    listen(Objects::default())
}

/// Starts one that overwrites whatever it is asked to make.
pub(crate) fn start_careless() -> String {
    listen(Objects { careless: true, ..Objects::default() })
}

fn listen(objects: Objects) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
    let objects = Arc::new(objects);
    device::spawn("objects", move || {
        for stream in listener.incoming().flatten() {
            let objects = Arc::clone(&objects);
            device::spawn("connection", move || drop(serve(&objects, stream))).expect("a thread");
        }
    })
    .expect("a thread");
    endpoint
}

struct Request {
    method: String,
    path: String,
    query: String,
    range: Option<(usize, usize)>,
    conditional: bool,
    body: Vec<u8>,
}

/// Answers requests until the connection ends.
fn serve(objects: &Objects, stream: TcpStream) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        let (status, headers, body) = objects.answer(&request);
        let length = format!("content-length: {}\r\n", body.len());
        let head = format!("HTTP/1.1 {status} x\r\n{length}{headers}\r\n");
        writer.write_all(head.as_bytes())?;
        if request.method != "HEAD" {
            writer.write_all(&body)?;
        }
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
    let mut request =
        Request { method, path, query, range: None, conditional: false, body: Vec::new() };
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let header = header.trim().to_ascii_lowercase();
        let Some((name, value)) = header.split_once(':') else { break };
        match (name, value.trim()) {
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
        let mut objects = self.by_path.lock();
        let none = |status| (status, String::new(), Vec::new());
        match request.method.as_str() {
            "PUT" => {
                let there = objects.contains_key(&request.path);
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
            "GET" if request.query.contains("list-type=2") => list(&objects, request),
            "GET" | "HEAD" => match (objects.get(&request.path), request.range) {
                (None, _) => none(404),
                (Some(bytes), Some((from, _))) if from >= bytes.len() => none(416),
                (Some(bytes), Some((from, to))) => {
                    (206, String::new(), bytes[from..=to.min(bytes.len() - 1)].to_vec())
                }
                (Some(bytes), None) => (200, String::new(), bytes.clone()),
            },
            _ => none(405),
        }
    }
}

/// A part of a list; the token is the last name of the part before.
fn list(objects: &BTreeMap<String, Vec<u8>>, request: &Request) -> Answer {
    let field = |name: &str| {
        let found = request.query.split('&').find_map(|pair| pair.strip_prefix(name));
        found.unwrap_or_default().replace("%2F", "/")
    };
    let (prefix, after) = (field("prefix="), field("continuation-token="));
    let bucket = format!("{}/", request.path.trim_end_matches('/'));
    let names: Vec<&str> = objects
        .keys()
        .filter_map(|path| path.strip_prefix(&bucket))
        .filter(|name| name.starts_with(&prefix) && *name > after.as_str())
        .collect();
    let mut text =
        String::from("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for name in names.iter().take(PART) {
        text.extend(["<Contents><Key>", name, "</Key></Contents>"]);
    }
    if names.len() > PART {
        let last = names[PART - 1];
        text += "<IsTruncated>true</IsTruncated>";
        text.extend(["<NextContinuationToken>", last, "</NextContinuationToken>"]);
    }
    text += "</ListBucketResult>";
    (200, "content-type: application/xml\r\n".to_owned(), text.into_bytes())
}
