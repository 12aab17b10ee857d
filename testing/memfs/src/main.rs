//! `memfs MOUNTPOINT [--threads N] [--clone-fd yes] [--timeout SECONDS]`: mounts the yardstick
//! and serves it until it is unmounted.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use memfs::{Arguments, Settings};

/// That of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[expect(clippy::print_stderr, reason = "a program that talks to people")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("memfs: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let arguments = Arguments::of_process();
    let [mount_point] = arguments.words.as_slice() else {
        return Err("usage: memfs MOUNTPOINT [--threads N] [--timeout SECONDS]".to_owned());
    };
    let settings = Settings {
        threads: arguments.number("threads", 2)?,
        clone_fd: arguments.text("clone-fd") == Some("yes"),
        timeout: Duration::from_secs(arguments.number("timeout", 60)? as u64),
    };
    memfs::mount(Path::new(mount_point), &settings).map_err(|error| error.to_string())
}
