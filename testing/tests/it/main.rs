//! The oracle passes the suite that it is the measure of, where that needs no disk; behind the
//! log that engines share it passes all of it. Volumes of earlier programs open.

#[cfg(test)]
mod images;
mod logged;
#[cfg(test)]
mod memory;
