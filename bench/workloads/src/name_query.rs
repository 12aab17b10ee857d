//! Searches of a whole volume for names, in process.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::Fs;
use inode::{Caller, NodeId};
use search::cluster::Fields;
use search::query::{Accounts, Expr, Glob, Test};
use search::{Outcome, Request, Start};
use wire::{Failure, FailureKind};

use super::volume::broken;
use program::failure::Result;

/// Knows every user and every group.
pub(super) struct Everybody;

impl Accounts for Everybody {
    fn has_user(&self, _uid: u32) -> bool {
        true
    }

    fn has_group(&self, _gid: u32) -> bool {
        true
    }
}

/// Searches everything below the volume's root for names that match.
pub(super) fn find(fs: &Fs, who: &Caller, glob: Glob) -> Result<Outcome> {
    let (subvolume, directory) = fs.search_place(NodeId::ROOT).map_err(broken)?;
    let request = Request {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        expr: &Expr::Test(Test::Name(glob)),
        prune: None,
        alone: false,
        caller: who,
        min_depth: 0,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields: Fields::NONE,
        accounts: &Everybody,
        cancel: &AtomicBool::new(false),
    };
    let outcome = fs.search(&request, &mut |_| ControlFlow::Continue(()));
    outcome.map_err(|error| Failure::new(FailureKind::Other, format!("a query failed: {error}")))
}
