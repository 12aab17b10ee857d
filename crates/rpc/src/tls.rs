//! TLS of both sides: each proves who it is by a certificate of one authority, which both pin.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore};
use rustls::{ServerConfig, ServerConnection};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::Grant;

/// Files of a side, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Its certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificate of the authority that the other side's must come from.
    pub authority: PathBuf,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has nothing of the kind.
    #[error("cannot read {what} from {}: {error}", path.display())]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        error: rustls::pki_types::pem::Error,
    },
    /// They do not fit together, or are damaged.
    #[error("the certificates cannot be used: {0}")]
    Unfit(String),
}

fn unfit(error: impl std::fmt::Display) -> TlsError {
    TlsError::Unfit(error.to_string())
}

struct Read {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::File { what: "a certificate", path: path.to_owned(), error };
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    let all = all.map_err(failed)?;
    if all.is_empty() {
        return Err(failed(rustls::pki_types::pem::Error::NoItemsFound));
    }
    Ok(all)
}

fn read(files: &Files) -> Result<Read, TlsError> {
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::File {
        what: "a private key",
        path: files.key.clone(),
        error,
    })?;
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.authority)? {
        roots.add(root).map_err(unfit)?;
    }
    Ok(Read { chain: certificates(&files.certificate)?, key, roots })
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The server's side.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Reads the files.
    pub fn read(files: &Files) -> Result<ServerTls, TlsError> {
        let Read { chain, key, roots } = read(files)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(unfit)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(unfit)?;
        // A session that is resumed brings the certificate of its first connection, whose end
        // nobody would look at again.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerTls(Arc::new(config)))
    }

    /// A connection that arrived.
    pub fn accept(&self) -> Result<Connection, TlsError> {
        Ok(ServerConnection::new(Arc::clone(&self.0)).map_err(unfit)?.into())
    }
}

/// The client's side.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Reads the files.
    pub fn read(files: &Files) -> Result<ClientTls, TlsError> {
        let Read { chain, key, roots } = read(files)?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(unfit)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(unfit)?;
        Ok(ClientTls(Arc::new(config)))
    }

    /// A connection to a host, whose certificate must have this name or address.
    pub fn connect(&self, host: &str) -> Result<Connection, TlsError> {
        let name = ServerName::try_from(host.to_owned()).map_err(unfit)?;
        Ok(ClientConnection::new(Arc::clone(&self.0), name).map_err(unfit)?.into())
    }
}

/// The name of a client, and what it may do, by its certificate, which TLS has verified.
pub(crate) fn granted(certificate: &[u8]) -> Option<(String, Grant)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let names = certificate.subject_alternative_name().ok()??;
    let mut grants = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) if uri.starts_with("pando:") => Some(Grant::from_uri(uri)),
        _ => None,
    });
    // Two would leave open which of them counts.
    match (grants.next(), grants.next()) {
        (Some(Some(grant)), None) => Some((name, grant)),
        _ => None,
    }
}

impl crate::Channel {
    /// When the certificate of the other side expires: TLS looks at it once, at the beginning.
    pub fn expires(&self) -> Option<Timestamp> {
        let sent = self.certificates()?;
        let (_, certificate) = X509Certificate::from_der(sent.first()?).ok()?;
        let seconds = certificate.validity().not_after.timestamp();
        Some(Timestamp(seconds.saturating_mul(1_000_000_000)))
    }

    /// The name of the other side, a client, and what it may do: `None` without a certificate, and
    /// of one that grants nothing.
    pub fn granted(&self) -> Option<(String, Grant)> {
        granted(self.certificates()?.first()?)
    }
}
