//! What a person should check when a server refuses a request, or gives no usable answer.

use std::io;

use ureq::Body;
use ureq::http::Response;

/// Difference of the clocks from which the error of a refused request names it. Amazon refuses
/// from 15 minutes.
const SKEW: i64 = 300;

/// Where requests are sent.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) endpoint: String,
    pub(crate) bucket: String,
    pub(crate) region: String,
}

/// A refusal, or another answer that was not expected.
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// The protocol's code, such as `NoSuchBucket`; empty if the answer has none.
    pub(crate) code: String,
    /// Whether the answer is a web page.
    pub(crate) is_page: bool,
    /// The region in which the bucket is, if the server reports it.
    region: Option<String>,
    /// Seconds by which this host's clock is ahead of the server's.
    ahead: Option<i64>,
}

impl Refusal {
    /// From an answer, its text and the time here in seconds since 1970.
    pub(crate) fn of(answer: &Response<Body>, text: &str, now: i64) -> Refusal {
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let date = header("date").and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
        let code = element(text, "Code").unwrap_or_default().to_owned();
        let region = header("x-amz-bucket-region").or_else(|| element(text, "Region"));
        Refusal {
            status: answer.status().as_u16(),
            code,
            is_page: is_page(answer) || begins_as_page(text),
            region: region.map(str::to_owned),
            ahead: date.map(|date| now - date.timestamp().as_second()),
        }
    }

    /// The kind of the error. `NotFound` is an object's absence alone: callers conclude from it.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match (self.status, self.code.as_str()) {
            (_, "NoSuchBucket") => io::ErrorKind::NotConnected,
            (_, "QuotaExceeded" | "XMinioStorageFull") | (507, _) => io::ErrorKind::StorageFull,
            (404, "NoSuchKey" | "NotFound" | "") if !self.is_page => io::ErrorKind::NotFound,
            (401 | 403, _)
            | (
                _,
                "XAdminUserNotFound" | "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired",
            ) => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        }
    }

    /// Whether the server may answer differently on a retry.
    pub(crate) fn passes(&self) -> bool {
        /// Codes that the protocol returns under 400 although the connection caused them, not the
        /// request.
        const OF_THE_CONNECTION: [&str; 4] =
            ["RequestTimeout", "BadDigest", "XAmzContentChecksumMismatch", "IncompleteBody"];
        /// Codes that the protocol returns under 409 for concurrent requests for the same name.
        const CONCURRENT: [&str; 2] = ["ConditionalRequestConflict", "OperationAborted"];
        match self.status {
            408 | 429 | 500 | 502 | 503 | 504 => true,
            400 => OF_THE_CONNECTION.contains(&self.code.as_str()),
            409 => CONCURRENT.contains(&self.code.as_str()),
            _ => false,
        }
    }

    /// What went wrong and what to check, in words; `None` if the server's own words must do.
    pub(crate) fn advice(&self, target: &Target, operation: &str) -> Option<String> {
        let Target { endpoint, bucket, region } = target;
        if let Some(ahead) = self.ahead.filter(|ahead| ahead.abs() > SKEW && self.status == 403) {
            let (minutes, which) =
                (ahead.abs() / 60, if ahead > 0 { "ahead of" } else { "behind" });
            return Some(format!(
                "the clock of this host is {minutes} minutes {which} that of {endpoint}: set the \
                 clock (timedatectl, chrony)"
            ));
        }
        if self.is_page {
            return Some(format!(
                "{endpoint} answered with a web page, so it is not an S3 server: check the \
                 endpoint's address and port, and that no proxy answers for it"
            ));
        }
        let wrong_region = || {
            let in_region = self.region.as_deref().map_or_else(String::new, |it| format!(" {it}"));
            format!(
                "the bucket {bucket} is in another region{in_region}, and requests are for \
                 {region}: set the region (AWS_REGION), and an endpoint of that region if you set \
                 one"
            )
        };
        Some(match (self.status, self.code.as_str()) {
            (507, _) | (_, "QuotaExceeded" | "XMinioStorageFull") => {
                format!("the store at {endpoint} is full: free space there, or raise its quota")
            }
            (_, "InvalidAccessKeyId" | "XAdminUserNotFound") => format!(
                "{endpoint} does not know the access key: check AWS_ACCESS_KEY_ID, or the profile"
            ),
            (_, "SignatureDoesNotMatch") => format!(
                "{endpoint} rejects the signature: check AWS_SECRET_ACCESS_KEY, or the profile's \
                 secret"
            ),
            (_, "RequestTimeTooSkewed") => format!(
                "the clock of this host differs from that of {endpoint}: set the clock \
                 (timedatectl, chrony)"
            ),
            (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
                "the temporary keys have expired or do not belong together: renew \
                 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"
                    .to_owned()
            }
            (_, "NoSuchBucket") => format!(
                "there is no bucket {bucket} at {endpoint}: create it, or check the name and the \
                 endpoint"
            ),
            (301 | 302 | 307 | 308, _)
            | (
                400,
                "AuthorizationHeaderMalformed"
                | "AuthorizationQueryParametersError"
                | "IllegalLocationConstraintException",
            ) => wrong_region(),
            (400 | 403, _) if self.region.as_ref().is_some_and(|found| found != region) => {
                wrong_region()
            }
            (401 | 403, _) => format!(
                "the key may not {operation} objects in the bucket {bucket}: check the key's \
                 permissions and the bucket's policy"
            ),
            (429 | 503, _) => {
                format!("{endpoint} is overloaded or being maintained: check the server")
            }
            (500 | 502 | 504, _) => format!("{endpoint} has an error of its own: check the server"),
            (405 | 501, _) => format!("{endpoint} does not support a request to {operation}"),
            _ => return None,
        })
    }
}

/// Whether an answer is a web page. No object of ours is one.
pub(crate) fn is_page(answer: &Response<Body>) -> bool {
    let kind = answer.headers().get("content-type").and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"))
}

fn begins_as_page(text: &str) -> bool {
    let begin: String = text.trim_start().chars().take(14).collect();
    let begin = begin.to_ascii_lowercase();
    begin.starts_with("<!doctype html") || begin.starts_with("<html")
}

/// The text of the first element of a name.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim())
}

/// Why there was no answer, and whether a repeat may get one.
pub(crate) fn unanswered(error: ureq::Error, target: &Target) -> (io::Error, bool) {
    let Target { endpoint, .. } = target;
    let tls = endpoint.starts_with("https:");
    let untrusted = |error: &dyn std::fmt::Display| {
        let why = format!(
            "no trusted connection to {endpoint}: {error}; check that the endpoint speaks TLS, \
             and give the certificate of its CA by AWS_CA_BUNDLE"
        );
        (io::Error::new(io::ErrorKind::InvalidData, why), false)
    };
    let unreachable = |error: &io::Error| {
        format!(
            "{endpoint} cannot be reached ({error}): check the endpoint's name \
             (AWS_ENDPOINT_URL), DNS and the network"
        )
    };
    let other = |kind, why: String| (io::Error::new(kind, why), true);
    match error {
        ureq::Error::Io(error) => match error.kind() {
            io::ErrorKind::InvalidData if tls => untrusted(&error),
            io::ErrorKind::ConnectionRefused => other(
                error.kind(),
                format!("nothing accepts connections at {endpoint}: check the address and server"),
            ),
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => other(
                error.kind(),
                format!(
                    "{endpoint} ended the connection ({error}): check the server, and whether it \
                     speaks http or https"
                ),
            ),
            kind @ (io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                other(kind, unreachable(&error))
            }
            // A name without an address has neither a kind nor a number of its own.
            kind if error.raw_os_error().is_none() => other(kind, unreachable(&error)),
            _ => (error, true),
        },
        ureq::Error::Timeout(_) => other(
            io::ErrorKind::TimedOut,
            format!("{endpoint} did not answer in time ({error}): check server and network"),
        ),
        ureq::Error::HostNotFound => other(
            io::ErrorKind::NotConnected,
            format!("the host name of {endpoint} has no address: check the endpoint and DNS"),
        ),
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => untrusted(&error),
        ureq::Error::Protocol(_) => other(
            io::ErrorKind::InvalidData,
            format!("{endpoint} does not speak HTTP ({error}): check the port, and http or https"),
        ),
        other_error => other(io::ErrorKind::Other, other_error.to_string()),
    }
}
