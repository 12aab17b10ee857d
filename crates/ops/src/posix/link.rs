//! `link`: another name for an inode.
//!
//! An inode with one name is stored beside that name. Its second name moves it under a number of
//! its own, `L`, with a reference back to each name; both names then point to it.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use inode::{Caller, FsError, NodeId};
use vfs::{Entry, FsResult};
use volume::attributes;
use volume::load::{FileInode, Inode, InodePlace, load_bulk, load_named, load_xattrs};
use volume::locks::Mode;
use volume::nodes::{Location, Orphan};
use volume::subvol::VOLUME;
use volume::view::{NameBuf, Search, Vacancy};

use super::mknod::{NewName, check_write, parent_directory};
use crate::Ops;
use crate::execute::{Context, Operation, Outcome, execute};
use crate::plan::{Attached, Effect, Plan};
use crate::policy::Policy;

/// Most names of one inode.
const LINKS_MAX: u32 = 1 << 20;

/// Gives a node another name.
pub fn link(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    node: NodeId,
    parent: NodeId,
    name: &[u8],
) -> FsResult<Entry> {
    let (subvol, name) = NewName::of(fs, caller, parent, name)?;
    let (of, ino) = fs.place(node)?;
    if of.id != subvol.id {
        return Err(FsError::CrossSubvolume("a hard link; copy the file instead"));
    }
    execute(fs, policy, &subvol, &mut Link::new(name, subvol.node(ino), ino))
}

/// Another name for an inode.
pub struct Link<'a> {
    name: NewName<'a>,
    node: NodeId,
    ino: u64,
    /// The name beside which the inode is stored, if any.
    old_name: NameBuf,
}

impl<'a> Link<'a> {
    /// Of an inode of the subvolume in which the name will be.
    pub fn new(name: NewName<'a>, node: NodeId, ino: u64) -> Link<'a> {
        Link { name, node, ino, old_name: NameBuf::empty() }
    }
}

/// Where an inode is stored that gets a name, and what is where the name goes.
pub struct Linked {
    location: Option<Location>,
    /// The inode whose entry is before the new one in its chain, if that is another one; else 0.
    behind: u64,
    /// `None`: not read, the rest is a guess.
    read: Option<(DirectoryRecord, FileInode, Vacancy)>,
}

impl Operation for Link<'_> {
    type Reads = Linked;
    type Answer = Entry;

    fn guess(&mut self, at: &Context<'_>) -> FsResult<Linked> {
        at.policy.makes_name(at, self.name.dir, self.name.name)?;
        Ok(Linked { location: at.fs.nodes.location(self.node), behind: 0, read: None })
    }

    fn aim(&mut self, at: &Context<'_>, guess: &Linked, plan: &mut Plan) -> FsResult<()> {
        at.lock_name(plan, self.name.dir, self.name.hash);
        // The old name changes from "here" to "there", so a look-up of it must wait.
        if let Some(Location::Entry { dir, cookie }) = guess.location {
            plan.lock(at.name(dir, cookie >> 8), Mode::Exclusive);
        }
        plan.lock(at.object(self.ino), Mode::Exclusive);
        if guess.behind != 0 {
            plan.lock(at.object(guess.behind), Mode::Exclusive);
        }
        Ok(())
    }

    fn look(&mut self, at: &Context<'_>) -> FsResult<Linked> {
        let NewName { caller, dir, hash, name } = self.name;
        let location = at.fs.nodes.location(self.node);
        let directory = parent_directory(at.fs, at.subvol, at.view, caller, dir)?;
        let Inode::File(file) =
            load_named(at.fs, at.view, self.node, self.ino, &mut self.old_name)?
        else {
            return Err(FsError::NotPermitted("a hard link to a directory"));
        };
        let vacancy = match at.view.find(dir, hash, name)? {
            Search::Found(_) => return Err(FsError::Exists),
            Search::Vacant(vacancy) => vacancy,
        };
        // A name of the same hash will be flagged: its inode is locked as well.
        let other = vacancy.predecessor.map_or(0, |(_, other)| other);
        let behind = if other == self.ino { 0 } else { other };
        Ok(Linked { location, behind, read: Some((directory, file, vacancy)) })
    }

    fn agree(guess: &Linked, found: &Linked) -> bool {
        (guess.location, guess.behind) == (found.location, found.behind)
    }

    fn plan(
        &mut self,
        at: &Context<'_>,
        found: Linked,
        plan: &mut Plan,
    ) -> FsResult<Outcome<Entry>> {
        let NewName { caller, dir, name, .. } = self.name;
        let Some((directory, file, vacancy)) = found.read else { return Ok(Outcome::Again) };
        check_write(at.view, caller, dir, &directory)?;
        at.policy.may_name(&file.inode, &directory)?;
        let unnamed = check_names(at.fs, self.node, &file)?;
        plan.on_behalf(caller);
        let (node, ino) = (self.node, self.ino);
        let old_name = &self.old_name;
        let mut linking = Linking { at, node, ino, file, old_name };
        let vacancy = linking.detach(plan, dir, vacancy)?;
        if unnamed {
            linking.adopt(plan)?;
            plan.effect(Effect::NameUnnamed(node));
        }
        let (inode, nlink) = linking.add_name(plan, dir, &vacancy, name)?;
        plan.effect(Effect::Relocate(node, Location::Linked));
        plan.effect(Effect::LookUp(node, Location::Linked));
        Ok(Outcome::Done(at.fs.entry(attributes::of_file(node, &inode, nlink))))
    }
}

/// Whether an inode gets its first name; one that lost its last cannot get another.
fn check_names(fs: &Ops, node: NodeId, file: &FileInode) -> FsResult<bool> {
    match file.nlink {
        0 if !fs.nodes.is_unnamed(node) => Err(FsError::NotFound),
        LINKS_MAX.. => Err(FsError::TooManyLinks),
        nlink => Ok(nlink == 0),
    }
}

struct Linking<'a> {
    at: &'a Context<'a>,
    node: NodeId,
    ino: u64,
    file: FileInode,
    old_name: &'a NameBuf,
}

impl Linking<'_> {
    /// Moves the inode from beside its name to its own number. Rewrites the old entry; if the new
    /// name follows it in its chain, sets the flag for that at once.
    fn detach(&mut self, plan: &mut Plan, dir: u64, vacancy: Vacancy) -> FsResult<Vacancy> {
        let InodePlace::Entry { dir: old_dir, cookie, chained } = self.file.place else {
            return Ok(vacancy);
        };
        let file = &self.file;
        let follows = old_dir == dir
            && vacancy.predecessor.is_some_and(|(predecessor, _)| predecessor == cookie);
        let entry = EntryRecord {
            chained: chained || follows,
            ino: self.ino,
            name: self.old_name.as_bytes(),
            target: Target::Linked(file.inode.kind),
        };
        let tree = self.at.view.tree;
        plan.put_entry(tree, old_dir, cookie, &entry);
        let attached = Attached {
            bulk: if file.inode.has_bulk {
                Some(load_bulk(self.at.fs, self.at.view, self.node, self.ino, file)?)
            } else {
                None
            },
            xattrs: None,
        };
        for (present, part) in
            [(file.inode.has_bulk, Part::Bulk), (file.inode.has_xattrs, Part::Xattrs)]
        {
            if present {
                plan.batch().delete(tree, &key::entry(old_dir, cookie, part));
            }
        }
        let (bulk, xattrs) =
            (key::linked(self.ino, Part::Bulk), key::linked(self.ino, Part::Xattrs));
        plan.put_attached(tree, &bulk, &xattrs, &attached);
        if file.inode.has_xattrs {
            let inode = Inode::File(*file);
            let record = load_xattrs(self.at.fs, self.at.view, self.node, self.ino, &inode)?;
            plan.batch().put(tree, &xattrs, &record.encode());
        }
        plan.batch().put(tree, &key::back_reference(self.ino, old_dir, cookie), b"");
        Ok(if follows { Vacancy { predecessor: None, ..vacancy } } else { vacancy })
    }

    /// A file that was created without a name gets its first. It is counted from now on, and its
    /// state in memory is stored on disk. (It stays under its own number, like a file that had two
    /// names and lost one.)
    fn adopt(&mut self, plan: &mut Plan) -> FsResult<()> {
        let (at, subvol) = (self.at, self.at.id());
        let inode = &mut self.file.inode;
        plan.count(subvol, 1, inode.size as i64);
        let before = *inode;
        let before = (self.file.place != InodePlace::Memory).then_some(&before);
        at.policy.changes(plan, (subvol, self.ino), (before, inode), true)?;
        if self.file.place == InodePlace::Linked {
            plan.batch().delete(VOLUME, &key::orphan(subvol, self.ino));
            return Ok(());
        }
        let Some(Orphan::File { bulk, xattrs, .. }) = self.at.fs.nodes.orphan_of(self.node) else {
            return Err(FsError::Stale);
        };
        inode.has_bulk = !bulk.is_empty();
        inode.has_xattrs = !xattrs.is_empty();
        let attached = Attached {
            bulk: inode.has_bulk.then_some(bulk),
            xattrs: inode.has_xattrs.then_some(xattrs),
        };
        let keys = (key::linked(self.ino, Part::Bulk), key::linked(self.ino, Part::Xattrs));
        plan.put_attached(self.at.view.tree, &keys.0, &keys.1, &attached);
        Ok(())
    }

    /// Adds the name, and charges it if it is a further one.
    fn add_name(
        &mut self,
        plan: &mut Plan,
        dir: u64,
        vacancy: &Vacancy,
        name: &[u8],
    ) -> FsResult<(InodeRecord, u32)> {
        let tree = self.at.view.tree;
        let mut inode = InodeRecord { ctime: plan.now, ..self.file.inode };
        let nlink = self.file.nlink + 1;
        if nlink > 1 {
            self.at.policy.adds_name(plan, (self.at.id(), self.ino), &mut inode)?;
        }
        let target = Target::Linked(inode.kind);
        let entry = EntryRecord { chained: false, ino: self.ino, name, target };
        plan.insert_entry(self.at.view, dir, vacancy, &entry)?;
        plan.put_linked(tree, self.ino, &LinkedRecord { nlink, inode });
        plan.batch().put(tree, &key::back_reference(self.ino, dir, vacancy.cookie), b"");
        plan.touch_directory(tree, dir, 1, 0);
        Ok((inode, nlink))
    }
}
