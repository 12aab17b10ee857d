//! The two files of a volume's header: `volume.pando`, and `volume.copy` of the same bytes.
//!
//! A volume is opened by the first alone. If that is damaged and the copy is not, opening is
//! refused, and a repair rewrites it. A damaged copy does not prevent opening; a check reports it.
//! Invariants:
//!
//! 1. While a volume is created, its header is stored under another name. So a copy without a
//!    header is the remainder of a volume, unless that name exists, too.
//! 2. Neither file is overwritten: its replacement is complete and synced before it is renamed.
//! 3. If the two differ, or one is damaged, nothing is written before the store's own files have
//!    shown to which volume they belong. The whole one may have come from another volume.
//! 4. A newer version in either is refused, unless everything else but the checksum is as in the
//!    other file: then these fields are damaged.
//!
//! A volume in an object store has both headers as objects there. Each host has a directory of its
//! own for the volume, whose header has the store's URL. The volume is opened by the header in the
//! store, which must have the same id: the directory may be left from another volume.

use std::path::Path;

use device::{Blobs, Device, Env};
use format::Corruption;
use format::volume::{
    BYTES_MAX, COPY, EngineKind, FILE, HeaderError, Home, UNFINISHED, VERSION, VolumeHeader,
    differ_in_version_only,
};
use volume::{OpenError, VolumeId};

use crate::engine::{self, Engine, LOG_DIRECTORY};

/// What is at one of the two names.
struct HeaderFile {
    bytes: Vec<u8>,
    is: HeaderState,
}

/// Reads the bytes of an object; `None` if there is none.
type ReadObject<'r> = &'r mut dyn FnMut(&'static str) -> device::Result<Option<Vec<u8>>>;

enum HeaderState {
    Whole(VolumeHeader),
    Newer(u32),
    Damaged(Corruption),
    Missing,
}

/// What is wrong with one of the two files.
#[derive(Debug, Clone)]
pub struct HeaderFault {
    /// Which.
    pub file: &'static str,
    /// Where in it.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
    /// Whether it reads well, and contradicts the other file.
    pub contradicts: bool,
    /// Whether the other file has what belongs there.
    pub is_repairable: bool,
}

/// Both files.
pub struct Headers {
    main: HeaderFile,
    copy: HeaderFile,
}

/// Whether a directory holds a volume, or what is left of one.
pub fn is_volume(device: &dyn Device) -> device::Result<bool> {
    let there = |path| device.metadata(path).map(|found| found.is_some());
    Ok(there(FILE)? || there(COPY)? && !there(UNFINISHED)?)
}

/// Whether a directory of the host holds the trees and the log of a volume, which may have lost its
/// header.
pub fn has_trees(directory: &Path) -> bool {
    let is_there = |name: &str| directory.join(name).is_dir();
    is_there(LOG_DIRECTORY) && Engine::ALL.iter().any(|engine| is_there(engine.name()))
}

/// Reads the header by which a volume is opened.
pub fn read(device: &dyn Device) -> Result<VolumeHeader, OpenError> {
    Headers::read(device)?.opening()
}

/// Writes a file that is not read yet, and makes it durable. A file that an interrupted call left
/// is overwritten and never missing: it shows that there was one.
pub fn write_file(device: &dyn Device, path: &str, bytes: &[u8]) -> device::Result<()> {
    let file = match device.open(path) {
        Err(error) if error.is_not_found() => device.create(path)?,
        file => file?,
    };
    file.set_len(0)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    device.sync_dir("")
}

/// Creates the copy if there is none: the volume is older than copies. A damaged one stays for a
/// check to find. A volume on which the copy cannot be created is opened without.
pub fn keep_copy(device: &dyn Device, header: &VolumeHeader) {
    let kept = match read_file(device, COPY) {
        Ok(HeaderFile { is: HeaderState::Missing, .. }) => replace(device, COPY, &header.encode()),
        Ok(HeaderFile { bytes, .. }) => {
            if bytes != header.encode() {
                tracing::warn!("{COPY} is not what {FILE} is: `pando fsck --repair` repairs it");
            }
            return;
        }
        Err(error) => Err(error),
    };
    if let Err(error) = kept {
        tracing::warn!(%error, "{FILE} has no copy");
    }
}

/// Rewrites whichever file is wrong, in a volume directory that no process has open.
fn repair_files(device: &dyn Device) -> Result<(), OpenError> {
    let headers = Headers::read(device)?;
    let opening = headers.opening();
    let Some(right) = headers.right(device)? else {
        let why = "the two headers differ, and it is unknown which one is the volume's".to_owned();
        return Err(opening.err().unwrap_or(OpenError::Inconsistent(why.into())));
    };
    let bytes = right.encode();
    for (path, found) in headers.each() {
        if found.bytes != bytes {
            replace(device, path, &bytes)?;
        }
    }
    Ok(())
}

/// Stores bytes under a name, atomically.
fn replace(device: &dyn Device, path: &str, bytes: &[u8]) -> Result<(), OpenError> {
    let new = format!("{path}.repaired");
    write_file(device, &new, bytes)?;
    device.rename(&new, path)?;
    device.sync_dir("")?;
    Ok(())
}

/// Which volume a host directory is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDirectory {
    /// The volume.
    pub volume: [u8; 16],
    /// The URL of its object store.
    pub url: String,
}

/// Which volume a directory is a host directory of; `None` for any other volume.
pub fn host_directory(device: &dyn Device) -> Result<Option<HostDirectory>, OpenError> {
    let header = read(device)?;
    match header.home {
        Home::Host(url) => Ok(Some(HostDirectory { volume: header.volume_id, url })),
        Home::Directory | Home::Objects => Ok(None),
    }
}

/// Makes the files of a host directory for the volume in an object store, if the directory has
/// none.
pub fn make_host(device: &dyn Device, objects: &dyn Blobs, url: &str) -> Result<(), OpenError> {
    let found = read_header(objects)?;
    let header = VolumeHeader { home: Home::Host(url.to_owned()), ..found };
    let new = format!("{FILE}.host");
    write_file(device, &new, &header.encode())?;
    device.rename(&new, FILE)?;
    device.sync_dir("")?;
    Ok(())
}

/// Both headers: those in the object store, if the volume is in one.
pub fn headers(env: &Env) -> Result<Headers, OpenError> {
    match &env.objects {
        None => Headers::read(&*env.device),
        Some(objects) => headers_in(&*objects.store),
    }
}

fn headers_in(objects: &dyn Blobs) -> Result<Headers, OpenError> {
    Headers::of(&mut |path| read_object(objects, path))
}

/// The header of the volume of a host directory, by whichever object is whole, and what is wrong
/// with both.
pub fn examine(
    env: &Env,
    host: &VolumeHeader,
) -> Result<(Result<VolumeHeader, OpenError>, Vec<HeaderFault>), OpenError> {
    let headers = headers(env)?;
    let right = headers.of_volume(host.volume_id).cloned();
    let bad = headers.faults(right.as_ref());
    match (right, headers.opening()) {
        (_, Err(error @ OpenError::NewerFormat { .. })) => Err(error),
        (Some(right), _) => Ok((Ok(right), bad)),
        (None, Err(error)) => Ok((Err(error), bad)),
        (None, Ok(_)) => {
            Err(with_objects(env, host.clone()).err().unwrap_or(OpenError::NotAVolume))
        }
    }
}

/// Rewrites whichever header is wrong, in a volume that no process has open. In an object store a
/// header always has the same bytes, so a request that arrives late changes nothing.
pub fn repair(env: &Env) -> Result<(), OpenError> {
    let Some(objects) = &env.objects else { return repair_files(&*env.device) };
    let id = read(&*env.device)?.volume_id;
    let headers = headers(env)?;
    let Some(right) = headers.of_volume(id) else {
        return Err(headers.opening().err().unwrap_or(OpenError::NotAVolume));
    };
    for name in headers.unlike(right) {
        objects.store.delete(name)?;
        if !objects.store.create(name, &right.encode())? {
            let exists = std::io::ErrorKind::AlreadyExists.into();
            return Err(device::Error::new("rewrite", name, exists).into());
        }
    }
    Ok(())
}

/// Reads the header of the volume in an object store.
pub(crate) fn read_header(objects: &dyn Blobs) -> Result<VolumeHeader, OpenError> {
    let header = headers_in(objects)?.opening()?;
    match header.home {
        Home::Objects => Ok(header),
        Home::Directory | Home::Host(_) => Err(OpenError::NotObjects),
    }
}

/// The bytes of a small object; `None` if there is none.
fn read_object(objects: &dyn Blobs, name: &str) -> device::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; BYTES_MAX + 1];
    match objects.read_at(name, &mut bytes, 0) {
        Err(error) if error.is_not_found() => Ok(None),
        read => {
            bytes.truncate(read?);
            Ok(Some(bytes))
        }
    }
}

/// The header by which a volume is opened, for an environment that has what the header needs.
pub fn find(env: &Env) -> Result<VolumeHeader, OpenError> {
    with_objects(env, read(&*env.device)?)
}

/// The header in the object store, if a header of the directory is of a host directory.
pub(crate) fn with_objects(env: &Env, header: VolumeHeader) -> Result<VolumeHeader, OpenError> {
    match (&header.home, &env.objects) {
        (Home::Directory, None) => Ok(header),
        (Home::Objects, None) => Err(OpenError::ObjectsAsDirectory),
        (Home::Host(url), Some(objects)) => {
            // The cache may be of another volume.
            let found = read_header(&*objects.store)?;
            if found.volume_id == header.volume_id {
                return Ok(found);
            }
            Err(OpenError::AnotherVolume {
                url: url.clone(),
                expected: VolumeId(header.volume_id).to_string(),
                found: VolumeId(found.volume_id).to_string(),
            })
        }
        (Home::Host(_), None) => Err(OpenError::InvalidOption("the object store is not open")),
        (Home::Directory | Home::Objects, Some(_)) => {
            Err(OpenError::InvalidOption("the directory is not a host directory"))
        }
    }
}

/// Takes an empty object store for a new volume: of several programs that try, one succeeds.
pub(crate) fn begin_format(objects: &dyn Blobs, header: &VolumeHeader) -> Result<(), OpenError> {
    if header.engine != EngineKind::Lsm {
        return Err(OpenError::InvalidOption("a volume in an object store needs the engine lsm"));
    }
    let names = objects.list("")?;
    if names.iter().any(|name| name == FILE) {
        return Err(OpenError::Exists);
    }
    let own = |name: &String| name == UNFINISHED || name == COPY;
    if let Some(name) = names.iter().find(|name| own(name)).or(names.first()) {
        return Err(OpenError::NotEmpty(name.clone()));
    }
    let bytes = header.encode();
    if !objects.create(UNFINISHED, &bytes)? || !objects.create(COPY, &bytes)? {
        return Err(OpenError::NotEmpty(UNFINISHED.to_owned()));
    }
    Ok(())
}

/// Gives a new volume its header, last.
pub(crate) fn end_format(objects: &dyn Blobs, header: &VolumeHeader) -> Result<(), OpenError> {
    if !objects.create(FILE, &header.encode())? {
        return Err(OpenError::Exists);
    }
    objects.delete(UNFINISHED)?;
    Ok(())
}

fn damaged(path: &str, expected: &str, found: String) -> Corruption {
    let (file, expected) = (path.to_owned(), expected.to_owned());
    Corruption { file, offset: 0, structure: "volume header", expected, found, unread: false }
}

fn read_file(device: &dyn Device, path: &str) -> Result<HeaderFile, OpenError> {
    let mut bytes = vec![0; BYTES_MAX + 1];
    let read = match device.open(path) {
        Ok(file) => file.read_at(&mut bytes, 0),
        Err(error) if error.is_not_found() => {
            return Ok(HeaderFile { bytes: Vec::new(), is: HeaderState::Missing });
        }
        Err(error) if path == FILE => return Err(error.into()),
        Err(error) => Err(error),
    };
    match read {
        Ok(read) => bytes.truncate(read),
        Err(error) if error.is_shortage() => return Err(error.into()),
        // The disk cannot read it; another file of the same bytes may be whole.
        Err(error) => {
            let is = HeaderState::Damaged(damaged(path, "bytes that read", error.message));
            return Ok(HeaderFile { bytes: Vec::new(), is });
        }
    }
    Ok(decoded(path, bytes))
}

/// What the bytes of a header are.
fn decoded(path: &str, bytes: Vec<u8>) -> HeaderFile {
    let is = match VolumeHeader::decode(&bytes) {
        Ok(header) => HeaderState::Whole(header),
        Err(HeaderError::Newer(version)) => HeaderState::Newer(version),
        Err(HeaderError::NotAVolume) => {
            HeaderState::Damaged(damaged(path, "the magic of a volume", "other bytes".to_owned()))
        }
        Err(HeaderError::Malformed(error)) => HeaderState::Damaged(error.located(path, 0)),
    };
    HeaderFile { bytes, is }
}

impl Headers {
    /// Reads both. A copy that cannot be opened counts as damaged.
    pub fn read(device: &dyn Device) -> Result<Headers, OpenError> {
        let headers = Headers { main: read_file(device, FILE)?, copy: read_file(device, COPY)? };
        Ok(headers.without_unfinished(|| Ok(device.metadata(UNFINISHED)?.is_some()))?)
    }

    /// Those of an object store, by a function that reads an object.
    pub fn of(read: ReadObject<'_>) -> Result<Headers, OpenError> {
        let mut header = |path| {
            let found = read(path)?.map(|bytes| decoded(path, bytes));
            let missing = || HeaderFile { bytes: Vec::new(), is: HeaderState::Missing };
            Ok::<_, OpenError>(found.unwrap_or_else(missing))
        };
        Ok(Headers { main: header(FILE)?, copy: header(COPY)? }
            .without_unfinished(|| Ok(read(UNFINISHED)?.is_some()))?)
    }

    /// Without the copy, if the volume was never finished: then it belongs to none.
    fn without_unfinished(
        self,
        is_unfinished: impl FnOnce() -> device::Result<bool>,
    ) -> device::Result<Headers> {
        if matches!(self.main.is, HeaderState::Missing) && is_unfinished()? {
            let copy = HeaderFile { bytes: Vec::new(), is: HeaderState::Missing };
            return Ok(Headers { copy, ..self });
        }
        Ok(self)
    }

    fn each(&self) -> [(&'static str, &HeaderFile); 2] {
        [(FILE, &self.main), (COPY, &self.copy)]
    }

    /// The header by which the volume is opened, or why it is not.
    pub fn opening(&self) -> Result<VolumeHeader, OpenError> {
        let version_damaged = differ_in_version_only(&self.main.bytes, &self.copy.bytes);
        for (path, found) in self.each() {
            if let HeaderState::Newer(found) = found.is
                && !version_damaged
            {
                let file = path.to_owned();
                return Err(OpenError::NewerFormat { file, found, known: VERSION });
            }
        }
        let is_copied = matches!(self.copy.is, HeaderState::Whole(_));
        let bad = match &self.main.is {
            HeaderState::Whole(header) => return Ok(header.clone()),
            HeaderState::Missing if is_copied => damaged(FILE, "a file", "none".to_owned()),
            HeaderState::Missing => return Err(OpenError::NotAVolume),
            HeaderState::Newer(found) if !is_copied => {
                let (file, found) = (FILE.to_owned(), *found);
                return Err(OpenError::NewerFormat { file, found, known: VERSION });
            }
            HeaderState::Newer(found) => {
                damaged(FILE, "the version of its copy", found.to_string())
            }
            HeaderState::Damaged(bad) => bad.clone(),
        };
        Err(if is_copied { OpenError::HeaderDamaged(bad) } else { OpenError::Damaged(bad) })
    }

    /// The header that belongs to the volume, if that is known. The store's own files decide unless
    /// both files are the same, or there is no copy yet.
    pub fn right(&self, device: &dyn Device) -> Result<Option<VolumeHeader>, OpenError> {
        if let HeaderState::Whole(header) = &self.main.is
            && (matches!(self.copy.is, HeaderState::Missing) || self.main.bytes == self.copy.bytes)
        {
            return Ok(Some(header.clone()));
        }
        let mut right: Option<&VolumeHeader> = None;
        for (_, found) in self.each() {
            let HeaderState::Whole(header) = &found.is else { continue };
            if !engine::is_of(device, header.volume_id)? {
                continue;
            }
            match right {
                // A superblock of each.
                Some(one) if one.volume_id != header.volume_id => return Ok(None),
                Some(_) => {}
                None => right = Some(header),
            }
        }
        Ok(right.cloned())
    }

    /// The header with an id, if either is one.
    pub fn of_volume(&self, id: [u8; 16]) -> Option<&VolumeHeader> {
        self.each().into_iter().find_map(|(_, found)| match &found.is {
            HeaderState::Whole(header) if header.volume_id == id => Some(header),
            _ => None,
        })
    }

    /// The names whose files do not hold a header.
    pub fn unlike(&self, header: &VolumeHeader) -> Vec<&'static str> {
        let bytes = header.encode();
        let unlike = self.each().into_iter().filter(|(_, found)| found.bytes != bytes);
        unlike.map(|(path, _)| path).collect()
    }

    /// What is wrong with either, compared with the right one. Without that nothing is repaired.
    pub fn faults(&self, right: Option<&VolumeHeader>) -> Vec<HeaderFault> {
        let beside = right.or(match &self.main.is {
            HeaderState::Whole(header) => Some(header),
            _ => None,
        });
        let mut faults = Vec::new();
        if self.each().iter().all(|(_, found)| matches!(found.is, HeaderState::Missing)) {
            // A store of the caller's has no files of ours.
            return faults;
        }
        for (path, found) in self.each() {
            let (mut offset, mut contradicts, mut is_repairable) = (0, false, right.is_some());
            let what = match &found.is {
                HeaderState::Whole(header) if beside.is_none_or(|beside| beside == header) => {
                    continue;
                }
                HeaderState::Whole(header) => {
                    contradicts = true;
                    // If both have one id, nothing shows which is falsified.
                    let another = beside.is_some_and(|one| one.volume_id != header.volume_id);
                    is_repairable &= another;
                    if another {
                        format!("the header of volume {}", VolumeId(header.volume_id))
                    } else {
                        "a different header from the other file's".to_owned()
                    }
                }
                HeaderState::Newer(version) => {
                    is_repairable &= differ_in_version_only(&self.main.bytes, &self.copy.bytes);
                    offset = 8;
                    format!("volume header: version {version} where the other file has another")
                }
                HeaderState::Damaged(bad) => {
                    offset = bad.offset;
                    format!("{}: {} instead of {}", bad.structure, bad.found, bad.expected)
                }
                HeaderState::Missing if path == FILE && beside.is_some() => {
                    "the file is missing".to_owned()
                }
                HeaderState::Missing => continue,
            };
            faults.push(HeaderFault { file: path, offset, what, contradicts, is_repairable });
        }
        faults
    }
}
