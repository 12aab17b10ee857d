//! What commands and mounts ask of a volume, each once: on a volume that was falsified, each
//! returns or reports an error.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fs::{FileSystem, Find, Follow, Gc, Owner, Paths, QuotaLimits};
use inode::{Caller, NodeId};
use search::aggregate::Question;
use search::cluster::Fields;
use search::query::{Accounts, Expr};
use search::{Sort, SortBy, Start};

use crate::target::seen;
use crate::verbs_rare;
use crate::world::World;

struct Everybody;

impl Accounts for Everybody {
    fn has_user(&self, _uid: u32) -> bool {
        true
    }

    fn has_group(&self, _gid: u32) -> bool {
        true
    }
}

/// Most steps of background work.
const STEPS_MAX: u32 = 300;

impl World {
    /// Calls each verb in a random order.
    pub(crate) fn verbs(&mut self) {
        let mut all: Vec<fn(&World)> = vec![
            find, totals, quotas, snapshots, clones, history, collect, status, background, mount,
            trash,
        ];
        all.extend(verbs_rare::ALL);
        self.random.shuffle(&mut all);
        for verb in all {
            verb(self);
        }
    }
}

fn find(world: &World) {
    let root = Caller::root();
    let expr = Expr::yes();
    let by_size = Sort { by: SortBy::Size, descending: true };
    for order in [None, Some(by_size)] {
        let find = Find {
            expr: &expr,
            prune: None,
            min_depth: 0,
            max_depth: None,
            contents_first: order.is_none(),
            order,
            limit: order.map(|_| 10),
            fields: Fields::ATTRIBUTES,
            accounts: &Everybody,
            cancel: &AtomicBool::new(false),
        };
        for path in [&b"/"[..], b"/.snapshots", b"/a"] {
            seen(
                world
                    .fs
                    .find(&root, path, Follow::No, path, &find, &mut |_| ControlFlow::Continue(())),
            );
        }
        seen(world.fs.count(&root, b"/", Follow::No, b"/", &find));
    }
}

fn totals(world: &World) {
    let Ok((subvolume, directory)) = world.fs.search_place(NodeId::ROOT) else { return };
    let question = Question {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        caller: &Caller::root(),
        accounts: &Everybody,
        directories: Some(2),
        largest: 3,
        groups: true,
        cancel: &AtomicBool::new(false),
    };
    seen(world.fs.aggregate(&question));
}

fn quotas(world: &World) {
    let (root, limits) = (Caller::root(), QuotaLimits { inodes: Some(1000), bytes: None });
    seen(world.fs.quota_list(&root));
    seen(world.fs.owner_quota_list(&root));
    seen(world.fs.quota_set(&root, NodeId::ROOT, limits));
    seen(world.fs.owner_quota_set(&root, Owner::User(7), limits));
    seen(world.fs.quota_check());
    seen(world.fs.quota_list(&root));
}

fn snapshots(world: &World) {
    let root = Caller::root();
    seen(world.fs.snapshot_list_all(&root));
    seen(world.fs.snapshot_list(&root, NodeId::ROOT));
    if world.fs.snapshot_create(&root, NodeId::ROOT, b"of verbs").is_ok() {
        seen(world.fs.mkdir(&root, NodeId::ROOT, b"after it", 0o755));
        seen(world.fs.rollback(&root, NodeId::ROOT, b"of verbs"));
        seen(world.fs.snapshot_rename(&root, NodeId::ROOT, b"of verbs", b"renamed"));
        seen(world.fs.snapshot_delete(&root, NodeId::ROOT, b"renamed"));
    }
}

fn clones(world: &World) {
    let root = Caller::root();
    seen(world.fs.clone_dir(&root, NodeId::ROOT, NodeId::ROOT, b"clone of verbs"));
    seen(world.fs.resolve(&root, b"/clone of verbs/a", Follow::No));
    seen(world.fs.rmr(&root, NodeId::ROOT, b"clone of verbs"));
}

fn history(world: &World) {
    for path in [&b"/a"[..], b"/a/b"] {
        let proceed = AtomicBool::new(false);
        let take = &mut |_: &fs::Version| ControlFlow::Continue(());
        seen(world.fs.history(&Caller::root(), path, &proceed, take));
    }
}

fn collect(world: &World) {
    for how in [Gc::Report, Gc::Delete { grace: Duration::ZERO }] {
        seen(world.fs.gc(how, &mut |_, _| ControlFlow::Continue(())));
    }
    seen(world.fs.check_volume(&mut |_, _| ControlFlow::Continue(())));
}

fn status(world: &World) {
    seen(world.fs.status());
    seen(world.fs.index_stats());
    seen(world.fs.statfs(NodeId::ROOT));
}

fn background(world: &World) {
    for _ in 0..STEPS_MAX {
        world.env.clock.advance(Duration::from_secs(1));
        match world.fs.background_step(60) {
            Ok(progress) if progress.more => {}
            _ => break,
        }
    }
    seen(world.fs.index_flush(NodeId::ROOT));
}

/// As a mount that reads everything at a directory.
fn mount(world: &World) {
    let root = Caller::root();
    let mut names = Vec::new();
    seen(world.fs.readdir(&root, NodeId::ROOT, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        fs::WalkControl::Continue
    }));
    for name in names.iter().take(20) {
        let Ok(entry) = world.fs.lookup(&root, NodeId::ROOT, name) else { continue };
        seen(world.fs.read(&root, entry.node, 0, &mut [0; 8192]));
        seen(world.fs.listxattr(&root, entry.node));
        seen(world.fs.readlink(&root, entry.node));
        seen(world.fs.find_by_number(NodeId::ROOT, entry.node));
        world.fs.forget(entry.node, 1);
    }
}

fn trash(world: &World) {
    let root = Caller::root();
    seen(world.fs.trash_set(&root, NodeId::ROOT, Some(10)));
    seen(world.fs.trash_get(NodeId::ROOT));
    seen(world.fs.rmr(&root, NodeId::ROOT, b"b"));
    seen(world.fs.trash_places());
    seen(world.fs.trash_empty(&root, NodeId::ROOT));
}
