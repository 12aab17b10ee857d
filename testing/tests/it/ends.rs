//! A test that fails beside threads of a scope ends, and reports what failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use testing::SetAtEnd;

#[test]
fn a_failure_beside_a_thread_that_runs_until_a_flag_is_set_is_reported() {
    let done = AtomicBool::new(false);
    let failing = || {
        device::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    device::yield_now();
                }
            });
            let _end = SetAtEnd(&done);
            panic!("the failure");
        });
    };
    let failure = catch_unwind(AssertUnwindSafe(failing)).expect_err("it fails");
    assert_eq!(failure.downcast_ref::<&str>(), Some(&"the failure"));
}
