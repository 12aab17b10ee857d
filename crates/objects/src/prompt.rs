//! `Prompt`: objects whose calls end within a time, also where the operating system sets none. A
//! call on a shared directory whose server is gone returns only when the server is back.
//!
//! Invariants: a caller never waits longer than the limit. A call that it no longer waits for may
//! still be carried out, as a request whose answer was lost. At most [`LATE_MAX`] of those exist.

use std::io::{Error as IoError, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::{self, Mutex, RecvTimeoutError};
use device::{Blobs, Device, Error, Result};

/// Calls that nobody waits for any more, from which on further ones are refused at once.
const LATE_MAX: usize = 4;

/// Objects whose calls end within a time.
pub(crate) struct Prompt {
    blobs: Arc<dyn Blobs>,
    limit: Duration,
    /// Calls under way that are late.
    late: Arc<AtomicUsize>,
}

impl Prompt {
    /// The same objects, for calls that end within `limit`.
    pub(crate) fn new(blobs: Arc<dyn Blobs>, limit: Duration) -> Prompt {
        Prompt { blobs, limit, late: Arc::default() }
    }

    /// Runs a call in a thread of its own.
    fn call<T: Send + 'static>(
        &self,
        (operation, name): (&'static str, &str),
        call: impl FnOnce(&dyn Blobs) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let failed = |kind, why: String| Err(Error::new(operation, name, IoError::new(kind, why)));
        let late = self.late.load(Ordering::Acquire);
        if late >= LATE_MAX {
            let why = format!("{late} earlier calls have not returned");
            return failed(ErrorKind::TimedOut, why);
        }
        let (answer, answered) = sync::channel();
        let (blobs, late) = (Arc::clone(&self.blobs), Arc::clone(&self.late));
        // Whether the caller waits no more; held to answer, and to give up.
        let given_up = Arc::new(Mutex::new(false));
        let of_thread = Arc::clone(&given_up);
        let started = device::spawn("store-call", move || {
            let called = call(&*blobs);
            let given_up = of_thread.lock();
            if *given_up {
                late.fetch_sub(1, Ordering::AcqRel);
            } else {
                answer.send(called).unwrap_or_default();
            }
        });
        if let Err(error) = started {
            return failed(error.kind(), format!("cannot start a thread: {error}"));
        }
        match answered.recv_timeout(self.limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => {
                failed(ErrorKind::Other, "the thread of the call has ended".to_owned())
            }
            Err(RecvTimeoutError::Timeout) => {
                let mut given_up = given_up.lock();
                if let Ok(answer) = answered.try_recv() {
                    return answer;
                }
                *given_up = true;
                self.late.fetch_add(1, Ordering::AcqRel);
                let why = format!("no answer within {:.1} s", self.limit.as_secs_f64());
                failed(ErrorKind::TimedOut, why)
            }
        }
    }
}

impl Blobs for Prompt {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let (own, bytes) = (name.to_owned(), bytes.to_vec());
        self.call(("create", name), move |blobs| blobs.create(&own, &bytes))
    }

    /// Moves a file of the caller's device, and is not bounded.
    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.blobs.adopt(name, device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (own, mut bytes) = (name.to_owned(), vec![0; buffer.len()]);
        let read = self.call(("read", name), move |blobs| {
            let read = blobs.read_at(&own, &mut bytes, offset)?;
            bytes.truncate(read);
            Ok(bytes)
        })?;
        buffer[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        let own = name.to_owned();
        self.call(("stat", name), move |blobs| blobs.length(&own))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let own = prefix.to_owned();
        self.call(("list", prefix), move |blobs| blobs.list(&own))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let own = name.to_owned();
        self.call(("delete", name), move |blobs| blobs.delete(&own))
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        let Some(first) = names.first() else { return Ok(()) };
        let own = names.to_vec();
        self.call(("delete", first), move |blobs| blobs.delete_all(&own))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.blobs.punch(name, offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.length(name)?.unwrap_or(0))
    }

    fn bytes_max(&self) -> u64 {
        self.blobs.bytes_max()
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{LATE_MAX, Prompt};
    use device::sync::Mutex;
    use device::{Blobs, Device, Result};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    /// Objects whose calls return when the lock is free.
    #[derive(Default)]
    struct Stuck(Mutex<BTreeMap<String, Vec<u8>>>);

    impl Blobs for Stuck {
        fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
            Ok(self.0.lock().insert(name.to_owned(), bytes.to_vec()).is_none())
        }

        fn adopt(&self, _: &str, _: &dyn Device, _: &str) -> Result<bool> {
            unreachable!("nothing adopts here")
        }

        fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
            let objects = self.0.lock();
            let bytes = objects.get(name).ok_or_else(|| {
                device::Error::new("read", name, std::io::ErrorKind::NotFound.into())
            })?;
            Ok(device::part_of(bytes, buffer, offset))
        }

        fn length(&self, name: &str) -> Result<Option<u64>> {
            Ok(self.0.lock().get(name).map(|bytes| bytes.len() as u64))
        }

        fn list(&self, _: &str) -> Result<Vec<String>> {
            Ok(self.0.lock().keys().cloned().collect())
        }

        fn delete(&self, name: &str) -> Result<()> {
            self.0.lock().remove(name);
            Ok(())
        }

        fn punch(&self, _: &str, _: u64, _: u64) -> Result<bool> {
            Ok(false)
        }

        fn disk_bytes(&self, _: &str) -> Result<u64> {
            Ok(0)
        }
    }

    #[test]
    fn a_call_that_does_not_return_is_given_up() {
        let stuck = Arc::new(Stuck::default());
        let patient = Prompt::new(stuck.clone(), Duration::from_secs(60));
        assert!(patient.create("alive/1", b"bytes").unwrap());
        let mut bytes = [0; 9];
        assert_eq!(patient.read_at("alive/1", &mut bytes, 2).unwrap(), 3);
        assert_eq!(&bytes[..3], b"tes");
        assert_eq!(patient.list("alive/").unwrap(), ["alive/1"]);
        assert!(patient.read_at("alive/2", &mut bytes, 0).unwrap_err().is_not_found());
        let prompt = Prompt::new(stuck.clone(), Duration::from_millis(20));
        let held = stuck.0.lock();
        for number in 0..LATE_MAX + 3 {
            let error = prompt.create(&format!("alive/late-{number}"), b"").unwrap_err();
            assert_eq!(error.kind, std::io::ErrorKind::TimedOut);
            let is_refused = error.message.contains("earlier calls");
            assert_eq!(is_refused, number >= LATE_MAX, "{error}");
        }
        drop(held);
        while prompt.late.load(std::sync::atomic::Ordering::Acquire) > 0 {
            device::yield_now();
        }
        assert_eq!(stuck.0.lock().len(), 1 + LATE_MAX, "they were carried out late");
        // With a limit that does not depend on this machine's speed.
        let prompt = Prompt { limit: Duration::from_secs(60), ..prompt };
        prompt.delete("alive/1").unwrap();
    }
}
