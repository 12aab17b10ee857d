//! The results of checking a store.

use std::ops::ControlFlow;

use format::Corruption;

use crate::{Error, Result};

/// Findings beyond this many are counted but not kept.
const FINDINGS_MAX: usize = 1000;

/// Kinds of defects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// Bytes are not what was written: this structure, and everything below it, cannot be read.
    Unreadable,
    /// An intact structure breaks a rule: order, bounds, weight, level.
    Structure,
    /// A reference count, or the free space of a group, is wrong.
    Count,
    /// Space is marked as used but unreachable. It holds no data that anyone can name.
    Lost,
    /// The disk does not return the bytes. Whether they are what was written is not known.
    ReadError,
}

impl FindingKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Unreadable => "unreadable",
            FindingKind::Structure => "structure",
            FindingKind::Count => "count",
            FindingKind::Lost => "lost",
            FindingKind::ReadError => "read-error",
        }
    }
}

/// What repairs a finding. The code that finds it decides; nothing parses its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing in the store restores it.
    None,
    /// It is derived from the rest of the store, so the engine's offline repair rebuilds it.
    Rebuild,
    /// A checkpoint of the open store rewrites it or makes it unnecessary: memory holds everything
    /// needed from it.
    Checkpoint,
    /// Only the header of a log segment is damaged, and all its fields are known from elsewhere.
    RewriteLogHeader,
    /// Truncate the log at the damage; later changes are lost.
    CutLog,
    /// The store does not need the file: an administrator may move it away.
    MoveAway,
    /// An administrator must rename, restore or move the file, as the finding's text instructs.
    ByHand,
    /// Unreferenced space that is kept, because something unreadable may refer to it.
    Keep,
}

impl Remedy {
    /// What a report appends to the finding's text; empty where the text is complete.
    fn note(self) -> &'static str {
        match self {
            Remedy::None | Remedy::Rebuild | Remedy::CutLog | Remedy::ByHand => "",
            Remedy::Checkpoint => "; the daemon that has the volume open holds it in memory",
            Remedy::RewriteLogHeader => "; all records of it are whole without it",
            Remedy::MoveAway => "; nothing needs it here: move it away",
            Remedy::Keep => "; it is kept until what cannot be read is gone",
        }
    }
}

/// One defect, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind of defect.
    pub kind: FindingKind,
    /// The file, below the volume directory.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Description of the defect, for people only: see [`Finding::text`].
    pub what: String,
    /// What repairs it.
    pub remedy: Remedy,
}

impl Finding {
    /// A finding at a byte offset of a file that nothing repairs.
    pub fn new(kind: FindingKind, file: String, offset: u64, what: String) -> Finding {
        Finding { kind, file, offset, what, remedy: Remedy::None }
    }

    /// Sets what repairs it. Nothing repairs bytes that the device does not return.
    #[must_use]
    pub fn with(self, remedy: Remedy) -> Finding {
        let is_unread = self.kind == FindingKind::ReadError;
        Finding { remedy: if is_unread { Remedy::None } else { remedy }, ..self }
    }

    /// The full report text: the defect, and what follows from the remedy.
    pub fn text(&self) -> String {
        format!("{}{}", self.what, self.remedy.note())
    }

    /// Converts damage, missing files, files of a newer format and read errors of the disk to a
    /// finding. `of` names the damaged object, and may be empty. Any other error stays an error.
    pub fn of_error(of: &str, error: Error) -> Result<Finding> {
        let colon = if of.is_empty() { "" } else { ": " };
        let (file, what) = match error.as_damage() {
            Error::Corrupt(bad) => return Ok(Finding::of_damage(of, &bad)),
            Error::Missing { file, record: None } => (file, "the file is missing".to_owned()),
            Error::Missing { file, record: Some(record) } => {
                (file, format!("the file with record {record} is missing"))
            }
            Error::NewerFormat { file, found, known } => {
                (file, format!("version {found} instead of {known}"))
            }
            error => return Err(error),
        };
        Ok(Finding::new(FindingKind::Unreadable, file, 0, format!("{of}{colon}{what}")))
    }

    /// Converts damage to a finding; `of` names the damaged object, and may be empty.
    pub fn of_damage(of: &str, bad: &Corruption) -> Finding {
        let Corruption { file, offset, structure, expected, found, unread } = bad;
        let colon = if of.is_empty() { "" } else { ": " };
        let what = if *unread {
            format!("{of}{colon}cannot be read: {found}")
        } else {
            format!("{of}{colon}{structure}: {found} instead of {expected}")
        };
        let kind = if *unread { FindingKind::ReadError } else { FindingKind::Unreadable };
        Finding::new(kind, file.clone(), *offset, what)
    }
}

/// What a check found. Only distinct nodes are counted, however many trees share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Trees of the durable state.
    pub trees: u64,
    /// Detached subtrees that are yet to be freed.
    pub trash: u64,
    /// Leaves.
    pub leaves: u64,
    /// Interior nodes.
    pub interiors: u64,
    /// Nodes that hold one long value each.
    pub overflows: u64,
    /// Entries of the leaves.
    pub entries: u64,
    /// Units in use.
    pub units: u64,
    /// Bytes read and verified.
    pub bytes: u64,
    /// Bytes marked as used but unreachable.
    pub lost_bytes: u64,
    /// Log records that a crash would replay now.
    pub log_records: u64,
    /// Underfull nodes: space lost, nothing else.
    pub underfull: u64,
    /// The first findings.
    pub findings: Vec<Finding>,
    /// How many findings there were.
    pub findings_count: u64,
    /// Whether the disk failed to return some of the bytes.
    pub unread: bool,
    /// Whether the check was stopped early. Counters then cover a part, and reference counts were
    /// not compared.
    pub stopped: bool,
}

impl CheckReport {
    /// Whether no defect was found.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.findings_count += 1;
        self.unread |= finding.kind == FindingKind::ReadError;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Called periodically during a check, with the bytes checked and the approximate total; may stop
/// the check.
pub type CheckProgress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;
