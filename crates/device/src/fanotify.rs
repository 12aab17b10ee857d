//! Changes in a whole file system, as the kernel reports them (fanotify with directory handles and
//! names). Needs root's privileges.
//!
//! An event names a directory by a handle that survives renames, and a name in it. Opening the
//! handle finds the directory's present path. A removed directory has no path, and its own removal
//! is an event of its parent.
#![expect(unsafe_code, reason = "no safe wrapper has fanotify and file handles")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

// From the kernel's interface, include/uapi/linux/fanotify.h.
const FAN_CLOEXEC: u32 = 0x1;
const FAN_NONBLOCK: u32 = 0x2;
const FAN_UNLIMITED_QUEUE: u32 = 0x10;
const FAN_REPORT_DIR_FID: u32 = 0x400;
const FAN_REPORT_NAME: u32 = 0x800;
const FAN_MARK_ADD: u32 = 0x1;
const FAN_MARK_FILESYSTEM: u32 = 0x100;
const FAN_MODIFY: u64 = 0x2;
const FAN_ATTRIB: u64 = 0x4;
const FAN_MOVED_FROM: u64 = 0x40;
const FAN_MOVED_TO: u64 = 0x80;
const FAN_CREATE: u64 = 0x100;
const FAN_DELETE: u64 = 0x200;
const FAN_Q_OVERFLOW: u64 = 0x4000;
const FAN_ONDIR: u64 = 0x4000_0000;
const INFO_DIRECTORY_AND_NAME: u8 = 2;
const INFO_DIRECTORY: u8 = 3;
const METADATA_BYTES: usize = 24;
/// Header and file system id before the handle.
const INFO_BYTES: usize = 12;
const HANDLE_BYTES: usize = 8;

/// Bytes per read: some thousand events.
const BUFFER_BYTES: usize = 256 << 10;

/// A watch over the file system that contains a directory.
#[derive(Debug)]
pub struct FileSystemWatch {
    group: OwnedFd,
    directory: OwnedFd,
    buffer: Vec<u8>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSystemEvent {
    /// A name in a directory (absolute path), or with an empty name the directory itself. It was
    /// created, was removed, or refers to a changed object.
    Changed(PathBuf, Vec<u8>),
    /// The kernel's queue overflowed and events were lost.
    Overflow,
}

impl FileSystemWatch {
    /// Starts the watch; no later event is missed.
    pub fn new(path: &Path) -> io::Result<FileSystemWatch> {
        let flags = rustix::fs::OFlags::RDONLY
            | rustix::fs::OFlags::DIRECTORY
            | rustix::fs::OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
        let flags =
            FAN_CLOEXEC | FAN_NONBLOCK | FAN_UNLIMITED_QUEUE | FAN_REPORT_DIR_FID | FAN_REPORT_NAME;
        // SAFETY: takes only numbers.
        let group = unsafe { libc::fanotify_init(flags, 0) };
        if group < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above made it, and nothing else owns it.
        let group = unsafe { OwnedFd::from_raw_fd(group) };
        let mask = FAN_MODIFY
            | FAN_ATTRIB
            | FAN_MOVED_FROM
            | FAN_MOVED_TO
            | FAN_CREATE
            | FAN_DELETE
            | FAN_ONDIR;
        // SAFETY: both descriptors are open; the path is a NUL-terminated string.
        let marked = unsafe {
            libc::fanotify_mark(
                group.as_raw_fd(),
                FAN_MARK_ADD | FAN_MARK_FILESYSTEM,
                mask,
                directory.as_raw_fd(),
                c".".as_ptr(),
            )
        };
        if marked < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(FileSystemWatch { group, directory, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Waits for events for at most `patience`, and returns those that arrived.
    pub fn events(&mut self, patience: Duration) -> io::Result<Vec<FileSystemEvent>> {
        if !readable(&self.group, patience)? {
            return Ok(Vec::new());
        }
        let length = match rustix::io::read(&self.group, &mut self.buffer) {
            Ok(length) => length,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut events = Vec::new();
        // Consecutive events are mostly of the same directory.
        let mut last: Option<(Vec<u8>, Option<PathBuf>)> = None;
        let mut rest = &self.buffer[..length];
        while let Some((mask, info, next)) = split(rest) {
            rest = next;
            if mask & FAN_Q_OVERFLOW != 0 {
                events.push(FileSystemEvent::Overflow);
            }
            let Some((handle, name)) = directory_and_name(info) else { continue };
            let path = match &last {
                Some((of, path)) if of == handle => path.clone(),
                _ => {
                    let path = self.locate(handle);
                    last = Some((handle.to_vec(), path.clone()));
                    path
                }
            };
            if let Some(path) = path {
                let name = if name == b"." { b"" } else { name };
                events.push(FileSystemEvent::Changed(path, name.to_vec()));
            }
        }
        Ok(events)
    }

    /// Present path of the directory of a handle; `None` when it was removed.
    fn locate(&self, handle: &[u8]) -> Option<PathBuf> {
        // The kernel reads the handle as a struct of 4-byte numbers.
        let mut aligned = vec![0_u32; handle.len().div_ceil(4)];
        for (word, bytes) in aligned.iter_mut().zip(handle.chunks(4)) {
            let mut raw = [0; 4];
            raw[..bytes.len()].copy_from_slice(bytes);
            *word = u32::from_le_bytes(raw).to_le();
        }
        // SAFETY: the handle states its length, which `directory_and_name` compared with the bytes
        // present; the kernel only reads it.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                self.directory.as_raw_fd(),
                aligned.as_ptr(),
                libc::O_PATH | libc::O_CLOEXEC,
            )
        };
        if opened < 0 {
            return None;
        }
        // SAFETY: the call above made it, and nothing else owns it.
        let opened = unsafe { OwnedFd::from_raw_fd(opened as i32) };
        let link = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let path = rustix::fs::readlink(link, Vec::new()).ok()?.into_bytes();
        let gone = path.ends_with(b" (deleted)") && rustix::fs::stat(&*path).is_err();
        (!gone).then(|| PathBuf::from(std::ffi::OsString::from_vec(path)))
    }
}

/// Waits until a descriptor is readable; `false` on timeout.
pub fn readable(descriptor: &impl AsFd, patience: Duration) -> io::Result<bool> {
    let mut poll =
        libc::pollfd { fd: descriptor.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the array has exactly the one element passed, and outlives the call.
    let ready = unsafe { libc::poll(&raw mut poll, 1, patience) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) }
}

/// Splits the first event into its mask and its info records, and returns the remaining events.
fn split(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let length = number(bytes, 0)? as usize;
    let head = usize::from(u16::from_le_bytes(bytes.get(6..8)?.try_into().ok()?));
    let mask = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    if head < METADATA_BYTES {
        return None;
    }
    Some((mask, bytes.get(head..length)?, bytes.get(length..)?))
}

/// The handle of a directory (its length and type first), and the name in it.
fn directory_and_name(mut info: &[u8]) -> Option<(&[u8], &[u8])> {
    loop {
        let kind = *info.first()?;
        let length = usize::from(u16::from_le_bytes(info.get(2..4)?.try_into().ok()?));
        let this = info.get(INFO_BYTES..length)?;
        if kind == INFO_DIRECTORY_AND_NAME || kind == INFO_DIRECTORY {
            let handle = this.get(..HANDLE_BYTES.checked_add(number(this, 0)? as usize)?)?;
            let name = &this[handle.len()..];
            let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
            return Some((handle, if kind == INFO_DIRECTORY { b"" } else { &name[..end] }));
        }
        info = info.get(length.max(1)..)?;
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
