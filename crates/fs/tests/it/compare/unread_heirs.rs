//! Copies whose trees could not be read while what they inherit was changed: a comparison shows
//! what a look-up would.

use inode::{Caller, FsError, NodeId, SubvolId};
use store::TreeId;

use super::oracle::{at, compare, refused, reported};
use crate::support::{ROOT, Volume, volume};
use crate::versions::inherit_scope::{entry_of, put};

fn root() -> Caller {
    Caller::root()
}

/// `/d` with the nested `n` and the directory `other`, each with a file. In a snapshot of `/d` the
/// entry of `n` is damaged. `n` changed since then.
struct Damaged {
    v: Volume,
    snapshot: SubvolId,
    entry: (TreeId, Vec<u8>, Vec<u8>),
}

fn damaged() -> Damaged {
    let v = volume();
    let d = v.dir(ROOT, "d").node;
    let around = v.dir(d, "around").node;
    let n = v.fs.subvolume_create(&root(), around, b"n", 0o755).unwrap().node;
    let file = v.file(n, "f").node;
    v.write(file, 0, b"before");
    let other = v.dir(d, "other").node;
    v.file(other, "g");
    let snapshot = v.fs.snapshot_create(&root(), d, b"s").unwrap().subvol;
    v.tick();
    let entry = entry_of(&*v.store, snapshot, around);
    put(&*v.store, (entry.0, &entry.1), b"damage");
    v.write(file, 0, b"after.");
    let g = at(&v.fs, "/d/other/g");
    v.write(g, 0, b"more");
    Damaged { v, snapshot, entry }
}

impl Damaged {
    fn repair(&self, subvol: SubvolId) {
        let around = at(&self.v.fs, "/d/around");
        // The same entry, in the tree of another copy.
        let is_own = subvol == self.snapshot;
        let tree = if is_own { self.entry.0 } else { entry_of(&*self.v.store, subvol, around).0 };
        put(&*self.v.store, (tree, &self.entry.1), &self.entry.2);
    }

    fn reopened(self) -> Damaged {
        let again = self.v.reopened();
        let Damaged { v, snapshot, entry } = self;
        let v = Volume { fs: again, env: v.env, store: v.store, header: v.header };
        Damaged { v, snapshot, entry }
    }

    fn changes(&self, old: NodeId, new: NodeId) -> Vec<String> {
        reported(&compare(&self.v.fs, &root(), (old, new), 1 << 16).unwrap())
    }
}

#[test]
fn a_snapshot_that_could_not_be_read() {
    for reopened in [false, true] {
        let mut damaged = damaged();
        damaged.repair(damaged.snapshot);
        if reopened {
            damaged = damaged.reopened();
        }
        let [d, s] = ["/d", "/d/.snapshots/s"].map(|path| at(&damaged.v.fs, path));
        let want = ["M around/n/f", "M other/g"];
        assert_eq!(damaged.changes(s, d), want, "reopened: {reopened}");
    }
}

/// A copy has the entry of the snapshot, which points to the original, and no copy of its own.
#[test]
fn copies_of_a_snapshot_that_could_not_be_read() {
    for bits in 0..8_u32 {
        let [reopened, repaired_after, again_first] = [0, 1, 2].map(|bit| bits & (1 << bit) != 0);
        let way = (reopened, repaired_after, again_first);
        let mut damaged = damaged();
        if !repaired_after {
            damaged.repair(damaged.snapshot);
        }
        let v = &damaged.v;
        let s = at(&v.fs, "/d/.snapshots/s");
        let clone = v.fs.clone_dir(&root(), s, ROOT, b"c").unwrap().subvol;
        let again = v.fs.clone_dir(&root(), at(&v.fs, "/c"), ROOT, b"again").unwrap().subvol;
        v.tick();
        if repaired_after {
            for copy in [damaged.snapshot, clone, again] {
                damaged.repair(copy);
            }
        }
        if reopened {
            damaged = damaged.reopened();
        }
        let fs = &damaged.v.fs;
        let [d, s, mut c, mut again] =
            ["/d", "/d/.snapshots/s", "/c", "/again"].map(|path| at(fs, path));
        if again_first {
            (c, again) = (again, c);
        }
        let none: [&str; 0] = [];
        let want = ["M around/n/f", "M other/g"];
        assert_eq!(damaged.changes(c, d), want, "{way:?}");
        assert_eq!(damaged.changes(c, again), none, "{way:?}");
        assert_eq!(damaged.changes(s, c), none, "{way:?}");
        assert_eq!(damaged.changes(s, d), want, "{way:?}");
    }
}

/// What a copy shows below a damaged entry is unknown. Other copies have nothing to do with it.
#[test]
fn a_snapshot_that_cannot_be_read() {
    let damaged = damaged();
    let v = &damaged.v;
    let io = FsError::Io(String::new().into());
    let [d, s] = ["/d", "/d/.snapshots/s"].map(|path| at(&v.fs, path));
    refused(&v.fs, &root(), (s, d), &io);
    let [d, s] = ["/d/around", "/d/.snapshots/s/around"].map(|path| at(&v.fs, path));
    refused(&v.fs, &root(), (s, d), &io);
    let e = v.dir(ROOT, "e").node;
    v.fs.snapshot_create(&root(), e, b"t").unwrap();
    v.file(e, "new");
    let [e, t] = ["/e", "/e/.snapshots/t"].map(|path| at(&v.fs, path));
    assert_eq!(damaged.changes(t, e), ["M .", "+ new"]);
}
