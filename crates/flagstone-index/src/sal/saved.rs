//! Encodes and decodes what SAL-hashing saves at a settle besides its pages.

use super::Sal;
use super::groups::Groups;
use crate::{IndexError, Result};
use flagstone::layout;
use flagstone::layout::{get, put};
use flagstone::units::Lpn;

layout! {
    /// The head of SAL-hashing's own metadata. The first page of each batch follows (4 bytes each),
    /// two bytes a group, and the overflow index: bucket and page, 4 bytes each.
    pub sal_meta: 40 => {
        GROUP:     2, "buckets of a group";
        FALSE_POS: 2, "bytes of a Bloom filter";
        BATCH:     4, "groups of a batch at most";
        GROUPS:    4, "groups there are";
        OVERFLOWS: 4, "entries of the overflow index";
        STORED:    8, "records in buckets";
        PENDING:   8, "by how many the log regions change that, as far as known";
        DICE:      8, "the state of the generator that coins come from";
    }
}

/// Exceeds the records of any store, but sums of two such numbers do not overflow.
const COUNT_MAX: u64 = 1 << 48;

impl Sal {
    /// Encodes all state that is not in pages, as described at [`sal_meta`].
    pub(super) fn emit(&self) -> Vec<u8> {
        let mut own = vec![0; sal_meta::SIZE];
        put(&mut own, sal_meta::GROUP, u64::from(self.group()));
        put(&mut own, sal_meta::FALSE_POS, self.regions.filter() as u64);
        put(&mut own, sal_meta::BATCH, u64::from(self.options.batch));
        put(&mut own, sal_meta::GROUPS, u64::from(self.groups.len()));
        put(&mut own, sal_meta::OVERFLOWS, self.overflows.len() as u64);
        put(&mut own, sal_meta::STORED, self.stored as u64);
        put(&mut own, sal_meta::PENDING, self.pending as u64);
        put(&mut own, sal_meta::DICE, self.dice);
        for page in &self.batches {
            own.extend_from_slice(&page.0.to_le_bytes());
        }
        for word in self.groups.words() {
            own.extend_from_slice(&word.to_le_bytes());
        }
        for (bucket, page) in self.overflows.iter() {
            own.extend_from_slice(&bucket.to_le_bytes());
            own.extend_from_slice(&page.0.to_le_bytes());
        }
        own
    }

    /// Restores the saved state.
    pub(super) fn restore(&mut self, own: &[u8]) -> Result<()> {
        let damaged = |why: &str| IndexError::Damaged {
            at: Lpn(0),
            why: why.to_string(),
        };
        let early = || damaged("the metadata of sal ends early");
        let (head, rest) = own.split_at_checked(sal_meta::SIZE).ok_or_else(early)?;
        let number = |field| get(head, field);
        for (name, field, has) in [
            ("group", sal_meta::GROUP, u64::from(self.group())),
            ("batch", sal_meta::BATCH, u64::from(self.options.batch)),
            (
                "false_positive",
                sal_meta::FALSE_POS,
                self.regions.filter() as u64,
            ),
        ] {
            if number(field.clone()) != has {
                return Err(IndexError::Settings(format!(
                    "the store holds an index with another {name} of sal ({}, not {has}): use the \
                     settings that it was made with",
                    number(field)
                )));
            }
        }
        let groups = number(sal_meta::GROUPS) as u32;
        if !(2..1 << 28).contains(&groups) {
            return Err(damaged("it has no groups"));
        }
        let batches = (self.batch(groups - 1).0 + 1) * 4;
        let (batches, rest) = rest.split_at_checked(batches).ok_or_else(early)?;
        let (words, rest) = rest
            .split_at_checked(groups as usize * 2)
            .ok_or_else(early)?;
        let page = |bytes: &[u8]| Lpn(get(bytes, 0..4) as u32);
        self.batches = batches.chunks(4).map(page).collect();
        let mut group = 0;
        for first in &self.batches {
            let (_, _, groups) = self.batch(group);
            let pages = (groups << self.options.group_bits) + groups;
            let end = first.0.checked_add(pages);
            if end.is_none_or(|end| end > self.cache.store().pages()) {
                return Err(damaged("a batch of its groups lies beyond the store"));
            }
            group += groups;
        }
        let words = words.chunks(2).map(|word| get(word, 0..2) as u16).collect();
        let parsed = Groups::parse(words);
        self.groups = parsed.ok_or_else(|| damaged("its sets are no partition of its groups"))?;
        self.found = vec![true; groups as usize];
        self.grown();
        let entries = number(sal_meta::OVERFLOWS) as usize;
        let (entries, _) = rest.split_at_checked(entries * 8).ok_or_else(early)?;
        for entry in entries.chunks(8) {
            let bucket = get(entry, 0..4) as u32;
            if bucket >> self.options.group_bits >= groups || self.overflows.has(bucket) {
                return Err(damaged("its overflow index names no bucket, or one twice"));
            }
            self.overflows.insert(bucket, page(&entry[4..]));
        }
        (self.stored, self.pending) = (
            number(sal_meta::STORED) as i64,
            number(sal_meta::PENDING) as i64,
        );
        if [self.stored, self.pending]
            .iter()
            .any(|&count| count.unsigned_abs() > COUNT_MAX)
        {
            return Err(damaged("it has more records than there are keys"));
        }
        self.dice = number(sal_meta::DICE);
        self.rebuild_logs(self.budget.logs(groups));
        Ok(())
    }
}
