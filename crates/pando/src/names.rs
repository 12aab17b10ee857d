//! Names of users and groups from this machine's name service, each looked up once.

use device::Map;
use nix::unistd::{Gid, Group, Uid, User};

/// The names seen so far.
#[derive(Default)]
pub(crate) struct Names {
    users: Map<u32, Option<String>>,
    groups: Map<u32, Option<String>>,
}

impl Names {
    /// The name of a user, or the number where no user has it.
    pub(crate) fn user(&mut self, uid: u32) -> String {
        let found = self.users.entry(uid).or_insert_with(|| {
            User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
        });
        found.clone().unwrap_or_else(|| uid.to_string())
    }

    /// The name of a group, or the number where no group has it.
    pub(crate) fn group(&mut self, gid: u32) -> String {
        let found = self.groups.entry(gid).or_insert_with(|| {
            Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
        });
        found.clone().unwrap_or_else(|| gid.to_string())
    }
}
