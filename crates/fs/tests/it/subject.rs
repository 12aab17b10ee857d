//! A volume as the subject of the model: `testing::model::Calls` makes the calls, and the volume
//! executes what only verbs do.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Device, Env, Objects, Timestamp};
use format::volume::VolumeHeader;
use fs::{Engine, FormatOptions, Fs, FsResult, Layout, OpenError, OpenOptions};
use inode::{Caller, FsError, IoFailure};
use store::Durable;
use testing::model::{Calls, Effect, ErrorKind, Op, OpPath, Slots, Subject, blame};
use testing::{FarBlobs, LoggedStore, SimDevice, SimEnv};

use crate::subject_versions::versions;
use crate::support::{inode_home, shown};

/// A clock that is set; the time of day may be another than it should be.
#[derive(Debug, Default)]
pub(crate) struct SetClock(Mutex<i64>, AtomicI64);

impl SetClock {
    /// Has the time of day be ahead by so many seconds.
    pub(crate) fn be_ahead(&self, seconds: i64) {
        self.1.store(seconds * 1_000_000_000, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(*self.0.lock() + self.1.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(u64::try_from(*self.0.lock()).unwrap_or(0))
    }

    fn sleep(&self, duration: Duration) {
        *self.0.lock() += i64::try_from(duration.as_nanos()).unwrap_or(0);
        device::yield_now();
    }
}

/// Which store is below a volume.
#[derive(Debug, Clone)]
pub(crate) enum Base {
    /// The one that the volume is formatted with.
    Engine(Engine),
    /// The log-structured engine with value logs.
    Column,
    /// The log-structured engine, with everything in an object store.
    Objects(Arc<FarBlobs>),
    /// The oracle behind the log, with the header of the volume that it holds. A test that fails on
    /// the engine and not on the oracle shows an error of the engine.
    Oracle(Option<VolumeHeader>),
}

/// A volume on a simulated disk.
pub(crate) struct FsSubject {
    env: Env,
    clock: Arc<SetClock>,
    options: OpenOptions,
    base: Base,
    volume: Option<Arc<fs::Volume>>,
    /// Files held open.
    slots: Slots,
    /// The directory of the volume that paths start in.
    start: OpPath,
    /// What the last call could not read.
    failure: Option<IoFailure>,
}

/// The object store of a volume, if it is in one.
fn far(base: &Base, clock: &Arc<SetClock>) -> Option<Objects> {
    let Base::Objects(far) = base else { return None };
    Some(Objects::new(Arc::<FarBlobs>::clone(far), Arc::<SetClock>::clone(clock)))
}

type Answer = Result<Effect, ErrorKind>;

impl FsSubject {
    /// A fresh volume.
    pub(crate) fn format(device: &SimDevice, options: &OpenOptions, base: &Base) -> FsSubject {
        FsSubject::format_on(Arc::new(device.clone()), options, base)
    }

    /// As [`FsSubject::format`], on whatever device.
    pub(crate) fn format_on(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        base: &Base,
    ) -> FsSubject {
        let mut subject = FsSubject::unopened(device, options, base);
        subject.clock.sleep(Duration::from_secs(1_700_000_000));
        let (engine, layout) = match base {
            Base::Engine(engine) => (*engine, Layout::Rows),
            Base::Column | Base::Objects(_) => (Engine::Lsm, Layout::Column),
            Base::Oracle(_) => (Engine::default(), Layout::Rows),
        };
        let inode_home = inode_home();
        let format = FormatOptions { engine, layout, inode_home, ..FormatOptions::default() };
        if let Base::Oracle(header) = &mut subject.base {
            let store = LoggedStore::create(&subject.env, options.durability);
            let store = store.expect("an empty disk takes a store");
            *header = Some(Fs::format_on(&subject.env, &store, &format).expect("an empty store"));
            store.close().expect("a store closes");
        } else {
            Fs::format(&subject.env, &format).expect("an empty disk is formatted");
        }
        subject.reopen().expect("a fresh volume opens");
        subject
    }

    /// A volume that is there.
    pub(crate) fn open(
        device: &SimDevice,
        options: &OpenOptions,
        base: &Base,
    ) -> Result<FsSubject, OpenError> {
        FsSubject::open_on(Arc::new(device.clone()), options, base)
    }

    /// As [`FsSubject::open`], on whatever device.
    pub(crate) fn open_on(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        base: &Base,
    ) -> Result<FsSubject, OpenError> {
        let mut subject = FsSubject::unopened(device, options, base);
        subject.clock.sleep(Duration::from_secs(1_800_000_000));
        subject.reopen()?;
        Ok(subject)
    }

    fn unopened(device: Arc<dyn Device>, options: &OpenOptions, base: &Base) -> FsSubject {
        let clock = Arc::new(SetClock::default());
        let env = SimEnv::on(SimDevice::new(7), 7).env();
        FsSubject {
            env: Env {
                clock: Arc::<SetClock>::clone(&clock),
                device,
                objects: far(base, &clock),
                ..env
            },
            clock,
            options: options.clone(),
            base: base.clone(),
            volume: None,
            slots: Slots::new(),
            start: OpPath::new(),
            failure: None,
        }
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        // What an opening learned of the store is not the next one's.
        self.env.objects = far(&self.base, &self.clock);
        let env = self.env.clone();
        let fs = match &self.base {
            Base::Objects(far) => {
                if env.device.metadata(format::volume::FILE)?.is_none() {
                    fs::make_host(&*env.device, &**far, "s3://bucket/prefix")?;
                }
                Fs::open(env, &self.options)?
            }
            Base::Engine(_) | Base::Column => Fs::open(env, &self.options)?,
            Base::Oracle(header) => {
                let header = header.clone().expect("the volume was formatted");
                let store = LoggedStore::open(&env, self.options.durability)?;
                Fs::open_on(env, Arc::new(store), header, &self.options)?
            }
        };
        self.volume = Some(shown(&fs));
        Ok(())
    }

    /// Has all paths start in a directory of the volume from now on.
    pub(crate) fn start_in(&mut self, directory: OpPath) {
        self.start = directory;
    }

    /// What the last call could not read, if that is how it failed.
    pub(crate) fn take_failure(&mut self) -> Option<IoFailure> {
        self.failure.take()
    }

    /// What is below, for opening copies of the disk.
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// Its clock.
    pub(crate) fn clock(&self) -> &SetClock {
        &self.clock
    }

    /// The volume.
    pub(crate) fn fs(&self) -> &fs::Volume {
        self.volume.as_ref().expect("the volume is open")
    }

    /// Closes the volume and opens it again.
    pub(crate) fn cycle(&mut self) -> FsResult<()> {
        self.slots.clear();
        if let Some(volume) = self.volume.take() {
            volume.close()?;
        }
        self.reopen().map_err(|error| match error {
            // A fault that a test ordered.
            OpenError::Device(error) => FsError::Io(error.to_string().into()),
            error => panic!("a closed volume opens: {error}"),
        })
    }

    /// Background work until nothing is due at once, or for a number of steps.
    pub(crate) fn background(&self, steps: u64) -> FsResult<()> {
        for _ in 0..steps {
            if !self.fs().background_step(64)?.more {
                break;
            }
        }
        Ok(())
    }

    fn calls(&self) -> Calls<'_, fs::Volume> {
        Calls::new(self.fs(), &self.start)
    }
}

impl Subject for FsSubject {
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Answer {
        if now.0 > 0 {
            *self.clock.0.lock() = now.0;
        }
        match op {
            Op::Background { seed } => {
                let done = self.background(1 + seed % 8).map(|()| Effect::Done);
                return done.map_err(|error| blame(&error));
            }
            Op::Reopen => {
                return self.cycle().map(|()| Effect::Done).map_err(|error| blame(&error));
            }
            _ => {}
        }
        let mut slots = std::mem::take(&mut self.slots);
        let calls = self.calls();
        let answer = calls.run(&mut slots, caller, op).or_else(|| versions(&calls, caller, op));
        let failure = calls.take_failure();
        (self.slots, self.failure) = (slots, failure);
        answer.expect("every operation is a call or a verb")
    }

    fn identity(&mut self, path: &OpPath) -> u64 {
        self.calls().identity(path)
    }
}
