//! Rules of a bucket that act on objects behind the program's back.

use std::io;

use device::{Error, Result};

use crate::explain::element;
use crate::server::Server;

/// Refuses a bucket whose rules delete or move objects of a prefix; returns what else a user should
/// know. A server that does not know such rules has none.
pub(crate) fn check(server: &Server) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let bucket = &server.target.bucket;
    if let Some(text) = server.setting("lifecycle")?
        && let Some(rule) = rules(&text, &server.prefix).first()
    {
        let why = format!(
            "its life-cycle rule '{}' would {} objects of the volume, which needs them for as long \
             as it names them: limit the rule to a different prefix from '{}'",
            rule.id, rule.act, server.prefix
        );
        let error = io::Error::new(io::ErrorKind::Unsupported, why);
        return Err(Error::new("use the bucket", bucket, error));
    }
    if let Some(text) = server.setting("object-lock")?
        && element(&text, "DefaultRetention").is_some()
    {
        let why = "it locks every new object (object lock with a default retention), so no space \
                   of a volume could be freed: use a bucket without";
        let error = io::Error::new(io::ErrorKind::Unsupported, why);
        return Err(Error::new("use the bucket", bucket, error));
    }
    if let Some(text) = server.setting("versioning")?
        && element(&text, "Status") == Some("Enabled")
    {
        warnings.push(format!(
            "the bucket {bucket} keeps versions of deleted objects, so space of deleted files is \
             not freed: suspend versioning, or add a life-cycle rule with \
             NoncurrentVersionExpiration"
        ));
    }
    Ok(warnings)
}

/// A rule that acts on objects of a prefix.
#[derive(Debug, PartialEq, Eq)]
struct Rule<'a> {
    id: &'a str,
    act: &'static str,
}

/// The rules that delete or move current objects below a prefix.
fn rules<'a>(text: &'a str, prefix: &str) -> Vec<Rule<'a>> {
    let mut found = Vec::new();
    for rule in text.split("<Rule>").skip(1) {
        let rule = rule.split("</Rule>").next().unwrap_or_default();
        let of = element(rule, "Prefix").unwrap_or_default();
        // Objects have no tags.
        let concerns =
            (of.starts_with(prefix) || prefix.starts_with(of)) && !rule.contains("<Tag>");
        let act = if element(rule, "Transition").is_some() {
            "move"
        } else if element(rule, "Expiration").is_some_and(|it| !it.contains("DeleteMarker")) {
            "delete"
        } else {
            continue;
        };
        if concerns && element(rule, "Status") == Some("Enabled") {
            found.push(Rule { id: element(rule, "ID").unwrap_or("without a name"), act });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Rule, rules};

    fn rule(inner: &str) -> String {
        format!(
            "<LifecycleConfiguration><Rule><ID>mine</ID>{inner}</Rule></LifecycleConfiguration>"
        )
    }

    #[test]
    fn rules_on_objects_of_the_prefix_are_found() {
        let delete = Rule { id: "mine", act: "delete" };
        let expire = "<Expiration><Days>30</Days></Expiration>";
        for filter in [
            "<Prefix></Prefix>",
            "<Filter><Prefix>vol</Prefix></Filter>",
            "<Filter/>",
            "<Filter><Prefix>vol/a/log/</Prefix></Filter>",
        ] {
            let text = rule(&format!("<Status>Enabled</Status>{filter}{expire}"));
            assert_eq!(rules(&text, "vol/a/"), [Rule { ..delete }], "{filter}");
        }
        let text = rule("<Status>Enabled</Status><Transition><Days>3</Days></Transition>");
        assert_eq!(rules(&text, "vol/a/"), [Rule { id: "mine", act: "move" }]);
    }

    #[test]
    fn other_rules_are_harmless() {
        let expire = "<Expiration><Days>30</Days></Expiration>";
        for inner in [
            format!("<Status>Disabled</Status><Prefix></Prefix>{expire}"),
            format!("<Status>Enabled</Status><Prefix>vol/b/</Prefix>{expire}"),
            format!("<Status>Enabled</Status><Filter><Tag><Key>a</Key></Tag></Filter>{expire}"),
            "<Status>Enabled</Status><AbortIncompleteMultipartUpload/>".to_owned(),
            "<Status>Enabled</Status><NoncurrentVersionExpiration><NoncurrentDays>1\
             </NoncurrentDays></NoncurrentVersionExpiration>"
                .to_owned(),
            "<Status>Enabled</Status><Expiration><ExpiredObjectDeleteMarker>true\
             </ExpiredObjectDeleteMarker></Expiration>"
                .to_owned(),
        ] {
            assert_eq!(rules(&rule(&inner), "vol/a/"), [], "{inner}");
        }
        assert_eq!(rules("", "vol/a/"), []);
    }
}
