//! What each request costs the daemon, by which requests of one user are bounded (`sessions.rs`).
//!
//! Builds with assertions compare this with what each request does (`connection.rs`): one that
//! copies a directory is not light.

use vfs::number_in_name;
use wire::{Call, DIFF_MEMORY, Failure, FailureKind, STREAM_MEMORY};

use super::held::names;

/// Most searches, counts, checks and recursive listings of one user at once, and of all users:
/// each keeps a processor busy.
const SEARCHES_OF_USER_MAX: usize = 8;
const SEARCHES_MAX: usize = 32;

/// The same limits for requests that end soon: a user's searches do not keep them from anybody.
const SHORT_OF_USER_MAX: usize = 8;
const SHORT_MAX: usize = 32;

/// The same limits for searches with sorted results: each may use 128 MiB.
const ORDERED_OF_USER_MAX: usize = 2;
const ORDERED_MAX: usize = 8;

/// Most imports of one user at once, and of all users: each may keep 65,536 levels and a million
/// files.
const IMPORTS_OF_USER_MAX: usize = 8;
const IMPORTS_MAX: usize = 32;

/// What a request costs the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Little, or work that goes only as fast as the peer sends or reads.
    Light,
    /// A processor, for a short time: what is read grows with the volume, and no request waits for
    /// its reader.
    Short,
    /// A processor, for as long as the request lasts.
    Search,
    /// A processor, and memory.
    Ordered,
    /// A search when it begins, and memory until the work that it begins ends.
    Import,
}

impl Load {
    /// Whether it counts as a search. An ordered one does, and the beginning of an import.
    pub(super) fn is_search(self) -> bool {
        matches!(self, Load::Search | Load::Ordered | Load::Import)
    }
}

/// What is bounded: as a load, in words, for one user and for all users.
pub(super) const LIMITS: [(Load, &str, usize, usize); 4] = [
    (Load::Short, "reports and copies", SHORT_OF_USER_MAX, SHORT_MAX),
    (Load::Search, "searches and counts", SEARCHES_OF_USER_MAX, SEARCHES_MAX),
    (Load::Ordered, "ordered searches and lists of totals", ORDERED_OF_USER_MAX, ORDERED_MAX),
    (Load::Import, "imports", IMPORTS_OF_USER_MAX, IMPORTS_MAX),
];

/// How much of the end of a path is reported that has too many names.
const END_BYTES: usize = 256;

/// What a request costs. Each call is named, so that a new one is decided, too.
pub(super) fn load(call: &Call<'_>) -> Load {
    let own = of_kind(call);
    let is_looked_up = || paths(call).into_iter().any(is_looked_up);
    let is_brief = matches!(own, Load::Light | Load::Short);
    if is_brief && is_looked_up() { Load::Search } else { own }
}

/// Whether all snapshots of removed directories may be read for a path. That is so with the number
/// of a snapshot, or with `@` in a path that names nothing. (In the target of a symbolic link
/// neither of them means a snapshot.)
fn is_looked_up(path: &[u8]) -> bool {
    path.contains(&b'@') || names(path).any(|name| number_in_name(name).is_some())
}

/// Least memory of a stream, dump or comparison whose caller names none: with less, changes of
/// some thousand files do not fit.
pub(super) const MEMORY_LEAST: u64 = 16 << 20;

/// Memory that a request takes until it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// With less it is not begun.
    pub(super) least: u64,
    /// More it does not take.
    pub(super) most: u64,
}

impl Memory {
    /// So much, as its caller states.
    pub(super) fn of(bytes: u64) -> Memory {
        Memory { least: bytes, most: bytes }
    }

    /// What a request has that was given so much.
    pub(super) fn given(self, bytes: u64) -> Granted {
        Granted { bytes, is_short: self.least < self.most && bytes < self.most }
    }
}

/// Memory that a request has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Granted {
    /// How much.
    pub(super) bytes: u64,
    /// Whether its caller named none, and others left less than it would have alone.
    pub(super) is_short: bool,
}

/// How much memory a request takes until it ends. An export of a user of this machine takes of
/// that user's share what it needs (`export/links.rs`).
/// `far`: most memory of one for another machine.
pub(super) fn memory(call: &Call<'_>, far: Option<u64>) -> Memory {
    let most_of_far = far.unwrap_or(u64::MAX);
    let up_to =
        |most: u64| Memory { least: MEMORY_LEAST.min(most_of_far), most: most.min(most_of_far) };
    match *call {
        Call::Send { memory, .. } | Call::Dump { memory, .. } => {
            memory.map_or(up_to(STREAM_MEMORY), Memory::of)
        }
        Call::Diff { memory, .. } => memory.map_or(up_to(DIFF_MEMORY), Memory::of),
        Call::Export { memory, .. } if far.is_some() => Memory::of(memory),
        _ => Memory::default(),
    }
}

fn of_kind(call: &Call<'_>) -> Load {
    match call {
        Call::Find(find) if find.order.is_some() => Load::Ordered,
        // Each directory below is kept in memory.
        Call::Totals { depth, top, .. }
            if depth.is_some_and(|depth| depth > 0) || top.is_some() =>
        {
            Load::Ordered
        }
        // They walk trees, lists of all users, or contents.
        Call::Find(_)
        | Call::List { recursive: true, .. }
        | Call::Export { .. }
        | Call::Rollback { .. }
        | Call::Remove { .. }
        | Call::Totals { .. }
        | Call::History { .. }
        | Call::Diff { .. }
        | Call::Send { .. }
        | Call::Dump { .. }
        | Call::SnapshotsOfVolume { .. }
        | Call::Schedules
        | Call::IndexFlush { .. }
        | Call::Check
        | Call::Collect { .. }
        | Call::QuotaSet { .. }
        | Call::OwnerQuotaSet { .. }
        | Call::QuotaList
        | Call::QuotaCheck
        | Call::TrashList { .. }
        | Call::TrashEmpty { .. }
        | Call::Restore { .. }
        | Call::RestoreFrom { .. }
        | Call::SnapshotList { .. } => Load::Search,
        // A status and the list of what waits to be reclaimed read the record of each subvolume or
        // tree. So does a search for the directory of a snapshot, or for the snapshots of one.
        // Copies that inherit what is mounted below get it before the next copy is made. Where a
        // quota has a limit, each subvolume below is read.
        Call::Info { .. }
        | Call::Status
        | Call::Reclaiming { .. }
        | Call::SnapshotCreate { .. }
        | Call::Clone { .. }
        | Call::ScheduleSet { .. }
        | Call::SnapshotRename { .. }
        | Call::SnapshotHold { .. }
        | Call::SnapshotDeleteNumber { .. } => Load::Short,
        Call::ImportOpen { .. } => Load::Import,
        // A stream that is received ends in a copy, and so do some of its parts. Only root receives
        // one: on this machine root has no bound, and a client's root has as many streams as
        // connections. To refuse the last message would refuse all that was sent.
        Call::ReceiveOpen { .. }
        | Call::Receive { .. }
        | Call::ReceiveClose
        | Call::Stat { .. }
        | Call::List { recursive: false, .. }
        | Call::Read { .. }
        | Call::SnapshotDelete { .. }
        | Call::ScheduleGet { .. }
        | Call::SubvolumeCreate { .. }
        | Call::ReceiveToken { .. }
        | Call::Searchable
        | Call::Declare { .. }
        | Call::ClusterLimits { .. }
        | Call::Sync
        | Call::HandOver
        | Call::Sessions
        | Call::SessionEnd { .. }
        | Call::ImportPublish { .. }
        | Call::Import { .. }
        | Call::ImportEnter { .. }
        | Call::ImportFlush
        | Call::ImportClose
        | Call::ScanInfo
        | Call::ScanFollow { .. }
        | Call::ScanOpen { .. }
        | Call::ScanDirectories
        | Call::Scan { .. }
        | Call::ScanFlush
        | Call::ScanClose { .. }
        | Call::QuotaGet { .. }
        | Call::OwnerQuotaGet { .. }
        | Call::TrashSet { .. }
        | Call::ServesMount { .. }
        | Call::MountAgain { .. } => Load::Light,
    }
}

/// Most names of a path in a request. Work on a path takes time in proportion to them or, where
/// each directory on it is searched, to their square.
const NAMES_MAX: usize = 4096;

/// Refuses paths of too many names.
pub(super) fn bounded(call: &Call<'_>) -> Result<(), Failure> {
    for path in paths(call) {
        let found = names(path).take(NAMES_MAX + 1).count();
        if found > NAMES_MAX {
            let message = format!("a path of more than {NAMES_MAX} names");
            let failure = Failure::new(FailureKind::Invalid, message);
            let end = &path[path.len().saturating_sub(END_BYTES)..];
            return Err(failure
                .at(end)
                .hint("name a directory above, or search with `pando find`"));
        }
    }
    Ok(())
}

/// The paths of a request. Each call is named: the paths of a new one are bounded, too.
fn paths<'a>(call: &Call<'a>) -> [&'a [u8]; 2] {
    match *call {
        Call::Info { path }
        | Call::Stat { path }
        | Call::List { path, .. }
        | Call::Read { path }
        | Call::Export { path, .. }
        | Call::SnapshotCreate { path, .. }
        | Call::SnapshotList { path }
        | Call::Remove { path }
        | Call::SubvolumeCreate { path, .. }
        | Call::IndexFlush { path }
        | Call::ImportOpen { path, .. }
        | Call::ReceiveOpen { path, .. }
        | Call::ReceiveToken { path }
        | Call::Totals { path, .. }
        | Call::History { path }
        | Call::Dump { path, .. }
        | Call::QuotaSet { path, .. }
        | Call::QuotaGet { path }
        | Call::ScheduleSet { path, .. }
        | Call::ScheduleGet { path }
        | Call::TrashSet { path, .. }
        | Call::TrashList { path }
        | Call::TrashEmpty { path } => [path, b""],
        Call::SnapshotDelete { path, name: second }
        | Call::SnapshotRename { path, from: second, .. }
        | Call::Rollback { path, snapshot: second }
        | Call::Clone { source: path, destination: second }
        | Call::Diff { old: path, new: second, .. } => [path, second],
        Call::Send { base, snapshot, .. } => [base.unwrap_or_default(), snapshot],
        Call::Restore { path, to, .. } | Call::RestoreFrom { path, to, .. } => {
            [path, to.unwrap_or_default()]
        }
        Call::Status
        | Call::Find(_)
        | Call::SnapshotsOfVolume { .. }
        | Call::SnapshotDeleteNumber { .. }
        | Call::Schedules
        | Call::SnapshotHold { .. }
        | Call::Reclaiming { .. }
        | Call::Receive { .. }
        | Call::ReceiveClose
        | Call::Searchable
        | Call::Declare { .. }
        | Call::ClusterLimits { .. }
        | Call::Sync
        | Call::HandOver
        | Call::Sessions
        | Call::SessionEnd { .. }
        | Call::Check
        | Call::Collect { .. }
        | Call::ImportPublish { .. }
        | Call::Import { .. }
        | Call::ImportEnter { .. }
        | Call::ImportFlush
        | Call::ImportClose
        | Call::ScanInfo
        | Call::ScanFollow { .. }
        | Call::ScanOpen { .. }
        | Call::ScanDirectories
        | Call::Scan { .. }
        | Call::ScanFlush
        | Call::ScanClose { .. }
        | Call::OwnerQuotaSet { .. }
        | Call::OwnerQuotaGet { .. }
        | Call::QuotaList
        | Call::QuotaCheck
        // A place on this machine, which the kernel bounds.
        | Call::MountAgain { .. }
        | Call::ServesMount { .. } => [b"", b""],
    }
}

#[cfg(test)]
mod tests {
    use wire::Find;

    use super::*;

    const SEARCHES: [&str; 23] = [
        "Check",
        "Collect",
        "Diff",
        "Dump",
        "Export",
        "Find",
        "History",
        "IndexFlush",
        "OwnerQuotaSet",
        "QuotaCheck",
        "QuotaList",
        "QuotaSet",
        "Remove",
        "Restore",
        "RestoreFrom",
        "Rollback",
        "Schedules",
        "Send",
        "SnapshotList",
        "SnapshotsOfVolume",
        "Totals",
        "TrashEmpty",
        "TrashList",
    ];

    const SHORT: [&str; 9] = [
        "Clone",
        "Info",
        "Reclaiming",
        "ScheduleSet",
        "SnapshotCreate",
        "SnapshotDeleteNumber",
        "SnapshotHold",
        "SnapshotRename",
        "Status",
    ];

    /// Every call, in the order of the definition: a message of its number and equal small bytes,
    /// as many as it takes.
    fn all() -> Vec<Call<'static>> {
        // An expression has a code of its own.
        let find = Call::Find(Box::new(Find {
            from: Vec::new(),
            follow: false,
            expr: search::query::Expr::All(Vec::new()),
            min_depth: 0,
            max_depth: None,
            contents_first: false,
            order: None,
            limit: None,
            snapshots: wire::Snapshots::Named,
            attributes: false,
            targets: false,
            count: false,
        }));
        let mut encoded = Vec::new();
        wire::encode(&find, &mut encoded);
        let decoded = |number: u8| {
            let mut bytes = (0..8_u8).flat_map(|fill| {
                (0..200).map(move |length| [vec![number], vec![fill; length]].concat())
            });
            let found = bytes.find(|bytes| wire::decode::<Call<'_>>(bytes).is_ok());
            let made = found.map(|bytes| wire::decode(bytes.leak()).unwrap());
            made.or_else(|| (encoded[0] == number).then(|| find.clone()))
        };
        let calls: Vec<_> = (0..128).map_while(decoded).collect();
        let next = calls.len() as u8;
        assert!((next..128).all(|number| decoded(number).is_none()), "call {next} is not made");
        calls
    }

    /// What walks trees, lists of all users, or contents.
    #[test]
    fn each_call_counts_as_what_the_table_states() {
        let mut searches = [&SEARCHES[..], &SHORT].concat();
        for call in all() {
            let text = format!("{call:?}");
            let name = text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap();
            let listed = searches.iter().position(|search| *search == name);
            let expected = match name {
                "ImportOpen" => Load::Import,
                _ if SHORT.contains(&name) => Load::Short,
                _ if listed.is_some() => Load::Search,
                _ => Load::Light,
            };
            assert_eq!(load(&call), expected, "{name}");
            listed.map(|at| searches.remove(at));
        }
        assert!(searches.is_empty(), "no call has this name: {searches:?}");
        let path = &b"/"[..];
        assert_eq!(load(&Call::List { path, recursive: true }), Load::Search);
        assert_eq!(load(&Call::Totals { path, depth: Some(0), top: None }), Load::Search);
        assert_eq!(load(&Call::Totals { path, depth: Some(1), top: None }), Load::Ordered);
    }

    /// Each prefix of a path was resolved: a million bytes took hours.
    #[test]
    fn a_path_has_a_bounded_number_of_names() {
        let long = b"a/".repeat(NAMES_MAX + 1);
        let (long, fits) = (&long[..], &long[..2 * NAMES_MAX]);
        for (path, is_refused) in [(fits, false), (long, true), (&b"/".repeat(9999)[..], false)] {
            let calls = [
                Call::Stat { path },
                Call::History { path },
                Call::Totals { path, depth: None, top: None },
                Call::TrashList { path },
                Call::Restore { path, to: None, at: None, since: None },
                Call::RestoreFrom { snapshot: b"s", path: b"/", to: Some(path) },
                Call::Clone { source: b"/", destination: path },
            ];
            for call in calls {
                assert_eq!(bounded(&call).is_err(), is_refused, "{} bytes", path.len());
            }
        }
    }

    #[test]
    fn a_request_that_names_no_memory_is_given_some() {
        let path = &b"/"[..];
        let named = |memory| Call::Dump { path, memory };
        let diff = |memory| Call::Diff { old: path, new: path, memory };
        assert_eq!(memory(&named(Some(5)), None), Memory::of(5));
        let given = |least: u64, most: u64| Memory { least: least << 20, most: most << 20 };
        assert_eq!(memory(&named(None), None), given(16, 256));
        assert_eq!(memory(&diff(None), None), given(16, 64));
        assert_eq!(memory(&diff(None), Some(32 << 20)), given(16, 32));
        assert_eq!(memory(&named(None), Some(8 << 20)), given(8, 8), "a small server");
        for (of, bytes, is_short) in [
            (given(16, 256), 255 << 20, true),
            (given(16, 256), 256 << 20, false),
            (given(8, 8), 8 << 20, false),
            (Memory::of(5), 5, false),
        ] {
            assert_eq!(of.given(bytes), Granted { bytes, is_short }, "{of:?}");
        }
    }

    #[test]
    fn listing_all_snapshots_counts_as_a_search() {
        let (plain, marked) = (&b"/a/b"[..], &b"/a@monday/b"[..]);
        let (numbered, hash) = (&b"/.snapshots/#17/b"[..], &b"/a/#b#"[..]);
        assert_eq!(load(&Call::SnapshotsOfVolume { removed: true }), Load::Search);
        let expected =
            |path| if path == plain || path == hash { Load::Light } else { Load::Search };
        for path in [plain, marked, numbered, hash] {
            let expected = expected(path);
            let calls = [
                Call::Stat { path },
                Call::Read { path },
                Call::List { path, recursive: false },
                Call::SubvolumeCreate { path, umask: 0 },
                Call::SnapshotDelete { path: plain, name: path },
            ];
            for call in calls {
                assert_eq!(load(&call), expected, "{call:?}");
            }
        }
    }
}
