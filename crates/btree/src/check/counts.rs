//! Comparing counted references with the map, unit by unit.

use format::node::UNIT_BYTES;
use format::space_map::{CONTINUATION, COUNT_MAX, GROUP_UNITS};
use store::{CheckReport, Finding, FindingKind, Remedy};

use super::pages::Pages;
use super::walk::NodeWalk;
use crate::nodes::NODES_FILE;
use crate::space::PAGE_UNITS;
use crate::units::unit_offset;

impl NodeWalk<'_, '_> {
    /// Compares the counted references with the map, and ends the walk.
    pub(super) fn compare(mut self, pages: &Pages) -> CheckReport {
        if self.report.stopped {
            return self.report;
        }
        let whole = self.is_whole();
        for (group, (page, free)) in pages.groups.iter().enumerate() {
            let first = group as u64 * GROUP_UNITS as u64;
            let expected = self.expected(first);
            let page = match page {
                Ok(page) => page,
                Err(finding) => {
                    self.report.add(finding.clone());
                    continue;
                }
            };
            self.group(first, &expected, page, whole);
            for &unit in pages.gathered.range(first..first + GROUP_UNITS as u64) {
                let start = (unit - first) as usize;
                if expected[start..].iter().take(PAGE_UNITS.into()).any(|&count| count != 0) {
                    let what =
                        format!("unit {unit}: a node and a page of the map are both stored here");
                    self.found(FindingKind::Count, unit, what);
                }
            }
            let counted = page.iter().filter(|&&count| count == 0).count();
            if usize::from(*free) != counted {
                let what =
                    format!("group {group} records {free} free units, but {counted} are free");
                self.found(FindingKind::Count, first, what);
            }
        }
        let end = pages.groups.len() as u64 * GROUP_UNITS as u64;
        let beyond: Vec<u64> = self.met.range(end..).map(|(&unit, _)| unit).collect();
        if !pages.groups.is_empty() {
            for unit in beyond {
                let what = format!("unit {unit}: a node is past the end of the space map");
                self.found(FindingKind::Count, unit, what);
            }
        }
        self.report
    }

    /// The expected counts of a group.
    fn expected(&mut self, first: u64) -> Vec<u32> {
        let mut expected = vec![0_u32; GROUP_UNITS];
        let met: Vec<(u64, u16, u32)> = self
            .met
            .range(first..first + GROUP_UNITS as u64)
            .map(|(&unit, met)| (unit, met.units, met.count))
            .collect();
        for (unit, units, count) in met {
            let start = (unit - first) as usize;
            let end = (start + usize::from(units)).min(GROUP_UNITS);
            if expected[start..end].iter().any(|&count| count != 0) {
                let what = format!("unit {unit}: two nodes overlap here");
                self.found(FindingKind::Count, unit, what);
            }
            expected[start..end].fill(CONTINUATION);
            expected[start] = count;
            self.report.units += u64::from(units);
        }
        expected
    }

    /// Whether every referenced node that the walk reached could be read.
    pub(super) fn is_whole(&self) -> bool {
        self.report.findings.iter().all(|found| found.kind != FindingKind::Unreadable)
            && self.report.findings_count == self.report.findings.len() as u64
    }

    /// Compares a group. If not all is `whole`, units that look unreachable may be below an
    /// unreadable node.
    fn group(&mut self, first: u64, expected: &[u32], page: &[u32], whole: bool) {
        let mut at = 0;
        while at < expected.len() {
            let (wanted, found) = (expected[at], page[at]);
            let unit = first + at as u64;
            if wanted == 0 && found != 0 {
                // Adjacent lost units are reported as one, whatever was in them.
                let lost = |at: usize| expected[at] == 0 && page[at] != 0;
                let end = (at..expected.len()).find(|&at| !lost(at)).unwrap_or(expected.len());
                let bytes = ((end - at) * UNIT_BYTES) as u64;
                self.report.lost_bytes += bytes;
                let what =
                    format!("unit {unit}: {bytes} bytes are in use, and nothing points here");
                let remedy = if whole { Remedy::Rebuild } else { Remedy::Keep };
                self.add(FindingKind::Lost, unit, what, remedy);
                at = end;
                continue;
            }
            // A count that once reached the maximum is not counted any more.
            let kept = found == COUNT_MAX && (1..COUNT_MAX).contains(&wanted);
            if wanted != found && !kept {
                let what = match (wanted, found) {
                    (CONTINUATION, _) => {
                        format!(
                            "unit {unit} is inside a node, but has a reference count of {found}"
                        )
                    }
                    (_, 0) => {
                        format!("unit {unit} is marked as free, but {wanted} pointers point to it")
                    }
                    _ => format!(
                        "unit {unit} has a reference count of {found}, but {wanted} pointers \
                         point to it"
                    ),
                };
                self.found(FindingKind::Count, unit, what);
            }
            at += 1;
        }
    }

    /// Adds a finding about a unit. Only counts can be recomputed from the nodes.
    pub(super) fn found(&mut self, kind: FindingKind, unit: u64, what: String) {
        let is_count = kind == FindingKind::Count;
        self.add(kind, unit, what, if is_count { Remedy::Rebuild } else { Remedy::None });
    }

    fn add(&mut self, kind: FindingKind, unit: u64, what: String, remedy: Remedy) {
        let finding = Finding::new(kind, NODES_FILE.to_owned(), unit_offset(unit), what);
        self.report.add(finding.with(remedy));
    }
}
