//! Models of protocols: what holds, and which broken variants are found.
#![expect(clippy::print_stdout, reason = "the sizes of models, and the steps of violations")]

mod log;
mod rename;
mod sorted;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model};

/// Tests allocate much, which takes less time here than in the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

/// Explores a broken variant until it violates each of these properties. Exploring in breadth
/// prints the shortest violations. The short form explores in depth, which finds most of them
/// sooner; `shallow` ones not.
fn breaks<M>(name: &str, model: M, properties: &[&'static str], shallow: bool)
where
    M: Model<State: Value, Action: Value> + Send + Sync + 'static,
{
    let until = HasDiscoveries::AllOf(properties.iter().copied().collect());
    let limit = Duration::from_secs(600);
    let checker = model.checker().threads(1).finish_when(until).timeout(limit);
    if shallow || slow() {
        found(name, &checker.spawn_bfs().join(), properties);
    } else {
        found(name, &checker.spawn_dfs().join(), properties);
    }
}

fn found<M>(name: &str, checker: &impl Checker<M>, properties: &[&'static str])
where
    M: Model<State: Value, Action: Value>,
{
    let states = checker.unique_state_count();
    for property in properties {
        let Some(trace) = checker.discovery(property) else {
            panic!(
                "{name}: {states} states were explored, and in none of them is it wrong: {property}"
            );
        };
        let steps = trace.into_actions();
        println!("{name}: wrong after {} steps, of {states} states: {property}", steps.len());
        for step in steps {
            println!("    {step:?}");
        }
    }
}

/// Whether models have their whole bounds: `PANDO_SLOW=1`.
fn slow() -> bool {
    std::env::var_os("PANDO_SLOW").is_some_and(|value| value == "1")
}
