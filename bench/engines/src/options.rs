//! The command line of one measurement.

use std::path::PathBuf;

use crate::USAGE;
use crate::engine::Result;

/// The options of one measurement.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Name of the engine.
    pub(crate) engine: String,
    /// Entries that are inserted.
    pub(crate) entries: u64,
    /// Random insertions.
    pub(crate) updates: u64,
    /// Look-ups of either kind.
    pub(crate) reads: u64,
    /// Memory of the engine's cache and write buffers together.
    pub(crate) cache_bytes: usize,
    /// Where stores are made.
    pub(crate) directory: PathBuf,
    /// Whether the page cache is kept empty.
    pub(crate) cold: bool,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Options> {
        let mut options = Options {
            engine: String::new(),
            entries: 1_000_000,
            updates: 0,
            reads: 0,
            cache_bytes: 256 << 20,
            directory: std::env::temp_dir(),
            cold: false,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or(USAGE);
            match argument.as_str() {
                "--entries" => options.entries = value()?.parse()?,
                "--updates" => options.updates = value()?.parse()?,
                "--reads" => options.reads = value()?.parse()?,
                "--cache-mib" => options.cache_bytes = value()?.parse::<usize>()? << 20,
                "--dir" => options.directory = value()?.into(),
                "--cold" => options.cold = true,
                name if options.engine.is_empty() && !name.starts_with('-') => {
                    options.engine = name.to_owned();
                }
                _ => return Err(USAGE.into()),
            }
        }
        if options.engine.is_empty() || options.entries < 1000 {
            return Err(USAGE.into());
        }
        for count in [&mut options.updates, &mut options.reads] {
            if *count == 0 || *count > options.entries {
                *count = options.entries;
            }
        }
        Ok(options)
    }
}
