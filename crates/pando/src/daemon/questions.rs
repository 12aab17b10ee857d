//! Resolves words of a query in `.search` by the users, groups and time of the daemon's machine.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fs::{Find, Fs, FsResult, Query, Search};
use inode::{Caller, NodeId};
use search::cluster::Fields;
use search::query::{Expr, Letters, Reference, Surroundings, parse_search_box};

use super::accounts::Accounts;
use crate::find::Around;

/// Answers the queries that appear as directories in `.search`.
pub(super) struct Questions {
    fs: Arc<Fs>,
    accounts: Arc<Accounts>,
}

impl Questions {
    /// Answers queries about a volume.
    pub(super) fn new(fs: &Arc<Fs>) -> Questions {
        Questions { fs: Arc::clone(fs), accounts: Arc::default() }
    }
}

impl Search for Questions {
    fn parse(&self, text: &[u8]) -> Result<Box<dyn Query>, String> {
        let around = Words(Around::new(None));
        let expr = parse_search_box(text, &around).map_err(|error| error.message)?;
        if !expr.within_bounds() {
            return Err("too many words".to_owned());
        }
        let (fs, accounts) = (Arc::clone(&self.fs), Arc::clone(&self.accounts));
        Ok(Box::new(Question { fs, accounts, expr }))
    }
}

struct Question {
    fs: Arc<Fs>,
    accounts: Arc<Accounts>,
    expr: Expr,
}

impl Query for Question {
    fn run(
        &self,
        caller: &Caller,
        directory: NodeId,
        limit: u64,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> FsResult<()> {
        let find = Find {
            expr: &self.expr,
            prune: None,
            min_depth: 1,
            max_depth: None,
            contents_first: false,
            order: None,
            limit: Some(limit),
            fields: Fields::NONE,
            accounts: &*self.accounts,
            cancel,
        };
        let emit = &mut |found: &search::Match<'_>| take(found.path);
        self.fs.find_below(caller, directory, b"../..", &find, emit).map(drop)
    }
}

/// The daemon's environment, except files: those would be read with the daemon's rights.
struct Words(Around);

impl Surroundings for Words {
    fn now(&self) -> i64 {
        self.0.now()
    }

    fn day_start(&self) -> i64 {
        self.0.day_start()
    }

    fn user(&self, name: &[u8]) -> Option<u32> {
        self.0.user(name)
    }

    fn group(&self, name: &[u8]) -> Option<u32> {
        self.0.group(name)
    }

    fn reference(&self, _: &[u8]) -> Result<Reference, String> {
        Err("a query in a path is not compared with files".to_owned())
    }

    fn time(&self, text: &[u8]) -> Option<i64> {
        self.0.time(text)
    }

    fn letters(&self) -> Letters {
        Letters::Utf8
    }
}
