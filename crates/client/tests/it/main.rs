//! Connections, with a thread in place of an owner.
#![expect(clippy::unwrap_used, reason = "tests stop at what they do not expect")]

mod connect;
