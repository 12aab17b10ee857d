//! Why TLS refused a certificate, as an administrator can act on it. It names whose it is, and
//! whether it is too old, of another authority, or for another name. All else has rustls' words.

use rustls::{AlertDescription, CertificateError, Error};

use crate::channel::ChannelError;

/// Which certificate was refused, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateRefusal {
    /// That of the other side has expired, or is not valid yet.
    TheirTime,
    /// That of the other side is not of our authority.
    TheirAuthority,
    /// That of the other side is not for the name by which it was reached.
    TheirName,
    /// Ours has expired by the clock of the other side.
    OwnTime,
    /// Ours is not of the authority of the other side.
    OwnAuthority,
    /// The other side wants one.
    OwnMissing,
}

impl ChannelError {
    /// Whose certificate was refused, and why, if that ended the channel.
    pub fn refusal(&self) -> Option<CertificateRefusal> {
        match self {
            ChannelError::Tls(error) => of(error),
            _ => None,
        }
    }
}

/// What an error of TLS means; `None`: no certificate was refused.
fn of(error: &Error) -> Option<CertificateRefusal> {
    use CertificateRefusal::{OwnAuthority, OwnMissing, OwnTime};
    match error {
        Error::InvalidCertificate(error) => of_theirs(error),
        // The other side sends why it refused ours. A signature of another authority with the name
        // of its own fails as one that cannot be decrypted.
        Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateExpired => Some(OwnTime),
            AlertDescription::CertificateRequired => Some(OwnMissing),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::UnknownCA => Some(OwnAuthority),
            _ => None,
        },
        _ => None,
    }
}

fn of_theirs(error: &CertificateError) -> Option<CertificateRefusal> {
    use CertificateRefusal::{TheirAuthority, TheirName, TheirTime};
    match error {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Some(TheirTime),
        CertificateError::BadSignature | CertificateError::UnknownIssuer => Some(TheirAuthority),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Some(TheirName)
        }
        _ => None,
    }
}
