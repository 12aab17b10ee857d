//! The oracle passes the suite that it is the measure of, where that needs no medium.

use testing::store_conformance::MemUnderTest;

testing::store_conformance_volatile!(MemUnderTest);
