//! Mount options: what `-o` and fstab accept, and the defaults.
//!
//! Options arrive as one comma-separated list, from `pando mount -o` or from mount(8) through
//! fstab. Options for the kernel become mount flags, ours set fields of [`MountOptions`], and those
//! that are for mount(8) and systemd only are accepted and dropped. Anything else is an error: a
//! misspelt `noexec` must not be ignored.
//!
//! The list of options exists once, in [`table`]; parsing, messages and `pando mount --help` derive
//! from it, and a test compares the guide with it.

mod table;

pub(crate) use table::is_changeable;
pub use table::{help, is_for_mount_program, is_for_served, names_for_served};

use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the kernel may trust its cache. All changes pass through the daemon and are invalidated
/// one by one, so this only bounds the harm of a lost invalidation.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// When reading changes the time of last read. The file system itself must be opened with the same
/// setting: this one only sets what the kernel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atime {
    /// Never (`noatime`).
    Never,
    /// When it is older than the last change, or older than a day (`relatime`, the default).
    /// Reads that the kernel answers from its cache do not reach us and do not count.
    Relative,
}

/// All options of a mount.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of mount(8) by itself")]
pub struct MountOptions {
    /// The volume's directory; it is the source that `mount` shows.
    pub volume_dir: PathBuf,
    /// Where to mount.
    pub mount_point: PathBuf,
    /// A directory of the volume to show as the root (`subdir=`).
    pub subdir: Option<PathBuf>,
    /// The source to show instead of the volume's directory (`fsname=`); such a mount is not
    /// found by its path.
    pub fsname: Option<String>,
    /// No changes through this mount (`ro`).
    pub read_only: bool,
    /// Users other than the mounting user may use it (`allow_other`, the default for root).
    pub allow_other: bool,
    /// Set-id bits work (`suid`).
    pub suid: bool,
    /// Device nodes work (`dev`).
    pub dev: bool,
    /// Programs can be run (`exec`, the default).
    pub exec: bool,
    /// Every write is durable before it returns (`sync`).
    pub sync: bool,
    /// Every change of a directory is durable before it returns (`dirsync`).
    pub dirsync: bool,
    /// Memory for cached nodes of trees, in bytes (`cache-size=SIZE`); `None` if not given. For the
    /// code that opens the file system.
    pub cache_bytes: Option<u64>,
    /// Most bytes that the engine's merges write in a second (`merge-rate=SIZE`); `None` if not
    /// given. For the code that opens the file system.
    pub merge_bytes_per_second: Option<u64>,
    /// Bytes up to which a file of a volume in an object store is stored with its name
    /// (`small-files=SIZE`); `None` if not given. For the code that opens the file system.
    pub small_file_bytes: Option<u64>,
    /// Least time between two commits to an object store (`commit-interval=SECONDS`); `None` if not
    /// given. For the code that opens the file system.
    pub commit_interval: Option<Duration>,
    /// When reading changes the time of last read.
    pub atime: Atime,
    /// How long the kernel keeps attributes (`attr-timeout=SECONDS`).
    pub attr_timeout: Duration,
    /// How long the kernel keeps names (`entry-timeout=SECONDS`).
    pub entry_timeout: Duration,
    /// How long the kernel remembers that a name does not exist (`negative-timeout=SECONDS`).
    pub negative_timeout: Duration,
    /// Threads that serve requests (`threads=`).
    pub threads: usize,
    /// Every thread has its own channel to the kernel (`clone_fd`).
    pub clone_fd: bool,
    /// Nodes in snapshots show the same inode numbers in each snapshot (`snapshot-inodes=alike`);
    /// otherwise each snapshot has its own (`unique`, the default).
    pub snapshots_alike: bool,
    /// The kernel reports every open and close (`trace_opens`), for a file system that records
    /// calls.
    pub trace_opens: bool,
    /// The file system is on another machine: permissions are checked there too, and every open is
    /// a request. Not an option of mount(8).
    pub remote: bool,
}

/// Why a list of options was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Neither an option of ours nor of mount(8).
    #[error(
        "unknown mount option '{0}'; known are {known} and the generic ones of mount(8)",
        known = table::names()
    )]
    Unknown(String),
    /// An option that needs a value has none.
    #[error("mount option '{option}' needs a value, as in {option}={value}")]
    NoValue {
        /// The option as given.
        option: String,
        /// What the value is.
        value: &'static str,
    },
    /// A wrong value, or an option that is not possible here.
    #[error("mount option '{option}': {expected}")]
    Value {
        /// The option as given.
        option: String,
        /// What it should have been.
        expected: &'static str,
    },
}

impl MountOptions {
    /// The defaults.
    pub fn new(volume_dir: &Path, mount_point: &Path) -> MountOptions {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        MountOptions {
            volume_dir: volume_dir.to_owned(),
            mount_point: mount_point.to_owned(),
            subdir: None,
            fsname: None,
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            suid: false,
            dev: false,
            exec: true,
            sync: false,
            dirsync: false,
            cache_bytes: None,
            merge_bytes_per_second: None,
            small_file_bytes: None,
            commit_interval: None,
            atime: Atime::Relative,
            attr_timeout: TIMEOUT_DEFAULT,
            entry_timeout: TIMEOUT_DEFAULT,
            negative_timeout: TIMEOUT_DEFAULT,
            // At least two, so that one request that waits for the disk does not block the rest.
            threads: cores.clamp(2, 8),
            clone_fd: false,
            snapshots_alike: false,
            trace_opens: false,
            remote: false,
        }
    }

    /// Applies a comma-separated list. Of contradicting options the last one wins.
    pub fn parse(&mut self, list: &str) -> Result<(), OptionError> {
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            self.set(option)?;
        }
        Ok(())
    }

    /// The first option that these do not share, of those that a mount keeps as long as it lives.
    /// Linux keeps `suid`, `dev` and `exec` for each place.
    pub fn difference(&self, other: &MountOptions) -> Option<&'static str> {
        // Each field is named: a new one is compared, or it is decided here that it is not.
        let MountOptions {
            volume_dir: _,
            mount_point: _,
            subdir,
            fsname,
            read_only,
            allow_other,
            suid: _,
            dev: _,
            exec: _,
            sync,
            dirsync,
            cache_bytes,
            merge_bytes_per_second,
            small_file_bytes,
            commit_interval,
            atime,
            attr_timeout,
            entry_timeout,
            negative_timeout,
            threads,
            clone_fd,
            snapshots_alike,
            trace_opens,
            remote: _,
        } = self;
        let same = [
            ("ro", *read_only == other.read_only),
            ("allow_other", *allow_other == other.allow_other),
            ("noatime", *atime == other.atime),
            ("subdir", *subdir == other.subdir),
            ("attr-timeout", *attr_timeout == other.attr_timeout),
            ("entry-timeout", *entry_timeout == other.entry_timeout),
            ("negative-timeout", *negative_timeout == other.negative_timeout),
            ("sync", *sync == other.sync),
            ("dirsync", *dirsync == other.dirsync),
            ("cache-size", *cache_bytes == other.cache_bytes),
            ("merge-rate", *merge_bytes_per_second == other.merge_bytes_per_second),
            ("small-files", *small_file_bytes == other.small_file_bytes),
            ("commit-interval", *commit_interval == other.commit_interval),
            ("threads", *threads == other.threads),
            ("clone_fd", *clone_fd == other.clone_fd),
            ("snapshot-inodes", *snapshots_alike == other.snapshots_alike),
            ("trace_opens", *trace_opens == other.trace_opens),
            ("fsname", *fsname == other.fsname),
        ];
        same.into_iter().find(|(_, same)| !same).map(|(option, _)| option)
    }

    fn set(&mut self, option: &str) -> Result<(), OptionError> {
        let wrong = |expected| OptionError::Value { option: option.to_owned(), expected };
        match (table::find(option), option.split_once('=')) {
            (Some(table::Set::Flag(set)), None) => set(self),
            (Some(table::Set::Flag(_)), Some(_)) => return Err(wrong("it takes no value")),
            (Some(table::Set::Value(_, set)), Some((_, value))) => {
                set(self, value).map_err(wrong)?;
            }
            (Some(table::Set::Value(value, _)), None) => {
                return Err(OptionError::NoValue { option: option.to_owned(), value });
            }
            (Some(table::Set::Refused(reason)), _) => return Err(wrong(reason)),
            (None, _) if is_for_mount_program(option) => {}
            (None, _) => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Result<MountOptions, OptionError> {
        let mut options = MountOptions::new(Path::new("/v"), Path::new("/m"));
        options.parse(list).map(|()| options)
    }

    #[test]
    fn an_fstab_line_is_parsed() {
        let options = parsed(
            "rw,noexec,nosuid,nodev,noatime,auto,nofail,_netdev,x-systemd.automount,allow_other,\
             subdir=/home/alice/,attr-timeout=1.5,entry_timeout=0,threads=4,,fsname=mine",
        )
        .unwrap();
        assert!(!options.read_only && !options.exec && options.allow_other);
        assert_eq!(options.subdir, Some(PathBuf::from("home/alice")));
        assert_eq!(options.attr_timeout, Duration::from_millis(1500));
        assert_eq!(options.entry_timeout, Duration::ZERO);
        assert_eq!(options.negative_timeout, Duration::ZERO);
        assert_eq!((options.threads, options.fsname.as_deref()), (4, Some("mine")));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parsed("cache-size=2G").unwrap().cache_bytes, Some(2 << 30));
        assert_eq!(parsed("cache-size=1.5GiB").unwrap().cache_bytes, Some(3 << 29));
        assert_eq!(parsed("merge-rate=20M").unwrap().merge_bytes_per_second, Some(20 << 20));
        assert_eq!(parsed("small-files=0").unwrap().small_file_bytes, Some(0));
        assert_eq!(parsed("small-files=1M").unwrap().small_file_bytes, Some(1 << 20));
        let interval = parsed("commit-interval=0.05").unwrap().commit_interval;
        assert_eq!(interval, Some(Duration::from_millis(50)));
        for list in ["small-files=2M", "commit-interval=6"] {
            let refused = parsed(list).unwrap_err();
            let is_named = matches!(&refused, OptionError::Value { option, .. } if option == list);
            assert!(is_named, "{refused:?}");
        }
    }

    #[test]
    fn the_last_of_contradicting_options_counts() {
        assert!(parsed("ro,rw,ro").unwrap().read_only);
        assert_eq!(parsed("noatime,relatime").unwrap().atime, Atime::Relative);
        assert_eq!(parsed("subdir=a,subdir=/").unwrap().subdir, None);
        assert!(parsed("snapshot-inodes=unique,snapshot-inodes=alike").unwrap().snapshots_alike);
    }

    /// Without it the kernel opens FIFOs, sockets and devices for every user.
    #[test]
    fn an_option_that_stops_the_kernel_from_checking_permissions_is_refused_with_the_reason() {
        assert!(parsed("default_permissions").is_ok());
        let message = parsed("ro,no_default_permissions").unwrap_err().to_string();
        assert!(message.contains("FIFOs") && message.contains("leave the option out"), "{message}");
    }

    #[test]
    fn wrong_options_are_named() {
        let values = ["subdir=../x", "attr-timeout=nan", "snapshot-inodes=same", "cache-size=big"];
        let others = ["noexce", "threads=0", "threads=many", "threads", "attr-timeout=-1", "ro=1"];
        for list in values.into_iter().chain(others) {
            let message = parsed(&format!("rw,{list}")).unwrap_err().to_string();
            assert!(message.contains(list), "{list}: {message}");
        }
        assert!(parsed("strictatime").unwrap_err().to_string().contains("relatime or noatime"));
    }
}
