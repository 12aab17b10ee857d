//! Resolves words of a query in `.search` by the users, groups and time of the daemon's machine.

use search::query::{Expr, Letters, Reference, Surroundings, parse_search_box};

use super::accounts::Accounts;
use crate::find::Around;

/// Parses the queries that appear as directories in `.search`.
#[derive(Default)]
pub(super) struct Questions {
    accounts: Accounts,
}

impl fs::Questions for Questions {
    fn parse(&self, text: &[u8]) -> Result<Expr, String> {
        let around = Words(Around::new(None));
        let expr = parse_search_box(text, &around).map_err(|error| error.message)?;
        if expr.within_bounds() { Ok(expr) } else { Err("too many words".to_owned()) }
    }

    fn accounts(&self) -> &dyn search::query::Accounts {
        &self.accounts
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
