//! Tests of invalidations.

use std::sync::OnceLock;

use super::*;

#[test]
fn names_are_bounded_whatever_the_kernel_can_do() {
    for can_drop_all_names in [false, true] {
        let mut pending = Pending::default();
        for n in 0..3 * NAMES_MAX as u64 {
            pending.add_name(n % 7, &n.to_be_bytes());
            pending.bound(can_drop_all_names);
            assert!(pending.names.len() <= NAMES_MAX, "{n}");
        }
        assert_eq!(pending.all_names, can_drop_all_names);
        assert!(pending.nodes.iter().copied().eq(0..7), "the kernel is notified of each directory");
    }
}

/// A kernel that drops whatever it is asked to, except as a test defines it.
trait TestKernel: Send + Sync {
    fn name(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn expire(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn can_expire(&self) -> bool {
        true
    }

    fn node(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn contents(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn attributes(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn all_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn can_drop_all_names(&self) -> bool {
        false
    }
}

impl<T: TestKernel> Notifier for T {
    fn name(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        TestKernel::name(self, parent, name)
    }

    fn expire(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        TestKernel::expire(self, parent, name)
    }

    fn can_expire(&self) -> bool {
        TestKernel::can_expire(self)
    }

    fn node(&self, node: u64) -> io::Result<()> {
        TestKernel::node(self, node)
    }

    fn contents(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
        TestKernel::contents(self, node, offset, length)
    }

    fn attributes(&self, node: u64) -> io::Result<()> {
        TestKernel::attributes(self, node)
    }

    fn all_names(&self) -> io::Result<()> {
        TestKernel::all_names(self)
    }

    fn can_drop_all_names(&self) -> bool {
        TestKernel::can_drop_all_names(self)
    }
}

/// Records what it receives, and answers that it is cached; for the root it answers that it is
/// gone.
struct Held {
    notified: Arc<Notified>,
}

/// Nodes that were reported, and whether they were reported whole.
type Notified = Mutex<Vec<(u64, bool)>>;

impl TestKernel for Held {
    fn node(&self, node: u64) -> io::Result<()> {
        if node == ROOT {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        self.notified.lock().push((node, true));
        Ok(())
    }

    fn attributes(&self, node: u64) -> io::Result<()> {
        self.notified.lock().push((node, false));
        Ok(())
    }
}

fn queue() -> (Queue, std::sync::Weak<Notified>) {
    let notified = Arc::new(Notified::default());
    let there = Arc::downgrade(&notified);
    (queue_to(Box::new(Held { notified })), there)
}

fn queue_to(notifier: Box<dyn Notifier>) -> Queue {
    let env = testing::sim_env(1);
    let store = Arc::new(testing::MemStore::new());
    let options = fs::FormatOptions::default();
    let header = fs::Fs::format_on(&env.env(), &*store, &options).expect("an empty store");
    let options = fs::OpenOptions { index: None, ..fs::OpenOptions::default() };
    let fs = fs::Fs::open_on(env.env(), store, header, &options).expect("a fresh volume");
    let nowhere = std::path::Path::new("/nowhere");
    let options = crate::MountOptions::new(nowhere, nowhere);
    let adapter = Arc::new(Adapter::new(fs, NodeId::ROOT, &options));
    Queue::new(adapter, notifier)
}

#[test]
fn a_node_invalidated_whole_is_not_invalidated_again_for_its_attributes() {
    let (queue, notified) = queue();
    let notified = notified.upgrade().expect("the queue holds it");
    queue.attributes(NodeId::narrow(7));
    queue.node(NodeId::narrow(7));
    queue.attributes(NodeId::narrow(8));
    queue.attributes(NodeId::narrow(8));
    assert!(!queue.settle(Duration::ZERO), "attributes alone are something to send");
    queue.node(NodeId::ROOT);
    queue.run();
    assert_eq!(*notified.lock(), [(7, true), (8, false)]);
}

/// Takes as long to drop a name as the test likes.
struct Slow {
    dropped: Mutex<bool>,
    expired: Mutex<u64>,
    may_continue: Mutex<bool>,
    changed: Condvar,
}

impl TestKernel for Arc<Slow> {
    fn name(&self, _: u64, _: &[u8]) -> io::Result<()> {
        let mut may_continue = self.may_continue.lock();
        self.changed.wait_while(&mut may_continue, |may_continue| !*may_continue);
        *self.dropped.lock() = true;
        self.changed.notify_all();
        Ok(())
    }

    fn expire(&self, _: u64, _: &[u8]) -> io::Result<()> {
        *self.expired.lock() += 1;
        Ok(())
    }
}

/// A roll-back used to wait until the kernel had dropped its whole cache of the old tree.
#[test]
fn no_request_waits_until_entries_below_a_name_are_dropped() {
    let slow = Arc::new(Slow {
        dropped: Mutex::new(false),
        expired: Mutex::new(0),
        may_continue: Mutex::new(false),
        changed: Condvar::new(),
    });
    let queue = queue_to(Box::new(Arc::clone(&slow)));
    device::scope(|scope| {
        scope.spawn(|| queue.run());
        scope.spawn(|| queue.run_late());
        for name in [&b"one"[..], b"two"] {
            queue.entry(NodeId::ROOT, name);
            assert!(queue.settle(Duration::from_secs(60)), "it waits for what takes long");
        }
        assert_eq!((*slow.expired.lock(), *slow.dropped.lock()), (2, false));
        let mut may_continue = slow.may_continue.lock();
        *may_continue = true;
        slow.changed.notify_all();
        slow.changed.wait_while(&mut may_continue, |_| !*slow.dropped.lock());
        drop(may_continue);
        queue.close();
    });
}

/// Has something new to report whenever it sends a report, as an import has.
#[derive(Default)]
struct Endless {
    queue: OnceLock<std::sync::Weak<Queue>>,
}

impl TestKernel for Arc<Endless> {
    fn attributes(&self, node: u64) -> io::Result<()> {
        if let Some(queue) = self.queue.get().and_then(std::sync::Weak::upgrade) {
            queue.attributes(NodeId::narrow(node + 1));
        }
        Ok(())
    }
}

/// A command waited for 30 s when others kept changing things.
#[test]
fn a_command_waits_for_what_was_reported_before_it() {
    let endless = Arc::new(Endless::default());
    let queue = Arc::new(queue_to(Box::new(Arc::clone(&endless))));
    endless.queue.set(Arc::downgrade(&queue)).expect("set once");
    queue.attributes(NodeId::narrow(7));
    device::scope(|scope| {
        scope.spawn(|| queue.run());
        let settled = (0..100).all(|_| queue.settle(Duration::from_secs(10)));
        queue.close();
        assert!(settled, "it waits for the reports of others");
    });
}

#[test]
fn the_connection_is_let_go_of_when_serving_ends() {
    let (queue, connection) = queue();
    assert!(connection.upgrade().is_some());
    queue.close();
    assert!(connection.upgrade().is_none(), "an open connection that nobody reads from");
    // Nothing waits for it any more.
    queue.entry(NodeId::ROOT, b"name");
    assert!(queue.settle(Duration::ZERO));
    queue.run();
}

#[test]
fn the_connection_is_let_go_of_when_the_kernel_reports_that_it_is_gone() {
    let (queue, connection) = queue();
    queue.node(NodeId::ROOT);
    // Returns by itself: the first notice is answered with ENODEV.
    queue.run();
    assert!(connection.upgrade().is_none(), "an open connection that nobody reads from");
    assert!(queue.settle(Duration::ZERO));
}
