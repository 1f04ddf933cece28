//! Candidates for collection, sorted by live pages, and the choice of a victim.
//!
//! A block moves between lists as its pages die. Every step takes constant time, so the choice of a
//! victim costs the same for any size of device.

use crate::settings::BadSetting;
use crate::units::Pbn;
use std::fmt;
use std::str::FromStr;

const NONE: u32 = u32::MAX;

/// Candidates for collection: a doubly linked list of blocks for each number of live pages.
#[derive(Debug, Clone)]
pub(super) struct Victims {
    heads: Vec<u32>,
    tails: Vec<u32>,
    links: Vec<Links>,
    /// All lists with fewer live pages are empty.
    lowest: usize,
    len: u32,
}

/// The neighbours of a block in its list.
#[derive(Debug, Clone, Copy)]
struct Links {
    next: u32,
    prev: u32,
}

const ALONE: Links = Links {
    next: NONE,
    prev: NONE,
};

impl Victims {
    pub(super) fn new(blocks: u32, pages_per_block: u32) -> Self {
        Victims {
            heads: vec![NONE; pages_per_block as usize + 1],
            tails: vec![NONE; pages_per_block as usize + 1],
            links: vec![ALONE; blocks as usize],
            lowest: 0,
            len: 0,
        }
    }

    /// Adapts to another number of blocks. Removed ones are no candidates.
    pub(super) fn resize(&mut self, blocks: u32) {
        self.links.resize(blocks as usize, ALONE);
    }

    /// Adds a candidate at the end of the list for its number of live pages.
    pub(super) fn insert(&mut self, block: Pbn, live: u32) {
        let (block, live) = (block.0, live as usize);
        let last = self.tails[live];
        self.links[block as usize] = Links {
            next: NONE,
            prev: last,
        };
        if last == NONE {
            self.heads[live] = block;
        } else {
            self.links[last as usize].next = block;
        }
        self.tails[live] = block;
        self.lowest = self.lowest.min(live);
        self.len += 1;
    }

    /// Removes a candidate from the list for its number of live pages.
    pub(super) fn remove(&mut self, block: Pbn, live: u32) {
        let (block, live) = (block.index(), live as usize);
        let Links { next, prev } = self.links[block];
        if prev == NONE {
            debug_assert_eq!(self.heads[live] as usize, block);
            self.heads[live] = next;
        } else {
            self.links[prev as usize].next = next;
        }
        if next == NONE {
            self.tails[live] = prev;
        } else {
            self.links[next as usize].prev = prev;
        }
        self.len -= 1;
    }

    /// Moves a candidate with `live` live pages to the next list: one of its pages has died.
    #[inline]
    pub(super) fn lose_page(&mut self, block: Pbn, live: u32) {
        self.remove(block, live);
        self.insert(block, live - 1);
    }

    /// The number of candidates.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Candidates with their live pages: fewest first; among equals, longest waiting first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Pbn, u32)> + '_ {
        (self.lowest..self.heads.len()).flat_map(move |live| {
            let mut at = self.heads[live];
            std::iter::from_fn(move || {
                (at != NONE).then(|| {
                    let block = at;
                    at = self.links[block as usize].next;
                    (Pbn(block), live as u32)
                })
            })
        })
    }

    /// Advances the lower bound past empty lists.
    pub(super) fn skip_empty(&mut self) {
        while self.lowest + 1 < self.heads.len() && self.heads[self.lowest] == NONE {
            self.lowest += 1;
        }
    }
}

/// The state of the device that a policy sees.
pub(super) struct View<'a> {
    /// The candidates.
    pub victims: &'a Victims,
    /// Number of erases of each block, as far as known.
    pub erases: &'a [u32],
    /// The mean number of erases of a block.
    pub erases_mean: u32,
    /// A block with fewer live pages than this is worth collecting.
    pub dense_pages: u32,
}

/// How garbage collection chooses its victim.
///
/// ```
/// use flagstone::ftl::VictimPolicy;
/// use flagstone::settings::BadSetting;
///
/// let policy: VictimPolicy = "wear-aware:8".parse()?;
/// assert_eq!(policy, VictimPolicy::WearAware { margin: 8 });
/// assert_eq!(VictimPolicy::WEAR_AWARE.to_string(), "wear-aware:16");
/// # Ok::<(), BadSetting>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VictimPolicy {
    /// The block with the fewest live pages.
    Greedy,
    /// Greedy, but a block with more than `margin` erases above the mean is skipped in favour of
    /// another one of the best few: the rate limiting of the DiskSim SSD model's wear-aware
    /// collection (Agrawal et al., USENIX ATC 2008, §5), without its randomness.
    WearAware {
        /// Erases above the mean from which on a block is skipped.
        margin: u32,
    },
}

impl VictimPolicy {
    /// Wear-aware with the default margin.
    pub const WEAR_AWARE: VictimPolicy = VictimPolicy::WearAware { margin: 16 };
}

impl fmt::Display for VictimPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VictimPolicy::Greedy => f.write_str("greedy"),
            VictimPolicy::WearAware { margin } => write!(f, "wear-aware:{margin}"),
        }
    }
}

impl FromStr for VictimPolicy {
    type Err = BadSetting;

    /// `greedy`, `wear-aware`, or `wear-aware:MARGIN`.
    fn from_str(text: &str) -> Result<VictimPolicy, BadSetting> {
        let margin = text.strip_prefix("wear-aware:").map(str::parse);
        match (text, margin) {
            ("greedy", _) => Ok(VictimPolicy::Greedy),
            ("wear-aware", _) => Ok(VictimPolicy::WEAR_AWARE),
            (_, Some(Ok(margin))) => Ok(VictimPolicy::WearAware { margin }),
            _ => Err(BadSetting(format!(
                "there is no victim policy `{text}`: use greedy, wear-aware, or wear-aware:MARGIN \
                 with the erases above the mean at which a block is passed over"
            ))),
        }
    }
}

impl VictimPolicy {
    /// The victim. `None` if no collection would gain a page.
    pub(super) fn choose(self, view: &View<'_>) -> Option<Pbn> {
        let mut gainful = view
            .victims
            .iter()
            .filter(|&(_, live)| live < view.dense_pages);
        match self {
            VictimPolicy::Greedy => gainful.next().map(|(block, _)| block),
            VictimPolicy::WearAware { margin } => {
                let mut few = gainful.take(8);
                let (first, live) = few.next()?;
                let limit = view.erases_mean.saturating_add(margin);
                if view.erases[first.index()] <= limit {
                    return Some(first);
                }
                // A less worn block may have more live pages, but by at most an eighth of a block.
                few.find(|&(block, other)| {
                    view.erases[block.index()] <= limit && other <= live + view.dense_pages / 8
                })
                .map_or(Some(first), |(block, _)| Some(block))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Victims {
        let mut victims = Victims::new(8, 4);
        for (block, live) in [(0, 3), (1, 2), (2, 2), (3, 4)] {
            victims.insert(Pbn(block), live);
        }
        victims
    }

    #[test]
    fn a_policy_is_what_its_name_says() {
        for policy in [VictimPolicy::Greedy, VictimPolicy::WearAware { margin: 3 }] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("wear-aware".parse(), Ok(VictimPolicy::WEAR_AWARE));
        for text in [
            "",
            "greed",
            "greedy:3",
            "wear-aware:",
            "wear-aware:-1",
            "wear-aware:x",
        ] {
            let why = text.parse::<VictimPolicy>().unwrap_err().0;
            assert!(why.contains(&format!("`{text}`: use greedy")), "{why}");
        }
    }

    #[test]
    fn greedy_takes_the_block_with_the_fewest_live_pages_and_the_oldest_of_these() {
        let mut victims = candidates();
        let choose = |victims: &Victims| {
            let view = View {
                victims,
                erases: &[0; 8],
                erases_mean: 0,
                dense_pages: 4,
            };
            VictimPolicy::Greedy.choose(&view)
        };
        assert_eq!(choose(&victims), Some(Pbn(1)));
        victims.lose_page(Pbn(3), 4);
        victims.lose_page(Pbn(3), 3);
        victims.lose_page(Pbn(3), 2);
        assert_eq!(choose(&victims), Some(Pbn(3)));
        victims.remove(Pbn(3), 1);
        victims.remove(Pbn(1), 2);
        victims.skip_empty();
        assert_eq!(choose(&victims), Some(Pbn(2)));
    }

    #[test]
    fn a_worn_block_is_passed_over_for_one_that_is_nearly_as_good() {
        let victims = candidates();
        let erases = [0, 9, 9, 0, 0, 0, 0, 0];
        let view = View {
            victims: &victims,
            erases: &erases,
            erases_mean: 1,
            dense_pages: 8,
        };
        assert_eq!(
            VictimPolicy::WearAware { margin: 4 }.choose(&view),
            Some(Pbn(0))
        );
        assert_eq!(
            VictimPolicy::WearAware { margin: 9 }.choose(&view),
            Some(Pbn(1))
        );
    }

    #[test]
    fn a_block_with_nothing_to_gain_is_no_victim() {
        let mut victims = Victims::new(2, 4);
        victims.insert(Pbn(0), 4);
        let view = View {
            victims: &victims,
            erases: &[0; 2],
            erases_mean: 0,
            dense_pages: 4,
        };
        assert_eq!(VictimPolicy::Greedy.choose(&view), None);
    }
}
