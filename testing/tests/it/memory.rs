//! The oracle.

use testing::store_conformance::MemUnderTest;

testing::store_conformance_volatile!(MemUnderTest);
