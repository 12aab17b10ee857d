//! The calls of a trace, and which fields the event of each call has.

/// A field of an event, in the order in which fields are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The inode, or the directory of the name.
    Node,
    /// The name in it, or the name of an extended attribute.
    Name,
    /// The second inode or directory.
    Other,
    /// The second name, or the target of a symbolic link.
    OtherName,
    /// Where in the file; the position of a listing.
    Offset,
    /// Where in the second file.
    OtherOffset,
    /// How many bytes.
    Length,
    /// Permission bits, as the caller gave them.
    Mode,
    /// Device number.
    Device,
    /// How: the bits or the variant that the call takes.
    How,
    /// The owner to set.
    Uid,
    /// A new group.
    Gid,
    /// A new time of last read, in nanoseconds since 1970.
    Atime,
    /// A new time of last change, in nanoseconds since 1970.
    Mtime,
    /// What the call returned: bytes, or a position. Only if it succeeded.
    Returned,
    /// The inode that it returned, with attributes. Only if it succeeded.
    Found,
    /// The entries that it listed.
    Entries,
}

/// How many fields there are.
pub const FIELDS_MAX: usize = 17;

impl Field {
    /// All, in the order in which they are stored.
    pub const ALL: [Field; FIELDS_MAX] = [
        Field::Node,
        Field::Name,
        Field::Other,
        Field::OtherName,
        Field::Offset,
        Field::OtherOffset,
        Field::Length,
        Field::Mode,
        Field::Device,
        Field::How,
        Field::Uid,
        Field::Gid,
        Field::Atime,
        Field::Mtime,
        Field::Returned,
        Field::Found,
        Field::Entries,
    ];

    const fn bit(self) -> u32 {
        match self {
            Field::Node => 1,
            Field::Name => 1 << 1,
            Field::Other => 1 << 2,
            Field::OtherName => 1 << 3,
            Field::Offset => 1 << 4,
            Field::OtherOffset => 1 << 5,
            Field::Length => 1 << 6,
            Field::Mode => 1 << 7,
            Field::Device => 1 << 8,
            Field::How => 1 << 9,
            Field::Uid => 1 << 10,
            Field::Gid => 1 << 11,
            Field::Atime => 1 << 12,
            Field::Mtime => 1 << 13,
            Field::Returned => 1 << 14,
            Field::Found => 1 << 15,
            Field::Entries => 1 << 16,
        }
    }
}

/// A set of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields(u32);

impl Fields {
    const fn of(fields: &[Field]) -> Fields {
        let (mut bits, mut rest) = (0, fields);
        while let Some((first, more)) = rest.split_first() {
            bits |= first.bit();
            rest = more;
        }
        Fields(bits)
    }

    /// Whether a field is in it.
    #[inline]
    pub const fn has(self, field: Field) -> bool {
        self.0 & field.bit() != 0
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident = $number:literal $name:literal [$($field:ident),*];)*) => {
        /// A call of a mount. The number is on disk: do not change it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Call {
            $($(#[$doc])* $call,)*
        }

        impl Call {
            /// All, by number.
            pub const ALL: &[Call] = &[$(Call::$call,)*];

            /// The number in a trace.
            pub const fn number(self) -> u8 {
                match self {
                    $(Call::$call => $number,)*
                }
            }

            /// The call of a number.
            pub const fn of(number: u8) -> Option<Call> {
                match number {
                    $($number => Some(Call::$call),)*
                    _ => None,
                }
            }

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Call::$call => $name,)*
                }
            }

            /// The fields of its events.
            #[inline]
            pub const fn fields(self) -> Fields {
                match self {
                    $(Call::$call => const { Fields::of(&[$(Field::$field),*]) },)*
                }
            }
        }
    };
}

calls! {
    /// Looks a name up.
    Lookup = 0 "lookup" [Node, Name, Found];
    /// Reads attributes.
    Getattr = 1 "getattr" [Node, Found];
    /// Changes attributes; `How` is a set of [`Setting`].
    Setattr = 2 "setattr" [Node, How, Length, Mode, Uid, Gid, Atime, Mtime, Found];
    /// Asks for rights; `How` has the bits of access(2).
    Access = 3 "access" [Node, How];
    /// Reads the target of a symbolic link.
    Readlink = 4 "readlink" [Node, OtherName];
    /// Creates a file, fifo, socket or device node.
    Mknod = 5 "mknod" [Node, Name, Mode, Device, How, Found];
    /// Creates a directory.
    Mkdir = 6 "mkdir" [Node, Name, Mode, Found];
    /// Creates a symbolic link.
    Symlink = 7 "symlink" [Node, Name, OtherName, Found];
    /// Gives `Other` a name in `Node`.
    Link = 8 "link" [Node, Name, Other, Found];
    /// Removes a name.
    Unlink = 9 "unlink" [Node, Name];
    /// Removes an empty directory.
    Rmdir = 10 "rmdir" [Node, Name];
    /// Renames `Name` in `Node` to `OtherName` in `Other`; `How` is a [`Renaming`].
    Rename = 11 "rename" [Node, Name, Other, OtherName, How];
    /// Reads; `Returned` is how many bytes.
    Read = 12 "read" [Node, Offset, Length, Returned];
    /// Writes.
    Write = 13 "write" [Node, Offset, Length];
    /// Creates a file without a name in the directory `Node`.
    Tmpfile = 14 "tmpfile" [Node, Mode, Found];
    /// Finds data or a hole; `How` is a [`Seeking`].
    Seek = 15 "seek" [Node, Offset, How, Returned];
    /// Allocates or frees space; `How` is an [`Allocating`].
    Fallocate = 16 "fallocate" [Node, Offset, Length, How];
    /// Copies from `Node` to `Other`.
    CopyRange = 17 "copy_range" [Node, Other, Offset, OtherOffset, Length, Returned];
    /// Syncs; `How` is 1 for contents alone.
    Fsync = 18 "fsync" [Node, How];
    /// Syncs everything.
    Sync = 19 "sync" [];
    /// Lists names.
    Readdir = 20 "readdir" [Node, Offset, Entries];
    /// Lists names with attributes.
    Readdirplus = 21 "readdirplus" [Node, Offset, Entries];
    /// Asks for space and limits.
    Statfs = 22 "statfs" [Node];
    /// Reads an extended attribute; `Returned` is its length.
    Getxattr = 23 "getxattr" [Node, Name, Returned];
    /// Lists extended attributes; `Returned` is the length of the list.
    Listxattr = 24 "listxattr" [Node, Returned];
    /// Sets an extended attribute of `Length` bytes; `How` has the flags of setxattr(2).
    Setxattr = 25 "setxattr" [Node, Name, Length, How];
    /// Removes an extended attribute.
    Removexattr = 26 "removexattr" [Node, Name];
    /// Opens a file or directory; `How` has the flags of open(2).
    Open = 27 "open" [Node, How];
    /// Closes it.
    Release = 28 "release" [Node];
}

/// Bits of `How` of a `setattr`. They are on disk: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting;

impl Setting {
    /// The mode is set.
    pub const MODE: u32 = 1;
    /// The owner is set.
    pub const UID: u32 = 1 << 1;
    /// The group is set.
    pub const GID: u32 = 1 << 2;
    /// The length is set.
    pub const SIZE: u32 = 1 << 3;
    /// The time of last read is set.
    pub const ATIME: u32 = 1 << 4;
    /// To the present.
    pub const ATIME_NOW: u32 = 1 << 5;
    /// The time of last change is set.
    pub const MTIME: u32 = 1 << 6;
    /// To the present.
    pub const MTIME_NOW: u32 = 1 << 7;
    /// The time of last attribute change is set, by the kernel.
    pub const CTIME: u32 = 1 << 8;
}

/// Values of `How` of a `rename`. They are on disk: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renaming;

impl Renaming {
    /// Replaces what is there.
    pub const REPLACE: u32 = 0;
    /// Fails if something is there.
    pub const NO_REPLACE: u32 = 1;
    /// Swaps the two.
    pub const EXCHANGE: u32 = 2;
    /// Replaces, and leaves a whiteout.
    pub const WHITEOUT: u32 = 4;
    /// Fails if something is there, and leaves a whiteout.
    pub const NO_REPLACE_WHITEOUT: u32 = 5;
}

/// Values of `How` of a `seek`. They are on disk: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeking;

impl Seeking {
    /// Data.
    pub const DATA: u32 = 0;
    /// A hole.
    pub const HOLE: u32 = 1;
}

/// Values of `How` of a `fallocate`. They are on disk: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocating;

impl Allocating {
    /// Allocates, and grows the file.
    pub const GROW: u32 = 0;
    /// Allocates.
    pub const KEEP: u32 = 1;
    /// Makes a hole.
    pub const PUNCH: u32 = 2;
    /// Makes zeros, and grows the file.
    pub const ZERO: u32 = 3;
    /// Makes zeros.
    pub const ZERO_KEEP: u32 = 4;
}

macro_rules! endings {
    ($($(#[$doc:meta])* $ended:ident = $number:literal $name:literal;)*) => {
        /// How a call ended. The number is on disk: do not change it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Ended {
            $($(#[$doc])* $ended,)*
        }

        impl Ended {
            /// All, by number.
            pub const ALL: &[Ended] = &[$(Ended::$ended,)*];

            /// The number in a trace.
            pub const fn number(self) -> u8 {
                match self {
                    $(Ended::$ended => $number,)*
                }
            }

            /// The ending of a number.
            pub const fn of(number: u8) -> Option<Ended> {
                match number {
                    $($number => Some(Ended::$ended),)*
                    _ => None,
                }
            }

            /// The name in reports: that of the error, in lower case, or `done`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Ended::$ended => $name,)*
                }
            }
        }
    };
}

endings! {
    /// With a result.
    Done = 0 "done";
    /// ENOENT.
    NotFound = 1 "enoent";
    /// EEXIST.
    Exists = 2 "eexist";
    /// ENOTDIR.
    NotDirectory = 3 "enotdir";
    /// EISDIR.
    IsDirectory = 4 "eisdir";
    /// ENOTEMPTY.
    NotEmpty = 5 "enotempty";
    /// EACCES.
    AccessDenied = 6 "eacces";
    /// EPERM.
    NotPermitted = 7 "eperm";
    /// EINVAL.
    InvalidArgument = 8 "einval";
    /// ENAMETOOLONG.
    NameTooLong = 9 "enametoolong";
    /// EXDEV.
    CrossDevice = 10 "exdev";
    /// EMLINK.
    TooManyLinks = 11 "emlink";
    /// ELOOP.
    Loop = 12 "eloop";
    /// EROFS.
    ReadOnly = 13 "erofs";
    /// EFBIG.
    FileTooLarge = 14 "efbig";
    /// ENOSPC.
    NoSpace = 15 "enospc";
    /// EDQUOT.
    QuotaExceeded = 16 "edquot";
    /// ERANGE.
    Range = 17 "erange";
    /// ENODATA.
    NoData = 18 "enodata";
    /// EOPNOTSUPP.
    NotSupported = 19 "eopnotsupp";
    /// EBUSY.
    Busy = 20 "ebusy";
    /// ESTALE.
    Stale = 21 "estale";
    /// ENXIO.
    PastEnd = 22 "enxio";
    /// EINTR.
    Interrupted = 23 "eintr";
    /// EIO.
    Failed = 24 "eio";
    /// Another error.
    Other = 25 "other";
}
