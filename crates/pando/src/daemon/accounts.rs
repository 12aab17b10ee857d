//! Users and groups as this machine's name service knows them. Each number is looked up once.

use device::Map;
use device::sync::Mutex;
use nix::unistd::{Gid, Group, Uid, User};

/// Cached results for users and groups.
#[derive(Default)]
pub(crate) struct Accounts {
    users: Mutex<Map<u32, bool>>,
    groups: Mutex<Map<u32, bool>>,
}

impl search::query::Accounts for Accounts {
    fn has_user(&self, uid: u32) -> bool {
        // If the name service fails, no user is reported as missing.
        *self.users.lock().entry(uid).or_insert_with(|| {
            User::from_uid(Uid::from_raw(uid)).map_or(true, |found| found.is_some())
        })
    }

    fn has_group(&self, gid: u32) -> bool {
        *self.groups.lock().entry(gid).or_insert_with(|| {
            Group::from_gid(Gid::from_raw(gid)).map_or(true, |found| found.is_some())
        })
    }
}
