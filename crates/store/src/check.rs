//! What checking a store finds.

use std::ops::ControlFlow;

use format::Corruption;

use crate::UNREAD;

/// Findings beyond this many are counted but not kept.
const FINDINGS_MAX: usize = 1000;

/// What kind of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// Bytes are not what was written: what stood there, and all below it, cannot be read.
    Unreadable,
    /// Something whole breaks a rule: order, bounds, weight, level.
    Structure,
    /// A reference count, or the free room of a group, is not what it should be.
    Count,
    /// Room is marked as used, and nothing leads there. It holds no data that anyone can name.
    Lost,
    /// The disk does not give the bytes. Whether they are what was written is not known.
    Medium,
}

impl FindingKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Unreadable => "unreadable",
            FindingKind::Structure => "structure",
            FindingKind::Count => "count",
            FindingKind::Lost => "lost",
            FindingKind::Medium => "medium",
        }
    }
}

/// What repairs a finding. The code that finds it decides; nothing is concluded from its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing in the store restores it.
    None,
    /// It is derived from the rest of the store, so the engine's offline repair writes it again.
    Rebuild,
    /// A checkpoint of the open store writes it again or makes it unnecessary: memory holds all
    /// that is needed of it.
    Checkpoint,
    /// Only the header of a log segment is damaged, and all that it says is known without it.
    RewriteLogHeader,
    /// Truncate the log at the damage; later changes are lost.
    CutLog,
    /// The store does not need the file: a person may move it away.
    MoveAway,
    /// A person must rename, restore or move the file, as the words of the finding say.
    ByHand,
    /// Unreferenced space that is kept, because something unreadable may refer to it.
    Keep,
}

impl Remedy {
    /// What a report adds to the words of the finding; empty where they say it all.
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

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// The file, below the volume directory.
    pub file: String,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// What is wrong, in words. For people alone: see [`Finding::text`].
    pub what: String,
    /// What repairs it.
    pub remedy: Remedy,
}

impl Finding {
    /// A finding at a byte of a file that nothing repairs.
    pub fn new(kind: FindingKind, file: String, offset: u64, what: String) -> Finding {
        Finding { kind, file, offset, what, remedy: Remedy::None }
    }

    /// The same with what repairs it. Nothing repairs bytes that the device does not return.
    #[must_use]
    pub fn with(self, remedy: Remedy) -> Finding {
        let is_unread = self.kind == FindingKind::Medium;
        Finding { remedy: if is_unread { Remedy::None } else { remedy }, ..self }
    }

    /// All that a report says of it: what is wrong, and what follows from the remedy.
    pub fn text(&self) -> String {
        format!("{}{}", self.what, self.remedy.note())
    }

    /// Damage as a finding; `of` says of what, and may be empty.
    pub fn of_damage(of: &str, bad: &Corruption) -> Finding {
        let Corruption { file, offset, structure, expected, found } = bad;
        let is_unread = *structure == UNREAD;
        let colon = if of.is_empty() { "" } else { ": " };
        let what = if is_unread {
            format!("{of}{colon}cannot be read: {found}")
        } else {
            format!("{of}{colon}{structure}: {found} instead of {expected}")
        };
        let kind = if is_unread { FindingKind::Medium } else { FindingKind::Unreadable };
        Finding::new(kind, file.clone(), *offset, what)
    }
}

/// What a check found. Only distinct nodes are counted, however many trees share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Trees of the durable state.
    pub trees: u64,
    /// Things cut off that are yet to be freed.
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
    /// Bytes that were read and verified.
    pub bytes: u64,
    /// Bytes marked as used to which nothing leads.
    pub lost_bytes: u64,
    /// Log records that a crash would replay now.
    pub log_records: u64,
    /// Nodes that are lighter than they should be: room lost, nothing else.
    pub light: u64,
    /// The first of the findings.
    pub findings: Vec<Finding>,
    /// How many findings there were.
    pub findings_count: u64,
    /// Whether the disk did not give some of the bytes.
    pub unread: bool,
    /// Whether it was ended before all was looked at. What was counted until then is a part, and
    /// reference counts were not compared.
    pub stopped: bool,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        self.findings_count += 1;
        self.unread |= finding.kind == FindingKind::Medium;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Called now and then during a check, with the bytes that were looked at and about how many there
/// are; may end it.
pub type CheckProgress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;
