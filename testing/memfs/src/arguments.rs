//! Command lines of the form `WORD... --name value...`, for these few programs.

use std::collections::BTreeMap;

/// A command line taken apart.
#[derive(Debug, Default)]
pub struct Arguments {
    /// What is not an option.
    pub words: Vec<String>,
    options: BTreeMap<String, String>,
}

impl Arguments {
    /// Takes the command line of this process apart. Every option has a value.
    pub fn of_process() -> Arguments {
        let mut arguments = Arguments::default();
        let mut rest = std::env::args().skip(1);
        while let Some(word) = rest.next() {
            match word.strip_prefix("--") {
                Some(name) => {
                    arguments.options.insert(name.to_owned(), rest.next().unwrap_or_default());
                }
                None => arguments.words.push(word),
            }
        }
        arguments
    }

    /// The value of an option.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The value of an option that is a number, or the default.
    pub fn number(&self, name: &str, default: usize) -> Result<usize, String> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: not a number")),
        }
    }
}
