//! Quotas and the trash over a volume in memory, without background work or checks.

#[expect(dead_code, unreachable_pub, reason = "a part of the crate, with its tests")]
#[path = "../../src/trash/hour.rs"]
mod hour;
mod quotas;
mod support;
mod trashes;
