//! The map of reference counts as it is on disk, with which counted references are compared.

use std::collections::BTreeSet;

use format::node::UNIT_BYTES;
use format::space_map::GROUP_UNITS;
use store::{Error, Finding, Remedy, Result};

use crate::nodes::Nodes;
use crate::space::{Page, Space};

/// The map of one state: the content of its pages, and the free space recorded in the directory.
pub(super) struct Pages {
    pub(super) groups: Vec<(std::result::Result<Page, Finding>, u16)>,
    /// First units of the gathered pages.
    pub(super) gathered: BTreeSet<u64>,
}

impl Pages {
    /// Takes a copy of the map, 16 KiB for each 4 MiB of nodes: checkpoints overwrite pages.
    pub(super) fn take(nodes: &Nodes, space: &mut Space) -> Result<Pages> {
        let mut groups = Vec::with_capacity(space.groups.len());
        for group in 0..space.groups.len() {
            let page = space.page_briefly(nodes.file.as_ref(), group as u64);
            let page = match page.map_err(Error::as_damage) {
                Ok(page) => Ok(page),
                Err(Error::Corrupt(bad)) => {
                    let what = format!("reference counts of group {group}: {bad}");
                    let finding = Finding { what, ..Finding::of_damage("", &bad) };
                    Err(finding.with(Remedy::Rebuild))
                }
                Err(error) => return Err(error),
            };
            groups.push((page, space.groups[group].free));
        }
        Ok(Pages { groups, gathered: space.gathered() })
    }

    /// A map that cannot be read.
    pub(super) fn none() -> Pages {
        Pages { groups: Vec::new(), gathered: BTreeSet::new() }
    }

    /// Bytes of all units that are marked as used.
    pub(super) fn used_bytes(&self) -> u64 {
        let used = self.groups.iter().map(|(_, free)| GROUP_UNITS as u64 - u64::from(*free));
        used.sum::<u64>() * UNIT_BYTES as u64
    }
}
