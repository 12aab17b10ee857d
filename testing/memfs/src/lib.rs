//! The yardstick of the mount: an in-memory file system that does as little as can be. The driver
//! loads it, ours and ext4 alike through the kernel.

mod arguments;
mod driver;
mod memory;

pub use arguments::Arguments;
pub use driver::{Layout, Load, Measured, Phase};
pub use memory::{Memory, Settings, mount};
