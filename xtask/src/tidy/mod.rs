//! The rules, one group a file. A problem is one line of text that begins with the path.
//!
//! Each rule is a function from text to problems, so that a test can feed it a bad file.

mod hints;
mod names;
mod documents;
mod order;
mod cycles;
mod texts;
mod words;
mod sentences;
mod counts;
mod source;
mod assertions;
mod crates;
mod decisions;
mod extensions;
mod floors;
mod format_pages;
mod knowledge;
mod makefile;
mod messages;
mod opens;
mod parts;
mod plans;
mod promises;
mod queries;
mod records;
mod scheduler;
mod scripts;
mod steps;
mod tree;
mod wrappers;

#[cfg(test)]
mod tests;

use std::path::Path;

pub(crate) use format_pages::print as layouts;
pub(crate) use tree::Tree;

/// Checks the whole repository.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(problem) => return vec![problem],
    };
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        problems.extend(source::check(path, text));
        knowledge::check(path, text, &mut problems);
    }
    problems.extend(source::check_sizes(&tree));
    problems.extend(crates::check(&tree));
    problems.extend(cycles::check(&tree));
    problems.extend(order::check(&tree));
    problems.extend(floors::check(&tree));
    problems.extend(plans::check(&tree));
    problems.extend(promises::check(&tree));
    problems.extend(texts::check(&tree));
    problems.extend(words::check(&tree));
    problems.extend(counts::check(&tree));
    problems.extend(sentences::check(&tree));
    problems.extend(assertions::check(&tree));
    problems.extend(documents::check(&tree));
    problems.extend(decisions::check(&tree));
    problems.extend(extensions::check(&tree));
    problems.extend(hints::check(&tree));
    problems.extend(names::check(&tree));
    problems.extend(makefile::check(&tree));
    problems.extend(scripts::check(&tree));
    problems.extend(messages::check(&tree));
    problems.extend(opens::check(&tree));
    problems.extend(parts::check(&tree));
    problems.extend(queries::check(&tree));
    problems.extend(records::check(&tree));
    problems.extend(scheduler::check(&tree));
    problems.extend(steps::check(&tree));
    problems.extend(wrappers::check(&tree));
    problems.extend(knowledge::check_lists(&tree));
    problems.extend(format_pages::check(&tree));
    problems
}
