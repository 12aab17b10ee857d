//! Records of the volume's own that only their copy has whole. Both trees change in one batch, so
//! no crash leaves this state: the record was lost, and its content is what the copy has. The
//! check treats the record as present, so that nothing is removed for lack of it. A repair restores
//! it.

use std::collections::BTreeMap;

use format::kept_twice::is_kept_twice;
use format::key;
use store::Pinned;
use upkeep::Upkeep;
use vfs::FsResult;
use volume::error::from_store;
use volume::record_copies::{differences, is_damage};
use volume::subvol::VOLUME;

use super::table::Table;
use super::{Edit, Fix, Problem, ProblemKind};

/// The records that only the copies have, or have whole. Damaged copies are handled elsewhere.
pub(super) fn only_in_copies(
    fs: &Upkeep,
    pin: &dyn Pinned,
) -> FsResult<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    if !fs.own.noted().has_copies() {
        return Ok(found);
    }
    let decodes = |key: &[u8], value: &[u8]| Table::default().take(key, value).is_ok();
    let compared = differences(pin, &mut |key, own, copy| {
        let is_lost = is_kept_twice(key) && own.is_none_or(|own| !decodes(key, own));
        if let Some(copy) = copy.filter(|copy| is_lost && decodes(key, copy)) {
            found.insert(key.to_vec(), copy.to_vec());
        }
        Ok(())
    });
    match compared {
        // A part proves nothing.
        Err(error) if is_damage(&error) => Ok(BTreeMap::new()),
        compared => compared.map_err(from_store).map(|()| found),
    }
}

/// Reports that a record is gone.
pub(super) fn gone(key: &[u8], copy: &[u8]) -> Problem {
    let subvolume = match key::parse_number(key) {
        Ok(id) if key[..1] == key::SUBVOLUMES_PREFIX => id,
        _ => 0,
    };
    let what = if subvolume == 0 {
        format!("the volume's record {key:02x?} is missing; its copy exists")
    } else {
        format!("the record of subvolume {subvolume} is missing; its copy exists")
    };
    let problem = Problem::new(ProblemKind::Subvolume, what).repaired_by(put_back(key, copy));
    Problem { subvolume, ..problem }
}

/// Writes a record with the content of its copy.
pub(super) fn put_back(key: &[u8], copy: &[u8]) -> Fix {
    Fix::Edits("put it back from its copy", vec![Edit::Put(VOLUME, key.to_vec(), copy.to_vec())])
}
