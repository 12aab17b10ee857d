//! Passes items from the threads that read the source to the thread that talks to the daemon.
//!
//! A directory is reported before another thread can reach it, and all items go through one
//! buffer. So the daemon gets every directory before any item about it.

use device::sync::{Receiver, SyncSender, bounded_channel};

use device::sync::Mutex;
use wire::next_scan_item;

/// A message is sent when it is this long, in bytes.
const MESSAGE_BYTES: usize = 256 << 10;

/// Messages that may wait to be sent: enough that readers seldom wait for the daemon.
const WAITING: usize = 16;

/// Encoded items, and the number of names in them.
#[derive(Default)]
pub(super) struct Message {
    pub(super) items: Vec<u8>,
    pub(super) names: u64,
}

/// Where readers put items.
pub(super) struct Feed {
    state: Mutex<FeedState>,
}

struct FeedState {
    message: Message,
    message_bytes: usize,
    /// `None` when no more messages follow.
    sender: Option<SyncSender<Message>>,
}

impl Feed {
    /// A feed that keeps its items, for [`Feed::take`].
    pub(super) fn kept() -> Feed {
        let state =
            FeedState { message: Message::default(), message_bytes: usize::MAX, sender: None };
        Feed { state: Mutex::new(state) }
    }

    /// The items of a feed that keeps them.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.lock().message.items)
    }

    /// Splits kept items into messages of whole items.
    pub(super) fn messages(mut items: &[u8]) -> Vec<&[u8]> {
        let mut messages = Vec::new();
        while !items.is_empty() {
            let mut rest = items;
            while items.len() - rest.len() < MESSAGE_BYTES
                && next_scan_item(&mut rest).is_some_and(|item| item.is_ok())
            {}
            let (message, after) = items.split_at(items.len() - rest.len());
            messages.push(message);
            items = after;
        }
        messages
    }

    /// A feed and its receiving end.
    pub(super) fn new() -> (Feed, Receiver<Message>) {
        let (sender, receiver) = bounded_channel(WAITING);
        let state = FeedState {
            message: Message::default(),
            message_bytes: MESSAGE_BYTES,
            sender: Some(sender),
        };
        (Feed { state: Mutex::new(state) }, receiver)
    }

    /// Adds items; `false` when the receiver is gone.
    pub(super) fn push(&self, items: &[u8], names: u64) -> bool {
        let mut state = self.state.lock();
        state.message.items.extend_from_slice(items);
        state.message.names += names;
        // Sent under the lock: messages must not overtake each other.
        state.message.items.len() < state.message_bytes || state.send()
    }

    /// Sends the remaining items and ends.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.send();
        state.sender = None;
    }
}

impl FeedState {
    fn send(&mut self) -> bool {
        let capacity = self.message.items.len();
        let next = Message { items: Vec::with_capacity(capacity), names: 0 };
        let message = std::mem::replace(&mut self.message, next);
        self.sender.as_ref().is_some_and(|sender| sender.send(message).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use wire::{ScanItem, push_scan_item};

    use super::*;

    #[test]
    fn collected_items_are_sent_in_messages_of_whole_items() {
        let mut items = Vec::new();
        for directory in 0..20_000 {
            push_scan_item(&ScanItem::Gone { directory, name: &[b'n'; 200] }, &mut items);
        }
        let messages = Feed::messages(&items);
        assert_eq!(messages.concat(), items);
        for mut message in messages {
            assert!(message.len() < MESSAGE_BYTES + 300, "{} bytes", message.len());
            while let Some(item) = next_scan_item(&mut message) {
                item.expect("a whole one");
            }
        }
        assert!(Feed::messages(&[]).is_empty());
    }
}
