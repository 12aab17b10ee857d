//! The caller of an operation.

/// Where permissions are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforce {
    /// The kernel checked them before it sent the request (`default_permissions`).
    Kernel,
    /// Here, on every operation.
    Here,
}

/// Privileges of a file that a change of its contents or owner clears in the same batch, in
/// addition to those always cleared. Code that knows what the caller may keep sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The set-id bits, even if the superuser makes the change: it lacks `CAP_FSETID`.
    pub set_id: bool,
    /// The file's capabilities.
    pub capabilities: bool,
}

impl Ends {
    /// Nothing more.
    pub const NONE: Ends = Ends { set_id: false, capabilities: false };
}

/// The credentials of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Permission bits removed from the mode of what the caller creates, except where a directory's
    /// default access list determines the mode.
    pub umask: u32,
    /// The process that made the call, for reports; 0 if it is unknown. No rule depends on it.
    pub pid: u32,
    /// Where permissions are checked. Rules that the kernel cannot check for us (who may snapshot,
    /// clone, roll back) are checked here in any case.
    pub enforce: Enforce,
    /// Privileges that the caller's changes of a file clear.
    pub ends: Ends,
}

impl Caller {
    /// The superuser, checked here.
    pub fn root() -> Caller {
        Caller {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            umask: 0,
            pid: 0,
            enforce: Enforce::Here,
            ends: Ends::NONE,
        }
    }

    /// Whether the caller is the superuser.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller's change of a file's contents clears its set-id bits.
    pub fn ends_set_id(&self) -> bool {
        !self.is_root() || self.ends.set_id
    }

    /// Whether the caller is in a group, or the kernel has checked it. The kernel knows all groups
    /// of the caller, and itself answers a change that requires membership.
    pub fn may_be_in(&self, gid: u32) -> bool {
        self.enforce == Enforce::Kernel || self.in_group(gid)
    }

    /// Whether the caller is in a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
