//! Damage of the volume's own records that was met since it was opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use format::Corruption;
use store::Error;

/// Places that are kept; others are logged.
const PLACES_MAX: usize = 16;
/// What to do about damaged records.
const DO: &str = "`pando fsck --repair` rewrites them";
/// The report of lost counts.
pub const UNCOUNTED: &str = "counts and charges were lost with damaged records of the \
                                    volume: `pando fsck --repair` recounts";

/// What was met.
pub struct Noted {
    /// Whether each record that should have a copy has one.
    copies: AtomicBool,
    /// Whether a commit is in progress after which there are none.
    giving_up: AtomicBool,
    /// Whether counts were lost, and are 0 until a repair has counted again.
    uncounted: AtomicBool,
    /// What was answered from copies, in words.
    places: Mutex<Vec<String>>,
    /// Why there are no copies, and what to do.
    given_up: Mutex<Option<String>>,
}

impl Noted {
    pub(super) fn new(copies: bool) -> Noted {
        Noted {
            copies: AtomicBool::new(copies),
            giving_up: AtomicBool::new(false),
            uncounted: AtomicBool::new(false),
            places: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// Whether each record that should have a copy has one.
    #[inline]
    pub fn has_copies(&self) -> bool {
        self.copies.load(Ordering::Acquire)
    }

    pub(super) fn set_copies(&self, copies: bool) {
        self.copies.store(copies, Ordering::Release);
    }

    /// Whether what was read of the copies until now was no older than the volume's own tree, so
    /// that reads may be answered from it.
    pub(super) fn are_believed(&self) -> bool {
        // In the order in which abandoning them completes.
        !self.giving_up.load(Ordering::Acquire) && self.has_copies()
    }

    pub(super) fn set_giving_up(&self, giving_up: bool) {
        self.giving_up.store(giving_up, Ordering::Release);
    }

    /// Notes that a record was answered from its copy.
    #[cold]
    pub(super) fn answered(&self, error: &Error) {
        let what = error.to_string();
        let mut places = self.places.lock();
        if places.contains(&what) || places.len() >= PLACES_MAX {
            return;
        }
        tracing::error!(what, "read a record of the volume from its copy");
        places.push(what);
    }

    /// Notes that a record that has no copy cannot be read.
    #[cold]
    pub fn lost(&self, what: &str) {
        tracing::error!(what, "a record of the volume that has no copy cannot be read");
        self.places.lock().push(what.to_owned());
    }

    /// Notes that the log has changes of records, or of their copies, that could not be replayed.
    #[cold]
    pub(super) fn not_replayed(&self, why: &str, of_copies: bool) {
        if of_copies {
            *self.given_up.lock() = Some(format!("{why}; {DO}"));
        } else {
            self.places.lock().push(why.to_owned());
        }
    }

    /// Whether everything that was read could be read.
    pub fn is_whole(&self) -> bool {
        self.places.lock().is_empty()
    }

    /// Notes that the copies are no longer maintained.
    #[cold]
    pub(super) fn gave_up(&self, error: &Error) {
        tracing::error!(%error, "dropping the copies of the volume's records");
        *self.given_up.lock() = Some(format!("{error}; {DO}"));
    }

    /// Notes that missing copies could not be created.
    #[cold]
    pub(super) fn not_made(&self, error: &Error) {
        tracing::error!(%error, "cannot create the copies of the volume's records");
        let why = format!("{error}; the next opening with free space creates them");
        *self.given_up.lock() = Some(why);
    }

    /// Notes that counts were lost with damaged records, and are being rebuilt.
    #[cold]
    pub fn set_uncounted(&self) {
        tracing::error!("{UNCOUNTED}");
        self.uncounted.store(true, Ordering::Release);
    }

    /// What was met, in words, for `status`; none if nothing was.
    pub fn message(&self) -> Option<String> {
        if let Some(first) = self.places.lock().first() {
            return Some(format!(
                "records of the volume are damaged, and read from copies if they have some: \
                 {first}; {DO}"
            ));
        }
        if let Some(why) = &*self.given_up.lock() {
            return Some(format!("records of the volume have no copies: {why}"));
        }
        self.uncounted.load(Ordering::Acquire).then(|| UNCOUNTED.to_owned())
    }
}

/// The error when neither of the two can be read.
#[cold]
pub(super) fn both(error: Error, copy: &Error) -> Error {
    let also = format!(
        "and their copy neither ({copy}): put back either file from a backup of the volume"
    );
    match error {
        Error::Corrupt(bad) => {
            let found = format!("{}, {also}", bad.found);
            Error::Corrupt(Arc::new(Corruption { found, ..(*bad).clone() }))
        }
        Error::Missing { file, .. } => Error::Corrupt(Arc::new(Corruption {
            file,
            offset: 0,
            structure: "file",
            expected: "the file".to_owned(),
            found: format!("none, {also}"),
            unread: false,
        })),
        Error::Device(error) => {
            let message = format!("{}, {also}", error.message);
            Error::Device(device::Error { message, ..error })
        }
        other => other,
    }
}
