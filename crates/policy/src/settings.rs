//! Settings that a plan changes: what the policies keep of them in memory follows the commit.

use std::sync::Arc;

use format::owner_quota::{Owner, OwnerState};
use format::quota::Charged;
use ops::plan::{self, Effect};

use crate::Governed;
use crate::quota::Quotas;
use crate::trash::Trash;

/// What a policy keeps in memory of the settings in the store.
#[derive(Debug, Clone)]
pub enum Setting {
    /// A directory (lineage, inode) has a trash that keeps for so many seconds, or has none.
    Trash((u64, u64), Option<u64>),
    /// The limits of a user or a group, as records have them.
    OwnerLimits(Owner, (u64, u64)),
    /// The inodes of all owners are being counted.
    OwnersCounting,
    /// They were counted: what was there when that began.
    OwnersCounted(Vec<(Owner, Charged)>),
    /// All that was in the directory of a quota is charged.
    Adopted(u64),
}

/// One of them that is planned, with where it is kept.
struct Planned {
    quotas: Arc<Quotas>,
    trash: Arc<Trash>,
    setting: Setting,
}

impl Governed {
    /// The effect of a plan that commits a setting.
    pub fn setting(&self, setting: Setting) -> Effect {
        let (quotas, trash) = (Arc::clone(&self.quotas), Arc::clone(&self.trash));
        Effect::Set(Box::new(Planned { quotas, trash, setting }))
    }
}

impl plan::Setting for Planned {
    fn take_effect(&self) {
        let quotas = &self.quotas;
        match &self.setting {
            Setting::Trash(place, keep) => self.trash.set(*place, *keep),
            Setting::OwnerLimits(owner, limits) => {
                quotas.owners.account(*owner).set_limits(*limits);
            }
            Setting::OwnersCounting => quotas.owners.set(Some(OwnerState::Counting)),
            Setting::OwnersCounted(found) => quotas.owners.set_counted(found),
            Setting::Adopted(domain) => {
                if let Some(domain) = quotas.get(*domain) {
                    domain.adopted();
                }
            }
        }
    }
}
