//! Concurrent renames of directories that are on different shards: which locks keep the tree a
//! tree?
//!
//! A rename locks the directory that it moves exclusively. Then it walks from the target to the
//! root, one ancestor a step, because each step may be a message to another shard. It may lock each
//! ancestor shared. It aborts when it meets the moved directory, or a lock that it would have to
//! wait for. At the end it changes the parent and releases its locks.
//!
//! Two renames that each pass their walk, and then move each other's ancestor, separate a loop from
//! the root.

use stateright::{Model, Property};

/// A directory; the root is the first.
type Dir = u8;
/// Directories of the model.
const DIRS: usize = 6;
/// Their parents at the start: two chains below the root, of two and of three.
const PARENTS: [Dir; DIRS] = [0, 0, 1, 0, 3, 4];

/// Which ancestors of the target a rename keeps locked until it commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// All.
    AllAncestors,
    /// Only the target itself: the walk reads the others, and locks none.
    TargetOnly,
    /// All during the walk, only the target after it.
    AllDuringWalk,
}

/// What a rename does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Next {
    /// Lock the directory that is moved.
    LockMoved,
    /// Look at a directory on the way to the root.
    Look(Dir),
    /// Change the parent.
    Commit,
    /// Nothing: it is done.
    Done,
    /// Nothing: it was aborted.
    Aborted,
}

/// One rename.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Rename {
    moved: Dir,
    target: Dir,
    next: Next,
    /// Locks its directory exclusively.
    exclusive: bool,
    /// Bits of directories that it has locked shared.
    shared: u8,
}

/// A tree, and the renames on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tree {
    parents: [Dir; DIRS],
    renames: Vec<Rename>,
}

/// Any renames, with given locks.
#[derive(Debug, Clone, Copy)]
pub struct RenameModel {
    /// The locks.
    pub locks: Locks,
    /// How many renames are under way at once.
    pub renames: usize,
}

/// Every directory reaches the root.
pub const NO_LOOP: &str = "no loop";

impl Tree {
    fn reaches_root(&self, directory: usize) -> bool {
        let up = |at: &usize| Some(usize::from(self.parents[*at]));
        std::iter::successors(Some(directory), up).take(DIRS + 1).any(|at| at == 0)
    }

    /// Whether another rename has a directory locked exclusively.
    fn is_moved_by_another(&self, me: usize, directory: Dir) -> bool {
        let mut others = self.renames.iter().enumerate().filter(|(at, _)| *at != me);
        others.any(|(_, other)| other.exclusive && other.moved == directory)
    }

    /// Whether another rename has a directory locked shared.
    fn is_shared_by_another(&self, me: usize, directory: Dir) -> bool {
        let mut others = self.renames.iter().enumerate().filter(|(at, _)| *at != me);
        others.any(|(_, other)| other.shared >> directory & 1 != 0)
    }

    fn release(&mut self, me: usize, next: Next) {
        let rename = &mut self.renames[me];
        rename.next = next;
        rename.exclusive = false;
        rename.shared = 0;
    }
}

impl Model for RenameModel {
    type State = Tree;
    type Action = usize;

    fn init_states(&self) -> Vec<Tree> {
        let possible = (1..DIRS as Dir).flat_map(|moved| {
            let targets = 0..DIRS as Dir;
            let other = move |to: &Dir| *to != moved && *to != PARENTS[usize::from(moved)];
            targets.filter(other).map(move |target| (moved, target))
        });
        let possible: Vec<(Dir, Dir)> = possible.collect();
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..self.renames {
            // Renames are alike, so their order does not matter.
            let more = |chosen: Vec<usize>| {
                let from = chosen.last().copied().unwrap_or(0);
                (from..possible.len()).map(move |next| [chosen.clone(), vec![next]].concat())
            };
            chosen = chosen.into_iter().flat_map(more).collect();
        }
        let rename = |at: usize| {
            let (moved, target) = possible[at];
            Rename { moved, target, next: Next::LockMoved, exclusive: false, shared: 0 }
        };
        let tree = |chosen: Vec<usize>| Tree {
            parents: PARENTS,
            renames: chosen.into_iter().map(rename).collect(),
        };
        chosen.into_iter().map(tree).collect()
    }

    fn actions(&self, tree: &Tree, actions: &mut Vec<usize>) {
        let continues = |next: Next| !matches!(next, Next::Done | Next::Aborted);
        actions.extend((0..tree.renames.len()).filter(|at| continues(tree.renames[*at].next)));
    }

    fn next_state(&self, last: &Tree, me: usize) -> Option<Tree> {
        let mut tree = last.clone();
        let Rename { moved, target, next, .. } = last.renames[me];
        match next {
            Next::LockMoved => {
                if tree.is_moved_by_another(me, moved) || tree.is_shared_by_another(me, moved) {
                    tree.release(me, Next::Aborted);
                } else {
                    tree.renames[me].exclusive = true;
                    tree.renames[me].next = Next::Look(target);
                }
            }
            Next::Look(at) => {
                let locks = self.locks != Locks::TargetOnly || at == target;
                if at == moved || locks && tree.is_moved_by_another(me, at) {
                    tree.release(me, Next::Aborted);
                    return Some(tree);
                }
                if locks {
                    tree.renames[me].shared |= 1 << at;
                }
                tree.renames[me].next = match at {
                    0 => Next::Commit,
                    _ => Next::Look(tree.parents[usize::from(at)]),
                };
                if at == 0 && self.locks == Locks::AllDuringWalk {
                    tree.renames[me].shared = 1 << target;
                }
            }
            Next::Commit => {
                tree.parents[usize::from(moved)] = target;
                tree.release(me, Next::Done);
            }
            Next::Done | Next::Aborted => return None,
        }
        Some(tree)
    }

    fn properties(&self) -> Vec<Property<RenameModel>> {
        vec![
            Property::<RenameModel>::always(NO_LOOP, |_, tree| {
                (0..DIRS).all(|at| tree.reaches_root(at))
            }),
            Property::<RenameModel>::sometimes("all renames succeed", |_, tree| {
                tree.renames.iter().all(|rename| rename.next == Next::Done)
            }),
        ]
    }
}
