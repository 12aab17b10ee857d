//! Keys, region and endpoint as AWS's own tools find them: from environment variables, then from
//! `~/.aws/credentials` and `~/.aws/config`.
//!
//! Invariant: no error and no `Debug` output contains a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

use device::{Error, Result, UserConfig};

use crate::settings::{Settings, Style};

/// The region that requests are signed for where a server has none.
const REGION: &str = "us-east-1";

/// Keys that sign requests.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    /// The access key's id.
    pub id: String,
    /// The secret access key.
    pub secret: String,
    /// The token of temporary keys.
    pub token: Option<String>,
}

/// Reads the keys again.
pub(crate) type Renew = Arc<dyn Fn() -> Option<Keys> + Send + Sync>;

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({}, ***)", self.id)
    }
}

/// What the settings, the environment and the files give together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// Absent where only the endpoint is needed.
    pub(crate) keys: Option<Keys>,
    pub(crate) region: String,
    /// The first one serves.
    pub(crate) endpoints: Vec<String>,
    pub(crate) virtual_host: bool,
    pub(crate) ca_bundle: Option<String>,
}

/// A section of a file: settings by name.
type Section = BTreeMap<String, String>;

/// Finds what requests to a bucket need.
pub(crate) fn find(settings: &Settings, bucket: &str, config: &dyn UserConfig) -> Result<Resolved> {
    let files = Files::read(settings, config)?;
    let variable = |names: &[&str]| names.iter().find_map(|name| config.variable(name));
    let in_file = |name: &str| files.config.as_ref().and_then(|section| section.get(name)).cloned();
    let region = settings
        .region
        .clone()
        .or_else(|| variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]))
        .or_else(|| in_file("region"));
    let mut endpoints = settings.endpoints.clone();
    if endpoints.is_empty() {
        let found = variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]);
        endpoints.extend(found.or_else(|| in_file("endpoint_url")));
    }
    let amazon = endpoints.is_empty();
    let region = match region {
        None if amazon => {
            let why = "no region is set: set AWS_REGION; for a server other than Amazon's set \
                       AWS_ENDPOINT_URL";
            return Err(wrong("find the region of", bucket, why.to_owned()));
        }
        region => region.unwrap_or_else(|| REGION.to_owned()),
    };
    if amazon {
        endpoints.push(format!("https://s3.{region}.{}", domain(&region)));
    }
    let style = match settings.style {
        Style::Auto => match in_file("s3.addressing_style").as_deref() {
            Some("path") => Style::Path,
            Some("virtual") => Style::VirtualHost,
            _ => Style::Auto,
        },
        style => style,
    };
    let virtual_host = match style {
        Style::Path => false,
        Style::VirtualHost => true,
        // A certificate covers one label before the server's name.
        Style::Auto => endpoints[0].contains(".amazonaws.com") && !bucket.contains('.'),
    };
    let ca_bundle = settings
        .ca_bundle
        .clone()
        .or_else(|| variable(&["AWS_CA_BUNDLE"]))
        .or_else(|| in_file("ca_bundle"));
    let keys = keys(settings, &files, config)?;
    Ok(Resolved { keys, region, endpoints, virtual_host, ca_bundle })
}

/// The domain of Amazon's servers in a region.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

/// An error of what a user has set.
pub(crate) fn wrong(operation: &'static str, place: &str, why: String) -> Error {
    Error::new(operation, place, io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// The keys: those of a profile that is requested, else those of the environment, else those of the
/// default profile.
fn keys(settings: &Settings, files: &Files, config: &dyn UserConfig) -> Result<Option<Keys>> {
    if settings.profile.is_none() {
        let id = config.variable("AWS_ACCESS_KEY_ID");
        let secret = config.variable("AWS_SECRET_ACCESS_KEY");
        match (id, secret) {
            (Some(id), Some(secret)) => {
                let token = config.variable("AWS_SESSION_TOKEN");
                return Ok(Some(Keys { id, secret, token }));
            }
            (None, None) => {}
            (id, _) => {
                let (has, lacks) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
                let (has, lacks) = if id.is_some() { (has, lacks) } else { (lacks, has) };
                let why = format!("{has} is set and {lacks} is not: set both or neither");
                return Err(wrong("find keys in", "the environment", why));
            }
        }
    }
    for (path, section) in
        [(&files.credentials_path, &files.credentials), (&files.config_path, &files.config)]
    {
        let Some(section) = section else { continue };
        let get = |name: &str| section.get(name).filter(|value| !value.is_empty()).cloned();
        match (get("aws_access_key_id"), get("aws_secret_access_key")) {
            (Some(id), Some(secret)) => {
                return Ok(Some(Keys { id, secret, token: get("aws_session_token") }));
            }
            (None, None) => {}
            _ => {
                let why = format!(
                    "profile {} has one of aws_access_key_id and aws_secret_access_key: it needs \
                     both",
                    files.profile
                );
                return Err(wrong("find keys in", path, why));
            }
        }
        let other = ["credential_process", "sso_session", "sso_start_url", "role_arn"];
        if let Some(other) = other.into_iter().find(|name| section.contains_key(*name)) {
            let why = format!(
                "profile {} has {other}, which is not supported: export temporary keys with \
                 'aws configure export-credentials --format env'",
                files.profile
            );
            return Err(wrong("find keys in", path, why));
        }
    }
    if files.requested && files.credentials.is_none() && files.config.is_none() {
        let why = format!(
            "there is no profile {}, nor in {}: check its name or unset AWS_PROFILE",
            files.profile, files.config_path
        );
        return Err(wrong("find keys in", &files.credentials_path, why));
    }
    Ok(None)
}

/// Why there are no keys.
pub(crate) fn no_keys(bucket: &str) -> Error {
    let why = "no keys are set: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them to \
               ~/.aws/credentials ('aws configure' does)";
    wrong("find keys for", bucket, why.to_owned())
}

/// The sections of one profile in both files.
struct Files {
    profile: String,
    /// Whether the profile was named, so that it must exist.
    requested: bool,
    credentials_path: String,
    credentials: Option<Section>,
    config_path: String,
    config: Option<Section>,
}

impl Files {
    fn read(settings: &Settings, config: &dyn UserConfig) -> Result<Files> {
        let named = settings.profile.clone().or_else(|| config.variable("AWS_PROFILE"));
        let (profile, requested) =
            (named.clone().unwrap_or_else(|| "default".into()), named.is_some());
        let path = |variable: &str, name: &str| {
            let home = || Some(format!("{}/.aws/{name}", config.home()?));
            config.variable(variable).or_else(home).unwrap_or_default()
        };
        let credentials_path = path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config_path = path("AWS_CONFIG_FILE", "config");
        let section = |path: &str, header: &str| -> Result<Option<Section>> {
            if path.is_empty() {
                return Ok(None);
            }
            let text = config.read(path).map_err(|error| Error::new("read", path, error))?;
            Ok(text.and_then(|text| section(&text, header)))
        };
        let credentials = section(&credentials_path, &profile)?;
        let of_config = match profile.as_str() {
            "default" => "default".to_owned(),
            profile => format!("profile {profile}"),
        };
        let config = section(&config_path, &of_config)?;
        Ok(Files { profile, requested, credentials_path, credentials, config_path, config })
    }
}

/// The settings of a section; a nested one is named `above.name`.
fn section(text: &str, header: &str) -> Option<Section> {
    let mut found: Option<Section> = None;
    let (mut inside, mut above) = (false, String::new());
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            inside = name.0.split_whitespace().collect::<Vec<_>>().join(" ") == header;
            if inside {
                found.get_or_insert_default();
            }
            continue;
        }
        let Some(section) = found.as_mut().filter(|_| inside) else { continue };
        let Some((name, value)) = line.split_once('=') else { continue };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if is_nested {
            section.insert(format!("{above}.{name}"), value);
        } else {
            above.clone_from(&name);
            section.insert(name, value);
        }
    }
    found
}

#[cfg(test)]
#[path = "aws_tests.rs"]
mod tests;
