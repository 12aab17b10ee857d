//! Models of protocols: what holds, and which broken variants are found.
#![expect(clippy::print_stdout, reason = "the sizes of models, and the steps of violations")]

mod log;
mod rename;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model};

/// What the checker needs of states and steps.
trait Value: Debug + Clone + PartialEq + Hash + Send + Sync {}
impl<T: Debug + Clone + PartialEq + Hash + Send + Sync> Value for T {}

/// Explores all states of a model, and checks every property in each.
fn holds<M>(name: &str, model: M)
where
    M: Model<State: Value, Action: Value> + Send + Sync + 'static,
{
    let checker = model.checker().threads(1).spawn_bfs().join();
    println!(
        "{name}: holds in all {} states, of which the deepest takes {} steps",
        checker.unique_state_count(),
        checker.max_depth(),
    );
    assert!(checker.is_done(), "{name}: every state was explored");
    checker.assert_properties();
}

/// Explores a broken variant until it violates a property.
fn breaks<M>(name: &str, model: M, property: &'static str)
where
    M: Model<State: Value, Action: Value> + Send + Sync + 'static,
{
    let until = HasDiscoveries::AnyOf([property].into());
    let limit = Duration::from_secs(600);
    let checker = model.checker().threads(1).finish_when(until).timeout(limit).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(trace) = checker.discovery(property) else {
        panic!(
            "{name}: {states} states were explored, and in none of them is it wrong: {property}"
        );
    };
    let steps = trace.into_actions();
    println!("{name}: wrong after {} steps, found among {states} states: {property}", steps.len());
    for step in steps {
        println!("    {step:?}");
    }
}
