//! What copies that inherit mean to a search.
//!
//! The index finds nested subvolumes by their mount points, and an inherited subvolume is mounted
//! elsewhere. So a search at or above a copy that inherits walks, by names. Copies elsewhere, for
//! example snapshots of what is searched, do not matter.

use std::collections::BTreeSet;

use format::inherited_record::INHERITED_PREFIX;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use store::{KeyRange, Pinned, TreeId};

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// Most records of subvolumes that a search reads to learn whether copies below it inherit.
const RECORDS_MAX: usize = 1024;

/// Which copies matter.
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// All of the volume.
    All,
    /// A subvolume and those that are mounted below it.
    Below(u64),
}

/// Whether something is inherited in a scope. The answer is yes where very many copies inherit.
pub fn inherits(pin: &dyn Pinned, scope: Scope) -> store::Result<bool> {
    let mut cursor = pin.scan(VOLUME, KeyRange::prefix(&INHERITED_PREFIX))?;
    let mut seen = BTreeSet::new();
    while let Some(item) = cursor.next()? {
        let Scope::Below(top) = scope else { return Ok(true) };
        // A damaged record may belong to any copy.
        let Ok(mut at) = key::parse_number(item.key) else { return Ok(true) };
        while seen.insert(at) {
            if at == top || seen.len() > RECORDS_MAX {
                return Ok(true);
            }
            let Some(bytes) = pin.get(VOLUME, &key::subvolume(at))? else { break };
            let Ok(record) = SubvolumeRecord::decode(&bytes) else { return Ok(true) };
            at = record.parent.0;
            if at == 0 {
                break;
            }
        }
    }
    Ok(false)
}
