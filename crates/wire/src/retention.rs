//! Schedules of snapshots, and holds on them.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// How many snapshots a schedule keeps: the newest one of each of the last so many hours, days,
/// weeks, months and years that have one. All 0: every one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Hours.
    pub hours: u16,
    /// Days.
    pub days: u16,
    /// Weeks.
    pub weeks: u16,
    /// Months.
    pub months: u16,
    /// Years.
    pub years: u16,
}

/// When snapshots of a directory are taken, and how many are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// When: a cron expression of five fields, in the daemon's local time.
    pub cron: String,
    /// How the names of its snapshots begin.
    pub prefix: Bytes,
    /// What is kept.
    pub keep: Keep,
}

/// A change of a schedule, or a new one: what is `None` stays as it is, or is the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleChange {
    /// When. A new schedule has it.
    pub cron: Option<String>,
    /// How the names of its snapshots begin.
    pub prefix: Option<Bytes>,
    /// What is kept.
    pub keep: Option<Keep>,
}

/// A schedule, and what the daemon knows about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduled {
    /// The directory.
    pub path: Bytes,
    /// Its content.
    pub schedule: Schedule,
    /// The user who set it, with whose rights it acts.
    pub uid: u32,
    /// When it last took a snapshot, or was set, in nanoseconds since 1970.
    pub last: i64,
    /// When it next takes one.
    pub next: Option<i64>,
    /// Why the last attempt failed, if it did.
    pub failed: Option<String>,
}

/// What prevents the deletion of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its name.
    pub name: Bytes,
    /// The user who set it.
    pub uid: u32,
    /// When, in nanoseconds since 1970.
    pub since: i64,
}
