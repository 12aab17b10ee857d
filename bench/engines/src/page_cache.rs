//! Keeps the operating system's page cache empty for a directory. Not all engines can read past it,
//! so a thread makes the kernel forget the files' clean pages every few milliseconds. Between two
//! rounds an engine reads a few dozen blocks, so that hardly any is found there again.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

const PAUSE: Duration = Duration::from_millis(5);

/// Rounds between two looks for new files.
const LOOK_EVERY: u32 = 50;

/// A thread that forgets, until it is dropped.
pub(crate) struct Forgetting {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forgetting {
    pub(crate) fn start(path: &Path) -> Forgetting {
        let ending = Arc::new(AtomicBool::new(false));
        let thread = {
            let (path, ending) = (path.to_owned(), Arc::clone(&ending));
            std::thread::spawn(move || forget(&path, &ending))
        };
        Forgetting { ending, thread: Some(thread) }
    }
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("forgetting does not panic");
        }
    }
}

fn forget(path: &Path, ending: &AtomicBool) {
    let mut files: Vec<File> = Vec::new();
    let mut round = 0;
    while !ending.load(Ordering::Relaxed) {
        if round % LOOK_EVERY == 0 {
            files = paths(path).iter().filter_map(|path| File::open(path).ok()).collect();
        }
        for file in &files {
            // Advice may be refused; the figures then show it.
            fadvise(file, 0, None, Advice::DontNeed).ok();
        }
        round += 1;
        std::thread::sleep(PAUSE);
    }
}

fn paths(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(path) else { return found };
    for entry in entries.filter_map(std::result::Result::ok) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(paths(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}
