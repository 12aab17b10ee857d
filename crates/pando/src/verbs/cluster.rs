//! `pando cluster certs`: an authority, and certificates of servers and clients.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use device::{Clock, SystemClock};
use rpc::certificates::{Authority, For, MakeError};
use rpc::{Grant, Ids, Users};
use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::{CertsArgs, ClusterVerb};
use crate::failure::{self, Result};
use crate::output::Output;

pub(crate) fn run(verb: &ClusterVerb, output: &mut Output) -> Result<()> {
    match verb {
        ClusterVerb::Certs(args) => certs(args, output),
    }
}

fn certs(args: &CertsArgs, output: &mut Output) -> Result<()> {
    let invalid =
        |message: String, hint: &str| Failure::new(FailureKind::Invalid, message).hint(hint);
    if args.server.is_empty() && args.client.is_none() {
        let message = "nothing to make".to_owned();
        return Err(invalid(message, "give --server NAME, --client NAME, or both"));
    }
    let client = match &args.client {
        None => None,
        Some(name) if rpc::is_volume_name(name) && !["ca", "server"].contains(&&name[..]) => {
            Some((name, grant(args)?))
        }
        Some(name) => {
            let message = format!("'{name}' cannot name a client: letters, digits, . _ -");
            return Err(invalid(message, "`ca` and `server` are other files' names"));
        }
    };
    if args.days == 0 || args.days > 3650 {
        return Err(invalid("--days is out of range".to_owned(), "give 1 to 3650 days"));
    }
    let made = std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .recursive(true)
        .create(&args.dir);
    made.map_err(|error| failure::io("create", &args.dir, &error))?;
    own_alone(&args.dir, true)?;
    own_alone(&args.dir.join("ca.pem"), true)?;
    own_alone(&args.dir.join("ca.key"), false)?;
    let authority = Authority::in_directory(&args.dir, SystemClock::new().now());
    let authority = authority.map_err(|error| failed(&error))?;
    if authority.is_new {
        print_made(output, "authority", "ca", &args.dir.join("ca.pem"), "ca.key stays here alone")?;
    }
    if !args.server.is_empty() {
        let made = authority.make("server", &For::Server(&args.server), args.days);
        let (certificate, _) = made.map_err(|error| failed(&error))?;
        print_made(output, "server", "server", &certificate, &args.server.join(", "))?;
    }
    if let Some((name, grant)) = client {
        let made = authority.make(name, &For::Client(&grant), args.days);
        let (certificate, _) = made.map_err(|error| failed(&error))?;
        print_made(output, "client", name, &certificate, &grant.to_uri())?;
        output.remark(&format!(
            "put ca.pem, {name}.pem as client.pem and {name}.key as client.key in \
             /etc/pando/certs of the client"
        ));
    }
    Ok(())
}

/// Refuses a directory or a file of the authority that another user could have put there, or could
/// change. Servers and clients trust what that authority signs. A key must not be readable either.
fn own_alone(path: &Path, others_may_read: bool) -> Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failure::io("look at", path, &error)),
    };
    let refused = |what: &str, hint: &str| {
        Err(Failure::new(FailureKind::Permission, what).at(path.as_os_str().as_bytes()).hint(hint))
    };
    if found.is_symlink() {
        return refused(
            "it is a symbolic link",
            "name the directory itself, with files of its own",
        );
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        let hint =
            "use a directory of your own: the owner of the authority can sign any certificate";
        return refused("it belongs to another user", hint);
    }
    let closed = if others_may_read { 0o022 } else { 0o077 };
    if found.mode() & closed != 0 {
        let hint = "if no other user can have been there, take their rights away with chmod go-rwx";
        return refused("other users have rights to it", hint);
    }
    Ok(())
}

fn print_made(
    output: &mut Output,
    kind: &str,
    name: &str,
    certificate: &Path,
    what: &str,
) -> Result<()> {
    let certificate = certificate.display().to_string();
    let object = json!({ "kind": kind, "name": name, "certificate": certificate, "for": what });
    output.object(&object)?;
    output.line(&format!("{certificate}: {kind}, {what}"))
}

fn failed(error: &MakeError) -> Failure {
    let kind = match error {
        MakeError::File { error, .. } => failure::io_kind(error),
        MakeError::Certificate(_) => FailureKind::Other,
    };
    let hint = match kind {
        FailureKind::Exists => "remove it, if it is to be replaced",
        _ => "check that the directory can be written and that ca.pem and ca.key belong together",
    };
    Failure::new(kind, error.to_string()).hint(hint)
}

fn grant(args: &CertsArgs) -> Result<Grant> {
    let wrong = |what: &str, text: &str, hint: &str| {
        let message = format!("{what} '{text}' is not understood");
        Failure::new(FailureKind::Invalid, message).hint(hint)
    };
    let ids = |what: &str, text: &str| -> Result<Ids> {
        if text == "all" {
            return Ok(Ids::All);
        }
        let ids: std::result::Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
        ids.map(Ids::Listed).map_err(|_| wrong(what, text, "expected `all` or 1000,1001"))
    };
    let users = if let Some(text) = &args.squash_to {
        let pair = text
            .split_once(':')
            .and_then(|(uid, gid)| Some((uid.parse::<u32>().ok()?, gid.parse::<u32>().ok()?)));
        let (uid, gid) = pair.ok_or_else(|| wrong("--squash-to", text, "expected UID:GID"))?;
        Users::One { uid, gid, groups: Vec::new() }
    } else {
        let gids = args.gids.as_ref().unwrap_or(&args.uids);
        Users::Asserted { uids: ids("--uids", &args.uids)?, gids: ids("--gids", gids)? }
    };
    if let Some(wrong) = args.volumes.iter().find(|name| !rpc::is_volume_name(name)) {
        let message = format!("'{wrong}' cannot name a volume");
        let hint = "names have letters, digits, '.', '_' and '-', and are those of `pando serve`";
        return Err(Failure::new(FailureKind::Invalid, message).hint(hint));
    }
    let (keeps_root, read_only) = (args.keep_root, args.read_only);
    Ok(Grant { users, keeps_root, read_only, volumes: args.volumes.clone() })
}
