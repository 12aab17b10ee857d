//! Exit codes, with what each means: `pando --help` and the guide have the same table.

use std::process::ExitCode;

use wire::FailureKind;

/// All exit codes, with what each means.
pub const CODES: [(u8, &str); 10] = [
    (0, "done"),
    (1, "failed for another reason"),
    (2, "wrong usage"),
    (3, "no such path, volume or snapshot"),
    (4, "permission denied"),
    (5, "damaged data, or an I/O error"),
    (6, "blocked: exists, not empty, busy, mounted, of another kind"),
    (7, "no space, or read-only"),
    (8, "not a volume, or of a newer format"),
    (130, "interrupted"),
];

/// The table as a section of a help text.
pub fn help() -> String {
    let lines = CODES.iter().map(|(code, meaning)| format!("  {code}  {meaning}"));
    ["Exit codes:".to_owned()].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// The exit code of a failed command.
pub fn code(kind: FailureKind) -> ExitCode {
    ExitCode::from(number(kind))
}

/// The same as a number.
pub fn number(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Protocol
        | FailureKind::Leaving
        | FailureKind::Other
        | FailureKind::NotSupported => 1,
        FailureKind::Invalid => 2,
        FailureKind::NotFound => 3,
        FailureKind::Permission => 4,
        FailureKind::Damaged => 5,
        FailureKind::Exists
        | FailureKind::NotDirectory
        | FailureKind::IsDirectory
        | FailureKind::NotEmpty
        | FailureKind::Busy => 6,
        FailureKind::NoSpace | FailureKind::ReadOnly => 7,
        FailureKind::NotVolume | FailureKind::NewerFormat => 8,
        FailureKind::Interrupted => 130,
    }
}
