//! `Fs`: an open volume as a whole: every floor over the one below, opened in that order.

use std::ops::Deref;
use std::sync::Arc;

use device::Env;
use format::volume::VolumeHeader;
use inode::NameHash;
use opening::create::FormatOptions;
use opening::{create, engine, header};
use store::{CheckProgress, CheckReport, Store};
use upkeep::Upkeep;
use volume::{Atime, OpenError, OpenOptions, VolumeId, record_copies};

/// How often a state is looked for that stays while it is read: the owner deletes objects.
const OBSERVE_ATTEMPTS: u32 = 5;

/// An open volume.
pub struct Fs {
    upkeep: Upkeep,
}

impl Deref for Fs {
    type Target = Upkeep;

    #[inline]
    fn deref(&self) -> &Upkeep {
        &self.upkeep
    }
}

impl Fs {
    /// Opens a volume in an object store for reading, in the state that its log has now, while
    /// another process has it open. Nothing is written but the cache of objects on the host's disk,
    /// so the other process notices nothing. It may delete objects that this state needs: then a
    /// read fails.
    pub fn observe(env: &Env, why: &str) -> Result<Arc<Fs>, OpenError> {
        let mut attempts = 0;
        loop {
            let over = check::observed(env);
            let options = OpenOptions {
                read_only: true,
                read_only_because: Some(Arc::from(why)),
                index: None,
                atime: Atime::Never,
                ..OpenOptions::default()
            };
            attempts += 1;
            match Fs::open(over, &options) {
                // The other process made a checkpoint meanwhile, and what was listed is gone.
                Err(
                    OpenError::Missing { .. }
                    | OpenError::Inconsistent(_)
                    | OpenError::Store(store::Error::Replaced(_)),
                ) if attempts < OBSERVE_ATTEMPTS => {}
                opened => return opened,
            }
        }
    }

    /// Creates a volume in an empty directory. The header gets its name last, so an interrupted
    /// call leaves no volume, and the next call starts over. Until then the header has another
    /// name, which distinguishes an interrupted format from a volume that lost its header.
    pub fn format(env: &Env, options: &FormatOptions) -> Result<VolumeId, OpenError> {
        create::format(env, options)
    }

    /// Creates a volume in a store of the caller's, and returns the header that belongs to it.
    pub fn format_on(
        env: &Env,
        store: &dyn Store,
        options: &FormatOptions,
    ) -> Result<VolumeHeader, OpenError> {
        create::format_on(env, store, options)
    }

    /// Opens a volume, recovering it if it was not closed. The caller holds `owner.lock`.
    pub fn open(env: Env, options: &OpenOptions) -> Result<Arc<Fs>, OpenError> {
        Fs::open_through(env, options, |store| store)
    }

    /// Like [`Fs::open`], with a layer before the store: a benchmark records the calls to it.
    pub fn open_through(
        env: Env,
        options: &OpenOptions,
        through: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Result<Arc<Fs>, OpenError> {
        let header = header::find(&env)?;
        Ok(Arc::new(Fs { upkeep: check::open(env, header, options, through)? }))
    }

    /// Opens the volume in a store. Front ends call [`Fs::open`]; this is for callers with a store
    /// of their own.
    pub fn open_on(
        env: Env,
        store: Arc<dyn Store>,
        header: VolumeHeader,
        options: &OpenOptions,
    ) -> Result<Arc<Fs>, OpenError> {
        let hash = NameHash::new(header.hash_key);
        Fs::open_with_hash(env, store, header, options, hash)
    }

    /// Like [`Fs::open_on`], with another hash of names than the volume's own.
    pub fn open_with_hash(
        env: Env,
        store: Arc<dyn Store>,
        header: VolumeHeader,
        options: &OpenOptions,
        hash: NameHash,
    ) -> Result<Arc<Fs>, OpenError> {
        let find_trees = check::trees_without_records;
        let upkeep =
            Upkeep::open(env, record_copies::over(store)?, header, options, (hash, find_trees))?;
        Ok(Arc::new(Fs { upkeep }))
    }

    /// Checks a volume that no process has open: everything that its store has on disk. Nothing is
    /// changed. The caller keeps others from opening it meanwhile.
    pub fn inspect(env: &Env, progress: CheckProgress<'_>) -> Result<CheckReport, OpenError> {
        let header = header::find(env)?;
        engine::inspect(env, &header, progress)
    }
}
