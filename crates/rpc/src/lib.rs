//! Connections between machines: frames over TCP, with TLS but on loopback addresses, and who the
//! other side is.
//!
//! A [`Channel`] carries frames both ways; one thread receives and any number send. [`Grant`] is
//! what a client may do, by its certificate; [`certificates`] makes those.
//!
//! Promises: nothing that arrives is held in memory beyond a bound that its receiver chooses, and
//! no wait is without end. Frames arrive whole and in order, or the channel ends. What a client may
//! do is what its certificate names, whatever it sends.
//!
//! Which module decides what:
//! * `channel`: frames over a link, and how long it waits
//! * `tls`: who the other side is
//! * `refusal`: whose certificate was refused, and why
//! * `grant`: what a client may do, and for whom
//! * `certificates`: making authorities and certificates

pub mod certificates;
mod tls;
mod refusal;
mod grant;
mod channel;

pub use channel::{Channel, ChannelError};
pub use grant::{GROUPS_MAX, Grant, Ids, NOBODY, Refusal, Users, is_volume_name};
pub use refusal::CertificateRefusal;
pub use tls::{ClientTls, Files, ServerTls, TlsError};
