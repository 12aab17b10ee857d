//! Comparisons of two states of a directory (`Fs::compare`).

mod unread_heirs;
mod cases;
mod cost;
mod oracle;
mod random;
mod rights;
