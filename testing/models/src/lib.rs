//! Models of protocols, which the model checker `stateright` explores in full within bounds.
//!
//! A model is not the product's code: it has only the steps at which the order of two participants
//! can matter. Its tests check that the protocol holds, and that each variant with one rule left
//! out is found to be wrong. Otherwise the model could be too coarse to see anything.
//! `docs/models.md` has the results.

pub mod log;
pub mod rename;
pub mod sorted;
