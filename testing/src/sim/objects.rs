//! Objects of a remote store, kept by a simulated disk beside its files.
//!
//! Creating or deleting one is one operation: it is executed whole or not at all, and durable when
//! it is answered. So a power cut of the disk keeps all of them. A copy of the disk has those of
//! that moment, and a full disk accepts no more. If an operation must fail for a reason other than
//! space, every other time it is executed anyway, and only the answer is lost.
//!
//! The bytes may be on a server, each object under its own key. Then the disk has only the keys. So
//! copies of it share equal objects, and an object deleted from one copy stays for the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{Blobs, Device, Error, Result, check_name};

use super::device::{Entered, SimDevice, State};
use super::disk::NodeNo;
use super::fault::{FaultError, Op};

/// Objects below a directory of a disk.
pub struct SimObjects {
    device: SimDevice,
    directory: String,
    server: Option<Arc<dyn Blobs>>,
}

impl SimObjects {
    /// The objects of a directory; the first object creates it, durable at once.
    pub fn below(device: &SimDevice, directory: &str) -> Arc<SimObjects> {
        SimObjects::with(device, directory, None)
    }

    /// The same with the bytes on a server, where no other client creates any.
    pub fn on(device: &SimDevice, directory: &str, server: Arc<dyn Blobs>) -> Arc<SimObjects> {
        SimObjects::with(device, directory, Some(server))
    }

    fn with(
        device: &SimDevice,
        directory: &str,
        server: Option<Arc<dyn Blobs>>,
    ) -> Arc<SimObjects> {
        Arc::new(SimObjects { device: device.clone(), directory: directory.to_owned(), server })
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Runs a remote operation.
    fn ask<T>(
        &self,
        op: Op,
        operation: &'static str,
        name: &str,
        carry_out: impl FnOnce(&mut State, &str) -> io::Result<T>,
    ) -> Result<T> {
        let path = self.path(name);
        let run = || {
            let Entered { mut state, fault } = self.device.begin(op, &path)?;
            let Some(fault) = fault else { return carry_out(&mut state, &path) };
            let full = fault.raw_os_error() == FaultError::NoSpace.to_io().raw_os_error();
            if op.changes() && !full && state.random.bool() {
                // The caller does not learn the result.
                carry_out(&mut state, &path).ok();
            }
            Err(fault)
        };
        run().map_err(|error| Error::new(operation, &path, error))
    }

    fn make(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        check_name("create", name)?;
        self.ask(Op::Write, "create", name, |state, path| {
            state.counts.written_bytes += bytes.len() as u64;
            match &self.server {
                None => state.disk.make_whole(path, bytes),
                Some(_) if state.disk.find(path).is_ok() => Ok(false),
                Some(server) => {
                    let key = fresh_key(name);
                    let made = server.create(&key, bytes).expect("a server takes objects");
                    assert!(made, "{key} is there already");
                    state.disk.make_whole(path, key.as_bytes())
                }
            }
        })
    }

    /// Reads the disk's data of an object without keeping it.
    fn look<T>(&self, op: Op, name: &str, look: impl FnOnce(&mut State, NodeNo) -> T) -> Result<T> {
        self.ask(op, "read", name, |state, path| {
            let node = state.disk.find_file(path)?;
            Ok(look(state, node))
        })
    }

    /// The key of an object that is on a server.
    fn key(&self, op: Op, name: &str) -> Result<String> {
        let bytes = self.look(op, name, |state, node| state.disk.file(node).current.to_vec())?;
        Ok(String::from_utf8(bytes).expect("invariant: keys are text"))
    }
}

/// A key that this process has not used before.
fn fresh_key(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{name}.{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Blobs for SimObjects {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.make(name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let file = device.open(path)?;
        let mut bytes = vec![0; file.len()? as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        let made = self.make(name, &bytes)?;
        if made {
            device.remove(path)?;
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if let Some(server) = &self.server {
            let key = self.key(Op::Read, name)?;
            return Ok(server.read_at(&key, buffer, offset).expect("a server reads its objects"));
        }
        self.look(Op::Read, name, |state, node| {
            let read = state.disk.file(node).current.read(buffer, offset);
            state.counts.read_bytes += read as u64;
            read
        })
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        let length = match &self.server {
            None => self
                .look(Op::Look, name, |state, node| Some(state.disk.file(node).current.length())),
            Some(server) => self
                .key(Op::Look, name)
                .map(|key| server.length(&key).expect("a server knows its objects")),
        };
        match length {
            Err(error) if error.is_not_found() => Ok(None),
            // A part of names.
            Err(error) if error.kind == io::ErrorKind::IsADirectory => Ok(None),
            length => length,
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let mut to_read = vec![prefix.rsplit_once('/').map_or("", |(above, _)| above).to_owned()];
        let mut found = Vec::new();
        while let Some(directory) = to_read.pop() {
            let path = match directory.as_str() {
                "" => self.directory.clone(),
                directory => self.path(directory),
            };
            let entries = match self.device.entries(&path) {
                Err(error) if error.is_not_found() => continue,
                entries => entries?,
            };
            for entry in entries {
                let name = match directory.as_str() {
                    "" => entry.name,
                    directory => format!("{directory}/{}", entry.name),
                };
                match (name.starts_with(prefix), entry.directory) {
                    (false, _) => {}
                    (true, true) => to_read.push(name),
                    (true, false) => found.push(name),
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.ask(Op::Remove, "delete", name, |state, path| state.disk.remove_whole(path))
    }

    /// Objects have no holes.
    fn punch(&self, _: &str, _: u64, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        Ok(self.length(name)?.unwrap_or(0))
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}
