//! Creates and opens volumes: the engine, the records of an empty root, and the header's files
//! around them (`header`).

use device::{Blobs, Device, Env};
use format::directory_record::DirectoryRecord;
use format::key::{self, Counter, Part};
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use format::volume::{
    COPY, EngineKind, FILE, Home, SNAPSHOT_DIR_BYTES_MAX, UNFINISHED, VolumeHeader,
};
use inode::Name;
use store::{Batch, Store, TreeId};
use volume::numbers::ROOT_INO;
use volume::subvol::VOLUME;
use volume::{OpenError, VolumeId, record_copies};

use crate::engine::{Engine, Layout};
use crate::header;

/// The volume's root subvolume.
const ROOT_SUBVOLUME: u64 = 1;
/// What a directory may contain before it is formatted: files of the daemon.
const OWNERS: [&str; 2] = ["owner.lock", "control.sock"];

/// Options for creating a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatOptions {
    /// The engine.
    pub engine: Engine,
    /// How it lays records out; the B-tree ignores it.
    pub layout: Layout,
    /// Name of the virtual directory of snapshots that every directory has.
    pub snapshot_dir: Vec<u8>,
    /// Owner of the root directory.
    pub root_uid: u32,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permission bits of the root directory.
    pub root_mode: u32,
    /// The home of the inodes that the volume makes: 0 for a volume that is in no cluster.
    pub inode_home: u16,
}

impl Default for FormatOptions {
    fn default() -> FormatOptions {
        FormatOptions {
            engine: Engine::Btree,
            layout: Layout::Rows,
            snapshot_dir: b".snapshots".to_vec(), // tidy: knows the default of the header
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
            inode_home: 0,
        }
    }
}

/// Creates a volume in an empty directory. The header gets its name last, so an interrupted call
/// leaves no volume, and the next call starts over. Until then the header has another name, which
/// distinguishes an interrupted format from a volume that lost its header.
pub fn format(env: &Env, options: &FormatOptions) -> Result<VolumeId, OpenError> {
    let header = new_header(env, options)?;
    if let Some(objects) = &env.objects {
        return format_objects(env, &*objects.store, header, options);
    }
    check_empty(&*env.device)?;
    header::write_file(&*env.device, UNFINISHED, &header.encode())?;
    header::write_file(&*env.device, COPY, &header.encode())?;
    let store = crate::engine::create(env, &header, options.layout)?;
    write_root(&*store, env, options).map_err(OpenError::from)?;
    store.close()?;
    env.device.rename(UNFINISHED, FILE)?;
    env.device.sync_dir("")?;
    Ok(VolumeId(header.volume_id))
}

/// Creates a volume in a store of the caller's, and returns the header that belongs to it.
pub fn format_on(
    env: &Env,
    store: &dyn Store,
    options: &FormatOptions,
) -> Result<VolumeHeader, OpenError> {
    let header = new_header(env, options)?;
    write_root(store, env, options)?;
    Ok(header)
}

/// Creates a volume in an empty object store. The device is a host directory; it gets no header
/// here. The header in the store gets its name last.
fn format_objects(
    env: &Env,
    store: &dyn Blobs,
    header: VolumeHeader,
    options: &FormatOptions,
) -> Result<VolumeId, OpenError> {
    let header = VolumeHeader { home: Home::Objects, ..header };
    header::begin_format(store, &header)?;
    crate::engine::make_directories(&*env.device)?;
    let engine = crate::engine::create(env, &header, options.layout)?;
    write_root(&*engine, env, options).map_err(OpenError::from)?;
    engine.close()?;
    header::end_format(store, &header)?;
    Ok(VolumeId(header.volume_id))
}

fn new_header(env: &Env, options: &FormatOptions) -> Result<VolumeHeader, OpenError> {
    let name = &options.snapshot_dir;
    if Name::new(name).is_err() || name.len() > SNAPSHOT_DIR_BYTES_MAX {
        return Err(OpenError::InvalidOption("the name of the directory of snapshots"));
    }
    if options.root_mode > 0o7777 {
        return Err(OpenError::InvalidOption("the mode of the root"));
    }
    if u64::from(options.inode_home) > key::INODE_HOME_MAX {
        return Err(OpenError::InvalidOption("the home of inodes"));
    }
    let (mut volume_id, mut hash_key) = ([0; 16], [0; 16]);
    env.random.fill(&mut volume_id);
    env.random.fill(&mut hash_key);
    Ok(VolumeHeader {
        volume_id: *uuid::Builder::from_random_bytes(volume_id).as_uuid().as_bytes(),
        engine: match options.engine {
            Engine::Btree => EngineKind::Btree,
            Engine::Lsm => EngineKind::Lsm,
        },
        hash_key,
        created: env.clock.now().0,
        snapshot_dir: name.clone(),
        home: Home::Directory,
        inode_home: options.inode_home,
    })
}

/// Refuses a directory that holds a volume, or anything that no interrupted format left there.
/// Removes what an interrupted format left, except headers: the one under another name identifies
/// the rest.
fn check_empty(device: &dyn Device) -> Result<(), OpenError> {
    if header::is_volume(device)? {
        return Err(OpenError::Exists);
    }
    let names = device.list("")?;
    let interrupted = names.iter().any(|name| name == UNFINISHED);
    let made = |name: &str| -> Result<bool, OpenError> {
        let known = crate::engine::DIRECTORIES.contains(&name);
        Ok(known && device.metadata(name)?.is_some_and(|found| found.directory))
    };
    for name in &names {
        let ours = OWNERS.contains(&name.as_str())
            || interrupted && (name == UNFINISHED || name == COPY || made(name)?)
            || is_place_of_log(device, name);
        if !ours {
            return Err(OpenError::NotEmpty(name.clone()));
        }
    }
    if interrupted {
        for directory in crate::engine::DIRECTORIES {
            remove_files(device, directory)?;
        }
    }
    Ok(())
}

/// Whether it is an empty directory for the log, or a link to one on another disk.
fn is_place_of_log(device: &dyn Device, name: &str) -> bool {
    name == crate::engine::LOG_DIRECTORY && device.list(name).is_ok_and(|names| names.is_empty())
}

/// Removes the files that an interrupted format left in a directory, and in those below it; does
/// not follow links to directories.
fn remove_files(device: &dyn Device, directory: &str) -> Result<(), OpenError> {
    if !device.metadata(directory)?.is_some_and(|found| found.directory) {
        return Ok(());
    }
    for name in device.list(directory)? {
        let path = format!("{directory}/{name}");
        match device.metadata(&path)? {
            Some(metadata) if metadata.directory => remove_files(device, &path)?,
            Some(_) => device.remove(&path)?,
            None => {}
        }
    }
    Ok(())
}

/// The records of an empty volume, in one batch.
fn write_root(store: &dyn Store, env: &Env, options: &FormatOptions) -> store::Result<()> {
    let now = env.clock.now().0;
    let tree = TreeId(key::FIRST_TREE);
    let mut batch = Batch::new();
    batch.create_tree(VOLUME);
    batch.create_tree(record_copies::COPY);
    batch.create_tree(tree);
    let directory = DirectoryRecord {
        entries: 0,
        subdirectories: 0,
        mtime: now,
        ctime: now,
        atime: now,
        btime: now,
        parent: ROOT_INO,
        parent_cookie: 0,
        mode: options.root_mode,
        uid: options.root_uid,
        gid: options.root_gid,
        has_xattrs: false,
        detached: false,
        elsewhere: None,
        charge: None,
    };
    batch.put(tree, &key::directory(ROOT_INO, Part::Attributes), &directory.encode());
    let record = SubvolumeRecord {
        tree: tree.0,
        root: ROOT_INO,
        lineage: ROOT_SUBVOLUME,
        parent: (0, 0, 0),
        source: (0, 0),
        created: now,
        last_clone_epoch: 0,
        first_own_ino: ROOT_INO,
        read_only: false,
        snapshot: false,
        pruned: true,
        detached: false,
        index: false,
        inherits: false,
        name: Vec::new(),
        base: 0,
        maker: 0,
    };
    batch.put(VOLUME, &key::subvolume(ROOT_SUBVOLUME), &record.encode());
    for (counter, value) in [
        (Counter::NextIno, ROOT_INO + 1),
        (Counter::NextSubvolume, ROOT_SUBVOLUME + 1),
        (Counter::NextTree, tree.0 + 1),
        (Counter::Epoch, 1),
        (Counter::Root, ROOT_SUBVOLUME),
        (Counter::NextDetached, 1),
    ] {
        batch.put(VOLUME, &key::counter(counter), &value.to_le_bytes());
    }
    let usage = UsageRecord { files: 1, bytes: 0, counted: true };
    batch.put(VOLUME, &key::usage(ROOT_SUBVOLUME), &usage.encode());
    let token = store.commit(&record_copies::mirrored(&batch))?;
    store.sync(token)
}
