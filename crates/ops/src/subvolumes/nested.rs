//! The subvolumes below a directory. Each names where it is mounted, so they are found by
//! walking parents up from the few that there are; nothing is searched. Also which of them a copy
//! of the directory inherits.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::inherited_record::Home;
use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, SubvolId};
use vfs::FsResult;
use volume::error::inconsistent;
use volume::subvol::{Subvol, VOLUME, read_record};
use volume::view::View;

use super::ledger::{Admin, Ledger};
use crate::Ops;
use crate::reach::Reach;

/// Most directories with subvolumes mounted in them that a copy checks for being below the copied
/// one. Where there are more it inherits from the subvolume as a whole.
const MOUNTS_FOR_HOMES: usize = 64;
/// Most records of directories that a copy reads for this.
const RECORDS_FOR_HOMES: usize = 256;

/// A subvolume with its record.
#[derive(Clone)]
pub struct Member {
    /// The subvolume.
    pub subvol: Arc<Subvol>,
    /// Its record.
    pub record: SubvolumeRecord,
}

impl Member {
    /// A subvolume by its number.
    pub fn get(fs: &Ops, id: u64) -> FsResult<Member> {
        let id = SubvolId(id);
        let record = read_record(&*fs.store, id)?.ok_or(FsError::Stale)?;
        Ok(Member { subvol: fs.subvol(id)?, record })
    }
}

/// The subvolumes mounted below a directory, each after the one that it is mounted in.
pub(super) fn below(
    fs: &Ops,
    ledger: &mut Ledger,
    (subvol, dir): (&Subvol, u64),
) -> FsResult<Vec<Member>> {
    let mut found: Vec<Member> = Vec::new();
    let mut seen = BTreeSet::from([subvol.id.0]);
    directly(fs, ledger, subvol, dir, &mut found)?;
    // Whatever is mounted in one of those is below as well. Damaged records may form a circle.
    let mut next = 0;
    while next < found.len() {
        if !seen.insert(found[next].subvol.id.0) {
            let what = "subvolumes contain each other";
            return Err(inconsistent(VOLUME, what, found[next].record.root));
        }
        let (above, root) = (Arc::clone(&found[next].subvol), found[next].record.root);
        directly(fs, ledger, &above, root, &mut found)?;
        next += 1;
    }
    Ok(found)
}

/// A subvolume below a directory, mounted there or inherited.
pub struct Inside {
    /// Its number.
    pub id: u64,
    /// The subvolume and the directory with the entry that points to it.
    pub holder: (u64, u64),
    /// Where it may be inherited: whether the copy that inherits it is read-only.
    pub of_read_only: Option<bool>,
}

/// Most subvolumes, and directories with some, that are looked at while a caller has the ledger.
const HELD_MAX: usize = 256;

const CHANGING: FsError = FsError::Busy(
    "what is mounted below the directory changed each time that it was looked at for quotas; try \
     again later",
);

/// How the ledger is read.
pub enum Access<'a> {
    /// The caller holds it: others wait, so that no more than `HELD_MAX` are looked at.
    Held(&'a mut Ledger),
    /// It is locked for each look into it: what is found may be of several moments.
    Looks(&'a Admin),
}

impl Access<'_> {
    /// Looks into the ledger.
    pub fn look<T>(&mut self, look: impl FnOnce(&mut Ledger) -> FsResult<T>) -> FsResult<T> {
        match self {
            Access::Held(ledger) => look(ledger),
            Access::Looks(admin) => look(&mut admin.lock()),
        }
    }

    /// Refuses to look at more than others may wait for.
    fn check(&self, looked: usize) -> FsResult<()> {
        let is_too_much = matches!(self, Access::Held(_)) && looked > HELD_MAX;
        if is_too_much { Err(CHANGING) } else { Ok(()) }
    }
}

/// The subvolumes below a directory that are mounted or inherited there. One for which an heir got
/// a copy may be listed beside the copy. Without a directory: all of the subvolume, also those that
/// no name reaches. `Busy`: the caller holds the ledger, and there are too many.
pub fn inside(
    fs: &Ops,
    mut access: Access<'_>,
    (subvol, dir): (&Subvol, Option<u64>),
) -> FsResult<Vec<Inside>> {
    if let Access::Looks(admin) = access {
        admin.learn(fs);
    }
    let (mut found, mut seen) = (Found::default(), BTreeSet::new());
    directly_inside(fs, &mut access, (subvol, dir), None, &mut found)?;
    let mut next = 0;
    while let Some(Inside { id, of_read_only, .. }) = found.all.get(next) {
        let (id, of_read_only) = (*id, *of_read_only);
        next += 1;
        // Circles are damage, and an original may be in what inherits it.
        if !seen.insert((id, of_read_only)) || access.look(|ledger| ledger.holds_none(fs, id))? {
            continue;
        }
        match fs.subvol(SubvolId(id)) {
            Ok(above) => {
                let top = (&*above, dir.map(|_| above.root));
                directly_inside(fs, &mut access, top, of_read_only, &mut found)?;
            }
            Err(FsError::Stale) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found.all)
}

/// What was found, and how many subvolumes and directories were looked at.
#[derive(Default)]
struct Found {
    all: Vec<Inside>,
    looked: usize,
}

/// Adds those that are mounted in a subvolume below a directory, and those inherited there.
fn directly_inside(
    fs: &Ops,
    access: &mut Access<'_>,
    (subvol, dir): (&Subvol, Option<u64>),
    of_read_only: Option<bool>,
    found: &mut Found,
) -> FsResult<()> {
    let mut reach = dir.map(|dir| Reach::new(subvol.tree(), dir));
    let homes = access.look(|ledger| ledger.homes(fs, subvol.id.0))?;
    let inherits = Some(of_read_only.unwrap_or(subvol.read_only));
    let homes = homes.iter().map(|home| (home.subvolume, inherits));
    for (home, of_read_only) in std::iter::once((subvol.id.0, of_read_only)).chain(homes) {
        for directory in access.look(|ledger| ledger.mount_points(fs, home))? {
            found.looked += 1;
            access.check(found.looked)?;
            let is_below = match &mut reach {
                Some(reach) => reach.contains(&*fs.store, directory)?,
                None => true,
            };
            if is_below {
                let mounted = access.look(|ledger| ledger.mounted_in(fs, (home, directory)))?;
                let holder = (subvol.id.0, directory);
                found.looked += mounted.len();
                access.check(found.looked)?;
                found.all.extend(mounted.into_iter().map(|id| Inside { id, holder, of_read_only }));
            }
        }
    }
    Ok(())
}

/// Adds those that are mounted in a subvolume itself, in the order of their numbers.
///
/// Each directory in which others are mounted is looked at once. Clones are often in one directory,
/// and making the next must not cost more the more there are.
fn directly(
    fs: &Ops,
    ledger: &mut Ledger,
    subvol: &Subvol,
    dir: u64,
    found: &mut Vec<Member>,
) -> FsResult<()> {
    let mut reach = Reach::new(subvol.tree(), dir);
    let mut children = Vec::new();
    for directory in ledger.mount_points(fs, subvol.id.0)? {
        if reach.contains(&*fs.store, directory)? {
            children.extend(ledger.mounted_in(fs, (subvol.id.0, directory))?);
        }
    }
    children.sort_unstable();
    for child in children {
        found.push(Member::get(fs, child)?);
    }
    Ok(())
}

/// What an heir inherits at one of its entries, and the home in which that is mounted. `led` is
/// what the entry points to, where it can be read.
///
/// Usually the entry points to it. It does not where the heir was copied from a home whose own
/// entry was damaged, and which had a copy apart. Its entry, and so the heir's, still points to the
/// original, which has changed since. So the homes are followed from the nearest one, the source of
/// the heir. What is mounted at the place there was there when the heir was made, if its number is
/// smaller. Before it is moved or removed, the heir gets a copy. If the entry can be read, that is
/// also a copy of what the entry points to.
pub(super) fn inherited_at(
    fs: &Ops,
    ledger: &mut Ledger,
    (heir, directory, cookie): (u64, u64, u64),
    led: Option<u64>,
) -> FsResult<Option<(Member, Home)>> {
    for home in ledger.homes(fs, heir)? {
        let place = (home.subvolume, directory, cookie);
        let Some(id) = ledger.mounted_at(fs, place)? else { continue };
        let is_it = match led {
            Some(led) => led == id || id < heir && descends(fs, id, led)?,
            None => id < heir,
        };
        if is_it {
            return Ok(Some((Member::get(fs, id)?, home)));
        }
    }
    Ok(None)
}

/// Whether a subvolume was copied from another one, or from a copy of that.
fn descends(fs: &Ops, mut id: u64, from: u64) -> FsResult<bool> {
    // A copy is made after what it was copied from.
    while let Some(record) = read_record(&*fs.store, SubvolId(id))? {
        let source = record.source.0;
        if source == from {
            return Ok(true);
        }
        if source >= id {
            break;
        }
        id = source;
    }
    Ok(false)
}

/// What a copy of a directory of a subvolume inherits: of each home, what is mounted below the
/// directory. The gate of the subvolume is held where the answer must be exact.
pub(super) fn homes_of(
    fs: &Ops,
    ledger: &mut Ledger,
    (source, directory): (&Subvol, u64),
    same_lineage: bool,
) -> FsResult<Vec<Home>> {
    let mut homes = vec![Home { subvolume: source.id.0, same_lineage }];
    for home in ledger.homes(fs, source.id.0)? {
        let same_lineage = same_lineage && home.same_lineage;
        homes.push(Home { same_lineage, ..home });
    }
    let mut budget = Budget::of(RECORDS_FOR_HOMES);
    let mut found = Vec::new();
    for home in homes {
        let mounts = ledger.mount_points_up_to(fs, home.subvolume, MOUNTS_FOR_HOMES)?;
        let is_home = match mounts {
            // As if one of them were below.
            None => true,
            Some(mounts) if directory == source.root => !mounts.is_empty(),
            Some(mounts) => {
                let is_below = |at: &u64| may_be_below(fs, source, (*at, directory), &mut budget);
                mounts.iter().any(is_below)
            }
        };
        if is_home {
            found.push(home);
        }
    }
    Ok(found)
}

/// Whether a directory of a subvolume is below another one there. The answer is yes where the
/// budget is spent, and where a record cannot be read.
fn may_be_below(
    fs: &Ops,
    subvol: &Subvol,
    (mut at, above): (u64, u64),
    budget: &mut Budget,
) -> bool {
    let view = View::new(&*fs.store, subvol.tree());
    while at != above {
        if at == subvol.root {
            return false;
        }
        if !budget.spend() {
            return true;
        }
        match view.directory(at) {
            Ok(Some(record)) if !record.detached && record.parent != at => at = record.parent,
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
    true
}

/// Deepest directory whose ancestors are followed, against records that go in a circle.
const DEPTH_MAX: usize = 1 << 20;

impl Ops {
    /// Whether a directory is below another, maybe in a subvolume that is mounted there. What is
    /// gone is not.
    pub fn is_below(&self, at: (u64, u64), above: (u64, u64)) -> FsResult<bool> {
        let below = self.is_below_within(at, above, &mut Budget::unlimited())?;
        Ok(below.unwrap_or(false))
    }

    /// As `is_below`. `None`: the budget is spent.
    pub(crate) fn is_below_within(
        &self,
        mut at: (u64, u64),
        above: (u64, u64),
        budget: &mut Budget,
    ) -> FsResult<Option<bool>> {
        for _ in 0..DEPTH_MAX {
            if at == above {
                return Ok(Some(true));
            }
            if !budget.spend() {
                return Ok(None);
            }
            match self.directory_above(at)? {
                Some(next) => at = next,
                None => break,
            }
        }
        Ok(Some(false))
    }

    /// The directory that a directory is in; that of a subvolume's root is in another subvolume.
    /// `None`: the directory is gone or detached, or it is the root of the volume.
    pub fn directory_above(&self, (id, dir): (u64, u64)) -> FsResult<Option<(u64, u64)>> {
        let subvol = match self.subvol(SubvolId(id)) {
            Err(FsError::Stale) => return Ok(None),
            subvol => subvol?,
        };
        if dir == subvol.root {
            let record = read_record(&*self.store, subvol.id)?;
            let parent = record.map(|record| record.parent).filter(|parent| parent.0 != 0);
            return Ok(parent.map(|(above, dir, _)| (above, dir)));
        }
        let found = subvol.read(|tree| View::new(&*self.store, tree).directory(dir))?;
        Ok(found.filter(|record| !record.detached).map(|record| (id, record.parent)))
    }
}

/// How many more records a check may read.
pub(crate) struct Budget(Option<usize>);

impl Budget {
    /// As many as it takes.
    pub(crate) fn unlimited() -> Budget {
        Budget(None)
    }

    /// At most this many.
    pub(crate) fn of(records: usize) -> Budget {
        Budget(Some(records))
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Takes one record from the budget. `false`: it is spent.
    #[must_use]
    pub(crate) fn spend(&mut self) -> bool {
        let Some(left) = &mut self.0 else { return true };
        let less = left.checked_sub(1);
        *left = less.unwrap_or(0);
        less.is_some()
    }
}
