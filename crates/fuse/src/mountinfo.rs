//! Parses `/proc/self/mountinfo`: finds our mount that contains a path, and where a volume is
//! mounted.
//!
//! It follows a path as the kernel does, from the root mount down. It goes through the mount on the
//! shortest prefix, then through the mounts on top of it. Comparing prefixes alone would mistake a
//! mount hidden below another for the visible one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::source;

/// The type that `mount` shows for our mounts.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.pando";

/// A mounted volume, and a place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    /// The volume's directory.
    pub volume_dir: PathBuf,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// The place, as a path from the volume's root: begins with `/`, `subdir` included.
    pub inner_path: PathBuf,
    /// The directory of the volume that is the root of this mount, if it is not the volume's root.
    pub subdir: Option<PathBuf>,
    /// Whether this mount is read-only (`mount -o ro`, or a later remount).
    pub read_only: bool,
    /// Major and minor number of the mount, as in `0:53`.
    pub device: String,
    /// The mounting user, as the kernel reports it. Everything else in the source was supplied by
    /// this user, who may have named any volume.
    pub user: Option<u32>,
    /// Whether other users than that one may use the mount (`allow_other`).
    pub others: bool,
}

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    id: u64,
    parent: u64,
    /// Major and minor number, as in `0:53`.
    pub(crate) device: String,
    root: PathBuf,
    pub(crate) mount_point: PathBuf,
    pub(crate) kind: String,
    pub(crate) source: Vec<u8>,
    read_only: bool,
    user: Option<u32>,
    others: bool,
}

/// Our mount that contains a path, or `None`. The path need not exist, and its mount may be dead.
pub fn find_mount(path: &Path) -> Option<MountInfo> {
    mount_at(&resolve(path)?)
}

/// The same of a path that is absolute and free of symbolic links: none is followed.
pub fn mount_at(path: &Path) -> Option<MountInfo> {
    let records = read();
    let record = covering(&records, path)?;
    (record.kind == FILE_SYSTEM_TYPE).then(|| info(record, path))
}

/// Where a volume is mounted.
pub fn mounts_of(volume_dir: &Path) -> Vec<MountInfo> {
    records_of(volume_dir).map(|record| info(&record, &record.mount_point)).collect()
}

/// Where a mount with this device is, in this mount namespace.
pub(crate) fn place_of(device: &str) -> Option<PathBuf> {
    read().into_iter().find(|record| record.device == device).map(|record| record.mount_point)
}

/// Other mounts below a mount with this device: the place in the volume, and the visible path.
pub(crate) fn mounted_below(device: &str) -> Vec<(PathBuf, PathBuf)> {
    below(&read(), device)
}

fn below(records: &[Record], device: &str) -> Vec<(PathBuf, PathBuf)> {
    let place = |record: &Record| {
        let above = records.iter().find(|above| above.id == record.parent)?;
        // It covers the whole mount: no name of ours points there.
        let inside = above.device == device && above.mount_point != record.mount_point;
        let inner = info(above, &record.mount_point).inner_path;
        inside.then(|| (inner, record.mount_point.clone()))
    };
    records.iter().filter_map(place).collect()
}

/// Mounts inside a mount, as far as we see them: they keep it busy.
pub fn mounted_in(mount_point: &Path) -> Vec<PathBuf> {
    let Some(place) = resolve(mount_point) else { return Vec::new() };
    let records = read();
    let Some(of) = covering(&records, &place) else { return Vec::new() };
    let inside = records.iter().filter(|record| record.parent == of.id && record.id != of.id);
    inside.map(|record| record.mount_point.clone()).collect()
}

/// Whether anything in a process's list of mapped memory is a file below a place. A line is
/// `ADDRESSES RIGHTS OFFSET DEVICE INODE PATH`, with blanks before the path.
fn maps(list: &[u8], place: &Path) -> bool {
    list.split(|byte| *byte == b'\n').any(|line| {
        let start = line.iter().position(|byte| *byte == b'/');
        start.is_some_and(|start| path(&unescape(&line[start..])).starts_with(place))
    })
}

/// Processes that work in a mount or have files of it open or mapped, as far as this process may
/// see them. Returns numbers and names, at most `most`.
pub fn users_of(mount_point: &Path, most: usize) -> Vec<(u32, String)> {
    let Some(place) = resolve(mount_point) else { return Vec::new() };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let uses = |pid: &u32| {
        let of = PathBuf::from(format!("/proc/{pid}"));
        let open = std::fs::read_dir(of.join("fd")).into_iter().flatten().flatten();
        let links = ["cwd", "root", "exe"].map(|name| of.join(name));
        let mut links = links.into_iter().chain(open.map(|entry| entry.path()));
        links.any(|link| std::fs::read_link(link).is_ok_and(|path| path.starts_with(&place)))
            || std::fs::read(of.join("maps")).is_ok_and(|list| maps(&list, &place))
    };
    let named = |pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (pid, name.trim_end().to_owned())
    };
    numbers.filter(uses).take(most).map(named).collect()
}

/// A mount of a volume in another mount namespace, and a process in that namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Where it is mounted there.
    pub mount_point: PathBuf,
    /// Major and minor number of the mount, the same in all namespaces.
    pub device: String,
    /// The process, by its number here.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// Where a volume is mounted in other mount namespaces than ours, as far as we may look. A
/// container that was started while the volume was mounted has the mount until its last process
/// ends.
pub fn copies_of(volume_dir: &Path) -> Vec<Copy> {
    let volume_dir = std::fs::canonicalize(volume_dir).unwrap_or_else(|_| volume_dir.to_owned());
    copies(|record| is_of(record, &volume_dir))
}

/// The same of mounts with any source on this mount point, of which `is_served` is asked by their
/// device.
pub fn copies_on(mount_point: &Path, mut is_served: impl FnMut(&str) -> bool) -> Vec<Copy> {
    copies(|record| {
        let is_there = record.kind == FILE_SYSTEM_TYPE && record.mount_point == mount_point;
        is_there && is_served(&record.device)
    })
}

fn copies(mut is_one: impl FnMut(&Record) -> bool) -> Vec<Copy> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut seen: BTreeSet<PathBuf> = namespace("self").into_iter().collect();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name();
        let Some(pid) = pid.to_str().filter(|pid| pid.parse::<u32>().is_ok()) else { continue };
        // One process of each namespace is enough.
        if !namespace(pid).is_some_and(|namespace| seen.insert(namespace)) {
            continue;
        }
        let table = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let ours = parse(&table).into_iter().filter(|record| is_one(record));
        found.extend(ours.map(|record| Copy {
            mount_point: record.mount_point,
            device: record.device,
            pid: pid.parse().unwrap_or_default(),
            name: name.trim_end().to_owned(),
        }));
    }
    found
}

fn is_of(record: &Record, volume_dir: &Path) -> bool {
    record.kind == FILE_SYSTEM_TYPE && source::decode(&record.source).0 == volume_dir
}

fn records_of(volume_dir: &Path) -> impl Iterator<Item = Record> {
    let volume_dir = std::fs::canonicalize(volume_dir).unwrap_or_else(|_| volume_dir.to_owned());
    read().into_iter().filter(move |record| is_of(record, &volume_dir))
}

/// The mount that is visible at a mount point, if it is one.
pub(crate) fn on_top(mount_point: &Path) -> Option<Record> {
    let records = read();
    covering(&records, mount_point).filter(|record| record.mount_point == mount_point).cloned()
}

/// Makes a path absolute and free of symbolic links, as far as it can be followed. A part that does
/// not exist, or is in a dead mount, is used as written.
pub(crate) fn resolve(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).ok()?;
    let mut missing = Vec::new();
    let mut present = absolute.as_path();
    loop {
        if let Ok(mut resolved) = std::fs::canonicalize(present) {
            resolved.extend(missing.iter().rev());
            return Some(resolved);
        }
        match present.components().next_back()? {
            Component::Normal(name) => missing.push(name.to_owned()),
            _ => return None,
        }
        present = present.parent()?;
    }
}

fn read() -> Vec<Record> {
    match std::fs::read("/proc/self/mountinfo") {
        Ok(text) => parse(&text),
        Err(error) => {
            tracing::warn!(%error, "/proc/self/mountinfo cannot be read");
            Vec::new()
        }
    }
}

fn parse(text: &[u8]) -> Vec<Record> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `ID PARENT MAJOR:MINOR ROOT MOUNT-POINT OPTIONS [TAG...] - TYPE SOURCE OPTIONS`
fn parse_line(line: &[u8]) -> Option<Record> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let root = path(&unescape(fields.next()?));
    let mount_point = path(&unescape(fields.next()?));
    let options = fields.next()?;
    if options != b"-" {
        fields.find(|field| *field == b"-")?;
    }
    let kind = String::from_utf8(unescape(fields.next()?)).ok()?;
    let source = unescape(fields.next()?);
    // A bind mount may be read-only by itself, or the file system is.
    let of_super = fields.next().unwrap_or_default();
    let read_only = has(options, b"ro") || has(of_super, b"ro");
    let others = has(of_super, b"allow_other");
    let mut of_super = of_super.split(|byte| *byte == b',');
    let user = of_super.find_map(|option| number(option.strip_prefix(b"user_id=")?));
    let user = user.and_then(|user| user.try_into().ok());
    Some(Record { id, parent, device, root, mount_point, kind, source, read_only, user, others })
}

fn has(options: &[u8], wanted: &[u8]) -> bool {
    options.split(|byte| *byte == b',').any(|option| option == wanted)
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Space, tab, newline and backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| (b'0'..=b'7').contains(byte).then(|| byte - b'0');
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if let (b'\\', [a, b, c, after @ ..]) = (byte, after)
            && let (Some(a @ 0..=3), Some(b), Some(c)) = (digit(a), digit(b), digit(c))
        {
            plain.push(a << 6 | b << 3 | c);
            rest = after;
        } else {
            plain.push(*byte);
        }
    }
    plain
}

/// The mount in which a walk along an absolute path ends.
fn covering<'a>(records: &'a [Record], path: &Path) -> Option<&'a Record> {
    let candidates = || records.iter().filter(|record| path.starts_with(&record.mount_point));
    let is_first = |record: &&Record| !records.iter().any(|other| other.id == record.parent);
    let shortest = |record: &&Record| record.mount_point.as_os_str().len();
    let mut current = candidates().filter(is_first).min_by_key(shortest)?;
    // Every step moves to a mount on top of the previous one, so there are no more steps than
    // lines.
    for _ in records {
        let next = candidates()
            .filter(|record| record.parent == current.id && record.id != current.id)
            .min_by_key(shortest);
        match next {
            Some(record) => current = record,
            None => break,
        }
    }
    Some(current)
}

fn info(record: &Record, path: &Path) -> MountInfo {
    let (volume_dir, subdir) = source::decode(&record.source);
    let mut inner_path = PathBuf::from("/");
    inner_path.extend(subdir.as_deref());
    // A bind mount of a directory of ours has that directory as its root.
    inner_path.extend(record.root.strip_prefix("/").ok());
    inner_path.extend(path.strip_prefix(&record.mount_point).ok());
    let (mount_point, device) = (record.mount_point.clone(), record.device.clone());
    let (read_only, user, others) = (record.read_only, record.user, record.others);
    MountInfo { volume_dir, mount_point, inner_path, subdir, read_only, device, user, others }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

impl Record {
    /// The source in readable form.
    pub(crate) fn source_name(&self) -> String {
        std::ffi::OsStr::from_bytes(&self.source).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = br"21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:40 / /mnt/a\040b rw - fuse.pando /srv/vol\040one rw,user_id=0
31 21 0:41 / /mnt/sub rw,nosuid shared:7 master:2 - fuse.pando /srv/v:/home/x%3Ay rw
32 21 0:40 /deep /bind rw - fuse.pando /srv/vol\040one rw
33 21 0:50 / /hidden/vol rw - fuse.pando /srv/h rw
34 21 0:51 / /hidden rw - tmpfs tmpfs rw
35 30 0:52 / /mnt/a\040b rw - tmpfs over rw
40 31 0:60 / /mnt/sub/e/in rw - tmpfs tmpfs rw
39 32 0:61 / /bind/m rw - tmpfs tmpfs rw
36 21 0:53 / /mnt/ro ro,relatime - fuse.pando /srv/r rw,user_id=0
37 21 0:54 / /mnt/ro-too rw,relatime shared:3 - fuse.pando /srv/s ro,user_id=0
38 21 0:55 / /mnt/rot rw,nosuid - fuse.pando /srv/ro,ro rw,user_id=0
41 21 0:62 / /mnt/forged rw,nosuid - fuse.pando /srv/v,user_id=0 rw,user_id=1000,group_id=0
broken line
";

    #[test]
    fn a_read_only_mount_is_recognized() {
        let read_only = |path| found(path).expect("it is ours").read_only;
        assert!(read_only("/mnt/ro/x") && read_only("/mnt/ro-too"));
        assert!(!read_only("/mnt/sub/x") && !read_only("/bind") && !read_only("/mnt/rot"));
    }

    #[test]
    fn the_mounting_user_is_read_from_the_kernel_not_from_the_source() {
        let user = |path| found(path).expect("it is ours").user;
        assert_eq!((user("/mnt/ro/x"), user("/mnt/forged")), (Some(0), Some(1000)));
        assert_eq!(user("/mnt/sub"), None);
    }

    fn found(path: &str) -> Option<MountInfo> {
        let records = parse(TABLE);
        let record = covering(&records, Path::new(path))?;
        (record.kind == FILE_SYSTEM_TYPE).then(|| info(record, Path::new(path)))
    }

    #[test]
    fn a_subdir_mount_is_mapped_to_the_volume() {
        let info = found("/mnt/sub/c/d").unwrap();
        assert_eq!(info.volume_dir, Path::new("/srv/v"));
        assert_eq!(info.inner_path, Path::new("/home/x:y/c/d"));
        assert_eq!(info.subdir.as_deref(), Some(Path::new("home/x:y")));
        assert_eq!(found("/mnt/sub").unwrap().inner_path, Path::new("/home/x:y"));
        assert_eq!(found("/mnt/subway"), None);
    }

    #[test]
    fn a_bind_mount_is_mapped_to_the_volume() {
        let info = found("/bind/f").unwrap();
        assert_eq!(info.volume_dir, Path::new("/srv/vol one"));
        assert_eq!(info.inner_path, Path::new("/deep/f"));
    }

    #[test]
    fn a_mount_below_another_is_not_seen() {
        assert_eq!(found("/hidden/vol/f"), None, "a later mount on /hidden covers it");
        assert_eq!(found("/mnt/a b/f"), None, "a tmpfs is mounted on top");
        assert_eq!(found("/elsewhere"), None);
    }

    #[test]
    fn mounts_below_are_found_in_the_volume() {
        let found = |device| below(&parse(TABLE), device);
        let path = PathBuf::from;
        assert_eq!(found("0:41"), [(path("/home/x:y/e/in"), path("/mnt/sub/e/in"))]);
        // Also by a bind mount; and not what covers the whole mount.
        assert_eq!(found("0:40"), [(path("/deep/m"), path("/bind/m"))]);
        assert_eq!(found("0:53"), []);
    }

    #[test]
    fn only_escapes_are_decoded() {
        assert_eq!(unescape(br"a\040b\134c\011"), b"a b\\c\t");
        assert_eq!(unescape(br"\99\0"), br"\99\0");
        assert_eq!(unescape(br"\777"), br"\777");
    }

    #[test]
    fn a_path_that_does_not_exist_is_resolved_as_far_as_it_goes() {
        let resolved = resolve(Path::new("/proc/self/../no/such")).unwrap();
        assert_eq!(resolved, Path::new("/proc/no/such"));
    }
}
