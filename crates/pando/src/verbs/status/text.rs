//! The status for people: rows of a label and a text. A value that is idle, zero or unknown has
//! words. A row is left out where there is no such thing (no object store, no merges, no damage).

use std::path::Path;

use wire::{Background, Followed, Merges, ScanInfo, Status, StoreStatus, ValueLogs};

use crate::failure::Result;
use crate::host;
use crate::output::{self, Output, count, number, size};

/// A label, and what it shows.
pub(super) type Row = (&'static str, String);

/// Prints rows.
pub(super) fn print(rows: &[Row], output: &mut Output) -> Result<()> {
    rows.iter().try_for_each(|row| output.line(&line(row)))
}

fn line((label, value): &Row) -> String {
    format!("{label:<12}{value}")
}

/// The rows of a status; `dollars` is what the object store costs a day.
pub(super) fn of_status(volume: &Path, status: &Status, dollars: Option<f64>) -> Vec<Row> {
    let daemon = match &status.mount_point {
        Some(mount_point) => {
            format!("pid {}, mounted on {}", status.pid, output::printable(&mount_point.0))
        }
        None => format!("pid {}, not mounted", status.pid),
    };
    let log = size(status.log_bytes_since_checkpoint);
    let checkpoint = match status.last_checkpoint {
        Some(at) => format!("{}; {log} of log since", output::time_local(at)),
        None => format!("none yet; {log} of log"),
    };
    let background = &status.background;
    let work = work_text(background);
    let mut rows = vec![
        ("volume", format!("{} in {}", status.volume, host::shown(volume))),
        ("format", format!("version {}, engine {}", status.format_version, status.engine)),
        ("daemon", daemon),
        ("durability", status.durability.clone()),
        (
            "inodes",
            match background.counting {
                0 => number(status.files),
                more => {
                    let clones = count(more, "clone", "clones");
                    format!("{} and those of {clones} being counted", number(status.files))
                }
            },
        ),
        ("contents", size(status.bytes)),
        ("snapshots", number(status.snapshots)),
        ("clones", number(status.clones)),
        (
            "on disk",
            match super::disk_bytes(status) {
                // The present log may be longer than all was then.
                Some(bytes) if status.store.is_some() => {
                    format!("{} when last measured; log {}", size(bytes), size(status.log_bytes))
                }
                Some(bytes) => format!("{}, of that log {}", size(bytes), size(status.log_bytes)),
                None => "not measured yet".to_owned(),
            },
        ),
        ("checkpoint", checkpoint),
        ("written", written_text(status)),
        ("background", work),
    ];
    if let Some(merges) = status.merges {
        rows.push(("merges", merges_text(merges)));
        rows.extend(merges.logs.map(|logs| ("value logs", logs_text(logs, merges.cleaned))));
    }
    if let Some(store) = &status.store {
        rows.extend(of_store(store, dollars.unwrap_or_default()));
    }
    let stuck = status.stuck.as_ref().map(|stuck| {
        let trees = count(stuck.trees, "tree", "trees");
        format!("{trees} cannot be reclaimed: {}", stuck.failure.message)
    });
    rows.extend(stuck.map(|why| ("STUCK", why)));
    rows.extend(status.damaged.clone().map(|why| ("DAMAGED", why)));
    rows.extend(status.read_only.clone().map(|why| ("READ-ONLY", why)));
    rows
}

/// What the volume records about the tree of which it is an index.
pub(super) fn of_index(index: &ScanInfo) -> Vec<Row> {
    let scanned = index.started.map_or("no scan is complete yet".to_owned(), |started| {
        let (scanned, updated) = (output::time_local(started), output::time_local(index.ended));
        let unread = match index.unread {
            0 => String::new(),
            unread => format!(", {} not read", number(unread)),
        };
        format!("{scanned}, updated {updated}{unread}")
    });
    let unfinished =
        if index.unfinished { "; a scan is in progress, or was interrupted" } else { "" };
    let followed = match index.followed {
        None => "not followed: `pando index --into VOLDIR` scans again".to_owned(),
        Some(Followed { by, pid, unwatched: 0, .. }) => format!("by {by}, process {pid}"),
        Some(Followed { by, pid, unwatched, .. }) => {
            let unwatched = count(unwatched, "directory is", "directories are");
            format!("by {by}, process {pid}; {unwatched} not")
        }
    };
    vec![
        ("index of", output::printable(&index.source.0)),
        ("scanned", format!("{scanned}{unfinished}")),
        ("followed", followed),
    ]
}

/// An object store, and what the volume costs there, in dollars a day.
fn of_store(store: &StoreStatus, dollars: f64) -> Vec<Row> {
    let requests = format!(
        "{} create, {} read, {} list, {} head, {} delete; {} received, {} sent",
        number(store.creates),
        number(store.reads),
        number(store.lists),
        number(store.heads),
        number(store.deletes),
        size(store.bytes_in),
        size(store.bytes_out),
    );
    let mut rows = vec![
        ("store", store.url.clone()),
        ("contents", count(store.content_objects, "object", "objects")),
        ("requests", requests),
        ("price", format!("${dollars:.2} a day, if it continues like this")),
    ];
    if let Some(cache) = store.cache {
        let (hits, misses) = (number(cache.hits), number(cache.misses));
        rows.push(("host cache", format!("{}, {hits} hits, {misses} misses", size(cache.bytes))));
    }
    let lasts = |(seconds, why): &(u64, String)| format!("for {seconds} s: {why}");
    rows.extend(store.unreachable.as_ref().map(|it| ("UNREACHABLE", lasts(it))));
    let silent = |seconds| format!("for {seconds} s other hosts see no sign of this daemon");
    rows.extend(store.silent.map(|seconds| ("SILENT", silent(seconds))));
    rows.extend(store.waits.as_ref().map(|it| ("WAITS", lasts(it))));
    rows
}

/// What the daemon wrote since it started, without file contents. When operations submitted
/// little, the ratio means nothing: a replayed log and the volume's own records outweigh them.
fn written_text(status: &Status) -> String {
    const ENOUGH: u64 = 1 << 20;
    let shown = super::amplification(status).filter(|_| status.given_bytes >= ENOUGH);
    let times = shown.map_or_else(String::new, |times| format!(" ({times:.1} times)"));
    format!(
        "{} of metadata since the daemon started, for {} in {}{times}",
        size(status.written_bytes),
        size(status.given_bytes),
        count(status.commits, "commit", "commits"),
    )
}

fn logs_text(logs: ValueLogs, cleaned: u64) -> String {
    format!(
        "{} of {}, {} of {} live, {} to empty, {} rewritten for that",
        number(logs.logs),
        size(logs.disk_bytes),
        size(logs.live_bytes),
        size(logs.rows_bytes),
        number(logs.sparse),
        count(cleaned, "run", "runs"),
    )
}

fn merges_text(merges: Merges) -> String {
    let now = match (merges.under_way, merges.next) {
        (Some((written, of)), _) => format!("at {} of {}", size(written), size(of)),
        (None, Some((runs, bytes))) => {
            format!("next {} of {}", count(runs, "run", "runs"), size(bytes))
        }
        (None, None) => "none to do".to_owned(),
    };
    format!(
        "{now}, {} done, the deepest tree has {}",
        number(merges.ended),
        count(merges.depth, "run", "runs")
    )
}

/// The background work.
fn work_text(background: &Background) -> String {
    let mut work = Vec::new();
    if background.trees() > 0 {
        let steps = [
            (background.detached, "tree to reclaim", "trees to reclaim"),
            (background.dropping, "tree to free", "trees to free"),
            (background.prunes, "clone to prune", "clones to prune"),
        ];
        let steps = steps.into_iter().filter(|(count, ..)| *count > 0);
        work.extend(steps.map(|(trees, one, many)| count(trees, one, many)));
        let (done, pace) = (background.reclaimed, background.reclaimed_a_second);
        if done > 0 {
            let (done, pace) = (count(done, "record", "records"), number(pace));
            work.push(format!("{done} reclaimed since the start, {pace} a second now"));
        }
    }
    if background.freeing_bytes > 0 {
        let freed = match background.freed_bytes {
            0 => String::new(),
            freed => format!(" ({} given back since the start)", size(freed)),
        };
        work.push(format!("{} to give back{freed}", size(background.freeing_bytes)));
    }
    if background.collecting {
        work.push("looking for what nothing names".to_owned());
    }
    if work.is_empty() { "none".to_owned() } else { work.join(", ") }
}

#[cfg(test)]
mod tests {
    use wire::{Bytes, ScanWatch};

    use super::super::tests::distinct;
    use super::*;

    fn lines(rows: &[Row]) -> Vec<String> {
        rows.iter().map(line).collect()
    }

    /// As printed: sizes from 1 MiB on are shown alike if they are close, so some are far apart.
    fn distant() -> Status {
        let (log_bytes, log_bytes_since_checkpoint) = (2 << 20, 3 << 20);
        let (written_bytes, given_bytes) = (50 << 20, 5 << 20);
        let all = distinct();
        Status { log_bytes, log_bytes_since_checkpoint, written_bytes, given_bytes, ..all }
    }

    #[test]
    fn each_line_has_its_own_numbers() {
        let printed = lines(&of_status(Path::new("/v"), &distant(), Some(12.5)));
        let expected = [
            "volume      a volume in /v",
            "format      version 7001, engine an engine",
            "daemon      pid 7003, not mounted",
            "durability  a mode",
            "inodes      1,044,044 and those of 1,020,020 clones being counted",
            "contents    1020.55 KiB",
            "snapshots   1,046,046",
            "clones      1,047,047",
            "on disk     1010.78 KiB when last measured; log 2.00 MiB",
            "checkpoint  none yet; 3.00 MiB of log",
            "written     50.00 MiB of metadata since the daemon started, for 5.00 MiB in \
             1,060,060 commits (10.0 times)",
            "background  1,015,015 trees to reclaim, 1,016,016 trees to free, 1,017,017 clones to \
             prune, 1,021,021 records reclaimed since the start, 1,022,022 a second now, 994.16 \
             KiB to give back (995.14 KiB given back since the start), looking for what nothing \
             names",
            "merges      at 985.36 KiB of 986.34 KiB, 1,007,007 done, the deepest tree has \
             1,013,013 runs",
            "value logs  1,002,002 of 979.50 KiB, 981.45 KiB of 980.47 KiB live, 1,006,006 to \
             empty, 1,008,008 runs rewritten for that",
            "store       s3://bucket",
            "contents    1,036,036 objects",
            "requests    1,023,023 create, 1,024,024 read, 1,025,025 list, 1,026,026 head, \
             1,027,027 delete; 1004.91 KiB received, 1005.89 KiB sent",
            "price       $12.50 a day, if it continues like this",
            "host cache  1008.82 KiB, 1,031,031 hits, 1,032,032 misses",
            "UNREACHABLE for 1042042 s: why it is",
            "SILENT      for 1041041 s other hosts see no sign of this daemon",
            "WAITS       for 1043043 s: why they do",
            "STUCK       1,063,063 trees cannot be reclaimed: why",
            "DAMAGED     what is damaged",
            "READ-ONLY   why it is read-only",
        ];
        assert_eq!(printed, expected);
    }

    #[test]
    fn what_is_not_there_or_is_idle_has_words_or_no_line() {
        let background = Background::default();
        let merges = Merges { ended: 3, depth: 2, ..Merges::default() };
        let idle = Status {
            mount_point: Some(Bytes(b"/mnt/a\x1bb".to_vec())),
            merges: Some(merges),
            last_checkpoint: Some(0),
            given_bytes: 1000,
            commits: 1,
            background,
            read_only: None,
            damaged: None,
            stuck: None,
            store: None,
            ..distant()
        };
        let printed = lines(&of_status(Path::new("/v"), &idle, None));
        let checkpoint = format!("checkpoint  {}; 3.00 MiB of log since", output::time_local(0));
        let expected = [
            "volume      a volume in /v",
            "format      version 7001, engine an engine",
            "daemon      pid 7003, mounted on /mnt/a\\u{1b}b",
            "durability  a mode",
            "inodes      1,044,044",
            "contents    1020.55 KiB",
            "snapshots   1,046,046",
            "clones      1,047,047",
            "on disk     1.00 MiB, of that log 2.00 MiB",
            &checkpoint,
            "written     50.00 MiB of metadata since the daemon started, for 1000 B in 1 commit",
            "background  none",
            "merges      none to do, 3 done, the deepest tree has 2 runs",
        ];
        assert_eq!(printed, expected);
        // Of a store that was not measured yet.
        let store = distinct().store.map(|store| StoreStatus { stored_bytes: None, ..store });
        let unmeasured = lines(&of_status(Path::new("/v"), &Status { store, ..idle }, Some(0.0)));
        assert!(unmeasured.contains(&"on disk     not measured yet".to_owned()), "{unmeasured:?}");
    }

    #[test]
    fn background_work_and_merges_count_one_and_many() {
        let one = Background { detached: 1, dropping: 1, prunes: 1, ..Background::default() };
        assert_eq!(work_text(&one), "1 tree to reclaim, 1 tree to free, 1 clone to prune");
        let done = Background { prunes: 2, reclaimed: 5000, reclaimed_a_second: 7, ..one };
        assert_eq!(
            work_text(&Background { detached: 0, dropping: 0, ..done }),
            "2 clones to prune, 5,000 records reclaimed since the start, 7 a second now"
        );
        let freeing = Background { freeing_bytes: 2048, ..Background::default() };
        assert_eq!(work_text(&freeing), "2.00 KiB to give back");
        let collecting = Background { collecting: true, reclaimed: 9, ..Background::default() };
        assert_eq!(work_text(&collecting), "looking for what nothing names");
        let next = Merges { next: Some((3, 5 << 20)), ..Merges::default() };
        assert_eq!(
            merges_text(next),
            "next 3 runs of 5.00 MiB, 0 done, the deepest tree has 0 runs"
        );
    }

    #[test]
    fn lines_of_an_index_are_those_of_its_record() {
        let followed = Followed { by: ScanWatch::Fanotify, pid: 42, uid: 7, unwatched: 0 };
        let index = ScanInfo {
            source: Bytes(b"/data".to_vec()),
            started: None,
            ended: 0,
            unread: 0,
            unfinished: true,
            crosses_mounts: false,
            keeps_xattrs: false,
            hidden: false,
            followed: None,
        };
        let printed = lines(&of_index(&index));
        let expected = [
            "index of    /data",
            "scanned     no scan is complete yet; a scan is in progress, or was interrupted",
            "followed    not followed: `pando index --into VOLDIR` scans again",
        ];
        assert_eq!(printed, expected);
        let (started, ended) = (Some(1_000_000_000), 61_000_000_000);
        let whole = ScanInfo { started, ended, unread: 1234, unfinished: false, ..index };
        let whole = ScanInfo { followed: Some(followed), ..whole };
        let (from, to) = (output::time_local(1_000_000_000), output::time_local(ended));
        let by = ScanWatch::Fanotify;
        let printed = lines(&of_index(&whole));
        assert_eq!(printed[1], format!("scanned     {from}, updated {to}, 1,234 not read"));
        assert_eq!(printed[2], format!("followed    by {by}, process 42"));
        let part = ScanInfo { followed: Some(Followed { unwatched: 2000, ..followed }), ..whole };
        let expected = format!("followed    by {by}, process 42; 2,000 directories are not");
        assert_eq!(lines(&of_index(&part))[2], expected);
    }
}
