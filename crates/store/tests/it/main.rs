//! The log on the simulated disk, and the oracle store against its own rules.

mod log_cost;
mod log_crash;
mod log_damage;
mod log_full;
mod log_script;
mod objects;
mod objects_grant;
mod objects_kit;
mod wal;
