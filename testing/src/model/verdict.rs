//! Results of operations: values and kinds of errors by which two implementations can be compared.

use inode::{Attr, FsError, Kind};

/// [`FsError`] without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the FsError of the same name")]
pub enum ErrorKind {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    AccessDenied,
    NotPermitted,
    InvalidArgument,
    NameTooLong,
    CrossSubvolume,
    TooManyLinks,
    Loop,
    ReadOnly,
    FileTooLarge,
    NoSpace,
    QuotaExceeded,
    Range,
    NoAttribute,
    Elsewhere,
    NotSupported,
    Busy,
    Stale,
    PastEnd,
    Interrupted,
    Io,
}

/// The kind of an error.
pub fn blame(error: &FsError) -> ErrorKind {
    match error {
        FsError::NotFound => ErrorKind::NotFound,
        FsError::Exists => ErrorKind::Exists,
        FsError::NotDirectory => ErrorKind::NotDirectory,
        FsError::IsDirectory => ErrorKind::IsDirectory,
        FsError::NotEmpty => ErrorKind::NotEmpty,
        FsError::AccessDenied => ErrorKind::AccessDenied,
        FsError::NotPermitted(_) | FsError::RootOnly(_) => ErrorKind::NotPermitted,
        FsError::InvalidArgument(_) => ErrorKind::InvalidArgument,
        FsError::NameTooLong => ErrorKind::NameTooLong,
        FsError::CrossSubvolume(_) => ErrorKind::CrossSubvolume,
        FsError::TooManyLinks => ErrorKind::TooManyLinks,
        FsError::Loop => ErrorKind::Loop,
        FsError::ReadOnly(_) => ErrorKind::ReadOnly,
        FsError::FileTooLarge => ErrorKind::FileTooLarge,
        FsError::NoSpace | FsError::LimitReached(_) | FsError::MemoryExceeded(_) => {
            ErrorKind::NoSpace
        }
        FsError::QuotaExceeded => ErrorKind::QuotaExceeded,
        FsError::Range => ErrorKind::Range,
        FsError::NoAttribute => ErrorKind::NoAttribute,
        FsError::Elsewhere => ErrorKind::Elsewhere,
        FsError::NotSupported(_) => ErrorKind::NotSupported,
        FsError::Busy(_) => ErrorKind::Busy,
        FsError::Stale => ErrorKind::Stale,
        FsError::PastEnd => ErrorKind::PastEnd,
        FsError::Interrupted => ErrorKind::Interrupted,
        FsError::Io(_) => ErrorKind::Io,
    }
}

/// The compared attributes. Access times are excluded: a mount option decides when they change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Links that may count in addition: names outside the cloned directory, which count until the
    /// clone is pruned. Only the model sets it.
    pub nlink_slack: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Length, or number of entries.
    pub size: u64,
    /// Last change of contents, in nanoseconds.
    pub mtime: i64,
    /// Last change of attributes, in nanoseconds.
    pub ctime: i64,
}

impl Stat {
    /// From the attributes that a file system returned.
    pub fn of(attr: &Attr) -> Stat {
        Stat {
            kind: attr.kind,
            mode: attr.mode,
            nlink: attr.nlink,
            nlink_slack: 0,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            mtime: attr.mtime.0,
            ctime: attr.ctime.0,
        }
    }

    /// Whether a file system's attributes match the model (`self`).
    pub fn admits(&self, seen: &Stat) -> bool {
        let links = self.nlink..=self.nlink + self.nlink_slack;
        let same = Stat { nlink: self.nlink, nlink_slack: self.nlink_slack, ..*seen };
        links.contains(&seen.nlink) && same == *self
    }
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
}

/// The result of a successful operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Only success.
    Done,
    /// Attributes.
    Stat(Stat),
    /// Contents, a link's target or an extended attribute.
    Bytes(Vec<u8>),
    /// A directory or the attribute names, sorted.
    List(Vec<Listed>),
    /// Names of attributes or of snapshots, sorted.
    Names(Vec<Vec<u8>>),
}

/// The model's verdict on an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It succeeds with this effect.
    Ok(Effect),
    /// It fails with any one of these and changes nothing.
    Fail(Vec<ErrorKind>),
    /// It changes nothing, whether it reports success or one of these.
    Either(Vec<ErrorKind>),
}

impl Verdict {
    /// Whether a file system's answer is correct.
    pub fn admits(&self, seen: &Result<Effect, ErrorKind>) -> bool {
        match (self, seen) {
            (Verdict::Ok(Effect::Stat(model)), Ok(Effect::Stat(seen))) => model.admits(seen),
            (Verdict::Ok(model), Ok(seen)) => model == seen,
            (Verdict::Either(_), Ok(_)) => true,
            (Verdict::Fail(kinds) | Verdict::Either(kinds), Err(seen)) => kinds.contains(seen),
            _ => false,
        }
    }

    /// Whether it succeeds with an effect.
    pub fn is_ok(&self) -> bool {
        match self {
            Verdict::Ok(_) => true,
            Verdict::Fail(_) | Verdict::Either(_) => false,
        }
    }
}

/// Conditions of an operation. All are checked, so that every error that applies is known.
#[derive(Debug, Default)]
pub(super) struct Checks(Vec<ErrorKind>);

impl Checks {
    pub(super) fn require(&mut self, condition: bool, otherwise: ErrorKind) {
        if !condition && !self.0.contains(&otherwise) {
            self.0.push(otherwise);
        }
    }

    pub(super) fn finish(self) -> Result<(), Vec<ErrorKind>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

pub(super) fn verdict(result: Result<Effect, Vec<ErrorKind>>) -> Verdict {
    match result {
        Ok(effect) => Verdict::Ok(effect),
        Err(kinds) => Verdict::Fail(kinds),
    }
}
