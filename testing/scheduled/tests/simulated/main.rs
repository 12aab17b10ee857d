//! Servers, clients, and the log in an object store, in a simulated world that a seed determines.
//! The real code of all of them runs under one scheduler (`testing::sim`), with faults, and
//! checkers.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod client;
#[cfg(test)]
mod coordinator;
#[cfg(test)]
mod mutations;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod run;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod sessions;
#[cfg(test)]
mod world;
