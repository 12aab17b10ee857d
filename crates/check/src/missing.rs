//! Records of the volume's own that only their copy has whole. Both trees change in one batch, so
//! no crash leaves this state: the record was lost, and its content is what the copy has. The
//! check treats the record as present, so that nothing is removed for lack of it. A repair restores
//! it.

use format::key;
use volume::subvol::VOLUME;

use super::{Edit, Fix, Problem, ProblemKind};

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
