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
}

/// Returns the memory of threads that rest.
pub(crate) fn start() {
    device::set_rest(leave);
}

fn leave() {
    // What the main thread has is static, and goes with the process.
    if rustix::thread::gettid() == rustix::process::getpid() {
        return;
    }
    // SAFETY: it may be called at any time by a thread that is not in the allocator, and only
    // changes the allocator's own state. Blocks that the thread allocated stay valid; any thread
    // may free them, as it may those of a thread that ended.
    unsafe { mi_thread_done() };
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
