//! Volumes before they are open, on a simulated disk, with each engine.

mod created;
