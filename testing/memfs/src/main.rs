//! Yardstick file system.
fn main() {}
