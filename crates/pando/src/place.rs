//! PATH arguments: a path below a mount, or `VOLDIR:/inner/path`, where VOLDIR may be the URL of a
//! volume in an object store. Failures that the daemon reports
//! about a path inside the volume are reported about the path that the user typed.
//!
//! Each verb decides by [`Last`] whether a symbolic link at the end of its path is the subject or
//! is followed. `place/link.rs` walks a path below a mount, once; the daemon walks `VOLDIR:/path`.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use format::volume::{COPY, FILE, UNFINISHED};
use wire::{Failure, FailureKind};

use crate::failure::{self, Result};
use crate::far;
use crate::host;
use crate::mounts;
use crate::session::Target;

mod link;

use link::Signs;
pub(crate) use link::{Last, is_dangling};

/// The location that a PATH argument names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumePath {
    /// The volume directory, absolute; of a volume in an object store, this host's directory.
    pub(crate) volume: PathBuf,
    /// The path inside the volume, from its root.
    pub(crate) inner: Vec<u8>,
    /// The argument.
    typed: PathBuf,
    /// The directory that is the root of the mount that the argument goes through; the volume's
    /// root if there is none. What is not below it cannot be typed that way.
    top: Vec<u8>,
}

impl Target for VolumePath {
    fn volume(&self) -> &Path {
        &self.volume
    }

    /// Rewrites a failure about this place, or a path above or below it, to the path as the user
    /// types it.
    fn with_typed_path(&self, failure: Failure) -> Failure {
        match self.as_typed(&failure.path.0) {
            Some(path) => failure.at(&path),
            None => failure,
        }
    }
}

/// Two places in one volume.
impl Target for [&VolumePath; 2] {
    fn volume(&self) -> &Path {
        &self[0].volume
    }

    /// By the place that is nearer. Both may be above or below: the first may be the root.
    fn with_typed_path(&self, failure: Failure) -> Failure {
        let path = &failure.path.0[..];
        let shared = |place: &&VolumePath| {
            names(&place.inner).iter().zip(&names(path)).take_while(|(own, of)| own == of).count()
        };
        let [one, other] = *self;
        let by_distance = if shared(&other) > shared(&one) { [other, one] } else { [one, other] };
        match by_distance.iter().find_map(|place| place.as_typed(path)) {
            Some(path) => failure.at(&path),
            None => failure,
        }
    }
}

impl VolumePath {
    /// A place that an argument names without a mount.
    fn new(volume: PathBuf, inner: Vec<u8>, typed: PathBuf) -> VolumePath {
        VolumePath { volume, inner, typed, top: Vec::new() }
    }

    /// Resolves an argument for a verb that changes the place: refuses a path through a read-only
    /// mount.
    pub(crate) fn to_change(argument: &Path, last: Last) -> Result<VolumePath> {
        if let Some(place) = VolumePath::spelled(argument) {
            // A volume directory inside a mount is an ordinary directory there.
            return place;
        }
        let Some(found) = below_mount(argument, last, Signs::Plain)? else {
            return Err(outside(argument).unwrap_or_else(|| nowhere(argument)));
        };
        found.check_changes(argument)?;
        Ok(found.place(argument))
    }

    /// Finds the volume that an argument names, for a verb that changes it.
    pub(crate) fn volume_to_change(argument: &Path) -> Result<PathBuf> {
        VolumePath::volume_by(argument, |argument| VolumePath::to_change(argument, Last::Target))
    }

    /// Resolves an argument.
    pub(crate) fn locate(argument: &Path, last: Last) -> Result<VolumePath> {
        VolumePath::located(argument, last, Signs::Plain)
    }

    fn located(argument: &Path, last: Last, signs: Signs) -> Result<VolumePath> {
        if let Some(place) = VolumePath::spelled(argument) {
            return place;
        }
        match below_mount(argument, last, signs)? {
            Some(found) => Ok(found.place(argument)),
            None => Err(nowhere(argument)),
        }
    }

    /// Resolves `VOLDIR:/path`, and the URL of a volume; `None` for any other argument.
    fn spelled(argument: &Path) -> Option<Result<VolumePath>> {
        let Some(far) = far::split(argument) else { return VolumePath::split(argument) };
        let typed = argument.to_owned();
        Some(far.map(|(volume, inner)| VolumePath::new(volume, inner, typed)))
    }

    /// Finds the volume that an argument names, for a verb that acts on the whole volume. A path in
    /// it would suggest that the verb is limited to that path.
    pub(crate) fn whole_volume(argument: &Path, verb: &str) -> Result<PathBuf> {
        refuse_path(argument, verb)?;
        VolumePath::volume(argument)
    }

    /// The argument.
    pub(crate) fn typed(&self) -> &[u8] {
        self.typed.as_os_str().as_bytes()
    }

    /// A path inside the volume in the style in which the user typed this place. What the daemon
    /// sends in place of a path that is unknown (nothing) or too long (`//...`) stays.
    pub(crate) fn shown(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() || path.starts_with(b"//") {
            return path.to_vec();
        }
        self.as_typed(path)
            .unwrap_or_else(|| [self.volume.as_os_str().as_bytes(), b":", path].concat())
    }

    /// The same for a verb that only reads: `LINK@SNAPSHOT` is a snapshot of what LINK points to,
    /// and `MNT@SNAPSHOT` one of what is mounted there. The daemon finds the snapshot.
    pub(crate) fn reading(argument: &Path, last: Last) -> Result<VolumePath> {
        VolumePath::located(argument, last, Signs::Read)
    }

    /// Resolves `VOLDIR:/path`; `None` for any other argument.
    pub(crate) fn split(argument: &Path) -> Option<Result<VolumePath>> {
        let (volume, inner) = split(argument)?;
        let typed = argument.to_owned();
        Some(directory_of(&volume).map(|volume| VolumePath::new(volume, inner, typed)))
    }

    /// A path inside the volume in the style in which the user typed this place; `None` if that is
    /// not known.
    fn as_typed(&self, path: &[u8]) -> Option<Vec<u8>> {
        let rest = path.strip_prefix(b"/")?;
        if far::is_url(self.typed.as_os_str()) {
            return Some([self.volume.as_os_str().as_bytes(), b"/", rest].concat());
        }
        if let Some((volume, _)) = split(&self.typed) {
            let rest = rest.strip_suffix(b"/").unwrap_or(rest);
            return Some([volume.as_os_str().as_bytes(), b":/", rest].concat());
        }
        let (own, other, top) = (names(&self.inner), names(rest), names(&self.top));
        other.strip_prefix(&top[..])?;
        if let Some(below) = other.strip_prefix(&own[..]) {
            let below = below.iter().map(|name| OsStr::from_bytes(name));
            let path: PathBuf = [self.typed.as_os_str()].into_iter().chain(below).collect();
            return Some(path.into_os_string().into_vec());
        }
        let behind = own.strip_prefix(&other[..])?;
        let mut above = self.typed.as_path();
        for name in behind.iter().rev() {
            if above.file_name()?.as_bytes() != *name {
                return None;
            }
            above = above.parent()?;
        }
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        Some(above.as_os_str().as_bytes().to_vec())
    }

    /// Finds the volume that an argument names: its directory, or anything inside.
    pub(crate) fn volume(argument: &Path) -> Result<PathBuf> {
        VolumePath::volume_by(argument, |argument| VolumePath::locate(argument, Last::Target))
    }

    /// The same for a verb that lists paths of the whole volume: its [`VolumePath::shown`] prints
    /// them as the user would type them after that argument.
    pub(crate) fn all_of_volume(argument: &Path) -> Result<VolumePath> {
        let volume = VolumePath::volume(argument)?;
        if !is_volume(argument) {
            return VolumePath::locate(argument, Last::Target);
        }
        let typed = [argument.as_os_str().as_bytes(), b":/"].concat();
        Ok(VolumePath::new(volume, b"/".to_vec(), OsString::from_vec(typed).into()))
    }

    fn volume_by(argument: &Path, locate: impl Fn(&Path) -> Result<VolumePath>) -> Result<PathBuf> {
        if far::is_url(argument.as_os_str()) {
            return Ok(locate(argument)?.volume);
        }
        if is_volume(argument) {
            return absolute(argument);
        }
        match locate(argument) {
            Ok(place) => Ok(place.volume),
            Err(failure) if host::url(argument).is_some() => Err(failure),
            Err(failure)
                if matches!(failure.kind, FailureKind::Permission | FailureKind::ReadOnly) =>
            {
                Err(failure)
            }
            Err(_) if argument.is_dir() => Err(not_a_volume(argument)),
            // No colon: a path where the user expected a volume.
            Err(_) if !argument.as_os_str().as_bytes().contains(&b':') && is_absent(argument) => {
                Err(no_volume(argument))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// The names that a path consists of.
fn names(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect()
}

/// Refuses `VOLDIR:/path`, unless the path is the root, for a verb that takes a volume.
pub(crate) fn refuse_path(argument: &Path, verb: &str) -> Result<()> {
    let far = far::split(argument).transpose()?;
    match far.or_else(|| split(argument)) {
        Some((volume, inner)) if inner.iter().any(|&byte| byte != b'/') => {
            let message = format!("`{verb}` needs the directory of a volume, not a path in it");
            let failure = Failure::new(FailureKind::Invalid, message);
            Err(failure
                .hint(format!("name {}", volume.display()))
                .at(argument.as_os_str().as_bytes()))
        }
        _ => Ok(()),
    }
}

/// Two arguments that must be in one volume.
pub(crate) fn both(one: VolumePath, other: VolumePath) -> Result<(VolumePath, VolumePath)> {
    if one.volume == other.volume {
        Ok((one, other))
    } else {
        let message = format!(
            "the two paths are in different volumes, {} and {}",
            one.volume.display(),
            other.volume.display()
        );
        Err(Failure::new(FailureKind::Invalid, message).hint(
            "to copy between volumes, mount the first and let `pando import` read the directory \
             there",
        ))
    }
}

/// Whether a directory contains a volume, or one that lost its header; not a volume whose creation
/// was never finished.
pub(crate) fn is_volume(directory: &Path) -> bool {
    let there = |name| directory.join(name).symlink_metadata().is_ok();
    there(FILE) || there(COPY) && !there(UNFINISHED)
}

/// Splits at the first colon that follows the path or the URL of a volume. A URL without a path is
/// the root of its volume.
fn split(argument: &Path) -> Option<(PathBuf, Vec<u8>)> {
    if far::is_url(argument.as_os_str()) {
        return None;
    }
    if let Some((url, inner)) = host::url(argument) {
        return Some((PathBuf::from(url), inner));
    }
    let bytes = argument.as_os_str().as_bytes();
    let colons = bytes.iter().enumerate().filter(|&(_, byte)| *byte == b':');
    for (at, _) in colons {
        let volume = Path::new(OsStr::from_bytes(&bytes[..at]));
        if at > 0 && is_volume(volume) {
            let mut inner = bytes[at + 1..].to_vec();
            if inner.first() != Some(&b'/') {
                inner.insert(0, b'/');
            }
            return Some((volume.to_owned(), inner));
        }
    }
    None
}

/// A place below a mount.
struct Found {
    mount: fuse::MountInfo,
    /// What is mounted, in the volume: its root, or a directory (`subdir`, a bind mount).
    top: Vec<u8>,
    /// What follows its path: the sign and the name of a snapshot, and the path in it.
    snapshot: Vec<u8>,
}

impl Found {
    fn place(self, argument: &Path) -> VolumePath {
        let volume = self.mount.volume_dir;
        // If it no longer exists, opening it reports that.
        let volume = std::fs::canonicalize(&volume).unwrap_or(volume);
        let mut inner = self.mount.inner_path.into_os_string().into_vec();
        inner.extend_from_slice(&self.snapshot);
        VolumePath { volume, inner, typed: argument.to_owned(), top: self.top }
    }

    /// Refuses a read-only mount: the daemon would make the changes anyway, as it does for others.
    fn check_changes(&self, argument: &Path) -> Result<()> {
        if !self.mount.read_only {
            return Ok(());
        }
        let message = format!("{} is mounted read-only", self.mount.mount_point.display());
        let failure = Failure::new(FailureKind::ReadOnly, message)
            .hint("mount it without `ro`; or, where that came later, `mount -o remount,rw`");
        Err(failure.at(argument.as_os_str().as_bytes()))
    }
}

/// The mount that an argument points into, with the place in it.
fn below_mount(argument: &Path, last: Last, signs: Signs) -> Result<Option<Found>> {
    if argument.as_os_str().is_empty() {
        return Ok(None);
    }
    let walked = link::walk(argument, last, signs)?;
    match (mounts::at(&walked.path)?, walked.link) {
        (Some(mount), _) => {
            let below = walked.path.strip_prefix(&mount.mount_point);
            let below = below.map_or(0, |below| below.components().count());
            let top = mount.inner_path.ancestors().nth(below).unwrap_or(Path::new("/"));
            let top = top.as_os_str().as_bytes().to_vec();
            Ok(Some(Found { mount, top, snapshot: walked.snapshot }))
        }
        (None, Some(link)) if mounts::at(&link)?.is_some() => Err(link::leads_out(argument, &link)),
        (None, _) => Ok(None),
    }
}

/// The directory of a volume that an argument names by its directory or its URL.
fn directory_of(volume: &Path) -> Result<PathBuf> {
    match host::url(volume) {
        Some((url, _)) => host::directory(url),
        None => absolute(volume),
    }
}

fn absolute(volume: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(volume).map_err(|error| failure::io("open", volume, &error))
}

fn is_absent(argument: &Path) -> bool {
    argument.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Why a path that does not exist yet has no place: its directory is in no volume. `None` for
/// `VOLDIR:/path`, and for what the caller may not look at.
fn outside(argument: &Path) -> Option<Failure> {
    if argument.as_os_str().as_bytes().contains(&b':') || !is_absent(argument) {
        return None;
    }
    let absolute = std::path::absolute(argument).ok()?;
    let above = absolute.ancestors().skip(1).find(|above| !is_absent(above))?;
    let message = format!("{} is not in a mounted volume", above.display());
    let failure = Failure::new(FailureKind::NotFound, message).hint(elsewhere(argument));
    Some(failure.at(argument.as_os_str().as_bytes()))
}

fn no_volume(argument: &Path) -> Failure {
    let argument = argument.display();
    Failure::new(FailureKind::NotFound, format!("there is no volume at {argument}"))
        .hint(format!("`pando format {argument}` makes one"))
}

/// Why it is unknown what is there, if the caller may not look.
fn closed(path: &Path) -> Option<Failure> {
    let error = path.symlink_metadata().err()?;
    (error.kind() == ErrorKind::PermissionDenied).then(|| {
        failure::io("look at", path, &error)
            .hint("search permission is needed on each directory of the path")
    })
}

fn not_a_volume(directory: &Path) -> Failure {
    if let Some(failure) = closed(&directory.join(FILE)) {
        return failure;
    }
    if fs::has_trees(directory) {
        let message = format!("{} is missing from the volume", directory.join(FILE).display());
        return Failure::new(FailureKind::Damaged, message).hint("restore the file from a backup");
    }
    let message = format!("{} is not a volume: it contains no {FILE}", directory.display());
    Failure::new(FailureKind::NotVolume, message).hint("`pando format` makes a volume")
}

fn nowhere(argument: &Path) -> Failure {
    let bytes = argument.as_os_str().as_bytes();
    if let Some(at) = bytes.iter().position(|&byte| byte == b':') {
        let volume = Path::new(OsStr::from_bytes(&bytes[..at]));
        if volume.is_dir() {
            return not_a_volume(volume);
        }
        if let Some(failure) = closed(volume) {
            return failure;
        }
        let message = format!("there is no directory {}", volume.display());
        let failure = Failure::new(FailureKind::NotFound, message);
        return failure.hint("the part before `:/` must be the directory of a volume");
    }
    if let Some(failure) = closed(argument) {
        return failure;
    }
    if is_absent(argument) {
        let message = format!("there is no {}", argument.display());
        return Failure::new(FailureKind::NotFound, message).hint(elsewhere(argument));
    }
    let message = format!("{} is not below a mounted volume", argument.display());
    Failure::new(FailureKind::NotFound, message).hint(elsewhere(argument))
}

/// A hint for a path that is below no mount: a path through a volume's directory was probably
/// meant to be inside that volume.
fn elsewhere(argument: &Path) -> String {
    if argument.is_symlink() && fuse::find_mount(argument).is_some() {
        return format!("it is a link: name {}/ for what it points to", argument.display());
    }
    match argument.ancestors().find(|above| is_volume(above)) {
        Some(volume) if !volume.as_os_str().is_empty() => {
            let inner = argument.strip_prefix(volume).unwrap_or(Path::new(""));
            // Strips trailing slashes.
            let volume: PathBuf = volume.components().collect();
            let what = if inner.as_os_str().is_empty() { "the root of" } else { "that path in" };
            format!("for {what} this volume use {}:/{}", volume.display(), inner.display())
        }
        _ => "name VOLDIR:/path for a path in a volume that is not mounted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colon_after_a_volume_splits() {
        let temporary = tempfile::tempdir().unwrap();
        let volume = temporary.path().join("a:b");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(volume.join(FILE), b"").unwrap();
        let mut argument = volume.clone().into_os_string();
        argument.push(":/x:y/z");
        let place = VolumePath::locate(Path::new(&argument), Last::Target).unwrap();
        assert_eq!(place.inner, b"/x:y/z");
        assert_eq!(place.volume, volume.canonicalize().unwrap());
        assert_eq!(
            VolumePath::locate(&volume, Last::Target).unwrap_err().kind,
            FailureKind::NotFound
        );
        assert_eq!(VolumePath::volume(temporary.path()).unwrap_err().kind, FailureKind::NotVolume);
        let typed = |path: &[u8]| {
            place.with_typed_path(Failure::new(FailureKind::Other, "").at(path)).path.0
        };
        assert_eq!(typed(b"/x:y"), [volume.as_os_str().as_bytes(), b":/x:y"].concat());
    }

    #[test]
    fn a_volume_without_its_header_is_no_other_directory() {
        for engine in fs::Engine::ALL {
            let temporary = tempfile::tempdir().unwrap();
            std::fs::create_dir(temporary.path().join(engine.name())).unwrap();
            assert_eq!(not_a_volume(temporary.path()).kind, FailureKind::NotVolume);
            std::fs::create_dir(temporary.path().join(fs::LOG_DIRECTORY)).unwrap();
            assert_eq!(not_a_volume(temporary.path()).kind, FailureKind::Damaged, "{engine:?}");
        }
    }

    #[test]
    fn failures_name_the_typed_path() {
        let place = |typed: &str, inner: &[u8]| VolumePath {
            volume: PathBuf::from("/v"),
            inner: inner.to_vec(),
            typed: PathBuf::from(typed),
            top: Vec::new(),
        };
        let typed = |place: &VolumePath, path: &str| {
            let failure =
                place.with_typed_path(Failure::new(FailureKind::Other, "").at(path.as_bytes()));
            String::from_utf8(failure.path.0).unwrap()
        };
        let one = place("mnt/./a//b", b"/a/b");
        assert_eq!(typed(&one, "/a/b"), "mnt/./a//b");
        assert_eq!(typed(&one, "/a/b/c/d"), "mnt/./a//b/c/d");
        assert_eq!(typed(&one, "/a/"), "mnt/./a");
        assert_eq!(typed(&one, "/"), "mnt");
        assert_eq!(typed(&one, "/other"), "/other");
        assert_eq!(typed(&one, "name"), "name");
        assert_eq!(typed(&place("b", b"/a/b"), "/a"), ".");
        // The path passes through a link: the directories above are not the ones in the typed
        // path.
        let other = place("mnt/link", b"/a/b");
        assert_eq!((typed(&other, "/a/b"), typed(&other, "/a")), ("mnt/link".into(), "/a".into()));
        // Of two places the nearer one: the first is the root.
        let (root, below) = (place(".", b"/"), place("no/such/c", b"/no/such/c"));
        let typed_of_two = |path: &str| {
            let failure = Failure::new(FailureKind::Other, "").at(path.as_bytes());
            String::from_utf8([&root, &below].with_typed_path(failure).path.0).unwrap()
        };
        assert_eq!(
            (typed_of_two("/no/such"), typed_of_two("/no")),
            ("no/such".into(), "no".into())
        );
        assert_eq!((typed_of_two("/x"), typed_of_two("/")), ("./x".into(), ".".into()));
        // A mount of `/a/b`, on a directory that is called so, too.
        let mut mounted = place("/x/a/b/c", b"/a/b/c");
        mounted.top = b"/a/b".to_vec();
        assert_eq!(typed(&mounted, "/a/b/d"), "/a/b/d");
        for (path, shown) in [("/a/b/c/e", "/x/a/b/c/e"), ("/a/b", "/x/a/b"), ("/a", "/a")] {
            assert_eq!(typed(&mounted, path), shown);
        }
        assert_eq!(mounted.shown(b"/a"), b"/v:/a");
    }
}
