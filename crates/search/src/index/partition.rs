//! Which directories go into which cluster: whole sub-trees as far as they fit.
//!
//! Magellan's rule (4.1) is followed from the bottom: a sub-tree that fits stays with the
//! directory above it; where what lies below a directory does not fit any more, the sub-trees are
//! put into clusters of their own, neighbours together until a cluster is full. So no cluster but
//! the last of each place is less than half full however many tiny directories there are, and a
//! directory that alone is larger than a cluster is divided by the order of its names, as it is
//! written ([`rows_of_one`]). The same is done to the directories of the clusters that a flush
//! writes again, which is how they are rebalanced: what shrank is merged, what grew is divided.

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
    /// Most directories, hard.
    pub directories: u32,
    /// Most rows, soft: exceeded by at most the names of one directory, and by those only up to
    /// twice this number.
    pub rows: u32,
}

impl Default for ClusterLimits {
    fn default() -> ClusterLimits {
        ClusterLimits { directories: 2_000, rows: 20_000 }
    }
}

/// What a volume has set of its clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The limits.
    pub(crate) limits: ClusterLimits,
    /// Clusters that were written for bases whose trees have lower numbers were made by others.
    pub(crate) since: u64,
}

impl Setting {
    /// That of a state of a volume; where nothing was set, limits by which all clusters were made.
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

/// A directory, or a part of a large one, that is to be in a cluster.
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
    /// How many names it has, about.
    pub(crate) rows: u64,
}

/// What goes into one cluster.
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
        // The smaller one moves, so that deep trees do not cost the square of their depth.
        if other.units.len() > self.units.len() {
            std::mem::swap(&mut self.units, &mut other.units);
        }
        self.units.append(&mut other.units);
    }
}

/// Divides directories into clusters. Units whose parents are not among them are roots; their
/// order is that of the slice.
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

/// Puts sub-trees beside the directory above them if all fit, or else into clusters; what does
/// not fill a cluster stays.
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
            // The fuller of the two is done; the other one waits for more.
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

/// Most rows of one cluster of a plan; the rows beyond are put into more of them. What a plan says
/// of rows is what records claim, and those may be damaged: it decides how evenly a large directory
/// is divided, and never into how many clusters.
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
    // Damaged records may lie in a circle; each of those stands alone.
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
            // One that is alone is divided as it is written.
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
        // 150,000 rows in 50,000 directories: the directories are what fills clusters.
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
    fn a_large_directory_is_divided_evenly_and_a_false_count_divides_nothing() {
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
