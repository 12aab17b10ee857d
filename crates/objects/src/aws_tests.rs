//! What is found where, and what a person reads who set something wrong.

use std::collections::BTreeMap;
use std::io;

use device::UserConfig;

use super::{Keys, Resolved, find};
use crate::settings::{Settings, Style};

#[derive(Default)]
struct TestConfig {
    variables: BTreeMap<&'static str, &'static str>,
    files: BTreeMap<&'static str, &'static str>,
}

impl UserConfig for TestConfig {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(|value| (*value).to_owned())
    }

    fn read(&self, path: &str) -> io::Result<Option<String>> {
        match self.files.get(path) {
            Some(&"refused") => Err(io::ErrorKind::PermissionDenied.into()),
            found => Ok(found.map(|text| (*text).to_owned())),
        }
    }
}

fn given<const V: usize, const F: usize>(
    variables: [(&'static str, &'static str); V],
    files: [(&'static str, &'static str); F],
) -> TestConfig {
    let mut given = TestConfig { variables: variables.into(), files: files.into() };
    given.variables.insert("HOME", "/home/me");
    given
}

fn found(given: &TestConfig) -> Resolved {
    find(&Settings::default(), "bucket", given).expect("enough is set")
}

fn refused(given: &TestConfig) -> String {
    find(&Settings::default(), "bucket", given).expect_err("refused").to_string()
}

fn keys(id: &str, secret: &str, token: Option<&str>) -> Keys {
    let (id, secret) = (id.to_owned(), secret.to_owned());
    Keys { id, secret, token: token.map(str::to_owned) }
}

const ID: (&str, &str) = ("AWS_ACCESS_KEY_ID", "ID");
const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "hunter2");
const CREDENTIALS: &str = "
# mine
[default]
aws_access_key_id = A
aws_secret_access_key=hunter3

[other]
aws_access_key_id=B
aws_secret_access_key = hunter=4
aws_session_token = T
";
const CONFIG: &str = "
[default]
region = eu-west-1
[ profile  other ]
region=eu-north-1
endpoint_url = https://store.example
s3 =
  addressing_style = virtual
ca_bundle = /ca.pem
";
const FILES: [(&str, &str); 2] =
    [("/home/me/.aws/credentials", CREDENTIALS), ("/home/me/.aws/config", CONFIG)];

#[test]
fn the_environment_is_used_before_files() {
    let in_files = found(&given([], FILES));
    assert_eq!(in_files.keys, Some(keys("A", "hunter3", None)));
    assert_eq!(in_files.region, "eu-west-1");
    assert_eq!(in_files.endpoints, ["https://s3.eu-west-1.amazonaws.com"]);
    assert!(in_files.virtual_host && in_files.ca_bundle.is_none());

    let other = found(&given([("AWS_PROFILE", "other")], FILES));
    assert_eq!(other.keys, Some(keys("B", "hunter=4", Some("T"))));
    assert_eq!(other.region, "eu-north-1");
    assert_eq!(other.endpoints, ["https://store.example"]);
    assert!(other.virtual_host);
    assert_eq!(other.ca_bundle.as_deref(), Some("/ca.pem"));

    let set = [ID, SECRET, ("AWS_SESSION_TOKEN", "T2"), ("AWS_DEFAULT_REGION", "us-west-2")];
    let set = found(&given(set, FILES));
    assert_eq!(set.keys, Some(keys("ID", "hunter2", Some("T2"))));
    assert_eq!(set.region, "us-west-2");

    let set = [ID, SECRET, ("AWS_ENDPOINT_URL", "http://a"), ("AWS_ENDPOINT_URL_S3", "http://b:1")];
    let set = found(&given(set, []));
    assert_eq!(set.endpoints, ["http://b:1"]);
    assert_eq!((set.region.as_str(), set.virtual_host), ("us-east-1", false));

    let elsewhere = [("AWS_SHARED_CREDENTIALS_FILE", "/c"), ("AWS_CONFIG_FILE", "/d")];
    let elsewhere = found(&given(elsewhere, [("/c", CREDENTIALS), ("/d", CONFIG)]));
    assert_eq!(
        (elsewhere.keys, elsewhere.region.as_str()),
        (Some(keys("A", "hunter3", None)), "eu-west-1")
    );
}

#[test]
fn settings_are_used_before_all_else() {
    let settings = Settings {
        endpoints: vec!["http://one".into(), "http://two".into()],
        region: Some("here".into()),
        profile: Some("other".into()),
        style: Style::Path,
        ca_bundle: Some("/mine.pem".into()),
        ..Settings::default()
    };
    let set = given([ID, SECRET, ("AWS_REGION", "there"), ("AWS_CA_BUNDLE", "/theirs")], FILES);
    let found = find(&settings, "bucket", &set).expect("enough");
    assert_eq!(found.keys, Some(keys("B", "hunter=4", Some("T"))));
    assert_eq!((found.region.as_str(), found.virtual_host), ("here", false));
    assert_eq!(found.endpoints, ["http://one", "http://two"]);
    assert_eq!(found.ca_bundle.as_deref(), Some("/mine.pem"));
}

#[test]
fn a_bucket_with_dots_is_named_in_the_path() {
    let set = given([ID, SECRET, ("AWS_REGION", "eu-west-1")], []);
    let found = find(&Settings::default(), "a.b", &set).expect("enough");
    assert!(!found.virtual_host);
}

#[test]
fn what_is_missing_is_named_and_no_secret_printed() {
    let region = ("AWS_REGION", "eu-west-1");
    assert!(refused(&given([ID, SECRET], [])).contains("AWS_REGION"));
    assert!(refused(&given([ID, region], [])).contains("AWS_SECRET_ACCESS_KEY is not"));
    let half = refused(&given([SECRET, region], []));
    assert!(half.contains("AWS_ACCESS_KEY_ID is not") && !half.contains("hunter2"), "{half}");
    let none = found(&given([region], []));
    assert_eq!(none.keys, None);
    let gone = refused(&given([region, ("AWS_PROFILE", "gone")], FILES));
    assert!(gone.contains("profile gone") && gone.contains("/home/me/.aws/credentials"), "{gone}");
    let file = "[default]\nsso_session = x\n";
    let sso = refused(&given([region], [("/home/me/.aws/config", file)]));
    assert!(sso.contains("sso_session") && sso.contains("export-credentials"), "{sso}");
    let file = "[default]\naws_secret_access_key = hunter2\n";
    let half = refused(&given([region], [("/home/me/.aws/credentials", file)]));
    assert!(half.contains("needs both") && !half.contains("hunter2"), "{half}");
    let unread = refused(&given([region], [("/home/me/.aws/credentials", "refused")]));
    assert!(unread.contains("read /home/me/.aws/credentials"), "{unread}");
    assert!(!format!("{:?}", found(&given([ID, SECRET, region], []))).contains("hunter2"));
}
