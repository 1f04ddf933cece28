//! The oracle of a run. After a power cut, acknowledged transactions must be present. A transaction
//! whose commit was in flight must be present completely or not at all. Nothing else may be
//! present.

use crate::payload::{Contents, Place, show};
use std::collections::{BTreeMap, BTreeSet};

/// A transaction with a requested commit, in the order of requests.
#[derive(Debug, Clone)]
struct Asked {
    name: u64,
    writes: BTreeMap<Place, Contents>,
    /// When the commit is acknowledged, once known.
    acknowledged: Option<u64>,
}

impl Asked {
    /// Whether the commit was acknowledged by `now`.
    fn is_certain(&self, now: u64) -> bool {
        self.acknowledged.is_some_and(|at| at <= now)
    }
}

/// The model of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Oracle {
    /// Contents that are certain.
    certain: BTreeMap<Place, Contents>,
    /// Later commit requests.
    asked: Vec<Asked>,
    /// Contents as seen by a reader without a transaction while the power is on.
    visible: BTreeMap<Place, Contents>,
}

impl Oracle {
    /// The contents that a reader outside of transactions should see.
    pub(super) fn read(&self, page: Place) -> Contents {
        self.visible.get(&page).copied().flatten()
    }

    /// Records a commit request.
    pub(super) fn ask(&mut self, name: u64, writes: BTreeMap<Place, Contents>) {
        self.asked.push(Asked {
            name,
            writes,
            acknowledged: None,
        });
    }

    /// Records that a commit will be acknowledged at `at`; readers see it from now on.
    pub(super) fn acknowledge(&mut self, name: u64, at: u64) {
        let asked = self
            .asked
            .iter_mut()
            .find(|a| a.name == name)
            .expect("it asked");
        asked.acknowledged = Some(at);
        let writes = asked.writes.clone();
        self.visible.extend(writes);
    }

    /// Withdraws a commit request: the transaction was told to ask again, or was aborted.
    pub(super) fn withdraw(&mut self, name: u64) {
        self.asked.retain(|asked| asked.name != name);
    }

    /// Removes writes of unacknowledged commits from `found`.
    pub(super) fn leave_out_doubtful(&self, found: &mut BTreeMap<Place, Contents>) {
        for asked in self.asked.iter().filter(|a| a.acknowledged.is_none()) {
            found.retain(|page, _| !asked.writes.contains_key(page));
        }
    }

    /// Moves commits acknowledged by `now` to the certain contents, up to the first that is still
    /// in doubt.
    pub(super) fn pass(&mut self, now: u64) {
        let certain = self.asked.iter().take_while(|asked| asked.is_certain(now));
        for asked in self.asked.drain(..certain.count()) {
            self.certain.extend(asked.writes);
        }
    }

    /// Checks the contents found after a power cut at `now`. On success these become the certain
    /// contents.
    ///
    /// # Errors
    /// No subset of the in-doubt commits explains them. Describes the differences for a subset that
    /// explains most.
    pub(super) fn verify(
        &mut self,
        now: u64,
        found: &BTreeMap<Place, Contents>,
    ) -> Result<(), String> {
        // All writes are unique, so commits can be decided one by one, last one first: a place
        // shows its last valid commit, which hides earlier ones.
        let mut hidden: BTreeSet<Place> = BTreeSet::new();
        let mut wrong: BTreeMap<Place, Contents> = BTreeMap::new();
        for asked in self.asked.iter().rev() {
            let shown = asked.writes.iter().filter_map(|(place, contents)| {
                let there = found.get(place).filter(|_| !hidden.contains(place))?;
                Some((*place, *contents, there == contents))
            });
            let shown: Vec<(Place, Contents, bool)> = shown.collect();
            let right = shown.iter().filter(|(.., right)| *right).count();
            // A transaction counts, and hides earlier writes, if all its visible writes are
            // present. It cannot count if only some are present; it need not if those present are
            // absences. Otherwise the contents are wrong, and it counts if that leaves fewer
            // differences.
            let trace =
                |(_, contents, right): &(Place, Contents, bool)| *right && contents.is_some();
            let mostly = right * 2 > shown.len() && shown.iter().any(trace);
            if !(asked.is_certain(now) || right == shown.len() || mostly) {
                continue;
            }
            for (place, contents, right) in shown {
                hidden.insert(place);
                if !right {
                    wrong.insert(place, contents);
                }
            }
        }
        for (place, contents) in found.iter().filter(|(place, _)| !hidden.contains(place)) {
            let right = self.certain.get(place).copied().flatten();
            if right != *contents {
                wrong.insert(*place, right);
            }
        }
        if wrong.is_empty() {
            self.certain.clone_from(found);
            self.visible.clone_from(found);
            self.asked.clear();
            return Ok(());
        }
        let wrong = wrong.iter().map(|(place, right)| {
            let (contents, right) = (show(&found[place]), show(right));
            format!("page {place} holds {contents}, not {right}")
        });
        let doubt = self.asked.iter().filter(|asked| !asked.is_certain(now));
        let doubt: Vec<String> = doubt.map(|asked| format!("#{}", asked.name)).collect();
        let doubt = if doubt.is_empty() {
            "nothing".into()
        } else {
            doubt.join(", ")
        };
        let wrong: Vec<String> = wrong.collect();
        Err(format!("{} (in doubt: {doubt})", wrong.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::payload;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn found(pages: &[(Place, u64)]) -> BTreeMap<Place, Contents> {
        (0..3)
            .map(|page| {
                let name = pages
                    .iter()
                    .find(|(p, _)| *p == page)
                    .map(|(_, name)| *name);
                (page, name.map(|name| payload(name, page, 0)))
            })
            .collect()
    }

    fn oracle() -> Oracle {
        let mut oracle = Oracle::default();
        let writes = |name, pages: &[Place]| {
            pages
                .iter()
                .map(|&p| (p, Some(payload(name, p, 0))))
                .collect::<BTreeMap<_, _>>()
        };
        oracle.ask(1, writes(1, &[0, 1]));
        oracle.acknowledge(1, 100);
        oracle.ask(2, writes(2, &[1, 2]));
        oracle
    }

    #[test]
    fn acknowledged_is_there_and_in_doubt_is_whole() {
        assert!(oracle().verify(100, &found(&[(0, 1), (1, 1)])).is_ok());
        assert!(
            oracle()
                .verify(100, &found(&[(0, 1), (1, 2), (2, 2)]))
                .is_ok()
        );
    }

    #[test]
    fn half_a_transaction_a_lost_and_a_foreign_one_are_found() {
        assert!(
            oracle()
                .verify(100, &found(&[(0, 1), (1, 1), (2, 2)]))
                .is_err()
        );
        assert!(oracle().verify(100, &found(&[])).is_err());
        assert!(
            oracle()
                .verify(100, &found(&[(0, 1), (1, 1), (2, 9)]))
                .is_err()
        );
    }

    #[test]
    fn before_its_acknowledgement_a_commit_may_still_be_lost() {
        assert!(oracle().verify(99, &found(&[])).is_ok());
        assert!(oracle().verify(99, &found(&[(0, 1)])).is_err());
    }

    /// Like [`Oracle::verify`], by trying all subsets.
    fn is_explained(oracle: &Oracle, now: u64, found: &BTreeMap<Place, Contents>) -> bool {
        let in_doubt: Vec<usize> = (0..oracle.asked.len())
            .filter(|&i| !oracle.asked[i].is_certain(now))
            .collect();
        (0..1u32 << in_doubt.len()).any(|chosen| {
            let mut expected = oracle.certain.clone();
            for (i, asked) in oracle.asked.iter().enumerate() {
                let bit = in_doubt.iter().position(|&d| d == i);
                if bit.is_none_or(|bit| chosen >> bit & 1 == 1) {
                    expected.extend(&asked.writes);
                }
            }
            let right = |place| expected.get(place).copied().flatten();
            found
                .iter()
                .all(|(place, contents)| right(place) == *contents)
        })
    }

    #[test]
    fn the_commits_are_decided_as_by_trying_all_subsets() {
        let mut dice = Pcg64Mcg::seed_from_u64(5);
        let mut verdicts = [0, 0];
        for _ in 0..20_000 {
            let mut oracle = Oracle::default();
            for name in 1..=dice.random_range(1..=6) {
                let write = |dice: &mut Pcg64Mcg| {
                    let place = dice.random_range(0..4);
                    let nth = dice.random_range(0..2);
                    (
                        place,
                        dice.random_bool(0.6).then(|| payload(name, place, nth)),
                    )
                };
                let writes = (0..dice.random_range(1..4))
                    .map(|_| write(&mut dice))
                    .collect();
                oracle.ask(name, writes);
                if dice.random_bool(0.5) {
                    oracle.acknowledge(name, dice.random_range(0..10));
                }
                if dice.random_bool(0.2) {
                    oracle.pass(dice.random_range(0..4));
                }
            }
            // The contents after some of the commits, sometimes altered.
            let mut found: BTreeMap<Place, Contents> = (0..4).map(|place| (place, None)).collect();
            found.extend(&oracle.certain);
            for asked in &oracle.asked {
                if dice.random_bool(0.6) {
                    found.extend(&asked.writes);
                }
            }
            if dice.random_bool(0.3) {
                let other = dice.random_range(0..oracle.asked.len().max(1));
                let writes = oracle.asked.get(other).map(|asked| asked.writes.clone());
                found.extend(writes.into_iter().flatten().take(1));
            }
            let explained = is_explained(&oracle, 5, &found);
            verdicts[usize::from(explained)] += 1;
            let before = format!("{oracle:?}");
            let verified = oracle.verify(5, &found);
            assert_eq!(
                verified.is_ok(),
                explained,
                "{before}: {found:?}: {verified:?}"
            );
        }
        assert!(verdicts.iter().all(|&count| count > 2_000), "{verdicts:?}");
    }

    #[test]
    fn as_many_commits_may_be_in_doubt_as_there_are_clients() {
        let mut oracle = Oracle::default();
        for name in 1..=64 {
            oracle.ask(
                name,
                BTreeMap::from([(name as Place, Some(payload(name, name as Place, 0)))]),
            );
        }
        let half = |place: Place| {
            (
                place,
                (place.is_multiple_of(2)).then(|| payload(place.into(), place, 0)),
            )
        };
        assert_eq!(oracle.verify(0, &(1..=64).map(half).collect()), Ok(()));
    }
}
