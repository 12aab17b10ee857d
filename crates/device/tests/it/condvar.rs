//! Condition variables: each notification of one thread lets one continue, and none is lost. With
//! the feature `sim` they are this crate's own, also for threads that no scheduler drives.

use device::sync::{Condvar, Mutex};

const TAKERS: u64 = 6;
const EACH: u64 = 3000;

/// Tokens that were given, and how many threads wait for one.
#[derive(Default)]
struct Tokens {
    free: Mutex<u64>,
    given: Condvar,
}

#[test]
fn no_notification_of_one_of_many_threads_is_lost() {
    let tokens = Tokens::default();
    device::scope(|scope| {
        for _ in 0..TAKERS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let mut free = tokens.free.lock();
                    tokens.given.wait_while(&mut free, |free| *free == 0);
                    *free -= 1;
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..TAKERS * EACH / 2 {
                    *tokens.free.lock() += 1;
                    tokens.given.notify_one();
                }
            });
        }
    });
    assert_eq!(*tokens.free.lock(), 0);
}
