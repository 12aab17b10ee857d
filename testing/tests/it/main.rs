//! The oracle passes the suite that it is the measure of, where that needs no disk. Behind the log
//! that engines share it passes all of it. Volumes of earlier programs open. And what tests are
//! made of: the simulated disk, the models, the search for an order.

#[cfg(test)]
mod ends;
#[cfg(test)]
mod images;
#[cfg(test)]
#[expect(unreachable_pub, reason = "a part of the crate, with the tests that it ends with")]
#[path = "../../src/linear.rs"]
mod linear;
mod logged;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod model;
#[cfg(test)]
#[expect(unreachable_pub, reason = "a part of the crate, with the tests that it ends with")]
#[path = "../../src/ports.rs"]
mod ports;
#[cfg(test)]
mod sim;
