//! Runs the program, and reads what it prints.

use std::process::{Command, Output};

use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pando-bench")).arg("--json").args(arguments).output().unwrap()
}

/// The objects that a run prints.
pub(crate) fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The object that a run prints.
pub(crate) fn bench(arguments: &[&str]) -> Value {
    let mut lines = lines(arguments);
    assert_eq!(lines.len(), 1, "{arguments:?}");
    lines.remove(0)
}

/// Runs the program, which must fail with this code; returns what it prints on standard error.
pub(crate) fn fails(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    error
}

/// A number of a line.
pub(crate) fn number(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {line}"))
}

/// Asserts that a number of a line, which may be rounded, is what others of the line give.
pub(crate) fn is_about(line: &Value, field: &str, expected: f64) {
    let (found, rounding) = (number(line, field), 0.51_f64.max(expected.abs() * 1e-3));
    let rounding = if found < 100.0 { 0.002_f64.max(expected.abs() * 0.02) } else { rounding };
    assert!((found - expected).abs() <= rounding, "{field} is not {expected} in {line}");
    assert!(found > 0.0, "{field} is not measured in {line}");
}

/// Asserts that the numbers of these fields do not fall.
pub(crate) fn do_not_fall(line: &Value, fields: &[&str]) {
    let numbers: Vec<f64> = fields.iter().map(|field| number(line, field)).collect();
    assert!(numbers[0] > 0.0 && numbers.is_sorted(), "{fields:?}: {numbers:?} in {line}");
}
