//! Tables common to CFC_ex and AFC_ex: which transactions have entries on flash, where, and with
//! which flags. The lists of entries are behind the images of the pages and not in the summary of
//! their block (D2). Without this table the collector would have to read each dead page before an
//! erase, and search for the other pages (D11).
//!
//! Recovery reads all lists anyway and fills the table. `check` compares it with flash.

use super::format::peek_entries;
use super::{Member, spare};
use crate::commit::table_bytes;
use crate::ftl::{BlockState, Cause, Ftl, FtlError, Written};
use crate::nand::Geometry;
use crate::units::{Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// An entry on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) tx: TxId,
    pub(super) member: Member,
    pub(super) flag: u8,
}

/// The entries on flash that may still matter, by page and place.
#[derive(Debug)]
pub(super) struct Book {
    geometry: Geometry,
    entries: BTreeMap<(Ppn, u8), Owned>,
}

impl Book {
    pub(super) fn new(ftl: &Ftl) -> Book {
        Book {
            geometry: *ftl.geometry(),
            entries: BTreeMap::new(),
        }
    }

    pub(super) fn block_of(&self, at: Ppn) -> Pbn {
        self.geometry.block_of(at)
    }

    pub(super) fn note(&mut self, owned: Owned) {
        self.entries.insert(key(owned.member), owned);
    }

    /// The entries in a block.
    pub(super) fn in_block(&self, block: Pbn) -> impl Iterator<Item = &Owned> {
        let first = self.geometry.page(block, 0);
        let end = self.geometry.page(Pbn(block.0 + 1), 0);
        let here = self.entries.range((first, 0)..(end, 0));
        here.map(|(_, owned)| owned)
    }

    /// The transactions with entries in a block, without duplicates.
    pub(super) fn txs_in(&self, block: Pbn) -> Vec<TxId> {
        let mut all: Vec<TxId> = self.in_block(block).map(|owned| owned.tx).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The entries in a page.
    pub(super) fn in_page(&self, at: Ppn) -> impl Iterator<Item = &Owned> {
        let here = self.entries.range((at, 0)..=(at, u8::MAX));
        here.map(|(_, owned)| owned)
    }

    pub(super) fn get(&self, member: Member) -> Option<&Owned> {
        let owned = self.entries.get(&key(member));
        owned.filter(|owned| owned.member == member)
    }

    /// The flag of an entry in the table.
    pub(super) fn flag(&self, member: Member) -> u8 {
        self.get(member).expect("it was noted").flag
    }

    /// Sets a flag, in place and in the table. Returns when the reprogram is done.
    pub(super) fn set(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        member: Member,
        flag: u8,
        cause: Cause,
    ) -> Result<Nanos, FtlError> {
        let owned = self.entries.get_mut(&key(member)).expect("it was noted");
        debug_assert_eq!(owned.member, member);
        owned.flag = flag;
        let offset = spare::FLAGS.start + usize::from(member.index);
        ftl.reprogram(now, member.at, offset, &[flag], cause)
    }

    /// Removes an entry that does not matter any more.
    pub(super) fn remove(&mut self, member: Member) {
        self.entries.remove(&key(member));
    }

    /// Removes the entries of an erased block. Returns them.
    pub(super) fn erased(&mut self, block: Pbn) -> Vec<Owned> {
        let gone: Vec<Owned> = self.in_block(block).copied().collect();
        for owned in &gone {
            self.remove(owned.member);
        }
        gone
    }

    /// Memory of the table in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.entries.len() * size_of::<((Ppn, u8), Owned)>()) as u64
    }

    /// Compares the table with flash, as far as the device can tell: its entries exist on flash,
    /// and all others satisfy `need_not`.
    pub(super) fn check(&self, ftl: &Ftl, need_not: impl Fn(&Owned) -> bool) -> Result<(), String> {
        let mut met = 0;
        let mut image = vec![0; self.geometry.page_bytes as usize];
        let mut blocks = ftl.blocks.for_data();
        // Blocks whose first page is blank may hold remains of a cut.
        blocks.retain(|&block| ftl.blocks.state(block) != BlockState::Free);
        for block in blocks {
            for page in 0..self.geometry.pages_per_block {
                let at = self.geometry.page(block, page);
                let Some(entries) = peek_entries(ftl, at, &mut image) else {
                    // The page cannot be looked at: the table is taken to be right about it.
                    met += self.in_page(at).count();
                    continue;
                };
                for owned in entries {
                    let kept = self.get(owned.member);
                    if kept.map_or(!need_not(&owned), |kept| *kept != owned) {
                        return Err(format!("page {at} has {owned:?}, the table {kept:?}"));
                    }
                    met += usize::from(kept.is_some());
                }
            }
        }
        let kept = self.entries.len();
        if met == kept {
            Ok(())
        } else {
            Err(format!("{kept} entries are in the table, {met} on flash"))
        }
    }
}

/// A row of the transaction table.
#[derive(Debug, Default)]
pub(super) struct TxRow<S> {
    /// The transaction's entries, in live or dead pages, until these are erased.
    pub(super) members: Vec<Member>,
    /// When its pages and flags are durable.
    pub(super) written: Nanos,
    /// State of the protocol.
    pub(super) state: S,
}

/// The transaction table, and the entries on flash of its transactions.
#[derive(Debug)]
pub(super) struct Owners<S> {
    pub(super) table: FxHashMap<TxId, TxRow<S>>,
    pub(super) book: Book,
}

impl<S: Default> Owners<S> {
    pub(super) fn new(ftl: &Ftl) -> Owners<S> {
        Owners {
            table: FxHashMap::default(),
            book: Book::new(ftl),
        }
    }

    /// Records an entry of a transaction on flash.
    pub(super) fn note(&mut self, owned: Owned) -> &mut TxRow<S> {
        self.book.note(owned);
        let row = self.table.entry(owned.tx).or_default();
        row.members.push(owned.member);
        row
    }

    /// Records that a page was copied. The entries of the copy have these flags.
    pub(super) fn copied(
        &mut self,
        from: Ppn,
        to: &Written,
        flag: impl Fn(Option<&TxRow<S>>) -> u8,
    ) {
        let entries: Vec<Owned> = self.book.in_page(from).copied().collect();
        for mut owned in entries {
            owned.member = owned.member.copied_to(to);
            owned.flag = flag(self.table.get(&owned.tx));
            let row = self.note(owned);
            row.written = row.written.max(to.done);
        }
    }

    /// Removes the entries of an erased block. Returns the transaction of each.
    pub(super) fn erased(&mut self, victim: Pbn) -> Vec<TxId> {
        let gone = self.book.erased(victim);
        for owned in &gone {
            let row = self.table.get_mut(&owned.tx).expect("it is in the book");
            row.members.retain(|member| *member != owned.member);
        }
        gone.iter().map(|owned| owned.tx).collect()
    }

    /// Memory of each structure in bytes.
    pub(super) fn memory(&self) -> Vec<(&'static str, u64)> {
        let members = self.table.values().map(|row| row.members.len());
        let members = members.sum::<usize>() * size_of::<Member>();
        let table = table_bytes::<TxId, TxRow<S>>(self.table.len());
        vec![
            ("transaction_table", table + members as u64),
            ("entries_on_flash", self.book.bytes()),
        ]
    }
}

/// Earliest instants for the erase of blocks, whose contents are needed until then.
#[derive(Debug, Default)]
pub(super) struct Deadlines(FxHashMap<Pbn, Nanos>);

impl Deadlines {
    /// Prevents the erase of a block before `until`.
    pub(super) fn note(&mut self, block: Pbn, until: Nanos) {
        let latest = self.0.entry(block).or_default();
        *latest = until.max(*latest);
    }

    pub(super) fn get(&self, block: Pbn) -> Nanos {
        self.0.get(&block).copied().unwrap_or_default()
    }

    /// Removes an erased block.
    pub(super) fn forget(&mut self, block: Pbn) {
        self.0.remove(&block);
    }

    pub(super) fn bytes(&self) -> u64 {
        table_bytes::<Pbn, Nanos>(self.0.len())
    }
}

fn key(member: Member) -> (Ppn, u8) {
    (member.at, member.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::{Pending, RecordDevice, RecordKind, RecordOptions};
    use crate::ftl::Config;
    use crate::nand::{Cell, Geometry, small};
    use crate::page::Page;
    use crate::units::Lpn;
    use std::collections::BTreeSet;

    #[test]
    fn d11_a_table_that_differs_from_flash_is_noticed() {
        for kind in RecordKind::ALL {
            let chip = small::chip(Geometry {
                spare_bytes: 40,
                cell: Cell::Slc {
                    partial_programs: 4,
                },
                strict_order: false,
                ..small::GEOMETRY
            });
            let options = RecordOptions {
                max_c: 3,
                ..RecordOptions::default()
            };
            let config = Config::small(60, Some(3));
            let opened = RecordDevice::open(Box::new(chip), kind, config, &options, Nanos::ZERO);
            let mut device = opened.expect("it is blank");
            let now = device.recovered_at();
            let now = device.resolve(now, &BTreeSet::new()).expect("none are");
            let tx = device.begin(now).expect("it begins");
            let (mut page, mut image) = (Page::default(), Vec::new());
            page.put(0, &[1], 200).expect("it fits");
            page.emit(200, &mut image).expect("it fits");
            let pending = [Pending { tx, slots: vec![0] }];
            let written = device.write(now, Lpn(0), &image, &pending);
            written.expect("it can be written");

            let ftl = device.ftl();
            let mut book = Book::new(ftl);
            assert_eq!(book.check(ftl, |_| true), Ok(()));
            assert!(book.check(ftl, |_| false).is_err(), "an entry is missing");
            let at = ftl.slot(Lpn(0)).ppn().expect("it was written");
            let seq = ftl.last_seq() as u32;
            let right = Owned {
                tx,
                member: Member { at, seq, index: 0 },
                flag: 0xff,
            };
            book.note(right);
            assert_eq!(book.check(ftl, |_| false), Ok(()));
            book.note(Owned { flag: 0, ..right });
            assert!(book.check(ftl, |_| true).is_err(), "a flag differs");
            let index = 1;
            let member = Member {
                index,
                ..right.member
            };
            book.note(right);
            book.note(Owned { member, ..right });
            assert!(
                book.check(ftl, |_| true).is_err(),
                "an entry is not on flash"
            );
        }
    }
}
