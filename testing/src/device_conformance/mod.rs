//! Requirements for every `Device` and every `Blobs`. One suite for the operating system's files
//! and for the simulated disk shows that the simulation behaves like real files.

mod random;
mod device;
mod blobs;

use std::sync::Arc;

pub use blobs::*;
pub use device::*;
pub use random::*;

use ::device::Device;

/// A way to make devices.
pub trait DeviceUnderTest {
    /// A value that must live as long as the device, such as a temporary directory.
    type Guard;

    /// An empty device.
    fn create() -> (Arc<dyn Device>, Self::Guard);
}

/// The simulated disk.
#[derive(Debug, Clone, Copy)]
pub struct SimUnderTest;

impl DeviceUnderTest for SimUnderTest {
    type Guard = ();

    fn create() -> (Arc<dyn Device>, ()) {
        (Arc::new(crate::SimDevice::new(1)), ())
    }
}

/// Generates the tests of the suite.
#[macro_export]
macro_rules! device_conformance {
    ($device:ty) => {
        $crate::device_conformance!($device:
            a_file_is_created_once_and_opened_where_it_is,
            reads_end_where_the_file_ends,
            a_gap_reads_as_zero,
            a_cut_file_forgets_what_was_cut,
            reserved_space_is_allocated_and_reads_as_zero,
            a_punched_range_reads_as_zero_and_is_free,
            holes_are_reported,
            directories_list_their_names_in_order,
            a_rename_replaces_and_keeps_handles,
            a_removed_file_stays_while_it_is_open,
            errors_name_the_operation_and_the_file,
            a_lock_has_one_holder,
            space_is_reported,
            files_are_shared_by_threads,
            random_operations_agree_with_a_vector,
            an_object_is_created_once,
            objects_are_listed_by_prefix,
            an_object_is_read_in_ranges,
            a_deleted_object_is_gone,
            a_file_becomes_an_object,
            a_half_written_object_is_never_listed,
            a_punched_object_keeps_its_length,
            more_objects_than_files_may_be_open,
        );
    };
    ($device:ty: $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            $crate::device_conformance::$name::<$device>();
        })*
    };
}
