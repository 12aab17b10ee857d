//! Servers that speak TLS: trusted by a CA bundle, refused without, and mistaken for one another.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use device::{Blobs, SystemRandom};
use objects::{S3Blobs, S3Bucket};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use testing::SimClock;

use super::server::{self, Objects};
use super::{fresh_prefix, place};

/// A server whose certificate signs itself; its address, the certificate, and what it has.
fn start() -> (String, String, Arc<Objects>) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate and its key");
    let config = Arc::new(config);
    let wrap = move |stream: TcpStream| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
        Ok(StreamOwned::new(connection, stream))
    };
    let objects = Arc::<Objects>::default();
    let address = server::accept(Arc::clone(&objects), wrap);
    (format!("https://{address}"), made.cert.pem(), objects)
}

fn connect(endpoint: &str, authorities: Option<&str>) -> device::Result<S3Blobs> {
    let place = S3Bucket {
        endpoint: endpoint.to_owned(),
        authorities: authorities.map(str::to_owned),
        // No clock passes but by pauses.
        deadline: Duration::from_secs(5),
        silence: Duration::from_secs(10),
        ..place(&fresh_prefix())
    };
    S3Blobs::open(&place, Arc::new(SimClock::new()), Arc::new(SystemRandom))
}

fn refused(endpoint: &str, authorities: Option<&str>) -> String {
    connect(endpoint, authorities).err().expect("refused").to_string()
}

#[test]
fn a_server_is_trusted_by_the_certificates_given() {
    let (endpoint, certificate, objects) = start();
    let blobs = connect(&endpoint, Some(&certificate)).expect("trusted");
    assert!(blobs.create("log/1/1", b"bytes").unwrap());
    assert!(!blobs.create("log/1/1", b"other").unwrap());
    let mut bytes = [0; 5];
    assert_eq!(blobs.read_at("log/1/1", &mut bytes, 0).unwrap(), 5);
    assert_eq!(&bytes, b"bytes");
    let before = objects.requests();
    let error = refused(&endpoint, None);
    assert!(error.contains("AWS_CA_BUNDLE") && error.contains(&endpoint), "{error}");
    let (_, other, _) = start();
    let error = refused(&endpoint, Some(&other));
    assert!(error.contains("AWS_CA_BUNDLE"), "{error}");
    assert!(!error.contains("tried"), "repeats would not help: {error}");
    assert_eq!(objects.requests(), before, "nothing is sent to a server that is not trusted");
}

#[test]
fn a_bundle_without_certificates_is_refused() {
    let (endpoint, ..) = start();
    for bundle in ["", "rubbish", "-----BEGIN CERTIFICATE-----\nrubbish"] {
        let error = refused(&endpoint, Some(bundle));
        assert!(error.contains("CA bundle"), "{error}");
    }
}

#[test]
fn http_and_https_are_not_confused() {
    let (endpoint, ..) = start();
    let error = refused(&endpoint.replace("https:", "http:"), None);
    assert!(error.contains("http or https"), "{error}");
    let plain = server::start();
    let error = refused(&plain.replace("http:", "https:"), None);
    assert!(error.contains("speaks TLS") || error.contains("http or https"), "{error}");
}
