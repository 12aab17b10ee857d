//! The list of problems of a check: what is counted, and what is kept of each kind.

use check::{Fix, PROBLEMS_MAX, Problem, ProblemKind, VolumeReport};

fn of(kind: ProblemKind, fix: Option<Fix>) -> Problem {
    let mut problem = Problem::new(kind, String::new());
    problem.fix = fix;
    problem
}

#[test]
fn no_number_of_findings_of_one_kind_hides_another() {
    let sorts = [
        (ProblemKind::Name, Some(Fix::DropIndex)),
        (ProblemKind::ReadError, None),
        (ProblemKind::Structure, None),
    ];
    for last in 0..sorts.len() {
        let mut report = VolumeReport::default();
        for (at, (kind, fix)) in sorts.iter().enumerate().filter(|(at, _)| *at != last) {
            for _ in 0..PROBLEMS_MAX + 7 * at as u64 + 3 {
                report.add(of(*kind, fix.clone()));
            }
        }
        let kind = sorts[last].0;
        report.add(of(kind, sorts[last].1.clone()));
        let kept = report.problems.iter().filter(|problem| problem.kind == kind).count();
        assert_eq!(kept, 1, "{kind:?}");
        assert_eq!(report.problems.len() as u64, 2 * PROBLEMS_MAX + 1, "{kind:?}");
        assert!(report.unread && report.is_cut(), "{kind:?}");
    }
}

#[test]
fn problems_that_a_repair_skips_are_not_counted_as_repaired() {
    let mut report = VolumeReport::default();
    for fix in [Fix::Log, Fix::Checkpoint, Fix::LogHeader] {
        report.add(of(ProblemKind::Unreadable, Some(fix)));
    }
    assert_eq!((report.repairable_count, report.remedies_count), (1, 3));
}
