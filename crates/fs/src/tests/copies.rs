//! What a policy saw when it let a user copy a directory, and what others change before the copy.

use inode::{Caller, NodeId};
use opening::create::FormatOptions;
use ops::policy::Policy;
use testing::{fails, sim_env};
use vfs::{FileSystem, RenameMode};
use volume::{OpenOptions, QuotaLimits};

use super::owned::{owner, set_owner};
use crate::Fs;

/// A directory that moves below the source takes a subvolume with a limit with it. That is mounted
/// where it was, and the copy would inherit what the limit forbids.
#[test]
fn a_copy_is_looked_at_again_when_a_directory_moved() {
    let env = sim_env(1).env();
    Fs::format(&env, &FormatOptions::default()).expect("an empty device");
    let fs = Fs::open(env, &OpenOptions::default()).expect("it was made just now");
    let (root, user) = (Caller::root(), owner());
    let dir = |parent: NodeId, name: &[u8]| {
        let node = fs.mkdir(&root, parent, name, 0o755).expect("there is space").node;
        set_owner(&fs, node);
        node
    };
    let (source, beside) = (dir(NodeId::ROOT, b"source"), dir(NodeId::ROOT, b"beside"));
    let nested = fs.subvolume_create(&root, beside, b"nested", 0o755).expect("space").node;
    set_owner(&fs, nested);
    let (subvol, ino) = fs.place(source).expect("it is there");
    let (from, policies) = ((&*subvol, ino), fs.policies());
    let look = || policies.may_copy(&user, from, (subvol.id.0, ino));
    let holds = |looked| policies.may_still_copy(&user, &fs.admin.lock(), looked);
    let moves = |(from, to): (NodeId, NodeId)| {
        let (from, to) = ((from, &b"beside"[..]), (to, &b"beside"[..]));
        fs.rename(&user, from, to, RenameMode::Replace).expect("its own");
    };
    let top = NodeId::ROOT;
    // The root directory is everybody's here.
    set_owner(&fs, top);
    let looked = look().expect("no limit holds");
    moves((top, source));
    assert!(holds(looked), "without limits nothing was looked at");
    moves((source, top));
    let limits = QuotaLimits { inodes: Some(10), bytes: None };
    fs.quota_set(&root, nested, limits).expect("a quota");
    let looked = look().expect("none holds in the source");
    assert!(holds(looked));
    moves((top, source));
    assert!(!holds(looked), "a limit holds in the source by now");
    fails(look(), "a quota applies here");
}
