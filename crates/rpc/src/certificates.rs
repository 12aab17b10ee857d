//! Makes an authority, and certificates of servers and clients.
//!
//! Servers and clients prove different things: a certificate of a client cannot be used to pretend
//! to be a server. Private keys are readable by their owner alone from the moment they exist.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::Timestamp;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::Grant;

/// How long an authority is valid.
const AUTHORITY_DAYS: u32 = 3650;
/// Certificates are valid from this long before they are made: clocks of machines differ.
const EARLIER: i64 = 3600;

/// Files of the authority.
pub const AUTHORITY: (&str, &str) = ("ca.pem", "ca.key");

/// Why no certificate was made.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// A file.
    #[error("cannot {doing} {}: {error}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// What was there is damaged, or a name cannot be in a certificate.
    #[error("{0}")]
    Certificate(#[from] rcgen::Error),
}

/// An authority in a directory.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: PathBuf,
    /// Whether it was made now.
    pub is_new: bool,
    now: Timestamp,
}

/// What a certificate is for.
pub enum For<'a> {
    /// A server that clients reach by these names and addresses.
    Server(&'a [String]),
    /// A client that may do this.
    Client(&'a Grant),
}

impl Authority {
    /// The authority in a directory, which is made if there is none.
    pub fn in_directory(directory: &Path, now: Timestamp) -> Result<Authority, MakeError> {
        let (certificate, key) = (directory.join(AUTHORITY.0), directory.join(AUTHORITY.1));
        let directory = directory.to_owned();
        if certificate.exists() {
            let read = |path: &Path| {
                std::fs::read_to_string(path).map_err(|error| MakeError::File {
                    doing: "read",
                    path: path.to_owned(),
                    error,
                })
            };
            let issuer =
                Issuer::from_ca_cert_pem(&read(&certificate)?, KeyPair::from_pem(&read(&key)?)?)?;
            return Ok(Authority { issuer, directory, is_new: false, now });
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = named("PandoFS authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_days(&mut params, now, AUTHORITY_DAYS);
        let pair = KeyPair::generate()?;
        let made = params.self_signed(&pair)?;
        write(&key, pair.serialize_pem().as_bytes(), 0o600)?;
        write(&certificate, made.pem().as_bytes(), 0o644)?;
        let issuer = Issuer::new(params, pair);
        Ok(Authority { issuer, directory, is_new: true, now })
    }

    /// Makes a certificate and its key, `NAME.pem` and `NAME.key`; replaces neither.
    pub fn make(
        &self,
        name: &str,
        what: &For<'_>,
        valid: u32,
    ) -> Result<(PathBuf, PathBuf), MakeError> {
        let mut params = match what {
            For::Server(names) => CertificateParams::new(names.to_vec())?,
            For::Client(grant) => {
                let mut params = CertificateParams::default();
                let uri = Ia5String::try_from(grant.to_uri())?;
                params.subject_alt_names.push(SanType::URI(uri));
                params
            }
        };
        params.distinguished_name = named(name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match what {
            For::Server(_) => ExtendedKeyUsagePurpose::ServerAuth,
            For::Client(_) => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        set_days(&mut params, self.now, valid);
        let pair = KeyPair::generate()?;
        let made = params.signed_by(&pair, &self.issuer)?;
        let certificate = self.directory.join(format!("{name}.pem"));
        let key = self.directory.join(format!("{name}.key"));
        write(&key, pair.serialize_pem().as_bytes(), 0o600)?;
        write(&certificate, made.pem().as_bytes(), 0o644)?;
        Ok((certificate, key))
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

/// Sets from when until when a certificate is valid: from a little before now, for so many days.
fn set_days(params: &mut CertificateParams, now: Timestamp, valid: u32) {
    let seconds = (now.0 / 1_000_000_000).max(EARLIER);
    let at = |seconds: i64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds as u64);
    params.not_before = at(seconds - EARLIER);
    params.not_after = at(seconds + i64::from(valid) * 86_400);
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), MakeError> {
    let failed = |error| MakeError::File { doing: "write", path: path.to_owned(), error };
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)
}
