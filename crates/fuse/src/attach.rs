//! Mounting: opens a channel to the kernel and attaches it to the mount point.
//!
//! Root calls mount(2). Other users, and a root that may not mount, call fusermount3, which is
//! setuid root and passes the open channel back over a socket. The channel has no reader yet when
//! this returns; the kernel queues requests until the transport serves it.

use std::ffi::{CString, OsStr, OsString};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::MountError;
use crate::mountinfo::FILE_SYSTEM_TYPE;
use crate::options::{Atime, MountOptions};
use crate::source;

const DEVICE: &str = "/dev/fuse";
/// Where the helper is searched for if it is not in the path: `su` and services have short paths.
const HELPERS: [&str; 4] =
    ["fusermount3", "/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"];

/// Mounts on a resolved mount point and returns the channel.
pub(crate) fn attach(mount_point: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let name = name(options);
    if rustix::process::geteuid().is_root() {
        match attach_as_root(mount_point, &name, options) {
            Err(MountError::NotPermitted(_)) => {}
            result => return result,
        }
    }
    attach_by_helper(mount_point, &name, options)
}

/// The source to show.
pub(crate) fn name(options: &MountOptions) -> OsString {
    match &options.fsname {
        Some(name) => OsString::from(name),
        None => source::encode(&options.volume_dir, options.subdir.as_deref()),
    }
}

/// Whether every thread can get a channel of its own: that requires opening the device, which
/// ordinary users with the helper need not do.
pub(crate) fn can_clone() -> bool {
    open_device().is_ok()
}

fn open_device() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

fn attach_as_root(
    mount_point: &Path,
    name: &OsStr,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let device = open_device().map_err(|error| match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoFuse,
        Errno::PERM | Errno::ACCESS => MountError::NotPermitted(format!("{DEVICE}: {error}")),
        error => MountError::system(format!("opening {DEVICE}"), error),
    })?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        if options.allow_other { ",allow_other" } else { "" },
    );
    let data = CString::new(data).expect("invariant: digits and option names have no NUL");
    rustix::mount::mount(name, mount_point, FILE_SYSTEM_TYPE, flags(options), Some(&*data))
        .map_err(|error| match error {
            Errno::PERM => MountError::NotPermitted(format!("mount: {error}")),
            Errno::NODEV => MountError::NoFuse,
            error => MountError::system(format!("mounting on {}", mount_point.display()), error),
        })?;
    Ok(device)
}

/// Flags that the kernel keeps for a mount.
pub(crate) fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::DIRSYNC, options.dirsync);
    flags.set(MountFlags::NOATIME, options.atime == Atime::Never);
    flags.set(MountFlags::RELATIME, options.atime == Atime::Relative);
    flags
}

/// The same options in the helper's syntax.
fn helper_options(name: &OsStr, options: &MountOptions) -> OsString {
    let mut words: Vec<&str> = Vec::new();
    words.push(if options.read_only { "ro" } else { "rw" });
    words.push(if options.suid { "suid" } else { "nosuid" });
    words.push(if options.dev { "dev" } else { "nodev" });
    words.push(if options.exec { "exec" } else { "noexec" });
    words.extend(options.sync.then_some("sync"));
    words.extend(options.dirsync.then_some("dirsync"));
    words.extend((options.atime == Atime::Never).then_some("noatime"));
    words.extend(options.allow_other.then_some("allow_other"));
    words.extend(["default_permissions", "subtype=pando"]);
    let mut list = words.join(",").into_bytes();
    list.extend_from_slice(b",fsname=");
    for byte in name.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            list.push(b'\\');
        }
        list.push(*byte);
    }
    OsString::from_vec(list)
}

fn attach_by_helper(
    mount_point: &Path,
    name: &OsStr,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoFuse);
    }
    let system = |error| MountError::system("asking fusermount3 to mount", error);
    let (ours, theirs) = UnixStream::pair().map_err(system)?;
    let arguments = [OsStr::new("-o"), &helper_options(name, options), OsStr::new("--")];
    // The helper takes the number of a descriptor. It inherits its standard input, so there is no
    // moment in which other children could inherit it too.
    let child = run_helper(|command| {
        command.args(arguments).arg(mount_point).env("_FUSE_COMMFD", "0");
        let socket = theirs.try_clone().map(OwnedFd::from);
        command.stdin(socket.map_or_else(|_| Stdio::null(), Stdio::from));
    })?;
    drop(theirs);
    let received = receive(&ours);
    let output = child.wait_with_output().map_err(system)?;
    match received {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(refusal(&String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(system(error)),
    }
}

/// Starts the helper; `prepare` adds arguments.
pub(crate) fn run_helper(
    prepare: impl Fn(&mut Command),
) -> Result<std::process::Child, MountError> {
    for program in HELPERS {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // The code below reads messages; they must be in the language it expects.
        command.env("LC_ALL", "C");
        prepare(&mut command);
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(MountError::system("running fusermount3", error)),
        }
    }
    Err(MountError::NoHelper)
}

/// The open channel that the helper sends, or `None` if it closed without sending one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut buffers, &mut ancillary, flags)
    })?;
    let mut channels = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(channels.next())
}

fn refusal(words: &str) -> MountError {
    // tidy: compares words: the helper has one exit code for all failures.
    let words = words.trim();
    if words.contains("user_allow_other") {
        MountError::AllowOther
    } else if words.contains("failed to open /dev/fuse: Permission denied") {
        MountError::DeviceClosed
    } else if words.contains("device not found") || words.contains("No such device") {
        MountError::NoFuse
    } else if words.contains("Operation not permitted") {
        MountError::NotPermitted(words.to_owned())
    } else {
        MountError::Helper(words.trim_start_matches("fusermount3: ").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_source_with_commas_reaches_the_helper_unchanged() {
        let options = MountOptions::new(Path::new("/a,b\\c"), Path::new("/m"));
        let list = helper_options(options.volume_dir.as_os_str(), &options);
        let list = list.to_string_lossy();
        assert!(list.ends_with(r"fsname=/a\,b\\c"), "{list}");
        assert!(list.contains("nosuid,nodev,exec"), "{list}");
    }

    #[test]
    fn refusals_of_the_mount_helper_become_hints() {
        let words = "fusermount3: option allow_other only allowed if 'user_allow_other' is set";
        assert!(matches!(refusal(words), MountError::AllowOther));
        let words = "fusermount3: user has no write access to mountpoint /x\n";
        assert_eq!(
            refusal(words).to_string(),
            "fusermount3: user has no write access to mountpoint /x"
        );
    }
}
