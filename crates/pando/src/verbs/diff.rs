//! `pando diff`: what changed from one state of a directory to another.

use std::io::Write;
use std::time::Duration;

use inode::{ChangeKind, Field};
use serde_json::{Value, json};
use similar::TextDiff;
use wire::{Attr, Body, Bytes, Call, DIFF_MEMORY, Difference, Failure, FailureKind, Kind};

use super::attr_text;
use crate::cli::DiffArgs;
use crate::failure::Result;
use crate::output::{self, Output, number, printable};
use crate::place::{Last, VolumePath};
use crate::session;

/// Longest file that a unified diff is made of.
const PATCH_BYTES_MAX: u64 = 1 << 20;
/// How long the shortest diff of one file is looked for; then a longer one is printed.
const PATCH_TIME_MAX: Duration = Duration::from_secs(2);
/// A file with a NUL among so many first bytes is not text, as git and grep have it.
const TEXT_BYTES: usize = 8000;

pub(crate) fn run(args: &DiffArgs, output: &mut Output) -> Result<()> {
    let (old, new) = (
        VolumePath::reading(&args.old, Last::Target)?,
        VolumePath::reading(&args.new, Last::Target)?,
    );
    if old.volume != new.volume {
        let message = "the two are in different volumes";
        let failure = Failure::new(FailureKind::Invalid, message).at(new.typed());
        return Err(failure.hint("`diff -r` compares any two directories"));
    }
    let mut sums = Sums::default();
    let mut skipped: Option<Failure> = None;
    let mut kept = Vec::new();
    let (mut kept_bytes, memory) = (0, args.memory.unwrap_or(DIFF_MEMORY));
    let call = Call::Diff { old: &old.inner, new: &new.inner, memory: args.memory };
    session::call(&[&old, &new], &call, &mut |body| {
        match body {
            Body::Differences(differences) => {
                for difference in differences {
                    sums.add(&difference);
                    if args.patch {
                        kept_bytes += bytes(&difference);
                        if kept_bytes > memory {
                            return Err(too_many());
                        }
                        kept.push(difference);
                    } else if !args.stat {
                        output.object(&object(&difference))?;
                        output.line(&line(&difference))?;
                    }
                }
            }
            Body::Skipped(failure) => {
                output.flush()?;
                output.failure(&failure);
                skipped = Some(failure);
            }
            _ => {}
        }
        Ok(())
    })?;
    for difference in &kept {
        output.line(&line(difference))?;
        if let Err(failure) = patch([&old, &new], difference, output) {
            output.flush()?;
            output.failure(&failure);
            skipped = Some(failure);
        }
    }
    if args.stat {
        output.object(&sums.object())?;
        output.line(&sums.line())?;
    }
    output.flush()?;
    if skipped.is_some() {
        let failure = Failure::new(FailureKind::Other, "not all changes were reported");
        return Err(failure.hint("compare directories below, which have shorter paths"));
    }
    if args.exit_code && sums.changes() > 0 {
        // Differences are no failure: no message is printed.
        std::process::exit(1);
    }
    Ok(())
}

/// What a change takes in memory.
fn bytes(difference: &Difference) -> u64 {
    let paths = [&difference.old, &difference.new].into_iter().flatten();
    (2 * size_of::<Difference>() + paths.map(|(path, _)| path.0.len()).sum::<usize>()) as u64
}

/// The failure of more changes than there is memory for.
fn too_many() -> Failure {
    let message = "the changes take more than --memory before they are printed with -p";
    Failure::new(FailureKind::Other, message).hint("give more, or compare without -p")
}

/// How much changed.
#[derive(Default)]
struct Sums {
    created: u64,
    removed: u64,
    renamed: u64,
    modified: u64,
    added_bytes: u128,
    removed_bytes: u128,
}

impl Sums {
    fn add(&mut self, difference: &Difference) {
        match difference.kind {
            ChangeKind::Created => self.created += 1,
            ChangeKind::Removed => self.removed += 1,
            ChangeKind::Renamed => self.renamed += 1,
            ChangeKind::Modified => self.modified += 1,
        }
        if !difference.is_link {
            let [old, new] = [difference.old.as_ref(), difference.new.as_ref()].map(length);
            self.added_bytes += u128::from(new.saturating_sub(old));
            self.removed_bytes += u128::from(old.saturating_sub(new));
        }
    }

    fn changes(&self) -> u64 {
        self.created + self.removed + self.renamed + self.modified
    }

    fn line(&self) -> String {
        format!(
            "{} created, {} removed, {} renamed, {} modified; {} added, {} removed",
            number(self.created),
            number(self.removed),
            number(self.renamed),
            number(self.modified),
            output::size(self.added_bytes),
            output::size(self.removed_bytes),
        )
    }

    fn object(&self) -> Value {
        // (Sums of the sizes of sparse files may not fit.)
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        json!({
            "created": self.created,
            "removed": self.removed,
            "renamed": self.renamed,
            "modified": self.modified,
            "added_bytes": bytes(self.added_bytes),
            "removed_bytes": bytes(self.removed_bytes),
        })
    }
}

/// The length of a file; 0 of anything else.
fn length(side: Option<&(Bytes, Attr)>) -> u64 {
    side.filter(|(_, attr)| attr.kind == Kind::File).map_or(0, |(_, attr)| attr.size)
}

/// A path as lines show it.
fn shown((path, attr): &(Bytes, Attr)) -> String {
    let path = if path.0.is_empty() { ".".to_owned() } else { printable(&path.0) };
    if attr.kind == Kind::Directory { format!("{path}/") } else { path }
}

fn line(difference: &Difference) -> String {
    let side = |side: &Option<(Bytes, Attr)>| side.as_ref().map(shown).unwrap_or_default();
    let (old, new) = (side(&difference.old), side(&difference.new));
    let link = if difference.is_link { " (link)" } else { "" };
    match difference.kind {
        ChangeKind::Created => format!("+ {new}{link}"),
        ChangeKind::Removed => format!("- {old}{link}"),
        ChangeKind::Renamed => format!("R {old} -> {new}{}", fields(difference)),
        ChangeKind::Modified => format!("M {new}{}", fields(difference)),
    }
}

/// The fields that differ, in brackets. Times follow from other changes, and are listed if there
/// are none.
fn fields(difference: &Difference) -> String {
    use Field::{Btime, Ctime, Mtime};
    let is_time = |field: &Field| matches!(field, Mtime | Ctime | Btime);
    let all = &difference.fields;
    let has_others = !all.iter().all(is_time);
    let named: Vec<&str> = all
        .iter()
        .filter(|field| !has_others || !is_time(field))
        .map(|field| field.name())
        .collect();
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}

fn object(difference: &Difference) -> Value {
    let side = |side: &Option<(Bytes, Attr)>| {
        side.as_ref().map(|(path, attr)| {
            let mut object = json!({ "attributes": attr_text::json(attr, None) });
            output::put_bytes(&mut object, "path", &path.0);
            object
        })
    };
    let fields: Vec<&str> = difference.fields.iter().map(|field| field.name()).collect();
    json!({
        "change": difference.kind.name(),
        "old": side(&difference.old),
        "new": side(&difference.new),
        "fields": fields,
        "link": difference.is_link,
    })
}

/// Prints the unified diff of a file whose contents changed.
fn patch(places: [&VolumePath; 2], difference: &Difference, output: &mut Output) -> Result<()> {
    let sides = [&difference.old, &difference.new];
    let files = sides.into_iter().flatten().all(|(_, attr)| attr.kind == Kind::File);
    let both = difference.old.is_some() && difference.new.is_some();
    let changed =
        if both { difference.fields.contains(&Field::Contents) } else { !difference.is_link };
    if !files || !changed {
        return Ok(());
    }
    let mut names = Vec::new();
    let mut contents = Vec::new();
    for ((side, place), prefix) in sides.into_iter().zip(places).zip(["a", "b"]) {
        let Some((path, attr)) = side else {
            names.push("/dev/null".to_owned());
            contents.push(Vec::new());
            continue;
        };
        names.push(format!("{prefix}/{}", printable(&path.0)));
        if attr.size > PATCH_BYTES_MAX {
            let text =
                format!("a file of {} is not compared line by line", output::size(attr.size));
            return output.line(&text);
        }
        contents.push(read(place, &path.0)?);
    }
    if contents.iter().any(|bytes| bytes.iter().take(TEXT_BYTES).any(|byte| *byte == 0)) {
        return output.line(&format!("binary files {} and {} differ", names[0], names[1]));
    }
    let mut config = TextDiff::configure();
    let lines = config.timeout(PATCH_TIME_MAX).diff_lines(&contents[0][..], &contents[1][..]);
    let mut text = Vec::new();
    let unified = &mut lines.unified_diff();
    let wrote = unified.header(&names[0], &names[1]).to_writer(&mut text);
    wrote.and_then(|()| text.flush()).map_err(|error| {
        // tidy: no hint: it is written to memory, which accepts everything.
        Failure::new(FailureKind::Other, format!("cannot write a diff: {error}"))
    })?;
    output.contents(&text)
}

/// The contents of a file below a place, at most a little more than are compared.
fn read(place: &VolumePath, path: &[u8]) -> Result<Vec<u8>> {
    let above = place.inner.strip_suffix(b"/").unwrap_or(&place.inner);
    let path = [above, b"/", path].concat();
    let mut contents = Vec::new();
    session::call(place, &Call::Read { path: &path }, &mut |body| {
        if let Body::Data(bytes) = body
            && contents.len() as u64 <= PATCH_BYTES_MAX
        {
            contents.extend(bytes.0);
        }
        Ok(())
    })?;
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(kind: Kind, size: u64) -> Attr {
        Attr {
            node: 1,
            kind,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "a difference has two optional sides")]
    fn side(path: &str, kind: Kind, size: u64) -> Option<(Bytes, Attr)> {
        Some((path.as_bytes().into(), attr(kind, size)))
    }

    #[test]
    fn a_change_is_a_line() {
        use Field::{Contents, Ctime, Mode, Mtime, Size};
        let change = |kind, old, new, fields: &[Field], is_link| {
            line(&Difference { kind, old, new, fields: fields.to_vec(), is_link })
        };
        let (file, directory) = (Kind::File, Kind::Directory);
        let lines = [
            change(ChangeKind::Created, None, side("a/b", file, 1), &[], false),
            change(ChangeKind::Removed, side("d", directory, 0), None, &[], false),
            change(ChangeKind::Created, None, side("a", file, 1), &[Ctime], true),
            change(
                ChangeKind::Modified,
                side("a", file, 1),
                side("a", file, 2),
                &[Contents, Size, Mode, Mtime, Ctime],
                false,
            ),
            change(
                ChangeKind::Modified,
                side("", directory, 1),
                side("", directory, 1),
                &[Mtime, Ctime],
                false,
            ),
            change(ChangeKind::Renamed, side("a\n", file, 1), side("b", file, 1), &[Ctime], false),
        ];
        let want = [
            "+ a/b",
            "- d/",
            "+ a (link)",
            "M a (contents, size, mode)",
            "M ./ (mtime, ctime)",
            "R a\\n -> b (ctime)",
        ];
        assert_eq!(lines, want);
    }

    #[test]
    fn sums_count_names_and_bytes() {
        let mut sums = Sums::default();
        for (kind, old, new, is_link) in [
            (ChangeKind::Created, None, side("a", Kind::File, 2048), false),
            (ChangeKind::Created, None, side("b", Kind::File, 2048), true),
            (ChangeKind::Modified, side("c", Kind::File, 9), side("c", Kind::File, 1), false),
            (ChangeKind::Removed, side("d", Kind::Directory, 7), None, false),
        ] {
            sums.add(&Difference { kind, old, new, fields: Vec::new(), is_link });
        }
        let want = "2 created, 1 removed, 0 renamed, 1 modified; 2.00 KiB added, 8 B removed";
        assert_eq!(sums.line(), want);
    }
}
