//! `pando summary`: what a directory holds, by kind, owner, size, age and extension, from the sums
//! of the index, without a walk. Entries that are not listed one by one are added up in one line.

use serde::Serialize;
use wire::{Answer, Body, Bytes, Call, DirectoryTotals, Sums, SumsOf, Top, Totals};

use crate::cli_totals::SummaryArgs;
use crate::failure::Result;
use crate::names::Names;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

/// Nanoseconds per day.
const DAY: i64 = 86_400_000_000_000;

/// Classes of sizes: the largest number of binary digits of a size in each class.
const SIZES: [(u8, &str); 8] = [
    (0, "empty"),
    (12, "below 4 KiB"),
    (16, "4 KiB to 64 KiB"),
    (20, "64 KiB to 1 MiB"),
    (24, "1 MiB to 16 MiB"),
    (28, "16 MiB to 256 MiB"),
    (32, "256 MiB to 4 GiB"),
    (64, "4 GiB and more"),
];

/// Classes of ages: the largest age of each class in days (UTC).
const AGES: [(i64, &str); 8] = [
    (-1, "in the future"),
    (0, "today (UTC)"),
    (7, "1 to 7 days"),
    (30, "8 to 30 days"),
    (90, "31 to 90 days"),
    (365, "91 to 365 days"),
    (1095, "1 to 3 years"),
    (i64::MAX, "more than 3 years"),
];

/// An answer with its parts.
#[derive(Default)]
struct Summary {
    totals: Totals,
    owners: Vec<(u32, Sums)>,
    groups: Vec<(u32, Sums)>,
    extensions: Vec<(Bytes, Sums)>,
    largest: Vec<DirectoryTotals>,
}

pub(crate) fn run(args: &SummaryArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::reading(&args.path, Last::Target)?;
    let top = Top {
        owners: (!args.all && !output.is_json()).then_some(args.top),
        extensions: (!args.all).then_some(args.top),
        directories: args.top,
    };
    let call = Call::Totals { path: &place.inner, depth: None, top: Some(top) };
    let mut summary = Summary::default();
    let mut skipped = None;
    let answer = session::call(&place, &call, &mut |body| {
        match body {
            Body::Summed(sums) => summary.add(sums),
            Body::Largest(largest) => summary.largest.extend(largest),
            Body::Skipped(failure) => {
                output.failure(&failure);
                skipped.get_or_insert(failure.kind);
            }
            _ => {}
        }
        Ok(())
    })?;
    let Answer::Totals(totals) = answer else { return Err(session::unexpected(&answer)) };
    summary.totals = *totals;
    if output.is_json() {
        output.record(&Object::of(&summary))?;
    } else {
        text(&summary, output)?;
    }
    match skipped {
        Some(kind) => Err(super::du::not_all(kind)),
        None => Ok(()),
    }
}

impl Summary {
    fn add(&mut self, sums: Vec<(SumsOf, Sums)>) {
        for (of, sums) in sums {
            match of {
                SumsOf::Owner(number) => self.owners.push((number, sums)),
                SumsOf::Group(number) => self.groups.push((number, sums)),
                SumsOf::Extension(name) => self.extensions.push((name, sums)),
            }
        }
    }

    /// The entries that are not printed: how many, and their sums.
    fn others<T>(&self, listed: &[(T, Sums)], in_all: u64) -> (u64, Sums) {
        let mut shown = Sums::default();
        for (_, sums) in listed {
            shown.add(*sums);
        }
        (in_all.saturating_sub(listed.len() as u64), self.totals.sums.without(shown))
    }
}

/// Sums by classes of size, all classes in order.
fn by_size(totals: &Totals) -> Vec<(&'static str, Sums)> {
    let class = |digits: u8| SIZES.iter().position(|(most, _)| digits <= *most).unwrap_or(0);
    classes(SIZES.map(|(_, name)| name), totals.sizes.iter().map(|(one, of)| (class(*one), *of)))
}

/// Sums by classes of age, all classes in order.
fn by_age(totals: &Totals) -> Vec<(&'static str, Sums)> {
    let today = totals.now.div_euclid(DAY);
    let class = |day: i64| {
        let age = today.saturating_sub(day);
        AGES.iter().position(|(most, _)| age <= *most).unwrap_or(0)
    };
    classes(AGES.map(|(_, name)| name), totals.days.iter().map(|(one, of)| (class(*one), *of)))
}

fn classes<const N: usize>(
    names: [&'static str; N],
    sums: impl Iterator<Item = (usize, Sums)>,
) -> Vec<(&'static str, Sums)> {
    let mut found = names.map(|name| (name, Sums::default()));
    for (class, of) in sums {
        if let Some((_, sum)) = found.get_mut(class) {
            sum.add(of);
        }
    }
    found.to_vec()
}

/// Sums of a group as JSON.
#[derive(Serialize)]
struct Named {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
    files: u64,
    bytes: u128,
    allocated: u128,
}

/// An answer as JSON.
#[derive(Serialize)]
struct Object {
    files: u64,
    directories: u64,
    bytes: u128,
    allocated: u128,
    ctime: String,
    unreadable_directories: u64,
    kinds: Vec<Named>,
    owners: Vec<Named>,
    owners_in_all: u64,
    groups: Vec<Named>,
    groups_in_all: u64,
    sizes: Vec<Named>,
    ages: Vec<Named>,
    extensions: Vec<Named>,
    extensions_in_all: u64,
    largest_directories: Vec<Named>,
}

impl Named {
    fn of(name: impl Into<String>, sums: Sums) -> Named {
        let Sums { files, bytes, allocated } = sums;
        Named { name: name.into(), name_hex: None, number: None, files, bytes, allocated }
    }

    fn path(path: &[u8], sums: Sums) -> Named {
        let name_hex = output::hex(path);
        Named { name_hex, ..Named::of(String::from_utf8_lossy(path), sums) }
    }
}

impl Object {
    fn of(summary: &Summary) -> Object {
        let totals = &summary.totals;
        let mut names = Names::default();
        let mut numbered = |name: fn(&mut Names, u32) -> String, list: &[(u32, Sums)]| {
            let one = |(number, sums): &(u32, Sums)| Named {
                number: Some(*number),
                ..Named::of(name(&mut names, *number), *sums)
            };
            list.iter().map(one).collect()
        };
        let list = |list: Vec<(&str, Sums)>| -> Vec<Named> {
            list.into_iter().map(|(name, sums)| Named::of(name, sums)).collect()
        };
        let extensions = summary.extensions.iter();
        let largest = summary.largest.iter();
        Object {
            files: totals.sums.files,
            directories: totals.directories,
            bytes: totals.sums.bytes,
            allocated: totals.sums.allocated,
            ctime: output::time_rfc3339(totals.ctime),
            unreadable_directories: totals.unreadable,
            kinds: totals.kinds.iter().map(|(name, of)| Named::of(&**name, *of)).collect(),
            owners: numbered(Names::user, &summary.owners),
            owners_in_all: totals.owners_in_all,
            groups: numbered(Names::group, &summary.groups),
            groups_in_all: totals.groups_in_all,
            sizes: list(by_size(totals)),
            ages: list(by_age(totals)),
            extensions: extensions.map(|(name, of)| Named::of(name.lossy(), *of)).collect(),
            extensions_in_all: totals.extensions_in_all,
            largest_directories: largest
                .map(|directory| Named::path(shown(&directory.path.0), directory.own))
                .collect(),
        }
    }
}

fn shown(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/") {
        Some(rest) => rest,
        None if path.is_empty() => b".",
        None => path,
    }
}

fn text(summary: &Summary, output: &mut Output) -> Result<()> {
    let totals = &summary.totals;
    let Sums { files, bytes, allocated } = totals.sums;
    output.line(&format!(
        "{}, {}, {} ({} on disk)",
        output::count(files, "file", "files"),
        output::count(totals.directories, "directory", "directories"),
        output::size(bytes),
        output::size(allocated)
    ))?;
    if totals.unreadable > 0 {
        output.line(&super::du::not_counted(totals.unreadable))?;
    }
    let mut names = Names::default();
    let owners = summary.owners.iter().map(|(number, of)| (names.user(*number), *of));
    let plain = |list: Vec<(&str, Sums)>| -> Vec<(String, Sums)> {
        let there = list.into_iter().filter(|(_, of)| of.files > 0);
        there.map(|(name, of)| (name.to_owned(), of)).collect()
    };
    let extension = |name: &Bytes| match &name.0[..] {
        b"" => "(none)".to_owned(),
        name => format!(".{}", printable(name)),
    };
    let extensions = summary.extensions.iter().map(|(name, of)| (extension(name), *of));
    let largest = summary.largest.iter().map(|one| (printable(shown(&one.path.0)), one.own));
    let other_owners = summary.others(&summary.owners, totals.owners_in_all);
    let other_extensions = summary.others(&summary.extensions, totals.extensions_in_all);
    let none = (0, Sums::default());
    for (title, list, others) in [
        ("kind", totals.kinds.clone(), none),
        ("owner", owners.collect(), other_owners),
        ("size", plain(by_size(totals)), none),
        ("last changed", plain(by_age(totals)), none),
        ("extension", extensions.collect(), other_extensions),
        ("directories that hold the most by themselves", largest.collect(), none),
    ] {
        section(title, &list, others, bytes, output)?;
    }
    Ok(())
}

/// A table with a bar for each share of the bytes, and the sum of the other entries.
fn section(
    title: &str,
    list: &[(String, Sums)],
    (others, their_sums): (u64, Sums),
    all: u128,
    output: &mut Output,
) -> Result<()> {
    const BAR: u128 = 20;
    if list.is_empty() && others == 0 {
        return Ok(());
    }
    output.line("")?;
    output.line(&format!("by {title}"))?;
    let others = (others > 0)
        .then(|| (format!("and {}", output::count(others, "other", "others")), their_sums));
    for (name, sums) in list.iter().chain(&others) {
        let share = (sums.bytes.saturating_mul(BAR) / all.max(1)).min(BAR);
        let bar = "#".repeat(share as usize);
        let (files, size) = (output::number(sums.files), output::size(sums.bytes));
        let noun = if sums.files == 1 { "file" } else { "files" };
        output.line(&format!("{files:>13} {noun:<5} {size:>12}  {bar:<20}  {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{DAY, Object, Summary, Totals, by_age, by_size};
    use wire::Sums;

    #[test]
    fn classes_include_their_bounds_and_cover_everything() {
        let one = Sums { files: 1, bytes: 1, allocated: 1 };
        let sizes = [0, 1, 12, 13, 20, 21, 64].map(|digits| (digits, one)).to_vec();
        let days = [101, 100, 99, 93, 92, -10_000].map(|day| (day, one)).to_vec();
        let totals = Totals { sizes, days, now: 100 * DAY + 5, ..Totals::default() };
        let files =
            |list: Vec<(&str, Sums)>| list.iter().map(|(_, of)| of.files).collect::<Vec<_>>();
        assert_eq!(files(by_size(&totals)), [1, 2, 1, 1, 1, 0, 0, 1]);
        assert_eq!(files(by_age(&totals)), [1, 1, 2, 1, 0, 0, 0, 1]);
    }
    #[test]
    fn sums_of_omitted_owners_are_exact_beyond_64_bits() {
        let sums = |files, bytes| Sums { files, bytes, allocated: 0 };
        let totals = Totals { sums: sums(9, 7 << 64), owners_in_all: 4, ..Totals::default() };
        let owners = vec![(1, sums(2, 4 << 64)), (2, sums(3, 2 << 64))];
        let summary = Summary { totals, owners, ..Summary::default() };
        let others = summary.others(&summary.owners, summary.totals.owners_in_all);
        assert_eq!(others, (2, sums(4, 1 << 64)));
        let json = serde_json::to_string(&Object::of(&summary)).unwrap();
        assert!(json.contains("\"bytes\":129127208515966861312,"), "{json}");
    }
}
