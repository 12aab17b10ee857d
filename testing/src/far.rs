//! Objects behind an unreliable connection. As a test orders it, a request may be executed without
//! an answer, or late, or not at all; other clients may create objects, too.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use device::sync::Mutex;
use device::{Blobs, Device, Error, Result, check_name, part_of};

/// Calls that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `create` and `adopt`.
    Make,
    /// `delete`.
    Delete,
    /// `read_at` and `length`.
    Read,
    /// `punch`.
    Punch,
}

/// The failure of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// It is not executed.
    LostRequest,
    /// It is executed, and there is no answer.
    LostAnswer,
    /// There is no answer, and [`FarBlobs::deliver`] executes it.
    Late,
    /// It is executed and answered, and [`FarBlobs::deliver`] executes it again.
    Twice,
    /// It is executed twice in a row, and the second answer arrives.
    Repeated,
    /// It fails for lack of space.
    Full,
}

/// A delayed request.
#[derive(Debug, Clone)]
enum Late {
    Make(String, Arc<Vec<u8>>),
    Delete(String),
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Arc<Vec<u8>>>,
    mishaps: Vec<(Call, String, Mishap)>,
    late: Vec<Late>,
    punched: Vec<(String, u64, u64)>,
    /// Number of calls so far that change something.
    changes: u64,
    /// The error for creations, while none are accepted.
    takes_nothing: Option<io::ErrorKind>,
}

/// Called before each call that changes something, with the number of such calls.
type Watcher = Arc<dyn Fn(&FarBlobs, u64) + Send + Sync>;

/// Immutable objects in memory, with failures on order.
#[derive(Default)]
pub struct FarBlobs {
    state: Mutex<State>,
    watcher: Mutex<Option<Watcher>>,
    bytes_max: Option<u64>,
}

impl std::fmt::Debug for FarBlobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FarBlobs")
    }
}

impl FarBlobs {
    /// No objects.
    pub fn new() -> Arc<FarBlobs> {
        Arc::default()
    }

    /// No objects; each may have at most so many bytes.
    pub fn with_bytes_max(bytes: u64) -> Arc<FarBlobs> {
        Arc::new(FarBlobs { bytes_max: Some(bytes), ..FarBlobs::default() })
    }

    /// A copy of the objects, without orders for failures.
    pub fn copy(&self) -> Arc<FarBlobs> {
        let state = State { objects: self.objects(), ..State::default() };
        let bytes_max = self.bytes_max;
        Arc::new(FarBlobs { state: Mutex::new(state), watcher: Mutex::default(), bytes_max })
    }

    /// Orders a failure of the next such call on a name that starts with a prefix. Several orders
    /// of one kind take effect in their order.
    pub fn order(&self, call: Call, prefix: &str, mishap: Mishap) {
        self.state.lock().mishaps.push((call, prefix.to_owned(), mishap));
    }

    /// Cancels the orders that have not taken effect; returns their number.
    pub fn take_back(&self) -> usize {
        std::mem::take(&mut self.state.lock().mishaps).len()
    }

    /// From now on rejects creations, and deletions too if the error is a lack of permission;
    /// `None` accepts all again.
    pub fn take_nothing(&self, why: Option<io::ErrorKind>) {
        self.state.lock().takes_nothing = why;
    }

    /// Executes delayed requests.
    pub fn deliver(&self) {
        let mut state = self.state.lock();
        for late in std::mem::take(&mut state.late) {
            match late {
                Late::Make(name, bytes) => {
                    state.objects.entry(name).or_insert(bytes);
                }
                Late::Delete(name) => {
                    state.objects.remove(&name);
                }
            }
        }
    }

    /// Calls a function before each call that changes something.
    pub fn watch(&self, watcher: impl Fn(&FarBlobs, u64) + Send + Sync + 'static) {
        *self.watcher.lock() = Some(Arc::new(watcher));
    }

    /// Stops the calls of the function.
    pub fn unwatch(&self) {
        *self.watcher.lock() = None;
    }

    /// Names and bytes.
    pub fn objects(&self) -> BTreeMap<String, Arc<Vec<u8>>> {
        self.state.lock().objects.clone()
    }

    /// Creates or changes an object, as another client may.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.state.lock().objects.insert(name.to_owned(), Arc::new(bytes.to_vec()));
    }

    /// Punched ranges: name, offset, length.
    pub fn punched(&self) -> Vec<(String, u64, u64)> {
        self.state.lock().punched.clone()
    }

    /// The state for a call, and the failure ordered for it.
    fn call(
        &self,
        call: Call,
        name: &str,
    ) -> (device::sync::MutexGuard<'_, State>, Option<Mishap>) {
        if call != Call::Read {
            let watcher = self.watcher.lock().clone();
            let changes = {
                let mut state = self.state.lock();
                state.changes += 1;
                state.changes
            };
            if let Some(watcher) = watcher {
                watcher(self, changes);
            }
        }
        let mut state = self.state.lock();
        let strikes = |(on, prefix, _): &(Call, String, Mishap)| {
            *on == call && name.starts_with(prefix.as_str())
        };
        let at = state.mishaps.iter().position(strikes);
        let mishap = at.map(|at| state.mishaps.remove(at).2);
        (state, mishap)
    }

    fn make(&self, name: &str, bytes: Vec<u8>) -> Result<bool> {
        check_name("create", name)?;
        let (mut state, mishap) = self.call(Call::Make, name);
        let bytes = Arc::new(bytes);
        if let Some(why) = state.takes_nothing {
            return Err(Error::new("create", name, why.into()));
        }
        match mishap {
            Some(Mishap::LostRequest) => return Err(lost("create", name)),
            Some(Mishap::Full) => {
                let full = io::Error::new(io::ErrorKind::StorageFull, "no space");
                return Err(Error::new("create", name, full));
            }
            Some(Mishap::Late) => {
                state.late.push(Late::Make(name.to_owned(), bytes));
                return Err(lost("create", name));
            }
            Some(Mishap::Twice) => state.late.push(Late::Make(name.to_owned(), Arc::clone(&bytes))),
            _ => {}
        }
        let free = !state.objects.contains_key(name);
        if free {
            state.objects.insert(name.to_owned(), bytes);
        }
        match mishap {
            Some(Mishap::LostAnswer) => Err(lost("create", name)),
            Some(Mishap::Repeated) => Ok(false),
            _ => Ok(free),
        }
    }
}

fn lost(operation: &'static str, name: &str) -> Error {
    Error::new(operation, name, io::Error::new(io::ErrorKind::TimedOut, "no answer"))
}

impl Blobs for FarBlobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.make(name, bytes.to_vec())
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let file = device.open(path)?;
        let mut bytes = vec![0; file.len()? as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        let made = self.make(name, bytes)?;
        if made {
            device.remove(path)?;
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (state, mishap) = self.call(Call::Read, name);
        if mishap.is_some() {
            return Err(lost("read", name));
        }
        let Some(bytes) = state.objects.get(name) else {
            return Err(Error::new("read", name, io::ErrorKind::NotFound.into()));
        };
        Ok(part_of(bytes, buffer, offset))
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        let (state, mishap) = self.call(Call::Read, name);
        if mishap.is_some() {
            return Err(lost("stat", name));
        }
        Ok(state.objects.get(name).map(|bytes| bytes.len() as u64))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let state = self.state.lock();
        Ok(state.objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
    }

    fn delete(&self, name: &str) -> Result<()> {
        let (mut state, mishap) = self.call(Call::Delete, name);
        if let Some(why @ io::ErrorKind::PermissionDenied) = state.takes_nothing {
            return Err(Error::new("delete", name, why.into()));
        }
        if matches!(mishap, Some(Mishap::Late | Mishap::Twice)) {
            state.late.push(Late::Delete(name.to_owned()));
        }
        if !matches!(mishap, Some(Mishap::LostRequest | Mishap::Late | Mishap::Full)) {
            state.objects.remove(name);
        }
        match mishap {
            None | Some(Mishap::Twice | Mishap::Repeated) => Ok(()),
            _ => Err(lost("delete", name)),
        }
    }

    /// Objects have no holes, but the request is recorded.
    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        let (mut state, mishap) = self.call(Call::Punch, name);
        if mishap.is_some() {
            return Err(lost("punch", name));
        }
        state.punched.push((name.to_owned(), offset, length));
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.length(name)?.unwrap_or(0))
    }

    fn bytes_max(&self) -> u64 {
        self.bytes_max.unwrap_or(u64::MAX)
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}
