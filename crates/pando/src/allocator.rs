//! The allocator of the program, and what it keeps for a thread that waits for long.
//!
//! The allocator has pages for each thread, and returns those that the thread freed when the thread
//! allocates again or ends. A server has a thread for each session, most of which wait: what it
//! kept for them was most of what an idle session took.

#![expect(unsafe_code, reason = "the allocator's interface is C")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    /// Returns free pages of the calling thread, and leaves the others to all threads, as at the
    /// thread's end. If the thread allocates again, it begins like a new one.
    fn mi_thread_done();
    /// Begins as a thread's first allocation does.
    fn mi_thread_init();
}

/// At the end of a thread the allocator reads what it had noted for it, by a key of the system.
/// Only the next allocation sets that key again. After `mi_thread_done` it names memory that may be
/// another thread's by now. So a thread that has rested begins again before that; destructors of
/// thread-local values run before those of keys.
struct BeginsAgain;

impl Drop for BeginsAgain {
    fn drop(&mut self) {
        // SAFETY: a thread that is not in the allocator may call it at any time. It does nothing if
        // the thread has allocated since.
        unsafe { mi_thread_init() };
    }
}

thread_local! {
    static AT_END: BeginsAgain = const { BeginsAgain };
}

/// Returns the memory of threads that rest.
pub(crate) fn start() {
    device::set_rest(leave);
}

fn leave() {
    // The main thread's memory is static, and ends with the process.
    if rustix::thread::gettid() == rustix::process::getpid() {
        return;
    }
    // A thread that is ending returns everything in any case.
    if AT_END.try_with(|_| ()).is_err() {
        return;
    }
    // SAFETY: it may be called at any time by a thread that is not in the allocator, and only
    // changes the allocator's own state. Blocks that the thread allocated stay valid; any thread
    // may free them, as it may those of a thread that ended. What is left in the system's key is
    // replaced before it is read (see `BeginsAgain`).
    unsafe { mi_thread_done() };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use testing::SetAtEnd;

    /// Threads free what others allocated before they rested, and read it before.
    #[test]
    fn blocks_of_threads_that_rest_stay_valid() {
        const ROUNDS: usize = 200;
        let (give, take) = device::sync::channel::<Vec<Vec<u8>>>();
        let taking = device::spawn("take", move || {
            let mut taken = 0;
            while let Ok(blocks) = take.recv() {
                for (number, block) in blocks.iter().enumerate() {
                    assert!(block.iter().all(|byte| usize::from(*byte) == number % 251));
                }
                taken += blocks.len();
                leave();
            }
            taken
        });
        let gives = |of: usize| {
            let give = give.clone();
            move || {
                let mut kept = Vec::new();
                for round in 0..ROUNDS {
                    let length = |number: usize| 1 + (number * 37 + round * of) % 9000;
                    let block = |number: usize| vec![(number % 251) as u8; length(number)];
                    kept.push((0..50).map(block).collect::<Vec<_>>());
                    leave();
                    if round % 3 > 0 {
                        give.send(kept.swap_remove(kept.len() / 2)).unwrap();
                    }
                }
                for blocks in kept {
                    give.send(blocks).unwrap();
                }
            }
        };
        let giving: Vec<_> = (1..4).map(|of| device::spawn("give", gives(of)).unwrap()).collect();
        drop(give);
        for thread in giving {
            thread.join().unwrap();
        }
        assert_eq!(taking.unwrap().join().unwrap(), 3 * ROUNDS * 50);
    }

    /// Threads that rested end without another allocation, beside threads that rest and begin
    /// again. By then the allocator uses for these the memory that it noted for the threads that
    /// ended.
    #[test]
    fn threads_end_after_they_rested() {
        const ENDED: usize = 3000;
        let is_over = AtomicBool::new(false);
        device::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(
                            vec![7_u8; 4000].iter().map(|byte| usize::from(*byte)).sum::<usize>(),
                            28_000
                        );
                        leave();
                        device::yield_now();
                    }
                });
            }
            let _end = SetAtEnd(&is_over);
            for _ in 0..ENDED / 8 {
                let ends = [(); 8].map(|()| {
                    scope.spawn(|| {
                        drop(vec![1_u8; 100]);
                        leave();
                        for _ in 0..10 {
                            device::yield_now();
                        }
                    })
                });
                for thread in ends {
                    thread.join().unwrap();
                }
            }
        });
    }
}
