//! What may be found after a power cut: the acknowledged is there, what was asking to commit is all
//! there or not at all, nothing else exists.

use std::collections::BTreeMap;

/// What a logical page holds: the bytes of one write, or nothing.
pub(super) type Contents = Option<Payload>;

/// The bytes of one write; no two writes have the same.
pub(super) type Payload = [u8; 12];

/// Where something is written: a logical page, or a record of one.
pub(super) type Place = u32;

/// A transaction that asked to commit, in the order in which transactions did.
#[derive(Debug, Clone)]
struct Asked {
    name: u64,
    writes: BTreeMap<Place, Contents>,
    /// When the commit is acknowledged, once that is known.
    acknowledged: Option<u64>,
}

/// The model of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Oracle {
    /// Pages that are certain.
    settled: BTreeMap<Place, Contents>,
    /// Commits since then.
    asked: Vec<Asked>,
    /// What a reader without a transaction sees while the power is on.
    visible: BTreeMap<Place, Contents>,
}

impl Oracle {
    /// What a reader outside of transactions should see.
    pub(super) fn read(&self, page: Place) -> Contents {
        self.visible.get(&page).copied().flatten()
    }

    /// A transaction asks to commit.
    pub(super) fn ask(&mut self, name: u64, writes: BTreeMap<Place, Contents>) {
        self.asked.push(Asked {
            name,
            writes,
            acknowledged: None,
        });
    }

    /// Its commit will be acknowledged at an instant: from now on readers see it.
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

    /// A transaction that asked to commit was told to ask again, or was aborted instead.
    pub(super) fn withdraw(&mut self, name: u64) {
        self.asked.retain(|asked| asked.name != name);
    }

    /// Takes out of `found` what commits that were not acknowledged have written.
    pub(super) fn leave_out_doubtful(&self, found: &mut BTreeMap<Place, Contents>) {
        for asked in self.asked.iter().filter(|a| a.acknowledged.is_none()) {
            found.retain(|page, _| !asked.writes.contains_key(page));
        }
    }

    /// Moves commits that were acknowledged by `now` into what is certain, as far as no earlier one
    /// is still in doubt.
    pub(super) fn settle(&mut self, now: u64) {
        while self
            .asked
            .first()
            .is_some_and(|a| a.acknowledged.is_some_and(|at| at <= now))
        {
            let first = self.asked.remove(0);
            self.settled.extend(first.writes);
        }
    }

    /// A power cut at `now` was recovered from, and this was found. On success what was found is
    /// what is certain from here on.
    pub(super) fn verify(
        &mut self,
        now: u64,
        found: &BTreeMap<Place, Contents>,
    ) -> Result<(), String> {
        let in_doubt: Vec<usize> = (0..self.asked.len())
            .filter(|&i| self.asked[i].acknowledged.is_none_or(|at| at > now))
            .collect();
        assert!(in_doubt.len() <= 16, "{} commits in doubt", in_doubt.len());
        let mut nearest: Option<(usize, String)> = None;
        for chosen in 0..1u32 << in_doubt.len() {
            let holds = |i: usize| {
                in_doubt
                    .iter()
                    .position(|&d| d == i)
                    .is_none_or(|bit| chosen >> bit & 1 == 1)
            };
            let mut expected = self.settled.clone();
            for (i, asked) in self.asked.iter().enumerate() {
                if holds(i) {
                    expected.extend(&asked.writes);
                }
            }
            let wrong: Vec<String> = found
                .iter()
                .filter_map(|(page, contents)| {
                    let right = expected.get(page).copied().flatten();
                    (right != *contents).then(|| {
                        format!("page {page} holds {}, not {}", show(contents), show(&right))
                    })
                })
                .collect();
            if wrong.is_empty() {
                self.settled = found.clone();
                self.visible = found.clone();
                self.asked.clear();
                return Ok(());
            }
            if nearest
                .as_ref()
                .is_none_or(|(count, _)| wrong.len() < *count)
            {
                nearest = Some((wrong.len(), wrong.join("; ")));
            }
        }
        let doubt: Vec<String> = in_doubt
            .iter()
            .map(|&i| format!("#{}", self.asked[i].name))
            .collect();
        Err(format!(
            "{} (in doubt: {})",
            nearest.map_or_else(String::new, |(_, text)| text),
            if doubt.is_empty() {
                "nothing".into()
            } else {
                doubt.join(", ")
            }
        ))
    }
}

/// The bytes that transaction `name` writes to a page the `nth` time.
pub(super) fn payload(name: u64, page: Place, nth: u16) -> Payload {
    let mut bytes = [0; 12];
    bytes[..6].copy_from_slice(&name.to_le_bytes()[..6]);
    bytes[6..10].copy_from_slice(&page.to_le_bytes());
    bytes[10..].copy_from_slice(&nth.to_le_bytes());
    bytes
}

/// Contents in words: which transaction wrote them.
pub(super) fn show(contents: &Contents) -> String {
    match contents {
        None => "nothing".into(),
        Some(bytes) => {
            let mut name = [0; 8];
            name[..6].copy_from_slice(&bytes[..6]);
            let page = u32::from_le_bytes([bytes[6], bytes[7], bytes[8], bytes[9]]);
            let nth = u16::from_le_bytes([bytes[10], bytes[11]]);
            format!(
                "write {nth} of #{} to page {page}",
                u64::from_le_bytes(name)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
