//! Signs of life of the process that has a volume open, so that nobody takes a volume over by
//! accident. Safety does not rest on them: what keeps two openings apart is the log.
//!
//! Invariants: an observer compares no clocks. It concludes that a process lives from a sign that
//! appears while it watches, measured on its own monotonic clock. Each sign has a number of its own
//! and no name is used twice. So a request that is carried out late adds nothing that looks alive
//! for longer than one period. Callers drive the period; nothing here starts a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Blobs, Clock, Result, Timestamp};
use format::presence::{self as sign, Decoded, PERIOD_MAX, PRESENCE_BYTES_MAX};

/// What the names of signs begin with.
const PREFIX: &str = "alive/";
/// Periods without a new sign after which a process counts as silent.
const PERIODS: u32 = 3;
/// The period of a holder whose sign cannot be read.
const UNKNOWN_PERIOD: Duration = Duration::from_secs(10);
/// Longest time that an observer watches.
const WATCHED_MAX: Duration = Duration::from_secs(60);
/// An observer looks this many times a period.
const LOOKS: u32 = 4;
/// A request that took less than a period divided by this leaves time for others before the next
/// sign.
const BRISK: u32 = 4;
/// Periods without an acknowledged sign after which the next one is overdue, by the process's own
/// clock. Less than `PERIODS`.
const OVERDUE_PERIODS: u32 = 2;
/// Shortest time between two looks.
const LOOK_MIN: Duration = Duration::from_millis(20);

/// The process that has a volume open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The host's name.
    pub host: String,
    /// The user's name.
    pub user: String,
    /// The process on that host.
    pub pid: u32,
    /// When it opened the volume, by that host's clock.
    pub started: Timestamp,
}

/// The signs of this process.
pub struct Presence {
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    volume: [u8; 16],
    opening: [u8; 16],
    holder: Holder,
    period: Duration,
    state: Mutex<State>,
    /// When the request for the last sign that was acknowledged was sent, in nanoseconds of the
    /// monotonic clock. Readable while a request has no answer.
    shown: AtomicU64,
    /// Whether the last request was answered well within a period. Otherwise there is only time
    /// for the next sign.
    is_brisk: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Number of the next sign.
    next: u64,
    /// Names that may exist.
    made: Vec<String>,
}

impl Presence {
    /// Creates the first sign of an opening with a random id. The caller calls `beat` once a
    /// period from then on.
    pub fn announce(
        blobs: Arc<dyn Blobs>,
        volume: [u8; 16],
        opening: [u8; 16],
        holder: Holder,
        period: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Presence> {
        let (state, shown, is_brisk) = (Mutex::default(), AtomicU64::new(0), AtomicBool::new(true));
        let presence =
            Presence { blobs, clock, volume, opening, holder, period, state, shown, is_brisk };
        presence.beat()?;
        Ok(presence)
    }

    /// The time from one sign to the next.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// How long others have seen no new sign, if it is so long that the next one is overdue. They
    /// may soon take this process for gone. Measured from when the last acknowledged sign was sent.
    pub fn overdue(&self) -> Option<Duration> {
        let shown = Duration::from_nanos(self.shown.load(Ordering::Acquire));
        let silent = self.clock.monotonic().saturating_sub(shown);
        (silent >= self.period * OVERDUE_PERIODS).then_some(silent)
    }

    /// Creates the next sign, and deletes the earlier ones if there is time for that. After an
    /// error the caller continues: the next call uses the next number.
    pub fn beat(&self) -> Result<()> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let name = name(&self.opening, number);
        let period = u32::try_from(self.period.as_millis()).unwrap_or(PERIOD_MAX);
        let bytes = sign::Presence {
            volume: self.volume,
            opening: self.opening,
            number,
            period: period.clamp(1, PERIOD_MAX),
            pid: self.holder.pid,
            started: self.holder.started.0,
            written: self.clock.now().0,
            host: self.holder.host.clone(),
            user: self.holder.user.clone(),
        }
        .encode();
        let before = std::mem::take(&mut state.made);
        // Also after an error: the request may be carried out.
        state.made.push(name.clone());
        let sent = self.clock.monotonic();
        let created = self.timed(|| self.blobs.create(&name, &bytes));
        if created.is_ok() {
            self.shown.store(u64::try_from(sent.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
        }
        if created.is_err() || !self.is_brisk.load(Ordering::Relaxed) {
            state.made.extend(before);
            return created.map(drop);
        }
        if let Err(error) = self.timed(|| self.blobs.delete_all(&before)) {
            state.made.extend(before);
            return Err(error);
        }
        Ok(())
    }

    /// Sends a request, and notes whether it was answered well within a period.
    fn timed<T>(&self, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let sent = self.clock.monotonic();
        let answer = request();
        let took = self.clock.monotonic().saturating_sub(sent);
        self.is_brisk.store(took <= self.period / BRISK, Ordering::Relaxed);
        answer
    }

    /// Whether another process deleted the signs of this one. It has then taken the volume over,
    /// and further signs would make later openings take this process for its owner. One request;
    /// none, and no answer, while the store answers slowly.
    pub fn was_cleared(&self) -> Result<bool> {
        if !self.is_brisk.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let made = self.state.lock().made.clone();
        for name in &made {
            let found = self.timed(|| self.blobs.length(name))?;
            if found.is_some() || !self.is_brisk.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
        Ok(!made.is_empty())
    }

    /// Deletes all signs: the volume is closed. After an error an observer has to wait, and no
    /// more.
    pub fn withdraw(&self) -> Result<()> {
        self.blobs.delete_all(&self.state.lock().made)
    }

    /// Looks for processes that have the volume open. Returns at once if there is no sign, when a
    /// new sign appears, or after some periods without one.
    pub fn watch(blobs: &dyn Blobs, volume: [u8; 16], clock: &dyn Clock) -> Result<Verdict> {
        let first = newest(blobs)?;
        // A store may take long to answer. What it answers is of some moment in between. So the
        // time that was watched lasts from the first answer to when the last request was sent.
        let start = clock.monotonic();
        let mut signs: BTreeMap<String, Sign> = BTreeMap::new();
        for (opening, number) in &first {
            if let Some(sign) = read(blobs, volume, opening, *number)? {
                signs.insert(opening.clone(), sign);
            }
        }
        let Some(longest) = signs.values().map(|sign| sign.period).max() else {
            return Ok(Verdict::Nobody);
        };
        let window = (longest * PERIODS).min(WATCHED_MAX);
        let mut watched = Duration::ZERO;
        while watched < window {
            let left = window.saturating_sub(clock.monotonic().saturating_sub(start));
            clock.sleep((longest / LOOKS).clamp(LOOK_MIN, left + LOOK_MIN));
            watched = clock.monotonic().saturating_sub(start);
            let now = newest(blobs)?;
            for (opening, number) in &now {
                if first.get(opening).is_some_and(|before| before >= number) {
                    continue;
                }
                if let Some(sign) = read(blobs, volume, opening, *number)? {
                    return Ok(Verdict::Alive(sign));
                }
            }
            signs.retain(|opening, _| now.contains_key(opening));
            if signs.is_empty() {
                return Ok(Verdict::Nobody);
            }
        }
        let last = signs.into_values().max_by_key(|sign| sign.written);
        Ok(last.map_or(Verdict::Nobody, |sign| Verdict::Silent(Sign { silent: watched, ..sign })))
    }

    /// The openings that have signs.
    pub fn openings(blobs: &dyn Blobs) -> Result<BTreeSet<[u8; 16]>> {
        let parsed = |opening: &String| u128::from_str_radix(opening, 16).ok();
        let openings = newest(blobs)?;
        Ok(openings.keys().filter_map(parsed).map(u128::to_be_bytes).collect())
    }

    /// After the announcement, decides between processes that announced themselves at the same
    /// time: `before` are the openings that had signs before. Each looks after its own first sign,
    /// so of two at least one sees the other. The one with the greater id gives way at once. The
    /// other waits until that has happened, and gives way as well if it does not: its rival may
    /// have looked before. So at most one remains.
    pub fn is_alone(&self, before: &BTreeSet<[u8; 16]>) -> Result<bool> {
        let start = self.clock.monotonic();
        loop {
            let mut rivals = Presence::openings(&*self.blobs)?;
            rivals.retain(|opening| *opening != self.opening && !before.contains(opening));
            let Some(least) = rivals.first() else { return Ok(true) };
            let waited = self.clock.monotonic().saturating_sub(start);
            if *least < self.opening || waited >= self.period {
                return Ok(false);
            }
            self.clock.sleep((self.period / LOOKS).max(LOOK_MIN));
        }
    }

    /// Deletes the signs of an opening whose process is known to be gone.
    pub fn forget(blobs: &dyn Blobs, opening: &[u8; 16]) -> Result<()> {
        let gone = hex(opening);
        let mut names = blobs.list(PREFIX)?;
        names.retain(|name| parse(name).is_some_and(|(opening, _)| opening == gone));
        blobs.delete_all(&names)
    }

    /// Deletes the signs of processes that are gone, after this process has taken the volume over.
    /// Those of a process that lives after all appear again.
    pub fn clear_others(&self) -> Result<()> {
        let own = hex(&self.opening);
        let mut names = self.blobs.list(PREFIX)?;
        names.retain(|name| parse(name).is_some_and(|(opening, _)| opening != own));
        self.blobs.delete_all(&names)
    }
}

/// What an observer saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No process announces that it has the volume open.
    Nobody,
    /// A process lives: a new sign appeared.
    Alive(Sign),
    /// A process announced itself and gave no new sign while the observer watched: it was killed,
    /// is paused, or cannot reach the store.
    Silent(Sign),
}

/// The newest sign of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sign {
    /// Who; `None` if the sign cannot be read, such as that of a newer version.
    pub holder: Option<Holder>,
    /// When the sign was written, by the clock of that host.
    pub written: Option<Timestamp>,
    /// Time without a new sign, by the observer's clock; zero if a new one just appeared.
    pub silent: Duration,
    /// Time from one sign to the next.
    pub period: Duration,
}

/// The greatest number of each opening.
fn newest(blobs: &dyn Blobs) -> Result<BTreeMap<String, u64>> {
    let mut newest = BTreeMap::new();
    for name in blobs.list(PREFIX)? {
        if let Some((opening, number)) = parse(&name) {
            let greatest = newest.entry(opening.to_owned()).or_insert(number);
            *greatest = number.max(*greatest);
        }
    }
    Ok(newest)
}

/// Reads a sign; `None` if it is another volume's. One that was deleted meanwhile, because the next
/// one exists, is that of an unknown holder.
fn read(blobs: &dyn Blobs, volume: [u8; 16], opening: &str, number: u64) -> Result<Option<Sign>> {
    let unknown =
        Sign { holder: None, written: None, silent: Duration::ZERO, period: UNKNOWN_PERIOD };
    let mut bytes = [0; PRESENCE_BYTES_MAX + 1];
    let read = match blobs.read_at(&format!("{PREFIX}{opening}-{number:016x}"), &mut bytes, 0) {
        Err(error) if error.is_not_found() => return Ok(Some(unknown)),
        read => read?,
    };
    Ok(match sign::Presence::decode(&bytes[..read]) {
        Ok(Decoded::Presence(found)) if found.volume != volume => None,
        Ok(Decoded::Presence(found)) => Some(Sign {
            holder: Some(Holder {
                host: found.host,
                user: found.user,
                pid: found.pid,
                started: Timestamp(found.started),
            }),
            written: Some(Timestamp(found.written)),
            silent: Duration::ZERO,
            period: Duration::from_millis(u64::from(found.period)),
        }),
        Ok(Decoded::Newer(_)) | Err(_) => Some(unknown),
    })
}

fn hex(opening: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*opening))
}

fn name(opening: &[u8; 16], number: u64) -> String {
    format!("{PREFIX}{}-{number:016x}", hex(opening))
}

/// The opening and the number in a name.
fn parse(name: &str) -> Option<(&str, u64)> {
    let (opening, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let valid = opening.len() == 32 && number.len() == 16 && is_hex(opening) && is_hex(number);
    valid.then(|| Some((opening, u64::from_str_radix(number, 16).ok()?)))?
}
