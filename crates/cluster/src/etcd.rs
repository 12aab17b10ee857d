//! [`Coordinator`] over the JSON gateway of etcd's v3 protocol: one HTTP request a call. Versions
//! 3.4 and later have it under `/v3/`.
//!
//! A call goes to one endpoint after the other, beginning with the one that answered last, until
//! one answers or the time is over. No call is repeated that an endpoint may have carried out,
//! except where a repeat does the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use device::Clock;
use device::sync::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::coordinator::{Coordinator, Error, Item, Lease, Put, Result};

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 8 << 20;
/// Codes of gRPC in answers.
const NOT_FOUND: i64 = 5;
const PERMISSION_DENIED: i64 = 7;
const RESOURCE_EXHAUSTED: i64 = 8;
const UNAUTHENTICATED: i64 = 16;

/// How etcd is reached.
#[derive(Debug, Clone, Default)]
pub struct EtcdSettings {
    /// Addresses of its members, such as `https://etcd1:2379`.
    pub endpoints: Vec<String>,
    /// User and password, if it wants them.
    pub user: Option<(String, String)>,
    /// Certificates, in PEM, that sign those of the members; otherwise public authorities'.
    pub authorities: Option<String>,
    /// This program's certificate and its key, in PEM, if etcd wants them.
    pub certificate: Option<(String, String)>,
}

/// A cluster of etcd.
pub struct Etcd {
    endpoints: Vec<String>,
    agent: Agent,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    clock: Arc<dyn Clock>,
    /// Most time for a call, over all endpoints.
    patience: Duration,
    last: AtomicUsize,
}

/// How an attempt failed.
enum Failed {
    /// The next endpoint may answer.
    Next(Error),
    /// All would answer this.
    All(Error),
    /// The token is not valid any more.
    Token,
}

/// What etcd answers to a request that it does not carry out.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Refusal {
    error: Value,
    message: String,
    code: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct KeyValue {
    key: String,
    value: String,
    mod_revision: String,
    lease: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Range {
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Txn {
    header: Header,
    succeeded: bool,
    responses: Vec<Responded>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Header {
    revision: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Responded {
    response_range: Range,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Granted {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "TTL")]
    ttl: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Kept {
    result: Granted,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Authenticated {
    token: String,
}

fn foreign(what: impl std::fmt::Display) -> Error {
    Error::Foreign(format!("etcd sent an unexpected answer: {what}"))
}

fn text(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn number(text: &str) -> Result<u64> {
    // What is 0 is left out.
    if text.is_empty() { Ok(0) } else { text.parse().map_err(foreign) }
}

impl KeyValue {
    fn item(self) -> Result<Item> {
        let bytes = |text: &str| BASE64_STANDARD.decode(text).map_err(foreign);
        let key = String::from_utf8(bytes(&self.key)?).map_err(foreign)?;
        let lease = number(&self.lease)?;
        Ok(Item {
            key,
            value: bytes(&self.value)?,
            revision: number(&self.mod_revision)?,
            lease: (lease != 0).then_some(Lease(lease)),
        })
    }
}

/// The first key that does not begin with a prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

impl Etcd {
    /// Sends no request.
    pub fn new(settings: &EtcdSettings, clock: Arc<dyn Clock>, patience: Duration) -> Result<Etcd> {
        let trimmed = |url: &String| url.trim_end_matches('/').to_owned();
        let endpoints: Vec<String> = settings.endpoints.iter().map(trimmed).collect();
        let is_url = |url: &String| {
            let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['/', '?', '#', '@']))
        };
        if let Some(wrong) = endpoints.iter().find(|url| !is_url(url)) {
            return Err(Error::Refused(format!(
                "'{wrong}' is not an address of etcd: https://HOST:2379"
            )));
        }
        if endpoints.is_empty() {
            return Err(Error::Refused("no address of etcd is given".to_owned()));
        }
        let plain = endpoints.iter().any(|url| url.starts_with("http://"));
        if plain && settings.user.is_some() && !endpoints.iter().all(|url| is_loopback(url)) {
            return Err(Error::Refused(
                "a password would be sent in clear: use https:// addresses of etcd".to_owned(),
            ));
        }
        Ok(Etcd {
            agent: agent(settings, patience / endpoints.len().min(3) as u32)?,
            endpoints,
            user: settings.user.clone(),
            token: Mutex::new(None),
            clock,
            patience,
            last: AtomicUsize::new(0),
        })
    }

    /// Sends a request to one endpoint after the other.
    fn ask<T: for<'a> Deserialize<'a>>(&self, path: &str, body: &Value) -> Result<T> {
        let begun = self.clock.monotonic();
        let first = self.last.load(Ordering::Relaxed);
        let mut last = None;
        let mut renewed = false;
        let mut at = 0;
        while at < self.endpoints.len() {
            let index = (first + at) % self.endpoints.len();
            let endpoint = &self.endpoints[index];
            match self.ask_one(endpoint, path, body) {
                Ok(answer) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Failed::All(error)) => return Err(error),
                // (A token from before a restart of etcd.)
                Err(Failed::Token) if !renewed && self.user.is_some() => {
                    *self.token.lock() = None;
                    renewed = true;
                    continue;
                }
                Err(Failed::Token) => {
                    let why = format!("{endpoint} wants a user and a password, or others");
                    return Err(Error::Refused(why));
                }
                Err(Failed::Next(error)) => last = Some(error),
            }
            at += 1;
            if self.clock.monotonic().saturating_sub(begun) >= self.patience {
                break;
            }
        }
        Err(last.unwrap_or_else(|| Error::Unreachable("etcd does not answer".to_owned())))
    }

    fn ask_one<T: for<'a> Deserialize<'a>>(
        &self,
        endpoint: &str,
        path: &str,
        body: &Value,
    ) -> std::result::Result<T, Failed> {
        let token = match &self.user {
            None => None,
            Some(user) => Some(self.token(endpoint, user)?),
        };
        self.send(endpoint, path, body, token.as_deref())
    }

    /// The token of the user, which the first call gets.
    fn token(
        &self,
        endpoint: &str,
        (user, password): &(String, String),
    ) -> std::result::Result<String, Failed> {
        if let Some(token) = self.token.lock().clone() {
            return Ok(token);
        }
        let body = json!({ "name": user, "password": password });
        let answer = self.send(endpoint, "auth/authenticate", &body, None);
        let answer: Authenticated = match answer {
            Err(Failed::Token) => {
                let why = format!("{endpoint} does not accept the user {user} with this password");
                return Err(Failed::All(Error::Refused(why)));
            }
            answer => answer?,
        };
        *self.token.lock() = Some(answer.token.clone());
        Ok(answer.token)
    }

    fn send<T: for<'a> Deserialize<'a>>(
        &self,
        endpoint: &str,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> std::result::Result<T, Failed> {
        let away = |error: &dyn std::fmt::Display| {
            let advice = "check that it runs, and its address";
            Failed::Next(Error::Unreachable(format!("etcd at {endpoint}: {error}; {advice}")))
        };
        let mut request = self.agent.post(format!("{endpoint}/v3/{path}"));
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.header("content-type", "application/json");
        let mut answer = request.send(body.to_string()).map_err(|error| away(&error))?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let body = body.map_err(|error| away(&error))?;
        if status == 200 {
            return serde_json::from_str(&body).map_err(|error| {
                let text = format!("etcd at {endpoint} sent an unexpected answer: {error}");
                Failed::Next(Error::Foreign(text))
            });
        }
        Err(refused(endpoint, status, &body))
    }

    fn range(&self, body: &Value) -> Result<Vec<Item>> {
        let range: Range = self.ask("kv/range", body)?;
        range.kvs.into_iter().map(KeyValue::item).collect()
    }
}

/// What a refusal means.
fn refused(endpoint: &str, status: u16, body: &str) -> Failed {
    let Ok(refusal) = serde_json::from_str::<Refusal>(body) else {
        let start: String = body.chars().take(80).collect();
        let text = format!("{endpoint} answers with status {status}, and not as etcd: {start}");
        return Failed::Next(Error::Foreign(text));
    };
    // (A stream has the refusal in an object of its own.)
    let (code, why) = match &refusal.error {
        Value::Object(inner) => (
            inner.get("grpc_code").and_then(Value::as_i64).unwrap_or(refusal.code),
            inner.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
        ),
        Value::String(error) if refusal.message.is_empty() => (refusal.code, error.clone()),
        _ => (refusal.code, refusal.message),
    };
    let text = format!("etcd at {endpoint}: {why}");
    match code {
        NOT_FOUND => Failed::All(Error::LeaseEnded),
        RESOURCE_EXHAUSTED if is_full(&why) => Failed::All(Error::Full(text)),
        PERMISSION_DENIED => Failed::All(Error::Refused(text)),
        UNAUTHENTICATED => Failed::Token,
        _ if is_token_refused(&why) => Failed::Token,
        _ => Failed::Next(Error::Unreachable(text)),
    }
}

/// Whether a refusal because of exhausted resources means that the database is full.
fn is_full(why: &str) -> bool {
    // tidy: compares words: etcd has the same code for too many requests
    why.contains("space exceeded")
}

/// Whether a refusal without a code of its own means that another token is needed.
fn is_token_refused(why: &str) -> bool {
    // tidy: compares words: the code of etcd 3.4 is "invalid argument" or "unknown"
    why.contains("auth") || why.contains("user name is empty")
}

fn is_loopback(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or_default();
    ["127.", "localhost:", "localhost", "[::1]"].iter().any(|own| host.starts_with(own))
}

fn agent(settings: &EtcdSettings, attempt: Duration) -> Result<Agent> {
    let mut tls = TlsConfig::builder();
    if let Some(pem) = &settings.authorities {
        tls = tls.root_certs(RootCerts::Specific(Arc::new(certificates(pem)?)));
    }
    if let Some((certificate, key)) = &settings.certificate {
        let wrong = |error| Error::Refused(format!("the key for etcd cannot be read: {error}"));
        let key = PrivateKey::from_pem(key.as_bytes()).map_err(wrong)?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(certificate)?, key)));
    }
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent("pando")
        .timeout_global(Some(attempt))
        .proxy(None)
        .tls_config(tls.build());
    Ok(config.build().into())
}

fn certificates(pem: &str) -> Result<Vec<Certificate<'static>>> {
    let mut found = Vec::new();
    for item in parse_pem(pem.as_bytes()) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => {
                return Err(Error::Refused(format!(
                    "a certificate for etcd cannot be read: {error}"
                )));
            }
        }
    }
    if found.is_empty() {
        let why = "a file for etcd has no certificate in PEM form (BEGIN CERTIFICATE)";
        return Err(Error::Refused(why.to_owned()));
    }
    Ok(found)
}

impl Coordinator for Etcd {
    fn grant(&self, length: Duration) -> Result<Lease> {
        let seconds = length.as_secs().max(1).to_string();
        let granted: Granted = self.ask("lease/grant", &json!({ "TTL": seconds }))?;
        let id = number(&granted.id)?;
        if id == 0 { Err(foreign("a lease without a number")) } else { Ok(Lease(id)) }
    }

    fn keep_alive(&self, lease: Lease) -> Result<()> {
        let kept: Kept = self.ask("lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        // What has ended has no time left.
        if number(&kept.result.ttl)? == 0 { Err(Error::LeaseEnded) } else { Ok(()) }
    }

    fn revoke(&self, lease: Lease) -> Result<()> {
        match self.ask::<Value>("lease/revoke", &json!({ "ID": lease.0.to_string() })) {
            Ok(_) | Err(Error::LeaseEnded) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn put_if_absent(&self, key: &str, value: &[u8], lease: Option<Lease>) -> Result<Put> {
        let key = text(key.as_bytes());
        let lease = lease.map_or(0, |lease| lease.0).to_string();
        let body = json!({
            "compare": [{ "target": "CREATE", "key": key, "create_revision": "0" }],
            "success": [{ "request_put": { "key": key, "value": text(value), "lease": lease } }],
            "failure": [{ "request_range": { "key": key } }],
        });
        let txn: Txn = self.ask("kv/txn", &body)?;
        if txn.succeeded {
            return Ok(Put::Made(number(&txn.header.revision)?));
        }
        let found = txn
            .responses
            .into_iter()
            .next()
            .and_then(|one| one.response_range.kvs.into_iter().next());
        found.ok_or_else(|| foreign("a name that exists, and does not"))?.item().map(Put::Exists)
    }

    fn get(&self, key: &str) -> Result<Option<Item>> {
        let found = self.range(&json!({ "key": text(key.as_bytes()) }))?;
        Ok(found.into_iter().next())
    }

    fn list(&self, prefix: &str) -> Result<Vec<Item>> {
        let end = text(&end_of(prefix));
        self.range(&json!({ "key": text(prefix.as_bytes()), "range_end": end }))
    }

    fn remove(&self, key: &str, revision: u64) -> Result<bool> {
        let key = text(key.as_bytes());
        let revision = revision.to_string();
        let body = json!({
            "compare": [{ "target": "MOD", "key": key, "mod_revision": revision }],
            "success": [{ "request_delete_range": { "key": key } }],
        });
        let txn: Txn = self.ask("kv/txn", &body)?;
        Ok(txn.succeeded)
    }
}
