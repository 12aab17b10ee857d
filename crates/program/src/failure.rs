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
    let message = format!("{}: {error}", volume.display());
    Failure::new(kind, message).hint(next_step(purpose, volume, error))
}

/// What to do about a volume that was not created or opened. Each error is named, so that a new one
/// gets its own.
fn next_step(purpose: Purpose, volume: &Path, error: &OpenError) -> String {
    let step = match error {
        OpenError::NotAVolume => "`pando format` makes a volume",
        OpenError::Exists => "use the volume, or name another directory",
        OpenError::NotEmpty(_) => "name an empty directory, or one that is not there",
        OpenError::ObjectsAsDirectory => {
            return format!("name the volume file://{}", volume.display());
        }
        OpenError::NotObjects => "name the volume by its directory",
        OpenError::AnotherVolume { .. } => {
            "remove the host directory, which holds nothing that the store lacks, or restore the \
             store's objects"
        }
        OpenError::NewerFormat { .. } => "use a newer pando",
        OpenError::HeaderDamaged(_) => "`pando fsck --repair` repairs it",
        // The error already names what to do.
        OpenError::Unreadable { .. } => "",
        OpenError::Missing { .. } | OpenError::Damaged(_) | OpenError::Inconsistent(_) => CHECK_IT,
        OpenError::InvalidOption(_) => "leave the option out, or give another value",
        OpenError::Device(error) | OpenError::Store(store::Error::Device(error)) => {
            return device_for(purpose, volume, error).hint;
        }
        OpenError::Store(error) => return of_store(error).to_owned(),
    };
    step.to_owned()
}

/// The same about the engine.
fn of_store(error: &store::Error) -> &'static str {
    match error {
        store::Error::NoSpace(_) => "free space on the disk of the volume",
        store::Error::ReadOnly(_) => {
            "remove the cause, for example a full or failing disk, and open the volume again"
        }
        store::Error::Replaced(_) => {
            "run the command where the volume is open now, or again with --take-over"
        }
        store::Error::NewerFormat { .. } => "use a newer pando",
        // What an engine returns at an opening beside these contradicts what is stored.
        store::Error::Corrupt(_)
        | store::Error::Missing { .. }
        | store::Error::Device(_)
        | store::Error::NoTree(_)
        | store::Error::Unsorted(_)
        | store::Error::RangeNotEmpty { .. }
        | store::Error::RunTooLong
        | store::Error::ForeignPin
        | store::Error::TreeExists(_) => CHECK_IT,
    }
}

#[cfg(test)]
mod tests {
    use format::Corruption;

    use super::*;

    /// Which error it is. A new one does not compile without a number, which the test asks for.
    fn number(error: &OpenError) -> usize {
        match error {
            OpenError::NotAVolume => 0,
            OpenError::Exists => 1,
            OpenError::NotEmpty(_) => 2,
            OpenError::ObjectsAsDirectory => 3,
            OpenError::NotObjects => 4,
            OpenError::AnotherVolume { .. } => 5,
            OpenError::NewerFormat { .. } => 6,
            OpenError::Missing { .. } => 7,
            OpenError::Damaged(_) => 8,
            OpenError::HeaderDamaged(_) => 9,
            OpenError::Unreadable { .. } => 10,
            OpenError::Inconsistent(_) => 11,
            OpenError::InvalidOption(_) => 12,
            OpenError::Store(_) => 13,
            OpenError::Device(_) => 14,
        }
    }

    #[test]
    fn each_reason_why_a_volume_is_not_opened_has_a_next_step() {
        let text = || "text".to_owned();
        let corruption = || Corruption {
            file: text(),
            offset: 0,
            structure: "header",
            expected: text(),
            found: text(),
            unread: false,
        };
        let unread = rustix::io::Errno::IO.raw_os_error();
        let unread = device::Error::new("read", "file", io::Error::from_raw_os_error(unread));
        let errors = [
            OpenError::NotAVolume,
            OpenError::Exists,
            OpenError::NotEmpty(text()),
            OpenError::ObjectsAsDirectory,
            OpenError::NotObjects,
            OpenError::AnotherVolume { url: text(), expected: text(), found: text() },
            OpenError::NewerFormat { file: text(), found: 9, known: 1 },
            OpenError::Missing { file: text(), record: None },
            OpenError::Damaged(corruption()),
            OpenError::HeaderDamaged(corruption()),
            OpenError::Unreadable { file: text(), why: text() },
            OpenError::Inconsistent(text().into()),
            OpenError::InvalidOption("the mode of the root"),
            OpenError::Store(store::Error::ReadOnly("full".into())),
            OpenError::Device(unread),
        ];
        for (at, error) in errors.iter().enumerate() {
            assert_eq!(number(error), at);
            let failure = open(Path::new("/volume"), error);
            let step = if matches!(error, OpenError::Unreadable { .. }) {
                &failure.message
            } else {
                &failure.hint
            };
            assert!(step.split(' ').count() >= 4, "{error}: {step:?}");
        }
        for error in [
            store::Error::NoSpace("the store"),
            store::Error::Replaced("by another".into()),
            store::Error::RunTooLong,
        ] {
            let failure = open(Path::new("/volume"), &OpenError::Store(error));
            assert!(failure.hint.split(' ').count() >= 4, "{failure:?}");
        }
    }
}
