//! Converts errors of the crates below into failures that a user understands.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fs::OpenError;
use nix::unistd::{Uid, User};
use wire::{Failure, FailureKind};

/// What to do when the disk cannot read stored data.
pub const FIRST_A_COPY: &str = "the disk fails: copy the volume to another one, with zeros for \
                                what cannot be read, and run `pando fsck --repair` on the copy";

/// Why a command opens a volume: a failure for lack of permission names who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To use what is in it.
    Use,
    /// To check or repair it.
    Check,
}

impl Purpose {
    /// Which users may.
    pub fn users(self) -> &'static str {
        match self {
            Purpose::Use => {
                "only the volume's user, or root, may open it; others may use it while it is \
                 mounted"
            }
            Purpose::Check => {
                "only the volume's user, or root, checks and repairs it, mounted or not"
            }
        }
    }
}

/// What to do when the disk accepts no writes.
const NO_WRITES: &str = "the disk accepts no writes, which a volume needs: copy the volume to a \
                         writable disk; `pando fsck` checks it where it is";

/// What to do where a volume is damaged.
const CHECK_IT: &str = "`pando fsck` reports what is wrong and whether `--repair` repairs it; \
                        else restore from a copy of the volume";

/// What verbs return.
pub type Result<T> = std::result::Result<T, Failure>;

/// An operating-system error about a path that the user gave.
pub fn io(doing: &str, path: &Path, error: &io::Error) -> Failure {
    // tidy: no hint: the operating system names the cause; callers that know more add it.
    Failure::new(io_kind(error), format!("{doing} {}: {error}", path.display()))
}

/// An operating-system error about a source that is read to be put into a volume. A source that
/// cannot be read is no damage of the volume: nothing in the volume needs a repair or a check.
pub fn source(doing: &str, path: &Path, error: &io::Error) -> Failure {
    let failure = io(doing, path, error);
    if failure.kind != FailureKind::Damaged {
        return failure;
    }
    Failure { kind: FailureKind::Other, ..failure }
        .hint("the source cannot be read; the volume is not at fault")
}

/// A thread that the operating system did not start.
pub fn thread(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Other, format!("cannot start a thread: {error}"))
        .hint("free memory, or raise the limit of processes (ulimit -u), and run it again")
}

/// The kind of an operating-system error.
pub fn io_kind(error: &io::Error) -> FailureKind {
    if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) {
        return FailureKind::Damaged;
    }
    match error.kind() {
        io::ErrorKind::NotFound => FailureKind::NotFound,
        io::ErrorKind::PermissionDenied => FailureKind::Permission,
        io::ErrorKind::AlreadyExists => FailureKind::Exists,
        io::ErrorKind::NotADirectory => FailureKind::NotDirectory,
        io::ErrorKind::IsADirectory => FailureKind::IsDirectory,
        io::ErrorKind::DirectoryNotEmpty => FailureKind::NotEmpty,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureKind::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => FailureKind::ReadOnly,
        io::ErrorKind::Interrupted => FailureKind::Interrupted,
        _ => FailureKind::Other,
    }
}

/// A device's error below a volume directory that is opened to be used.
pub fn device(volume: &Path, error: &device::Error) -> Failure {
    device_for(Purpose::Use, volume, error)
}

/// A device's error below a volume directory.
pub fn device_for(purpose: Purpose, volume: &Path, error: &device::Error) -> Failure {
    if let Some(failure) = log_is_away(volume, error) {
        return failure;
    }
    let kind = if error.is_unread() {
        FailureKind::Damaged
    } else {
        io_kind(&io::Error::from(error.kind))
    };
    let failure = Failure::new(
        kind,
        format!("{} {}: {}", error.operation, volume.join(&error.path).display(), error.message),
    );
    match failure.kind {
        // The device layer refused it, not the operating system.
        FailureKind::Permission if error.os.is_none() => failure
            .hint("it does not belong in the directory of the volume: inspect it, and remove it"),
        FailureKind::Permission => {
            let hint = of_another(volume, &error.path);
            failure.hint(hint.unwrap_or_else(|| purpose.users().to_owned()))
        }
        FailureKind::ReadOnly => failure.hint(NO_WRITES),
        FailureKind::Damaged => failure.hint(FIRST_A_COPY),
        _ => failure,
    }
}

/// What to do when the volume's user may not open one of its files: another user owns it, or its
/// permissions refuse access.
fn of_another(volume: &Path, path: &str) -> Option<String> {
    let user = rustix::process::geteuid().as_raw();
    if user == 0 || volume.metadata().ok()?.uid() != user {
        return None;
    }
    let name = |uid: u32| {
        let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        known.map_or_else(|| format!("user {uid}"), |user| user.name)
    };
    // The cause may be a directory on the path.
    let mut at = volume.to_path_buf();
    for part in Path::new(path).components() {
        at.push(part);
        let found = at.metadata().ok()?;
        if found.uid() != user {
            let (whose, user) = (name(found.uid()), name(user));
            let at = at.display();
            return Some(format!(
                "{at} belongs to {whose}, and the volume to {user}, who may not open it: have root \
                 run `chown {user} {at}`"
            ));
        }
        let needed = if found.is_dir() { 0o700 } else { 0o600 };
        if found.mode() & needed != needed {
            let (user, at) = (name(user), at.display());
            return Some(format!("{user} may not open {at}: `chmod u+rwX {at}` permits it"));
        }
    }
    None
}

/// If the log is stored elsewhere and is missing now, reports where it should be.
fn log_is_away(volume: &Path, error: &device::Error) -> Option<Failure> {
    let of_log = Path::new(&error.path).starts_with(fs::LOG_DIRECTORY);
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let link = volume.join(fs::LOG_DIRECTORY);
    if !of_log || !link.metadata().is_err_and(|error| is_missing(&error)) {
        return None;
    }
    let target = link.read_link().ok()?;
    let message =
        format!("{} is a link to {}, which is not there", link.display(), target.display());
    let hint = "mount the disk of the log; if the log was moved, point the link `log` to it";
    Some(Failure::new(FailureKind::NotFound, message).hint(hint))
}

/// Why a volume could not be created, or opened to be used.
pub fn open(volume: &Path, error: &OpenError) -> Failure {
    open_for(Purpose::Use, volume, error)
}

/// Why a volume could not be opened.
pub fn open_for(purpose: Purpose, volume: &Path, error: &OpenError) -> Failure {
    let kind = match error {
        OpenError::Device(error) | OpenError::Store(store::Error::Device(error)) => {
            return device_for(purpose, volume, error);
        }
        OpenError::NotAVolume | OpenError::ObjectsAsDirectory | OpenError::NotObjects => {
            FailureKind::NotVolume
        }
        OpenError::Exists => FailureKind::Exists,
        OpenError::NotEmpty(_) => FailureKind::NotEmpty,
        OpenError::NewerFormat { .. } => FailureKind::NewerFormat,
        OpenError::Missing { .. }
        | OpenError::Damaged(_)
        | OpenError::HeaderDamaged(_)
        | OpenError::Unreadable { .. }
        | OpenError::Inconsistent(_) => FailureKind::Damaged,
        OpenError::InvalidOption(_) => FailureKind::Invalid,
        OpenError::Store(error) if error.is_no_space() => FailureKind::NoSpace,
        OpenError::AnotherVolume { .. } | OpenError::Store(_) => FailureKind::Other,
    };
    let failure = Failure::new(kind, format!("{}: {error}", volume.display()));
    match kind {
        FailureKind::NotVolume if matches!(error, OpenError::ObjectsAsDirectory) => {
            failure.hint(format!("name the volume file://{}", volume.display()))
        }
        FailureKind::NotVolume if matches!(error, OpenError::NotObjects) => {
            failure.hint("name the volume by its directory")
        }
        FailureKind::Other if matches!(error, OpenError::AnotherVolume { .. }) => failure.hint(
            "remove the host directory, which holds nothing that the store lacks, or restore the \
             store's objects",
        ),
        FailureKind::NotVolume => failure.hint("`pando format` makes a volume"),
        FailureKind::NewerFormat => failure.hint("use a newer pando"),
        FailureKind::Damaged if matches!(error, OpenError::HeaderDamaged(_)) => {
            failure.hint("`pando fsck --repair` repairs it")
        }
        // The error already names what to do.
        FailureKind::Damaged if matches!(error, OpenError::Unreadable { .. }) => failure,
        FailureKind::Damaged => failure.hint(CHECK_IT),
        FailureKind::NoSpace => failure.hint("free space on the disk of the volume"),
        _ => failure,
    }
}
