//! Decides which directories go into which cluster: whole sub-trees as far as they fit.
//!
//! This follows Magellan's rule (4.1) from the bottom: a sub-tree that fits stays with its parent
//! directory. If the contents of a directory no longer fit, its sub-trees go into clusters of their
//! own, neighbours together until a cluster is full. So only the last cluster of each place is less
//! than half full, however many tiny directories there are. A directory that alone exceeds a
//! cluster is divided in the order of its names while it is written ([`rows_of_one`]). A flush does
//! the same to the directories of the clusters that it rewrites, which rebalances them: small ones
//! are merged, large ones are divided.

use device::Map;
use format::cluster::ROWS_MAX;
use format::cluster_limits::ClusterLimitsRecord;
use format::key;
use store::Read;

use crate::Result;
use crate::assemble::{CARRY_NOTHING, Records, VOLUME};

/// Limits of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterLimits {
    /// Maximum directories; a hard limit.
    pub directories: u32,
    /// Maximum rows; a soft limit: at most the names of one directory exceed it, and only up to
    /// twice this number.
    pub rows: u32,
}

impl Default for ClusterLimits {
    fn default() -> ClusterLimits {
        ClusterLimits { directories: 2_000, rows: 20_000 }
    }
}

/// A volume's settings for its clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The limits.
    pub(crate) limits: ClusterLimits,
    /// Clusters written for bases whose trees have lower numbers were built under other limits.
    pub(crate) since: u64,
}

impl Setting {
    /// The settings in a state of a volume; without settings, `otherwise` applies to all clusters.
    pub(crate) fn of(read: &dyn Read, otherwise: ClusterLimits) -> Result<Setting> {
        let records = Records { read, tree: VOLUME, searchable: &CARRY_NOTHING };
        let record = records.decode(&key::CLUSTER_LIMITS_KEY, ClusterLimitsRecord::decode)?;
        Ok(match record {
            Some(ClusterLimitsRecord { directories, rows, since }) => {
                Setting { limits: ClusterLimits { directories, rows }, since }
            }
            None => Setting { limits: otherwise, since: 0 },
        })
    }
}

/// A directory, or a part of a large one, that goes into a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Its inode.
    pub(crate) ino: u64,
    /// The directory it is in.
    pub(crate) parent: u64,
    /// First cookie of the part; 0: the first.
    pub(crate) from: u64,
    /// First cookie after the part; `u64::MAX`: none.
    pub(crate) to: u64,
    /// Estimated number of its names.
    pub(crate) rows: u64,
}

/// The contents of one cluster.
pub(crate) type Plan = Vec<Unit>;

/// Directories and rows of a group of sub-trees that is not in a cluster yet.
#[derive(Default)]
struct Group {
    units: Vec<u32>,
    rows: u64,
}

impl Group {
    fn fits(&self, other: &Group, limits: ClusterLimits) -> bool {
        let directories = self.units.len() + other.units.len();
        directories <= limits.directories as usize
            && self.rows + other.rows <= u64::from(limits.rows)
    }

    fn absorb(&mut self, other: &mut Group) {
        self.rows += other.rows;
        // The smaller list moves, so that the cost of deep trees is not quadratic in their depth.
        if other.units.len() > self.units.len() {
            std::mem::swap(&mut self.units, &mut other.units);
        }
        self.units.append(&mut other.units);
    }
}

/// Divides directories into clusters. Units without a parent in the slice are roots, in the order
/// of the slice.
pub(crate) fn partition(units: &[Unit], limits: ClusterLimits) -> Vec<Plan> {
    let limits = ClusterLimits { directories: limits.directories.max(1), rows: limits.rows.max(1) };
    let mut plans = Vec::new();
    let (whole, divided): (Vec<Unit>, Vec<Unit>) =
        units.iter().partition(|unit| unit.rows <= u64::from(limits.rows) * 2);
    plans.extend(divided.into_iter().map(|unit| vec![unit]));
    let (order, parents) = post_order(&whole);
    let mut below: Map<u32, Vec<Group>> = Map::default();
    let mut roots = Vec::new();
    for at in order {
        let mut group = Group { units: vec![at], rows: whole[at as usize].rows };
        pack(&mut group, below.remove(&at).unwrap_or_default(), limits, &whole, &mut plans);
        match parents[at as usize] {
            Some(parent) => below.entry(parent).or_default().push(group),
            None => roots.push(group),
        }
    }
    let mut last = Group::default();
    pack(&mut last, roots, limits, &whole, &mut plans);
    if !last.units.is_empty() {
        plans.push(plan(&last, &whole));
    }
    plans
}

/// Keeps sub-trees with their parent directory if all fit, otherwise puts them into clusters; a
/// remainder that does not fill a cluster stays.
fn pack(
    above: &mut Group,
    mut below: Vec<Group>,
    limits: ClusterLimits,
    units: &[Unit],
    plans: &mut Vec<Plan>,
) {
    let rows: u64 = below.iter().map(|group| group.rows).sum();
    let directories: usize = below.iter().map(|group| group.units.len()).sum();
    let all = Group { units: Vec::new(), rows: rows + above.rows };
    if all.rows <= u64::from(limits.rows)
        && directories + above.units.len() <= limits.directories as usize
    {
        for mut group in below {
            above.absorb(&mut group);
        }
        return;
    }
    let mut open = Group::default();
    for group in &mut below {
        if !open.units.is_empty() && !open.fits(group, limits) {
            // The fuller group is complete; the other one waits for more.
            if group.rows > open.rows {
                std::mem::swap(&mut open, group);
            }
            plans.push(plan(&open, units));
            open = Group::default();
        }
        open.absorb(group);
    }
    if above.fits(&open, limits) {
        above.absorb(&mut open);
    } else if !open.units.is_empty() {
        plans.push(plan(&open, units));
    }
}

fn plan(group: &Group, units: &[Unit]) -> Plan {
    let mut plan: Plan = group.units.iter().map(|at| units[*at as usize]).collect();
    plan.sort_by_key(|unit| (unit.ino, unit.from));
    plan
}

/// Maximum rows of one cluster of a plan; further rows go into more clusters. A plan's row numbers
/// come from records, which may be damaged. They affect how evenly a large directory is divided,
/// and never the number of clusters.
pub(crate) fn rows_of_one(plan: &[Unit], limits: ClusterLimits) -> u32 {
    let most = limits.rows.clamp(1, ROWS_MAX / 2);
    match plan {
        [unit] if unit.rows > u64::from(most) * 2 => {
            let clusters = unit.rows.div_ceil(u64::from(most));
            unit.rows.div_ceil(clusters) as u32
        }
        _ => most * 2,
    }
}

/// Indices of units, each after those below it; and the index of each one's parent.
fn post_order(units: &[Unit]) -> (Vec<u32>, Vec<Option<u32>>) {
    let mut index: Map<u64, u32> = Map::default();
    for (at, unit) in units.iter().enumerate() {
        index.entry(unit.ino).or_insert(at as u32);
    }
    let mut parents: Vec<Option<u32>> = units
        .iter()
        .enumerate()
        .map(|(at, unit)| index.get(&unit.parent).copied().filter(|&parent| parent != at as u32))
        .collect();
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); units.len()];
    for (at, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            children[*parent as usize].push(at as u32);
        }
    }
    let mut order = Vec::with_capacity(units.len());
    let mut seen = vec![false; units.len()];
    let mut stack: Vec<u32> = Vec::new();
    for root in 0..units.len() as u32 {
        if parents[root as usize].is_none() {
            stack.push(root);
        }
    }
    stack.reverse();
    while let Some(at) = stack.pop() {
        seen[at as usize] = true;
        order.push(at);
        stack.extend(children[at as usize].iter().rev());
    }
    // Damaged records may form a cycle; each of those becomes a root.
    for at in 0..units.len() {
        if !seen[at] {
            parents[at] = None;
            order.push(at as u32);
        }
    }
    for parent in &mut parents {
        *parent = parent.filter(|parent| seen[*parent as usize]);
    }
    order.reverse();
    (order, parents)
}

#[cfg(test)]
mod tests {
    use super::{ClusterLimits, Plan, Unit, partition};

    fn unit(ino: u64, parent: u64, rows: u64) -> Unit {
        Unit { ino, parent, from: 0, to: u64::MAX, rows }
    }

    fn check(units: &[Unit], limits: ClusterLimits, plans: &[Plan]) {
        let mut placed: Vec<(u64, u64, u64)> =
            plans.iter().flatten().map(|unit| (unit.ino, unit.from, unit.to)).collect();
        placed.sort_unstable();
        let mut at = placed.iter().peekable();
        let mut sorted = units.to_vec();
        sorted.sort_unstable_by_key(|unit| (unit.ino, unit.from));
        for unit in &sorted {
            let mut from = unit.from;
            while from < unit.to {
                let (ino, start, end) = at.next().expect("every range is placed");
                assert_eq!((*ino, *start), (unit.ino, from), "ranges join");
                from = *end;
            }
        }
        assert!(at.next().is_none(), "nothing is placed twice");
        for plan in plans {
            assert!(!plan.is_empty() && plan.len() <= limits.directories as usize);
            let rows: u64 = plan.iter().map(|unit| unit.rows).sum();
            // A single directory is divided while it is written.
            assert!(plan.len() == 1 || rows <= u64::from(limits.rows) * 2, "{rows} rows");
        }
    }

    #[test]
    fn random_trees_are_divided_within_the_limits() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let limits = ClusterLimits { directories: random.u32(1..40), rows: random.u32(1..200) };
            let count = random.u64(1..400);
            let units: Vec<Unit> = (1..=count)
                .map(|ino| {
                    let rows =
                        if random.u8(..) < 4 { random.u64(..5_000) } else { random.u64(..30) };
                    let parent =
                        if random.u8(..) < 20 { random.u64(..500) } else { random.u64(..ino) };
                    unit(ino, parent, rows)
                })
                .collect();
            check(&units, limits, &partition(&units, limits));
        }
    }

    #[test]
    fn tiny_directories_share_clusters_and_a_huge_one_is_divided() {
        let limits = ClusterLimits { directories: 2_000, rows: 20_000 };
        let mut units = vec![unit(1, 1, 50_000)];
        units.extend((2..=50_001).map(|ino| unit(ino, 1, 3)));
        units.push(unit(60_000, 1, 1_000_000));
        let plans = partition(&units, limits);
        check(&units, limits, &plans);
        // 150,000 rows in 50,000 directories: the directory limit fills the clusters.
        assert!(plans.len() <= 25 + 3 + 50 + 2, "{} clusters", plans.len());
    }

    #[test]
    fn a_deep_chain_is_divided_in_one_pass() {
        let units: Vec<Unit> = (1..=200_000).map(|ino| unit(ino, ino - 1, 1)).collect();
        let limits = ClusterLimits::default();
        let plans = partition(&units, limits);
        check(&units, limits, &plans);
        assert!(plans.len() <= 101, "{} clusters", plans.len());
    }

    #[test]
    fn a_large_directory_is_divided_evenly_and_a_false_count_is_ignored() {
        let limits = ClusterLimits { directories: 4, rows: 10 };
        let of = |rows| super::rows_of_one(&[unit(2, 2, rows)], limits);
        assert_eq!([of(0), of(20)], [20, 20]);
        assert_eq!([of(21), of(22), of(30), of(31)], [7, 8, 10, 8]);
        for rows in [u64::MAX, u64::MAX >> 1] {
            assert_eq!(of(rows), 10);
            let plans = partition(&[unit(2, 2, rows), unit(3, 2, 5)], limits);
            assert_eq!(plans.len(), 2);
        }
    }
}
