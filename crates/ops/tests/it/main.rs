//! Operations over a volume in memory, without quotas, trash, background work or checks.

mod opening;
mod plans;
mod support;
