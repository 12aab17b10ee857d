//! The suite on the simulated medium.

use testing::device_conformance::SimUnderTest;

testing::device_conformance!(SimUnderTest);
