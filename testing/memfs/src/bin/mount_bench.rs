//! Compares our mount with the yardstick and with ext4, in one run, interleaved.
fn main() {}
