//! Comparisons of two states of a directory (`Fs::compare`).

mod apart;
mod cases;
mod cost;
mod oracle;
mod random;
mod rights;
