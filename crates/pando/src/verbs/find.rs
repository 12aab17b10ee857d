//! `pando find`: GNU find's expressions and search-box queries, answered by the daemon.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;

use search::query::{Command, Expr, Fields, Test, What, parse};
use search::{Attribute, Sort, SortBy};
use wire::{
    Answer, Body, Call, Failure, FailureKind, Find, FindFrom, Found, FoundOutcome, Snapshots,
};

use crate::failure::Result;
use crate::find::{
    Arguments, Around, FindPath, HELP, Item, NOTHING, Ordered, Printer, like, object,
};
use crate::output::Output;
use crate::place::{Last, VolumePath, is_dangling};
use crate::session;

pub(crate) fn run(arguments: &[OsString], output: &mut Output) -> Result<()> {
    let mut arguments = Arguments::parse(arguments)?;
    output.set(arguments.json, arguments.quiet);
    // The option may come before the verb or after it.
    arguments.json = output.is_json();
    if arguments.help {
        return output.raw(HELP.as_bytes());
    }
    let places = arguments.paths.iter().flat_map(|path| &path.place);
    let mut volumes: Vec<&PathBuf> = places.map(|place| &place.volume).collect();
    volumes.sort_unstable();
    volumes.dedup();
    let around = Around::new((volumes.len() == 1).then(|| volumes[0].clone()));
    let mut command = parse(&arguments.expression, &around).map_err(|error| {
        let failure = Failure::new(FailureKind::Invalid, error.message);
        error.hint.map_or(failure.clone(), |hint| failure.hint(hint))
    })?;
    for warning in &command.warnings {
        output.remark(&format!("pando: {warning}"));
    }
    check(&arguments, &command)?;
    if let Some(path) = arguments.like.take() {
        let searched = (volumes.len() == 1).then(|| volumes[0].as_path());
        let model = like::model(&path, searched)?;
        if let Some(node) = model.node {
            // The file is most similar to itself, so it is excluded.
            let same = Test::Within(Attribute::Ino, node.into(), node.into());
            let other = Expr::Not(Box::new(Expr::Test(same)));
            command.expr = Expr::All(vec![other, command.expr]);
        }
        arguments.sort = Some(Sort { by: SortBy::Like(model.like), descending: false });
        arguments.limit.get_or_insert(like::LIMIT);
    }
    let now = search::query::Surroundings::now(&around);
    let terminal = std::io::stdout().is_terminal();
    let printer = Printer::new(command.actions.clone(), now, around.zone().clone(), terminal)?;
    let mut finding = Finding {
        arguments: &arguments,
        command: &command,
        printer,
        output,
        given: 0,
        ordered: arguments.sort.map(|sort| Ordered::new(sort, arguments.limit)),
        failed: None,
        total: FoundOutcome::default(),
    };
    let searched = finding.all();
    let ended = searched.and_then(|()| finding.finish());
    let Finding { failed, total, output, .. } = finding;
    ended?;
    if arguments.stats {
        output.stats(&total);
    }
    match failed {
        Some(kind) => {
            let failure = Failure::new(kind, "some paths could not be searched");
            Err(failure.hint("the messages above have the reasons"))
        }
        None => Ok(()),
    }
}

/// Keeps the arguments of `find` from being parsed as options of `pando`.
pub(crate) fn rewrite(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let verb = arguments.iter().skip(1).position(|argument| !argument.as_bytes().starts_with(b"-"));
    if let Some(at) = verb.map(|at| at + 1)
        && arguments[at] == "find"
    {
        arguments.insert(at + 1, "--".into());
    }
    arguments
}

/// Refuses arguments that exclude each other.
fn check(arguments: &Arguments, command: &Command) -> Result<()> {
    let wrong = |message: &str| {
        let failure = Failure::new(FailureKind::Invalid, message);
        Err(failure.hint("leave one of them out"))
    };
    let plain = |what: &What| matches!(what, What::Print | What::Count);
    let all_plain = command.actions.iter().all(|action| plain(&action.what));
    if arguments.json && !all_plain {
        return wrong("--json prints objects: it cannot be combined with -print0, -printf or -ls");
    }
    if arguments.sort.is_some() && arguments.like.is_some() {
        return wrong("--sort and --like ask for different orders");
    }
    let ordered = arguments.sort.is_some() || arguments.like.is_some();
    if ordered && command.contents_first {
        return wrong("--sort and -depth ask for different orders");
    }
    Ok(())
}

struct Finding<'a> {
    arguments: &'a Arguments,
    command: &'a Command,
    printer: Printer,
    output: &'a mut Output,
    /// Rows printed.
    given: u64,
    /// The rows so far, if the output is sorted.
    ordered: Option<Ordered>,
    failed: Option<FailureKind>,
    total: FoundOutcome,
}

impl Finding<'_> {
    /// Searches each path by itself, in the order typed: a file found belongs to the path that is
    /// currently searched.
    fn all(&mut self) -> Result<()> {
        for (number, path) in self.arguments.paths.iter().enumerate() {
            if self.limit() == Some(0) || self.total.quit {
                break;
            }
            self.one(number, path)?;
        }
        Ok(())
    }

    /// How many more rows may be printed.
    fn limit(&self) -> Option<u64> {
        self.arguments.limit.map(|limit| limit.saturating_sub(self.given))
    }

    /// Where a search begins, and whether the daemon follows a link at the end of that path. `-H`
    /// does not follow a link to nothing.
    fn start(&self, path: &FindPath) -> Result<(VolumePath, bool)> {
        let place = path.place.clone()?;
        if !self.arguments.follow || is_dangling(&path.typed) {
            return Ok((place, false));
        }
        Ok((VolumePath::reading(&path.typed, Last::Target)?, true))
    }

    fn question(&self, path: &FindPath, (place, follow): (&VolumePath, bool)) -> Find {
        let command = self.command;
        let fields = Fields::of(&command.actions);
        let (json, sort) = (self.arguments.json, self.arguments.sort);
        let by_attribute = sort.is_some_and(|sort| !matches!(sort.by, SortBy::Name | SortBy::Path));
        let limit = self.limit();
        Find {
            from: vec![FindFrom {
                path: place.inner.as_slice().into(),
                shown: path.typed.as_os_str().as_bytes().into(),
            }],
            follow,
            expr: command.expr.clone(),
            min_depth: command.min_depth,
            max_depth: command.max_depth,
            contents_first: command.contents_first,
            order: sort.filter(|_| limit.is_some_and(|limit| limit <= wire::ORDERED_MAX)),
            limit: limit.filter(|limit| sort.is_none() || *limit <= wire::ORDERED_MAX),
            snapshots: if self.arguments.all_snapshots { Snapshots::All } else { Snapshots::Named },
            attributes: fields.attributes || json || by_attribute,
            targets: fields.targets || json,
            count: command.counts_only() && limit.is_none(),
        }
    }

    fn one(&mut self, number: usize, path: &FindPath) -> Result<()> {
        let (place, follow) = match self.start(path) {
            Ok(start) => start,
            Err(failure) if self.arguments.paths.len() == 1 => return Err(failure),
            Err(failure) => return self.skip(&failure),
        };
        let question = self.question(path, (&place, follow));
        let count = question.count;
        let call = Call::Find(Box::new(question));
        let mut start: Rc<[u8]> = path.typed.as_os_str().as_bytes().into();
        let answer = session::call(&place.volume, &call, &mut |body| match body {
            Body::Searching(shown) => {
                start = shown.0.into();
                Ok(())
            }
            Body::Found(rows) => self.rows(number, &start, rows),
            Body::Skipped(failure) => self.skip(&failure),
            _ => Ok(()),
        });
        let answer = answer.map_err(|failure| path.explain(failure))?;
        let Answer::Found(outcome) = answer else { return Err(session::unexpected(&answer)) };
        if count {
            self.printer.counted(outcome.matched);
        }
        let total = &mut self.total;
        total.matched += outcome.matched;
        total.clusters += outcome.clusters;
        total.clusters_read += outcome.clusters_read;
        total.walked += outcome.walked;
        total.rows_tested += outcome.rows_tested;
        total.unreadable += outcome.unreadable;
        total.quit |= outcome.quit;
        Ok(())
    }

    /// Reports what is not searched; the rest is.
    fn skip(&mut self, failure: &Failure) -> Result<()> {
        self.output.flush()?;
        self.output.failure(failure);
        self.failed.get_or_insert(failure.kind);
        Ok(())
    }

    fn rows(&mut self, place: usize, start: &Rc<[u8]>, rows: Vec<Found>) -> Result<()> {
        for mut found in rows {
            found.path.0 = [&start[..], &found.path.0].concat();
            match &mut self.ordered {
                Some(ordered) => ordered.add(place, start, found)?,
                None => self.give(place, start, &found)?,
            }
        }
        // Prints the rows found so far, even if the next search takes long.
        if self.ordered.is_none() { self.output.flush() } else { Ok(()) }
    }

    fn give(&mut self, place: usize, start: &[u8], found: &Found) -> Result<()> {
        self.given += 1;
        let path = &self.arguments.paths[place];
        let nothing = NOTHING;
        let (device, file_system) = path.file_system();
        let item = Item {
            path: &found.path.0,
            start,
            depth: found.depth,
            attr: found.attr.as_ref().unwrap_or(&nothing),
            target: found.target.as_ref().map_or(&[], |target| &target.0),
            device,
            file_system,
        };
        if self.arguments.json && !self.command.counts_only() {
            return self.output.object(&object(&item));
        }
        if found.fired.is_empty() {
            return self.printer.act(0, &item, self.output);
        }
        for number in &found.fired {
            self.printer.act(usize::from(*number), &item, self.output)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(ordered) = self.ordered.take() {
            ordered.give(&mut |place, start, found| self.give(place, start, found))?;
        }
        self.printer.finish(self.output)
    }
}

impl FindPath {
    /// Explains the failure when a word was parsed as a path.
    fn explain(&self, failure: Failure) -> Failure {
        let word = self.typed.components().count() == 1;
        if failure.kind != FailureKind::NotFound || !failure.hint.is_empty() || !word {
            return failure;
        }
        failure.hint(format!("for names that contain it use name:{}", self.typed.display()))
    }

    /// The device that `stat` reports, and the type of the file system.
    fn file_system(&self) -> (u64, &'static str) {
        // A place in a volume without a mount has no device.
        self.typed.symlink_metadata().map_or((0, "pando"), |found| (found.dev(), "fuse.pando"))
    }
}
