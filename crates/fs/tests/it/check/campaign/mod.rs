//! The corruption campaign: one structure of a volume is damaged at a time, and each time the
//! volume is checked, read, repaired, and read again.

mod anatomy;
pub(super) mod asked;
mod bad_sector;
mod beside;
mod btree_parts;
mod damage;
mod each_record;
mod interrupted;
mod lsm_parts;
mod made;
mod media;
mod volume_records;
mod volume_records_later;
mod volume_records_log;
mod selection;
mod permitted;
mod run;
mod unread;
mod stale_blocks;
