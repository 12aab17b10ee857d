//! An etcd that speaks TLS, and lets in clients with a certificate only.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Coordinator, Error, Etcd, EtcdSettings, Put};
use device::SystemClock;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::running::Running;

/// An authority, and what it signs.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// A certificate for a name or address, and its key, in PEM.
    fn signed(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        // (The gateway of etcd is a client of its own server.)
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &*self.0).expect("signed");
        (certificate.pem(), key.serialize_pem())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }
}

/// etcd with a certificate for a name, which lets in clients of an authority.
fn start(directory: &Path, authority: &Authority, name: &str) -> Option<Running> {
    let (certificate, key) = authority.signed(name);
    let write = |file: &str, text: &str| {
        let path = directory.join(file);
        std::fs::write(&path, text).expect("a directory");
        path.display().to_string()
    };
    let options = format!(
        "--cert-file {} --key-file {} --client-cert-auth --trusted-ca-file {}",
        write("cert.pem", &certificate),
        write("key.pem", &key),
        write("ca.pem", &authority.pem()),
    );
    Running::start_as("https", &options)
}

fn client(
    etcd: &Running,
    authorities: Option<&Authority>,
    certificate: Option<(String, String)>,
) -> Result<Etcd, Error> {
    let settings = EtcdSettings {
        endpoints: vec![etcd.url.clone()],
        user: None,
        authorities: authorities.map(Authority::pem),
        certificate,
    };
    Etcd::new(&settings, Arc::new(SystemClock::new()), Duration::from_secs(6))
}

#[test]
fn both_sides_prove_who_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let (own, other) = (Authority::new(), Authority::new());
    let Some(etcd) = start(directory.path(), &own, "127.0.0.1") else { return };
    let let_in = client(&etcd, Some(&own), Some(own.signed("files1"))).expect("settings");
    let lease = let_in.grant(Duration::from_secs(10)).expect("it lives");
    let made = let_in.put_if_absent("name", b"value", Some(lease)).expect("it answers");
    assert!(matches!(made, Put::Made(_)), "{made:?}");
    assert_eq!(let_in.get("name").expect("it answers").expect("a name").value, b"value");
    for (what, authorities, certificate) in [
        ("public authorities", None, Some(own.signed("files1"))),
        ("another authority", Some(&other), Some(own.signed("files1"))),
        ("no certificate", Some(&own), None),
        ("a certificate of another authority", Some(&own), Some(other.signed("files1"))),
    ] {
        let refused = client(&etcd, authorities, certificate).expect("settings").get("name");
        let error = refused.expect_err(what);
        assert!(matches!(error, Error::Unreachable(_)), "{what}: {error:?}");
        assert!(error.to_string().contains(&etcd.url), "{what}: {error}");
    }
    for (what, certificate) in [
        ("no PEM", ("nothing".to_owned(), own.signed("x").1)),
        ("no key", (own.signed("x").0, "nothing".to_owned())),
    ] {
        let refused = client(&etcd, Some(&own), Some(certificate));
        assert!(matches!(refused, Err(Error::Refused(_))), "{what}");
    }
}

#[test]
fn a_server_of_another_name_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = Authority::new();
    let Some(etcd) = start(directory.path(), &own, "etcd.example") else { return };
    let error = client(&etcd, Some(&own), Some(own.signed("files1"))).expect("settings").get("a");
    let error = error.expect_err("the certificate is for another name");
    assert!(error.to_string().contains(&etcd.url), "{error}");
}
