//! What a check finds, and the repair for it.

use format::Corruption;
use opening::header::HeaderFault;
use store::{Remedy, TreeId};

/// Problems beyond this number are counted but not kept. The limit applies separately to those with
/// a remedy, those that the disk cannot read, and all others. So many of one sort do not hide
/// another. A repair checks again after it repaired those.
pub const PROBLEMS_MAX: u64 = 10_000;

/// The kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// Bytes differ from what was written; contents that are reported as lost cannot be read.
    Unreadable,
    /// The disk does not return the bytes. Whether they are what was written is not known.
    ReadError,
    /// Something whole breaks a rule of its structure: order, bounds, a record that does not
    /// decode.
    Structure,
    /// A reference count of the engine, or its free space, is wrong.
    Count,
    /// Space is in use to which nothing points. It holds no data that has a name.
    Lost,
    /// A name points to nothing, or an object has no name, or is in a loop.
    Name,
    /// A count of links or of entries is wrong.
    Links,
    /// The table of subvolumes, their trees, the names of snapshots.
    Subvolume,
    /// Contents of a file: an extent that does not read, overlaps, or names nothing.
    Contents,
    /// The counts of what segments hold.
    Space,
    /// The charges of a quota do not match the inodes.
    Quota,
    /// The index. Only the speed of searches depends on it.
    Index,
}

impl ProblemKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Unreadable => "unreadable",
            ProblemKind::ReadError => "read-error",
            ProblemKind::Structure => "structure",
            ProblemKind::Count => "count",
            ProblemKind::Lost => "lost",
            ProblemKind::Name => "name",
            ProblemKind::Links => "links",
            ProblemKind::Subvolume => "subvolume",
            ProblemKind::Contents => "contents",
            ProblemKind::Space => "space",
            ProblemKind::Quota => "quota",
            ProblemKind::Index => "index",
        }
    }
}

impl From<store::FindingKind> for ProblemKind {
    fn from(kind: store::FindingKind) -> ProblemKind {
        match kind {
            store::FindingKind::Unreadable => ProblemKind::Unreadable,
            store::FindingKind::ReadError => ProblemKind::ReadError,
            store::FindingKind::Structure => ProblemKind::Structure,
            store::FindingKind::Count => ProblemKind::Count,
            store::FindingKind::Lost => ProblemKind::Lost,
        }
    }
}

/// One problem, and where it is.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The kind of problem.
    pub kind: ProblemKind,
    /// The file below the volume directory; empty when a record is wrong, not a file.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The subvolume; 0: of none.
    pub subvolume: u64,
    /// The path from the volume's root, as far as known; empty when not known.
    pub path: Vec<u8>,
    /// The inode; 0: none.
    pub ino: u64,
    /// What is wrong, in words.
    pub what: String,
    /// The repair; `None`: nothing repairs it, and what is lost stays lost.
    pub fix: Option<Fix>,
    /// Whether it is an unused file that an administrator may move away.
    pub(crate) is_stray: bool,
}

/// What to do about a problem. Callers decide by this, never by words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing repairs it.
    None,
    /// `fsck --repair` repairs it and gives nothing up.
    Repair,
    /// Truncate the log, on explicit request: later changes are lost.
    DiscardLog,
    /// A checkpoint of the daemon that has the volume open.
    Checkpoint,
    /// Nothing is lost; an administrator moves the named file away.
    MoveAway,
}

impl Action {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Action::None => "none",
            Action::Repair => "repair",
            Action::DiscardLog => "discard-log",
            Action::Checkpoint => "checkpoint",
            Action::MoveAway => "move-away",
        }
    }
}

impl Problem {
    /// What is wrong with a header of the volume.
    pub(super) fn of_header(fault: HeaderFault) -> Problem {
        let HeaderFault { file, offset, what, contradicts, is_repairable } = fault;
        let kind = if contradicts { ProblemKind::Structure } else { ProblemKind::Unreadable };
        let fix = is_repairable.then_some(Fix::Header);
        Problem { fix, ..Problem::new(kind, what).in_file(file, offset) }
    }

    /// A problem with no further details yet.
    pub fn new(kind: ProblemKind, what: String) -> Problem {
        Problem {
            kind,
            file: String::new(),
            offset: 0,
            subvolume: 0,
            path: Vec::new(),
            ino: 0,
            what,
            fix: None,
            is_stray: false,
        }
    }

    /// A finding of the store's own check.
    pub fn of_store(finding: &store::Finding) -> Problem {
        let problem = Problem::new(ProblemKind::from(finding.kind), finding.text());
        Problem {
            fix: of_engine(finding.remedy),
            is_stray: finding.remedy == Remedy::MoveAway,
            ..problem.in_file(&finding.file, finding.offset)
        }
    }

    /// What to do about it.
    pub fn action(&self) -> Action {
        match &self.fix {
            None if self.is_stray => Action::MoveAway,
            None => Action::None,
            Some(Fix::Log) => Action::DiscardLog,
            Some(Fix::Checkpoint) => Action::Checkpoint,
            Some(_) => Action::Repair,
        }
    }

    /// Whether another report has the same problem: kind and place, regardless of the words.
    pub fn is_same(&self, other: &Problem) -> bool {
        let of = |problem: &Problem| {
            (problem.kind, problem.offset, problem.subvolume, problem.ino, problem.action())
        };
        of(self) == of(other) && self.file == other.file && self.path == other.path
    }

    /// Damage of this kind, or a failed read of the disk.
    pub fn of_damage(kind: ProblemKind, bad: &Corruption) -> Problem {
        let Corruption { structure, found, expected, unread, .. } = bad;
        if *unread {
            return Problem::new(ProblemKind::ReadError, format!("cannot be read: {found}"));
        }
        Problem::new(kind, format!("{structure}: {found} instead of {expected}"))
    }

    /// With the file that is damaged.
    #[must_use]
    pub fn in_file(self, file: &str, offset: u64) -> Problem {
        Problem { file: file.to_owned(), offset, ..self }
    }

    /// With what repairs it.
    pub(crate) fn repaired_by(self, fix: Fix) -> Problem {
        Problem { fix: Some(fix), ..self }
    }

    /// How a repair fixes it, in words; `None`: it cannot be repaired.
    pub fn remedy(&self) -> Option<String> {
        self.fix.as_ref().map(Fix::description)
    }
}

/// A change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Sets a key's value.
    Put(TreeId, Vec<u8>, Vec<u8>),
    /// Removes a key.
    Delete(TreeId, Vec<u8>),
}

/// What is restored to its name's place, or else moved into `lost+found`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stray {
    /// A directory that has a record and no name, or is in a loop.
    Directory(u64),
    /// An inode that has a record of its own and no name.
    Linked(u64),
    /// Extents of a file of which nothing else is left.
    Extents(u64),
    /// Small contents whose entry is gone: directory and cookie.
    Bulk(u64, u64),
    /// Small contents of an inode that had a record of its own, which is gone.
    LinkedBulk(u64),
    /// Entries of a directory whose record is gone.
    Entries(u64),
    /// An entry that is stored where its name cannot be found: directory and cookie.
    Entry(u64, u64),
    /// A subvolume that no entry points to, or that is in a loop.
    Subvolume(u64),
    /// A tree that no record names, as a subvolume: tree and its topmost directory.
    Tree(u64, u64),
}

/// What repairs a problem. Each is one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fix {
    /// Changes of records, with a description of their effect.
    Edits(&'static str, Vec<Edit>),
    /// Rebuilds the record of a directory from what is in it and what points to it: tree, inode,
    /// directory above and cookie there.
    Directory(TreeId, u64, (u64, u64)),
    /// Gives an object a name, in `lost+found` if it has none: subvolume, tree.
    Keep(u64, TreeId, Stray),
    /// Gives an inode that is stored beside several names a record of its own, which they name:
    /// subvolume, tree, inode.
    Join(u64, TreeId, u64),
    /// Notes in an inode beside a name that it has extents: tree, inode.
    Extended(TreeId, u64),
    /// Gives the second of two subvolumes that have one tree a copy of that tree.
    OwnTree(u64, u64),
    /// Drops a tree that no record names.
    DropTree(TreeId),
    /// Deletes the index; it is rebuilt in the background.
    DropIndex,
    /// Writes the header and footer of a segment again.
    Marks(u64),
    /// A checkpoint of the daemon that has the volume open rewrites it, or makes it unnecessary.
    Checkpoint,
    /// Truncates the log at the damage. Acknowledged changes are lost.
    Log,
    /// Writes the header of a log file again: everything in it is known from elsewhere.
    LogHeader,
    /// Writes the header, or its copy, again from the other.
    Header,
    /// Rebuilds the tree of the volume's own records, or that of their copies, from the other.
    VolumeRecords,
    /// Rebuilds the engine's counts from its roots, or writes its superblock again.
    Engine,
}

impl Fix {
    fn description(&self) -> String {
        match self {
            Fix::Edits(what, _) => (*what).to_owned(),
            Fix::Directory(_, ino, _) => format!("rebuild the record of directory {ino}"),
            Fix::Keep(_, _, stray) => match stray {
                Stray::Directory(ino) | Stray::Linked(ino) => format!("name it lost+found/#{ino}"),
                Stray::Extents(ino) | Stray::LinkedBulk(ino) => {
                    format!("keep the contents as lost+found/#{ino}")
                }
                Stray::Bulk(directory, cookie) => {
                    format!("keep the contents as lost+found/#{directory}-{cookie:x}")
                }
                Stray::Entries(ino) => format!("name the directory lost+found/#{ino}"),
                Stray::Entry(..) => "move the name to the key that lookups read".to_owned(),
                Stray::Subvolume(id) => format!("name it lost+found/#subvolume-{id}"),
                Stray::Tree(tree, _) => format!("keep it as a subvolume, lost+found/#tree-{tree}"),
            },
            Fix::Join(_, _, ino) => format!("point the names to one inode {ino}"),
            Fix::Extended(..) => "set the flag for extents, unless the inode has small contents \
                                  too"
            .to_owned(),
            Fix::OwnTree(_, id) => format!("give subvolume {id} a copy of it"),
            Fix::DropTree(tree) => format!("drop tree {}", tree.0),
            Fix::DropIndex => "delete the index, which is then rebuilt".to_owned(),
            Fix::Marks(segment) => format!("rewrite the marks of segment {segment:016x}"),
            Fix::Log => {
                "truncate the log here; later changes are lost; only with --discard-log".into()
            }
            Fix::Checkpoint => {
                "change something and unmount: the daemon then rewrites what it has in memory; \
                 then check again"
                    .into()
            }
            Fix::LogHeader => "rewrite the header of that log file".to_owned(),
            Fix::Header => "rewrite it from the other file".to_owned(),
            Fix::VolumeRecords => "rebuild the tree from the other".to_owned(),
            Fix::Engine => "recount from the roots, and write the result".to_owned(),
        }
    }
}

/// What a check of a whole volume found.
#[derive(Debug, Clone, Default)]
pub struct VolumeReport {
    /// What the store's own check found.
    pub store: store::CheckReport,
    /// Subvolumes that were checked.
    pub subvolumes: u64,
    /// Records of trees that were checked.
    pub records: u64,
    /// Directories that can be reached, in all of them; what a snapshot shares counts once.
    pub directories: u64,
    /// Other inodes.
    pub files: u64,
    /// Distinct extents.
    pub extents: u64,
    /// Bytes of contents that were read and verified.
    pub data_bytes: u64,
    /// Files of the index that were read.
    pub index_files: u64,
    /// The first of the problems that can be repaired, and the first of the others, in the order in
    /// which they were met. Those of the store are among them.
    pub problems: Vec<Problem>,
    /// How many there were.
    pub problems_count: u64,
    /// Whether the disk failed to read some bytes. Then nothing is repaired: a repair might rebuild
    /// the unreadable data, or treat it as gone.
    pub unread: bool,
    /// Where the log is damaged: what truncating it would cost, or why that would be refused.
    pub log_cut: Option<Result<store::Cut, String>>,
    /// How many of them a repair fixes without losing anything.
    pub repairable_count: u64,
    /// How many of them have a remedy of any sort. That includes truncating the log, and a
    /// checkpoint of the daemon that has the volume open.
    pub remedies_count: u64,
    /// How many of them are read errors of the disk.
    pub(crate) read_errors_count: u64,
    /// Whether it was cancelled before everything was checked.
    pub stopped: bool,
}

impl VolumeReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems_count == 0 && !self.stopped
    }

    /// Adds a problem.
    pub fn add(&mut self, problem: Problem) {
        let kept = |count: u64| count.min(PROBLEMS_MAX);
        let (remedies, read_errors) = (kept(self.remedies_count), kept(self.read_errors_count));
        self.problems_count += 1;
        let kept = if let Some(fix) = &problem.fix {
            self.remedies_count += 1;
            self.repairable_count += u64::from(!matches!(fix, Fix::Log | Fix::Checkpoint));
            remedies
        } else if problem.kind == ProblemKind::ReadError {
            self.read_errors_count += 1;
            read_errors
        } else {
            self.problems.len() as u64 - remedies - read_errors
        };
        self.unread |= problem.kind == ProblemKind::ReadError;
        if kept < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// The present end of the list of problems.
    pub(super) fn at(&self) -> (usize, [u64; 4]) {
        let counts = [
            self.problems_count,
            self.repairable_count,
            self.remedies_count,
            self.read_errors_count,
        ];
        (self.problems.len(), counts)
    }

    /// Removes the problems that were added since the list ended there.
    pub(super) fn take_back(&mut self, (kept, counts): (usize, [u64; 4])) {
        self.problems.truncate(kept);
        [self.problems_count, self.repairable_count, self.remedies_count, self.read_errors_count] =
            counts;
    }

    /// Whether problems were met that are not in the list.
    pub fn is_cut(&self) -> bool {
        self.problems_count > self.problems.len() as u64
    }
}

/// The repair of a finding of the store's own check.
fn of_engine(remedy: Remedy) -> Option<Fix> {
    match remedy {
        Remedy::None | Remedy::MoveAway | Remedy::ByHand | Remedy::Keep => None,
        Remedy::Rebuild => Some(Fix::Engine),
        Remedy::Checkpoint => Some(Fix::Checkpoint),
        Remedy::RewriteLogHeader => Some(Fix::LogHeader),
        Remedy::CutLog => Some(Fix::Log),
    }
}
