//! `mount.pando VOLDIR MNT -o options`: how mount(8) calls this program for a line of fstab. The
//! arguments are rewritten to `pando mount`. So are `pando VOLDIR MNT -o options`, which is how
//! `mount.fuse` calls it for the type `fuse.pando` that the mount table shows
//! (`mount -o remount`).

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names under which mount(8) calls a helper.
const NAMES: [&str; 2] = ["mount.pando", "mount.fuse.pando"];

/// Converts the arguments of a mount helper to those of `pando mount`; other arguments are
/// unchanged.
pub(crate) fn rewrite(arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().and_then(|name| Path::new(name).file_name());
    let helper = name.is_some_and(|name| NAMES.iter().any(|known| name == *known));
    // No verb begins with a slash, or is a URL.
    let is_place =
        |first: &OsString| first.as_encoded_bytes().starts_with(b"/") || crate::far::is_url(first);
    let place = arguments.get(1).is_some_and(is_place);
    if helper || place { convert(&arguments) } else { arguments }
}

fn convert(arguments: &[OsString]) -> Vec<OsString> {
    let mut converted: Vec<OsString> = vec!["pando".into(), "mount".into(), "--quiet".into()];
    let mut places = Vec::new();
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            // Nothing to do: these concern /etc/mtab and messages.
            Some("-f" | "-n" | "-v" | "-s") => {}
            // The type and a name space, neither of which applies here.
            Some("-t" | "-N") => drop(rest.next()),
            Some("-r") => converted.extend(["-o".into(), "ro".into()]),
            Some("-w") => converted.extend(["-o".into(), "rw".into()]),
            Some("-o") => {
                let ours = rest.next().map(|list| ours(list)).unwrap_or_default();
                if !ours.is_empty() {
                    converted.extend(["-o".into(), ours]);
                }
            }
            _ => places.push(argument.clone()),
        }
    }
    converted.push("--".into());
    converted.extend(places);
    converted
}

fn ours(list: &OsStr) -> OsString {
    let text = list.to_string_lossy();
    let kept: Vec<&str> =
        text.split(',').filter(|option| !fuse::is_for_mount_program(option)).collect();
    kept.join(",").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_call_of_mount_becomes_ours() {
        let called = words(&["/sbin/mount.pando", "/v", "/m", "-o", "rw,nofail,noatime", "-n"]);
        let expected = words(&["pando", "mount", "--quiet", "-o", "rw,noatime", "--", "/v", "/m"]);
        assert_eq!(rewrite(called), expected);
        let by_fuse = words(&["pando", "/v", "/m", "-o", "rw,remount,ro"]);
        let expected =
            words(&["pando", "mount", "--quiet", "-o", "rw,remount,ro", "--", "/v", "/m"]);
        assert_eq!(rewrite(by_fuse), expected);
        let own = words(&["pando", "mount", "-f", "/v", "/m"]);
        assert_eq!(rewrite(own.clone()), own);
    }
}
