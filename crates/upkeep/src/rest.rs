//! How long background work rests.

use std::time::Duration;

/// Rest of an object whose step failed: a failure that stays must not take the turns of others.
pub(crate) const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);
