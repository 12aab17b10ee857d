//! The suite on the simulated disk.

use testing::device_conformance::SimUnderTest;

testing::device_conformance!(SimUnderTest);
