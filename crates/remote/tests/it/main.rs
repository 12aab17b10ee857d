//! A server and its clients in one process, over loopback connections. They run against the model
//! of POSIX, with connections that are cut, and with clients that mean harm.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests stop at what they do not expect, and print their progress"
)]

mod again;
mod attackers;
mod bounds;
mod claims;
mod closes;
mod connect;
mod every_change;
mod hostile;
mod interrupted;
mod after_takeover;
mod lasting;
mod memory;
mod model;
mod once;
mod rig;
mod rights;
mod settling;
mod steady;
mod subject;
#[path = "../../../fs/tests/it/subject_versions.rs"]
mod subject_versions;
mod tls;
mod tunnel;
