//! Opens the contents of a volume's files: in the volume directory, or below an object store.

use std::sync::Arc;

use data::Data;
use device::{BlobsBelow, Env};
use store::{Read, Store};

use crate::numbers;
use crate::open_error::OpenError;

/// Where sealed segments are, below the store.
const CONTENTS: &str = "data/sealed";
/// Bytes up to which a file is stored in its records, unless the options set it.
const INLINE_FILE_BYTES: u64 = 64 << 10;

/// Opens the contents of a volume.
pub(crate) fn open(
    env: &Env,
    store: &dyn Store,
    mut of_data: data::Options,
    (small, read_only): (Option<u64>, bool),
) -> Result<Arc<Data>, OpenError> {
    let Some(objects) = &env.objects else {
        return Ok(Data::open_local(env, as_read(store), of_data)?);
    };
    let first =
        if read_only { numbers::next_segment(store) } else { numbers::reserve_segments(store) };
    of_data.upload_from = Some(first.map_err(OpenError::inconsistent)?);
    of_data.inline_file_bytes = small.unwrap_or(INLINE_FILE_BYTES);
    let blobs = Arc::new(BlobsBelow::new(Arc::clone(&objects.cached), CONTENTS));
    Ok(Data::open(env, blobs, as_read(store), of_data)?)
}

fn as_read(store: &dyn Store) -> &dyn Read {
    store
}
