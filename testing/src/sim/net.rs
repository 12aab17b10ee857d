//! A network in memory: delays, partitions, connections that break, machines that die.
//!
//! A machine has an address of its own, `127.0.0.PLACE`, so that servers without TLS accept it.
//! What is written to a link arrives later, in order; links do not wait for each other. A network
//! whose machines are divided holds what they write until it is whole again, as TCP does;
//! connecting fails after its time. A link may break: what was under way is lost, and both sides
//! get an error.
//!
//! Every write is reported to a [`Watch`], which may end the machine at that moment: before or
//! after the bytes left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{Clock, Link, Listener, Net, SystemClock};

/// A machine from its start to its end. Machines that use one address after another have different
/// runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    /// Its place in the network, the last part of its address.
    pub place: u8,
    /// How many machines were there before.
    pub run: u32,
}

impl Host {
    /// The number by which a scheduler knows it.
    pub fn number(self) -> u32 {
        self.run << 8 | u32::from(self.place)
    }

    /// Its address.
    pub fn address(self, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, self.place], port))
    }
}

/// What becomes of a machine that does something that others see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It continues.
    Lives,
    /// It ends before.
    EndsBefore,
    /// It ends just after.
    EndsAfter,
}

/// Asked before a machine does something that others see.
pub trait Watch: Send + Sync {
    /// What becomes of the machine.
    fn before(&self, host: Host) -> Fate;

    /// It did it, and is to end now: [`Fate::EndsAfter`].
    fn ends(&self, host: Host);
}

/// Delays of messages.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    /// The shortest and the longest of most messages.
    pub usual: (Duration, Duration),
    /// One in so many takes up to `long`.
    pub long_every: u32,
    /// See there.
    pub long: Duration,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays {
            usual: (Duration::from_micros(50), Duration::from_millis(2)),
            long_every: 100,
            long: Duration::from_millis(300),
        }
    }
}

struct State {
    random: fastrand::Rng,
    delays: Delays,
    listeners: BTreeMap<SocketAddr, Arc<Ear>>,
    names: BTreeMap<String, Vec<SocketAddr>>,
    links: Vec<Weak<Wire>>,
    /// Pairs of places between which nothing passes in this direction, and until when.
    divided: BTreeMap<(u8, u8), Duration>,
    dead: BTreeSet<Host>,
    next_port: u16,
    watch: Option<Arc<dyn Watch>>,
}

/// A network.
pub struct SimNet {
    state: Mutex<State>,
    clock: SystemClock,
}

impl SimNet {
    /// A network without machines.
    pub fn new(seed: u64, delays: Delays) -> Arc<SimNet> {
        let state = State {
            random: fastrand::Rng::with_seed(seed ^ 0x6e65_7477),
            delays,
            listeners: BTreeMap::new(),
            names: BTreeMap::new(),
            links: Vec::new(),
            divided: BTreeMap::new(),
            dead: BTreeSet::new(),
            next_port: 40_000,
            watch: None,
        };
        Arc::new(SimNet { state: Mutex::new(state), clock: SystemClock::new() })
    }

    /// Asks before each write.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        self.state.lock().watch = Some(watch);
    }

    /// Gives a name addresses.
    pub fn name(&self, name: &str, addresses: Vec<SocketAddr>) {
        self.state.lock().names.insert(name.to_owned(), addresses);
    }

    /// The network as a machine uses it.
    pub fn of(self: &Arc<SimNet>, host: Host) -> Arc<dyn Net> {
        Arc::new(NetOf { net: Arc::clone(self), host })
    }

    /// Lets nothing pass from one place to another, for a time.
    pub fn divide(&self, from: u8, to: u8, time: Duration) {
        let until = self.clock.monotonic() + time;
        self.state.lock().divided.insert((from, to), until);
    }

    /// Ends all divisions: what is held arrives at its time.
    pub fn heal(&self) {
        self.state.lock().divided.clear();
    }

    /// Breaks connections that one machine has; each, or one in `of`. Returns how many.
    pub fn cut(&self, place: u8, of: u32) -> usize {
        let links: Vec<_> = self.wires().into_iter().filter(|wire| wire.has(place)).collect();
        let mut cut = 0;
        for wire in links {
            if self.state.lock().random.u32(..of.max(1)) == 0 {
                wire.reset(None);
                cut += 1;
            }
        }
        cut
    }

    /// A machine ends. Its own threads get errors from now on. The others learn it at once
    /// (`silent`: by nothing but silence).
    pub fn kill(&self, host: Host, silent: bool) {
        let ears: Vec<Arc<Ear>> = {
            let mut state = self.state.lock();
            state.dead.insert(host);
            let is_of = |ear: &Arc<Ear>| ear.host == host;
            let of_host: Vec<_> =
                state.listeners.values().filter(|ear| is_of(ear)).cloned().collect();
            state.listeners.retain(|_, ear| !is_of(ear));
            of_host
        };
        for ear in &ears {
            ear.fall_silent();
        }
        for wire in self.wires() {
            if wire.ends.contains(&host) {
                wire.reset(silent.then_some(host));
            }
        }
    }

    /// Whether a machine has ended.
    pub fn is_dead(&self, host: Host) -> bool {
        self.state.lock().dead.contains(&host)
    }

    fn wires(&self) -> Vec<Arc<Wire>> {
        let mut state = self.state.lock();
        state.links.retain(|wire| wire.strong_count() > 0);
        state.links.iter().filter_map(Weak::upgrade).collect()
    }

    /// When something arrives that is sent now.
    fn arrival(&self, from: Host, to: u8) -> Duration {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        let State { random, delays, divided, .. } = &mut *state;
        divided.retain(|_, until| *until > now);
        let whole = divided.get(&(from.place, to)).copied().unwrap_or(now);
        let (least, most) = delays.usual;
        let most = if random.u32(..delays.long_every.max(1)) == 0 { delays.long } else { most };
        whole + least + most.mul_f64(random.f64())
    }

    fn fate(&self, host: Host) -> Fate {
        let watch = {
            let state = self.state.lock();
            if state.dead.contains(&host) {
                return Fate::EndsBefore;
            }
            state.watch.clone()
        };
        watch.map_or(Fate::Lives, |watch| watch.before(host))
    }
}

/// A network as one machine uses it.
struct NetOf {
    net: Arc<SimNet>,
    host: Host,
}

fn dead() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this machine has ended")
}

impl Net for NetOf {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let names = &self.net.state.lock().names;
        names.get(host).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn connect(&self, to: SocketAddr, within: Duration) -> io::Result<Arc<dyn Link>> {
        let net = &self.net;
        let place = place_of(to);
        let now = net.clock.monotonic();
        {
            // A machine on which nobody listens refuses at once, if it is reached.
            let state = net.state.lock();
            let is_divided = |from, to| state.divided.get(&(from, to)).is_some_and(|at| *at > now);
            if !state.listeners.contains_key(&to)
                && !is_divided(self.host.place, place)
                && !is_divided(place, self.host.place)
            {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        let arrival = net.arrival(self.host, place).max(net.arrival(self.host, place));
        let takes = arrival.saturating_sub(now);
        net.clock.sleep(takes.min(within));
        if takes > within {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut state = net.state.lock();
        if state.dead.contains(&self.host) {
            return Err(dead());
        }
        let Some(ear) = state.listeners.get(&to).cloned() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        state.next_port = state.next_port.wrapping_add(1).max(40_000);
        let own = self.host.address(state.next_port);
        let wire = Arc::new(Wire {
            net: Arc::downgrade(net),
            ends: [self.host, ear.host],
            pipes: [Pipe::default(), Pipe::default()],
        });
        state.links.push(Arc::downgrade(&wire));
        drop(state);
        let theirs: Arc<dyn Link> = Arc::new(End::new(&wire, 1, to));
        if !ear.put((theirs, own)) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(Arc::new(End::new(&wire, 0, own)))
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn Listener>> {
        let mut state = self.net.state.lock();
        if state.dead.contains(&self.host) {
            return Err(dead());
        }
        if state.listeners.contains_key(&at) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let ear = Arc::new(Ear {
            host: self.host,
            at,
            net: Arc::downgrade(&self.net),
            waiting: Mutex::new(Some(VecDeque::new())),
            changed: Condvar::new(),
        });
        state.listeners.insert(at, Arc::clone(&ear));
        Ok(ear)
    }
}

fn place_of(address: SocketAddr) -> u8 {
    match address.ip() {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => Ipv4Addr::LOCALHOST.octets()[3],
    }
}

type Arrived = (Arc<dyn Link>, SocketAddr);

/// Where connections arrive.
struct Ear {
    host: Host,
    at: SocketAddr,
    net: Weak<SimNet>,
    /// `None`: it is closed.
    waiting: Mutex<Option<VecDeque<Arrived>>>,
    changed: Condvar,
}

impl Ear {
    fn put(&self, arrived: Arrived) -> bool {
        let mut waiting = self.waiting.lock();
        let Some(waiting) = &mut *waiting else { return false };
        waiting.push_back(arrived);
        self.changed.notify_one();
        true
    }

    fn shut(&self) {
        let left = self.waiting.lock().take();
        self.changed.notify_all();
        for (link, _) in left.into_iter().flatten() {
            link.close();
        }
    }

    /// Its machine has ended: nothing arrives any more, and who waits learns nothing of it.
    fn fall_silent(&self) {
        let left = self.waiting.lock().as_mut().map(std::mem::take);
        for (link, _) in left.into_iter().flatten() {
            link.close();
        }
    }
}

impl Listener for Ear {
    fn accept(&self) -> io::Result<Arrived> {
        let mut waiting = self.waiting.lock();
        loop {
            match &mut *waiting {
                None => return Err(io::ErrorKind::NotConnected.into()),
                Some(queue) => {
                    if let Some(arrived) = queue.pop_front() {
                        return Ok(arrived);
                    }
                }
            }
            self.changed.wait(&mut waiting);
        }
    }

    fn address(&self) -> SocketAddr {
        self.at
    }

    fn close(&self) {
        if let Some(net) = self.net.upgrade() {
            let mut state = net.state.lock();
            let is_own = state.listeners.get(&self.at).is_some_and(|ear| ear.host == self.host);
            if is_own {
                state.listeners.remove(&self.at);
            }
        }
        self.shut();
    }
}

/// A connection: both ends, and what is under way from each.
struct Wire {
    net: Weak<SimNet>,
    ends: [Host; 2],
    pipes: [Pipe; 2],
}

impl Wire {
    fn has(&self, place: u8) -> bool {
        self.ends.iter().any(|end| end.place == place)
    }

    /// It breaks, for both ends, or only for the one of a machine that ended silently.
    fn reset(&self, only: Option<Host>) {
        for (from, pipe) in self.pipes.iter().enumerate() {
            // What a pipe carries is read at the other end.
            let reader = self.ends[1 - from];
            let is_of_dead = only == Some(reader);
            let mut flow = pipe.flow.lock();
            flow.chunks.clear();
            flow.is_cut = true;
            flow.is_broken |= only.is_none() || is_of_dead;
            drop(flow);
            pipe.changed.notify_all();
        }
    }
}

/// One direction.
#[derive(Default)]
struct Pipe {
    flow: Mutex<Flow>,
    changed: Condvar,
}

#[derive(Default)]
struct Flow {
    /// What is under way, with the time of its arrival.
    chunks: VecDeque<(Duration, Vec<u8>)>,
    last: Duration,
    /// When the end of the stream arrives.
    ends: Option<Duration>,
    /// Nothing more gets through.
    is_cut: bool,
    /// Its reader gets an error.
    is_broken: bool,
    /// Its reader has closed it.
    is_closed: bool,
}

/// One end of a connection.
struct End {
    wire: Arc<Wire>,
    /// Which.
    side: usize,
    address: SocketAddr,
    clock: SystemClock,
    patience: Mutex<Option<Duration>>,
}

impl End {
    fn new(wire: &Arc<Wire>, side: usize, address: SocketAddr) -> End {
        let (wire, patience) = (Arc::clone(wire), Mutex::new(None));
        End { wire, side, address, clock: SystemClock::new(), patience }
    }

    fn put(&self, arrival: Duration, bytes: &[u8]) -> io::Result<()> {
        let pipe = &self.wire.pipes[self.side];
        let mut flow = pipe.flow.lock();
        if flow.is_closed || flow.is_broken || flow.ends.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if !flow.is_cut {
            flow.last = flow.last.max(arrival);
            let at = flow.last;
            flow.chunks.push_back((at, bytes.to_vec()));
            drop(flow);
            // Its reader has nothing to do before.
            pipe.changed.notify_all_at(at);
        }
        Ok(())
    }
}

impl Link for End {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let pipe = &self.wire.pipes[1 - self.side];
        let until = self.patience.lock().map(|most| self.clock.monotonic() + most);
        let mut flow = pipe.flow.lock();
        loop {
            let now = self.clock.monotonic();
            if flow.is_closed {
                return Ok(0);
            }
            if flow.is_broken {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let mut next = until;
            if let Some((at, chunk)) = flow.chunks.front_mut() {
                if *at <= now {
                    let count = chunk.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&chunk[..count]);
                    chunk.drain(..count);
                    if chunk.is_empty() {
                        flow.chunks.pop_front();
                    }
                    return Ok(count);
                }
                next = Some(next.map_or(*at, |next| next.min(*at)));
            } else if let Some(end) = flow.ends {
                if end <= now {
                    return Ok(0);
                }
                next = Some(next.map_or(end, |next| next.min(end)));
            }
            if until.is_some_and(|until| until <= now) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            match next {
                Some(next) => {
                    pipe.changed.wait_for(&mut flow, next.saturating_sub(now));
                }
                None => pipe.changed.wait(&mut flow),
            }
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let own = self.wire.ends[self.side];
        let net = self.wire.net.upgrade().ok_or_else(dead)?;
        let fate = net.fate(own);
        if fate == Fate::EndsBefore {
            return Err(dead());
        }
        let arrival = net.arrival(own, self.wire.ends[1 - self.side].place);
        let put = self.put(arrival, bytes);
        if fate == Fate::EndsAfter {
            let watch = net.state.lock().watch.clone();
            if let Some(watch) = &watch {
                watch.ends(own);
            }
            return Err(dead());
        }
        put
    }

    fn set_patience(&self, read: Option<Duration>, _: Option<Duration>) -> io::Result<()> {
        *self.patience.lock() = read;
        Ok(())
    }

    fn close(&self) {
        let [own, other] = [self.side, 1 - self.side].map(|side| &self.wire.pipes[side]);
        let is_open = {
            let mut flow = other.flow.lock();
            !std::mem::replace(&mut flow.is_closed, true)
        };
        other.changed.notify_all();
        let Some(net) = self.wire.net.upgrade().filter(|_| is_open) else { return };
        let host = self.wire.ends[self.side];
        if net.is_dead(host) {
            return;
        }
        let arrival = net.arrival(host, self.wire.ends[1 - self.side].place);
        let mut flow = own.flow.lock();
        if !flow.is_cut {
            let last = flow.last.max(arrival);
            let at = *flow.ends.get_or_insert(last);
            drop(flow);
            own.changed.notify_all_at(at);
        }
    }

    fn local_address(&self) -> Option<SocketAddr> {
        Some(self.address)
    }
}
