//! Tests of lower floors that take a whole volume: what makes files, reclaims, checks and reopens.

mod background;
mod bases;
mod copies;
mod executors;
mod notices;
mod owned;
mod release;
mod snapshots;
mod space;
