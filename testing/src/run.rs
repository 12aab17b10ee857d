//! Runs suites: printed seeds, a slow mode, and context for failures.

use std::fmt::Write as _;

/// Whether the slow mode is on: `PANDO_SLOW=1`.
pub fn slow() -> bool {
    std::env::var_os("PANDO_SLOW").is_some_and(|value| value == "1")
}

/// `quick` by default, `thorough` in slow mode.
pub fn rounds(quick: u64, thorough: u64) -> u64 {
    if slow() { thorough } else { quick }
}

/// The seed of a test that runs once: the one in `PANDO_SEED`, or any. A failure prints it.
pub fn seed() -> u64 {
    let given = std::env::var("PANDO_SEED").ok();
    let given = given.map(|seed| seed.parse().expect("PANDO_SEED is a number"));
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    print_line(&format!("run again with PANDO_SEED={seed}"));
    seed
}

/// Runs `body` once for each of so many seeds, or for the one in `PANDO_SEED`. A failure prints its
/// seed.
pub fn for_seeds(name: &str, quick: u64, thorough: u64, body: impl Fn(u64)) {
    let only = std::env::var("PANDO_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(1..rounds(quick, thorough) + 1, |seed| seed..seed + 1);
    for seed in seeds {
        let _context = Context::new(format!("{name}: run again with PANDO_SEED={seed}"));
        body(seed);
    }
}

/// If a test panics during its lifetime, prints the current action.
pub struct Context(String);

impl Context {
    /// Starts an action.
    pub fn new(what: impl Into<String>) -> Context {
        Context(what.into())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print_line(&self.0);
        }
    }
}

/// Prints a line that the test harness shows when the test fails.
#[expect(clippy::print_stdout, reason = "the harness captures standard output, and only that")]
pub fn print_line(line: &str) {
    println!("{line}");
}

/// Bytes for a failure message: shortened, non-text as hex.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    let mut text = String::new();
    for byte in bytes.iter().take(SHOWN) {
        if byte.is_ascii_graphic() && *byte != b'\\' {
            text.push(char::from(*byte));
        } else {
            write!(text, "\\{byte:02x}").expect("invariant: a string takes any text");
        }
    }
    if bytes.len() > SHOWN {
        write!(text, "... {} bytes", bytes.len()).expect("invariant: a string takes any text");
    }
    text
}
