//! Groups and sets: two bytes per group encode which groups share a log region and how they split.
//! [SAL] §3.1, §3.2, Algorithm 2.
//!
//! A *split* group is a set alone. A *lazy* group was due to split but has not yet: it forms a set
//! with the *empty* groups that were added meanwhile and wait for a share of its records.

/// The class of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Empty,
    Lazy,
    Split,
}

const BITNUM: u32 = 2;
const LOOKUPS: u32 = 7;
const REGION: u16 = 1 << 15;

/// The groups, numbered from 0: two bits of class, five of `bitnum`, eight of lookups, and one for
/// whether the set has a log region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Groups {
    words: Vec<u16>,
    /// Number of sets.
    sets: usize,
}

/// Number of binary digits of `x`.
fn bit(x: u32) -> u32 {
    u32::BITS - x.leading_zeros()
}

impl Groups {
    /// The first two groups, both split.
    pub(super) fn new() -> Groups {
        let mut groups = Groups {
            words: vec![0; 2],
            sets: 2,
        };
        groups.set_class(0, Class::Split);
        groups.set_class(1, Class::Split);
        groups
    }

    /// Decodes saved groups, if they are valid.
    pub(super) fn parse(words: Vec<u16>) -> Option<Groups> {
        let mut groups = Groups { words, sets: 0 };
        groups.check().ok()?;
        groups.sets = (0..groups.len()).filter(|&x| groups.leads(x)).count();
        Some(groups)
    }

    /// The encoded groups, a word each.
    pub(super) fn words(&self) -> &[u16] {
        &self.words
    }

    /// Number of groups.
    pub(super) fn len(&self) -> u32 {
        self.words.len() as u32
    }

    /// Number of sets.
    pub(super) fn sets(&self) -> usize {
        self.sets
    }

    #[inline]
    pub(super) fn class(&self, group: u32) -> Class {
        match self.words[group as usize] & 3 {
            0 => Class::Empty,
            1 => Class::Lazy,
            _ => Class::Split,
        }
    }

    fn set_class(&mut self, group: u32, class: Class) {
        let word = &mut self.words[group as usize];
        *word = (*word & !3) | class as u16;
    }

    #[inline]
    pub(super) fn bitnum(&self, group: u32) -> u32 {
        u32::from(self.words[group as usize] >> BITNUM) & 31
    }

    fn set_bitnum(&mut self, group: u32, bits: u32) {
        let word = &mut self.words[group as usize];
        *word = (*word & !(31 << BITNUM)) | ((bits as u16) << BITNUM);
    }

    /// Lookups in the set's log region since it began, or in its buffered logs if it has none; at
    /// most 255.
    #[inline]
    pub(super) fn lookups(&self, set: u32) -> u32 {
        u32::from(self.words[set as usize] >> LOOKUPS) & 255
    }

    #[inline]
    pub(super) fn set_lookups(&mut self, set: u32, lookups: u32) {
        let word = &mut self.words[set as usize];
        *word = (*word & !(255 << LOOKUPS)) | ((lookups.min(255) as u16) << LOOKUPS);
    }

    /// Whether the set has a log region.
    #[inline]
    pub(super) fn has_region(&self, set: u32) -> bool {
        self.words[set as usize] & REGION != 0
    }

    /// Sets whether the set has a log region, and resets its lookups.
    pub(super) fn set_region(&mut self, set: u32, there: bool) {
        self.set_lookups(set, 0);
        let word = &mut self.words[set as usize];
        *word = if there {
            *word | REGION
        } else {
            *word & !REGION
        };
    }

    /// Adds a group, which joins the set of its partner: the group that linear hashing splits for
    /// it. Returns that set.
    pub(super) fn add(&mut self) -> u32 {
        let group = self.len();
        let bits = bit(group) - 1;
        let partner = group & ((1 << bits) - 1);
        self.words.push(0);
        if self.class(partner) == Class::Split {
            self.set_class(partner, Class::Lazy);
            self.set_bitnum(partner, bits);
            self.set_bitnum(group, bits);
        } else {
            self.set_bitnum(group, self.bitnum(partner));
        }
        self.set_of(group)
    }

    /// The set of a group, identified by its first group, which has the records.
    #[inline]
    pub(super) fn set_of(&self, group: u32) -> u32 {
        match self.class(group) {
            Class::Empty => group & ((1 << self.bitnum(group)) - 1),
            _ => group,
        }
    }

    /// Whether the group is the first of a set.
    pub(super) fn leads(&self, group: u32) -> bool {
        self.class(group) != Class::Empty
    }

    /// The groups of a set, in order.
    pub(super) fn members(&self, set: u32) -> impl Iterator<Item = u32> + use<> {
        let (step, end) = match self.class(set) {
            Class::Lazy => (1usize << self.bitnum(set), self.len()),
            _ => (1, set + 1),
        };
        (set..end).step_by(step)
    }

    /// Number of groups in a set.
    pub(super) fn size(&self, set: u32) -> u32 {
        match self.class(set) {
            Class::Lazy => ((self.len() - 1 - set) >> self.bitnum(set)) + 1,
            _ => 1,
        }
    }

    /// Called when a set's records were spread over its groups. Each group becomes a set of its
    /// own.
    pub(super) fn split(&mut self, set: u32) {
        for group in self.members(set) {
            self.sets += usize::from(group != set);
            self.words[group as usize] = 0;
            self.set_class(group, Class::Split);
        }
    }

    /// The group of a hash if no split were pending: linear hashing.
    #[inline]
    pub(super) fn of(&self, hash: u64) -> u32 {
        let groups = self.len();
        let cycle = groups.next_power_of_two();
        let group = hash as u32 & (cycle - 1);
        if group < groups {
            group
        } else {
            group - cycle / 2
        }
    }

    /// Number of low bits in which the hashes of all records in a set's first group, without the
    /// bits that choose the bucket, agree with the set's number. A split uses the next bit.
    #[inline]
    pub(super) fn depth(&self, set: u32) -> u32 {
        if self.class(set) == Class::Lazy {
            return self.bitnum(set);
        }
        let cycle = self.len().next_power_of_two();
        let half = cycle / 2;
        let unsplit = set < half && set + half >= self.len();
        cycle.trailing_zeros() - u32::from(unsplit)
    }

    /// Checks that each group is in one set.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut seen = vec![false; self.words.len()];
        for set in (0..self.len()).filter(|&group| self.leads(group)) {
            for group in self.members(set) {
                if group != set && self.class(group) != Class::Empty {
                    return Err(format!("group {group} leads a set and is in that of {set}"));
                }
                if self.set_of(group) != set {
                    return Err(format!("group {group} says that it is not in set {set}"));
                }
                if std::mem::replace(&mut seen[group as usize], true) {
                    return Err(format!("group {group} is in two sets"));
                }
            }
        }
        match seen.iter().position(|&seen| !seen) {
            Some(group) => Err(format!("group {group} is in no set")),
            None => Ok(()),
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> u64 {
        (self.words.capacity() * 2) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(groups: &Groups) -> Vec<Vec<u32>> {
        groups.check().expect("a partition");
        let leaders: Vec<u32> = (0..groups.len()).filter(|&x| groups.leads(x)).collect();
        assert_eq!(leaders.len(), groups.sets());
        leaders
            .iter()
            .map(|&set| groups.members(set).collect())
            .collect()
    }

    #[test]
    fn groups_join_sets_as_in_the_paper() {
        let mut groups = Groups::new();
        assert_eq!(sets(&groups), [vec![0], vec![1]]);
        assert_eq!(groups.add(), 0);
        assert_eq!((groups.class(0), groups.bitnum(0)), (Class::Lazy, 1));
        assert_eq!((groups.class(2), groups.bitnum(2)), (Class::Empty, 1));
        assert_eq!(groups.add(), 1);
        assert_eq!(groups.add(), 0);
        assert_eq!(groups.add(), 1);
        assert_eq!(groups.add(), 0);
        assert_eq!(sets(&groups), [vec![0, 2, 4, 6], vec![1, 3, 5]]);
        assert_eq!((groups.size(0), groups.size(1)), (4, 3));
        groups.split(0);
        assert_eq!(sets(&groups).len(), 5);
        assert_eq!(groups.add(), 1, "7 joins set 1");
        assert_eq!(groups.add(), 0);
        assert_eq!((groups.class(0), groups.bitnum(0)), (Class::Lazy, 3));
        assert_eq!(groups.members(0).collect::<Vec<_>>(), [0, 8]);
    }

    #[test]
    fn a_group_added_finds_its_partner() {
        for (group, partner) in [(2, 0), (3, 1), (4, 0), (5, 1), (6, 2), (13, 5)] {
            let mut groups = Groups::new();
            while groups.len() < group {
                let set = groups.add();
                groups.split(set);
            }
            assert_eq!(groups.add(), partner, "group {group}");
        }
    }

    #[test]
    fn sets_partition_and_hold_every_hash_in_any_history() {
        for seed in 0..60u64 {
            let mut x = seed;
            let mut groups = Groups::new();
            for _ in 0..80 {
                x = crate::bucket::hash(x + 1);
                if x & 3 > 0 {
                    groups.add();
                } else {
                    let group = (x >> 8) as u32 % groups.len();
                    groups.split(groups.set_of(group));
                }
                groups.check().expect("a partition");
                for probe in 0..20 {
                    let hash = crate::bucket::hash(x ^ probe);
                    let set = groups.set_of(groups.of(hash));
                    let home = hash as u32 & ((1 << groups.depth(set)) - 1);
                    assert_eq!(home, set, "the set's first group has it");
                }
            }
            assert!(Groups::parse(groups.words().to_vec()) == Some(groups));
        }
    }

    #[test]
    fn words_that_are_no_partition_are_refused() {
        assert!(
            Groups::parse(vec![2, 2, 0]).is_none(),
            "2 would be in set 0"
        );
    }
}
