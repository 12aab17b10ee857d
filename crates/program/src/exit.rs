//! Exit codes, as `pando --help` documents them.

use std::process::ExitCode;

use wire::FailureKind;

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
