//! A served volume as the subject of the model. What POSIX has goes over the network; the volume
//! itself does what only verbs do.

use device::Timestamp;
use inode::Caller;
use remote::RemoteFs;
use testing::model::{Calls, Effect, ErrorKind, Op, OpPath, Slots, Subject, blame};

use crate::rig::Rig;
use crate::subject_versions::versions;

type Answer = Result<Effect, ErrorKind>;

/// The subject.
pub(crate) struct RemoteSubject {
    pub(crate) rig: Rig,
    /// Files held open.
    slots: Slots,
}

impl RemoteSubject {
    pub(crate) fn new(rig: Rig) -> RemoteSubject {
        RemoteSubject { rig, slots: Slots::new() }
    }

    fn far(&self) -> Calls<'_, RemoteFs> {
        Calls::new(self.rig.far(), &[])
    }

    /// As `far`, on the server's own side.
    fn near(&self) -> Calls<'_, fs::Volume> {
        Calls::new(self.rig.near(), &[])
    }
}

impl Subject for RemoteSubject {
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Answer {
        if now.0 > 0 {
            self.rig.set_clock(now);
        }
        let done = match op {
            Op::Background { seed } => {
                let done = self.rig.background(1 + seed % 8);
                Some(done.map(|()| Effect::Done).map_err(|error| blame(&error)))
            }
            Op::Reopen => {
                self.slots.clear();
                self.rig.restart();
                Some(Ok(Effect::Done))
            }
            _ => None,
        };
        self.rig.disturb();
        if let Some(done) = done {
            return done;
        }
        let mut slots = std::mem::take(&mut self.slots);
        let answer = self.far().run(&mut slots, caller, op);
        self.slots = slots;
        answer
            .or_else(|| versions(&self.near(), caller, op))
            .expect("every operation is a call or a verb")
    }

    fn identity(&mut self, path: &OpPath) -> u64 {
        self.far().identity(path)
    }
}
