//! The operating system's files and the simulated disk, through one suite.

#[cfg(test)]
mod blobs_crash;
#[cfg(test)]
mod blobs_open;
#[cfg(test)]
mod condvar;
#[cfg(test)]
mod direct;
#[cfg(test)]
mod guarded;
#[cfg(test)]
mod local;
mod overlay;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod sim;
