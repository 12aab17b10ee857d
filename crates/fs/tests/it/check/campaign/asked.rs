//! Queries a volume for everything in it.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use format::inode_record::FileKind;
use fs::{Engine, FileSystem, Fs, OpenError, Removed, WalkControl};
use inode::{Caller, FsError, NodeId};
use search::cluster::Fields;
use search::query::Expr;
use search::{Request, Start};
use store::Durability;
use testing::model::{Op, OpPath, show_path};

use super::made::{Right, why};
use super::media::Media;
use crate::check::volume::{Looked, ask, opened_with};
use crate::search::Everybody;
use crate::subject::{Base, FsSubject};

/// What was refused, and the words for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) what: String,
    /// Of what; `None`: of no path.
    pub(super) path: Option<OpPath>,
    pub(super) why: String,
}

impl Refused {
    /// Whether it is the same that is refused, in whatever words.
    pub(super) fn is(&self, other: &Refused) -> bool {
        self.what == other.what
    }
}

/// The outcome of a look-up.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) looked: Looked,
    pub(super) refused: Vec<Refused>,
}

impl Seen {
    pub(super) fn is_same(&self) -> bool {
        self.looked.is_same()
    }

    /// Whether nothing of it answers.
    pub(super) fn is_nothing(&self) -> bool {
        self.looked.closed.is_some() || self.looked.right == 0
    }
}

pub(super) fn open(media: &Media) -> Result<FsSubject, OpenError> {
    // The engine is in the header.
    // The engine is in the header.
    let base = Base::Engine(Engine::default());
    FsSubject::open_on(media.device(), &opened_with(Durability::Async), &base)
}

/// Asks a copy of a volume.
pub(super) fn look(media: &Media, right: &Right) -> Seen {
    let mut seen = Seen::default();
    let mut subject = match open(&media.copy()) {
        Ok(subject) => subject,
        Err(error) => {
            let why = error.to_string();
            let what = "opening".to_owned();
            seen.refused.push(Refused { what, path: None, why: why.clone() });
            seen.looked.closed = Some(why);
            return seen;
        }
    };
    let (looked, refused) = (&mut seen.looked, &mut seen.refused);
    ask(&mut subject, &right.dump, looked, &mut |subject, path, op| {
        let why = why(subject, path, op).unwrap_or_default();
        let of = match op {
            Op::Stat { .. } => "attributes",
            Op::Read { .. } => "contents",
            Op::Readlink { .. } => "target",
            Op::List { .. } => "names",
            _ => "extended attribute",
        };
        let what = format!("{of} of {}", show_path(path));
        refused.push(Refused { what, path: Some(path.clone()), why });
    });
    for ((what, wanted), (_, answer)) in right.answers.iter().zip(answers(subject.fs())) {
        match answer {
            Ok(answer) if answer == *wanted => looked.right += 1,
            Ok(answer) => looked.wrong.push(format!("{what}:\n{answer}\nnot\n{wanted}")),
            Err(why) => {
                looked.refused += 1;
                refused.push(Refused { what: (*what).to_owned(), path: None, why });
            }
        }
    }
    seen
}

/// What a volume answers beside what is asked of paths.
pub(in crate::check) fn answers(fs: &Fs) -> Vec<(&'static str, Result<String, String>)> {
    let root = Caller::root();
    let quotas = fs.quota_list(&root).map(|list| format!("{list:#?}"));
    let owners = fs.owner_quota_list(&root).map(|list| format!("{list:#?}"));
    vec![
        ("the quotas", quotas.map_err(|error| error.to_string())),
        ("the quotas of owners", owners.map_err(|error| error.to_string())),
        ("the trash", trash(fs)),
        ("a search", search(fs)),
        (
            "scans",
            fs.scan_info()
                .map_or_else(|error| Err(error.to_string()), |info| Ok(format!("{info:?}"))),
        ),
    ]
}

fn trash(fs: &Fs) -> Result<String, String> {
    let (root, mut found) = (Caller::root(), Vec::new());
    let kept = match fs.lookup(&root, NodeId::ROOT, b"kept") {
        Err(FsError::NotFound) => return Ok("none".to_owned()),
        kept => kept.map_err(|error| error.to_string())?,
    };
    let mut take = |removed: Removed| {
        found.push(format!("{:?} of {} bytes", removed.path, removed.attr.size));
        WalkControl::Continue
    };
    let listed = fs.trash_list(&root, (kept.node, &[]), &mut take);
    listed.map_err(|error| error.to_string())?;
    Ok(found.join("\n"))
}

/// All that has a name, but what a repair keeps.
fn search(fs: &Fs) -> Result<String, String> {
    let (subvolume, directory) =
        fs.search_place(NodeId::ROOT).map_err(|error| error.to_string())?;
    let expr = Expr::All(Vec::new());
    let request = Request {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        expr: &expr,
        prune: None,
        alone: false,
        caller: &Caller::root(),
        min_depth: 1,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields: Fields::ATTRIBUTES,
        accounts: &Everybody,
        cancel: &AtomicBool::new(false),
    };
    let mut found = Vec::new();
    let outcome = fs.search(&request, &mut |matched| {
        let path = String::from_utf8_lossy(matched.path).into_owned();
        if !path.contains("lost+found") {
            let is_directory = matched.row.kind == FileKind::Directory;
            let size = if is_directory { 0 } else { matched.row.size };
            found.push(format!("{path} of {size} bytes"));
        }
        ControlFlow::Continue(())
    });
    outcome.map_err(|error| error.to_string())?;
    found.sort();
    Ok(found.join("\n"))
}
