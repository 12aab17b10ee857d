//! `pando summary`: what a directory holds, by kind, owner, size, age and extension, from the sums
//! of the index, without a walk.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wire::{Answer, Call, Sums, Totals};

use crate::cli_totals::SummaryArgs;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::Place;
use crate::session;

/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;

/// Classes of sizes: binary digits up to which a size belongs to them.
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

/// Classes of ages: days of UTC up to which an age belongs to them.
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

pub(crate) fn run(args: &SummaryArgs, output: &mut Output) -> Result<()> {
    let place = Place::locate(&args.path)?;
    let call = Call::Totals { path: &place.inner, depth: None, top: Some(args.top) };
    let answer = session::call(&place.volume, &call, &mut |_| Ok(()))?;
    let Answer::Totals(totals) = answer else { return Err(session::unexpected(&answer)) };
    output.object(&object(&totals))?;
    text(args, &totals, output)
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
            sum.files += of.files;
            sum.bytes = sum.bytes.wrapping_add(of.bytes);
            sum.allocated = sum.allocated.wrapping_add(of.allocated);
        }
    }
    found.to_vec()
}

fn named(name: impl Into<String>, sums: Sums) -> Value {
    json!({
        "name": name.into(),
        "files": sums.files,
        "bytes": sums.bytes,
        "allocated": sums.allocated,
    })
}

fn object(totals: &Totals) -> Value {
    let users = Names::of("/etc/passwd");
    let groups = Names::of("/etc/group");
    let numbered = |names: &Names, list: &[(u32, Sums)]| -> Vec<Value> {
        let one = |(number, sums): &(u32, Sums)| {
            let mut object = named(names.get(*number), *sums);
            object["number"] = json!(number);
            object
        };
        list.iter().map(one).collect()
    };
    let list = |list: Vec<(&str, Sums)>| -> Vec<Value> {
        list.into_iter().map(|(name, sums)| named(name, sums)).collect()
    };
    let directories: Vec<Value> = totals
        .largest
        .iter()
        .map(|directory| {
            let mut object = named("", directory.own);
            output::put_bytes(&mut object, "name", shown(&directory.path.0));
            object
        })
        .collect();
    json!({
        "files": totals.sums.files,
        "directories": totals.directories,
        "bytes": totals.sums.bytes,
        "allocated": totals.sums.allocated,
        "ctime": output::time_rfc3339(totals.ctime),
        "unreadable_directories": totals.unreadable,
        "kinds": totals.kinds.iter().map(|(name, of)| named(&**name, *of)).collect::<Vec<_>>(),
        "owners": numbered(&users, &totals.owners),
        "groups": numbered(&groups, &totals.groups),
        "sizes": list(by_size(totals)),
        "ages": list(by_age(totals)),
        "extensions": totals
            .extensions
            .iter()
            .map(|(name, of)| named(name.lossy(), *of))
            .collect::<Vec<_>>(),
        "extensions_in_all": totals.extensions_in_all,
        "largest_directories": directories,
    })
}

fn shown(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/") {
        Some(rest) => rest,
        None if path.is_empty() => b".",
        None => path,
    }
}

fn text(args: &SummaryArgs, totals: &Totals, output: &mut Output) -> Result<()> {
    let Sums { files, bytes, allocated } = totals.sums;
    output.line(&format!(
        "{} files, {} directories, {} ({} on the medium)",
        output::number(files),
        output::number(totals.directories),
        output::size(bytes),
        output::size(allocated)
    ))?;
    if totals.unreadable > 0 {
        let count = output::number(totals.unreadable);
        output.line(&format!("{count} directories cannot be read, and are not counted"))?;
    }
    let users = Names::of("/etc/passwd");
    let mut owners: Vec<(String, Sums)> =
        totals.owners.iter().map(|(number, of)| (users.get(*number), *of)).collect();
    owners.sort_by_key(|(_, of)| std::cmp::Reverse(of.bytes));
    owners.truncate(args.top as usize);
    let plain = |list: Vec<(&str, Sums)>| -> Vec<(String, Sums)> {
        let there = list.into_iter().filter(|(_, of)| of.files > 0);
        there.map(|(name, of)| (name.to_owned(), of)).collect()
    };
    let extension = |name: &wire::Bytes| match &name.0[..] {
        b"" => "(none)".to_owned(),
        name => format!(".{}", printable(name)),
    };
    let extensions = totals.extensions.iter().map(|(name, of)| (extension(name), *of)).collect();
    let largest = totals.largest.iter().map(|one| (printable(shown(&one.path.0)), one.own));
    for (title, list) in [
        ("kind", totals.kinds.clone()),
        ("owner", owners),
        ("size", plain(by_size(totals))),
        ("last changed", plain(by_age(totals))),
        ("extension", extensions),
        ("directories that hold the most by themselves", largest.collect()),
    ] {
        section(title, &list, bytes, output)?;
    }
    Ok(())
}

/// A table with a bar for each share of the bytes.
fn section(title: &str, list: &[(String, Sums)], all: u64, output: &mut Output) -> Result<()> {
    const BAR: u64 = 20;
    if list.is_empty() {
        return Ok(());
    }
    output.line("")?;
    output.line(&format!("by {title}"))?;
    for (name, sums) in list {
        let share = u128::from(sums.bytes) * u128::from(BAR) / u128::from(all.max(1));
        let bar = "#".repeat(share.min(u128::from(BAR)) as usize);
        let (files, size) = (output::number(sums.files), output::size(sums.bytes));
        output.line(&format!("{files:>13} files {size:>12}  {bar:<20}  {name}"))?;
    }
    Ok(())
}

/// Names of users or groups on this machine.
struct Names(BTreeMap<u32, String>);

impl Names {
    fn of(file: &str) -> Names {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let one = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            Some((fields.nth(1)?.parse().ok()?, name))
        };
        // Of several names of a number the first counts.
        Names(text.lines().rev().filter_map(one).collect())
    }

    fn get(&self, number: u32) -> String {
        self.0.get(&number).cloned().unwrap_or_else(|| number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::{DAY, Totals, by_age, by_size};
    use wire::Sums;

    #[test]
    fn classes_take_their_edges_and_nothing_falls_out() {
        let one = Sums { files: 1, bytes: 1, allocated: 1 };
        let sizes = [0, 1, 12, 13, 20, 21, 64].map(|digits| (digits, one)).to_vec();
        let days = [101, 100, 99, 93, 92, -10_000].map(|day| (day, one)).to_vec();
        let totals = Totals { sizes, days, now: 100 * DAY + 5, ..Totals::default() };
        let files =
            |list: Vec<(&str, Sums)>| list.iter().map(|(_, of)| of.files).collect::<Vec<_>>();
        assert_eq!(files(by_size(&totals)), [1, 2, 1, 1, 1, 0, 0, 1]);
        assert_eq!(files(by_age(&totals)), [1, 1, 2, 1, 0, 0, 0, 1]);
    }
}
