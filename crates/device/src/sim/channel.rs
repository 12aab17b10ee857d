//! Channels over this crate's locks, so that a scheduler sees their waits. Errors are those of the
//! standard library.

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

use super::{Condvar, Mutex};

/// What both ends share.
struct Shared<T> {
    state: Mutex<State<T>>,
    /// Signalled at every change.
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// Messages that were received: a sender without a buffer waits for its own.
    received: u64,
    sent: u64,
    senders: usize,
    receives: bool,
}

/// Creates both ends of a channel without a bound.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = bounded_channel(usize::MAX);
    (Sender(sender), receiver)
}

/// Creates both ends of a channel that holds up to `bound` messages.
pub fn bounded_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let state =
        State { waiting: VecDeque::new(), received: 0, sent: 0, senders: 1, receives: true };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    (SyncSender { shared: Arc::clone(&shared), bound }, Receiver(shared, PhantomData))
}

/// Sends to a channel without a bound.
pub struct Sender<T>(SyncSender<T>);

impl<T> Sender<T> {
    /// Sends, without waiting.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.0.send(message)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender(self.0.clone())
    }
}

/// Sends to a channel with a bound.
pub struct SyncSender<T> {
    shared: Arc<Shared<T>>,
    bound: usize,
}

impl<T> SyncSender<T> {
    /// Sends, and waits while the channel is full.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let Shared { state, changed } = &*self.shared;
        let mut state = state.lock();
        changed.wait_while(&mut state, |state| {
            state.receives && state.waiting.len() >= self.bound.max(1)
        });
        if !state.receives {
            return Err(SendError(message));
        }
        state.waiting.push_back(message);
        state.sent += 1;
        let mine = state.sent;
        changed.notify_all();
        if self.bound == 0 {
            changed.wait_while(&mut state, |state| state.receives && state.received < mine);
        }
        Ok(())
    }

    /// Sends, unless the channel is full. A channel with a bound of 0 always is.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut state = self.shared.state.lock();
        if !state.receives {
            return Err(TrySendError::Disconnected(message));
        }
        if state.waiting.len() >= self.bound {
            return Err(TrySendError::Full(message));
        }
        state.waiting.push_back(message);
        state.sent += 1;
        self.shared.changed.notify_all();
        Ok(())
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        self.shared.state.lock().senders += 1;
        SyncSender { shared: Arc::clone(&self.shared), bound: self.bound }
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.shared.state.lock().senders -= 1;
        self.shared.changed.notify_all();
    }
}

/// Receives messages in order. Of one thread at a time, as without this feature: what compiles
/// with it compiles without.
pub struct Receiver<T>(Arc<Shared<T>>, PhantomData<Cell<()>>);

impl<T> Receiver<T> {
    /// Waits for a message; fails when there are no more senders.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        self.0.changed.wait_while(&mut state, |state| state.is_idle());
        self.take(&mut state).ok_or(RecvError)
    }

    /// Waits for a message, for a limited time.
    pub fn recv_timeout(&self, most: Duration) -> Result<T, RecvTimeoutError> {
        let mut state = self.0.state.lock();
        self.0.changed.wait_while_for(&mut state, |state| state.is_idle(), most);
        match self.take(&mut state) {
            Some(message) => Ok(message),
            None if state.senders == 0 => Err(RecvTimeoutError::Disconnected),
            None => Err(RecvTimeoutError::Timeout),
        }
    }

    /// Receives a message that is there.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock();
        match self.take(&mut state) {
            Some(message) => Ok(message),
            None if state.senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Messages until there are no more senders.
    pub fn iter(&self) -> Waiting<'_, T> {
        Waiting(self)
    }

    /// Messages that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    fn take(&self, state: &mut State<T>) -> Option<T> {
        let message = state.waiting.pop_front()?;
        state.received += 1;
        self.0.changed.notify_all();
        Some(message)
    }
}

impl<T> State<T> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.senders > 0
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receives = false;
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        self.0.changed.notify_all();
        drop(left);
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Waiting<'a, T>;

    fn into_iter(self) -> Waiting<'a, T> {
        Waiting(self)
    }
}

/// Messages of a borrowed receiver, until there are no more senders.
pub struct Waiting<'a, T>(&'a Receiver<T>);

impl<T> Iterator for Waiting<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

/// Messages of a receiver, until there are no more senders.
pub struct Messages<T>(Receiver<T>);

impl<T> Iterator for Messages<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = Messages<T>;

    fn into_iter(self) -> Messages<T> {
        Messages(self)
    }
}
