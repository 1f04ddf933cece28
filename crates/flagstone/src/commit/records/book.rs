//! Which transactions have entries on flash, where, and what their flags say. The lists of entries
//! lie behind the pages' images and not in the summary of their block (D2); without this table the
//! collector had to read each dead page, and each page that it links to, before an erase (D11).
//!
//! Recovery reads all lists anyway and fills it. `check` compares it with flash.

use super::format::peek_version;
use super::{Member, spare};
use crate::commit::flag_chain::Link;
use crate::commit::table_bytes;
use crate::ftl::{BlockState, Cause, Ftl, FtlError};
use crate::nand::Geometry;
use crate::units::{Nanos, Pbn, Ppn, TxId};
use rustc_hash::FxHashMap;

/// An entry on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) tx: TxId,
    pub(super) member: Member,
    pub(super) link: Option<Link>,
    pub(super) flag: u8,
}

/// The entries on flash that may still matter, by block.
#[derive(Debug)]
pub(super) struct Book {
    geometry: Geometry,
    blocks: FxHashMap<Pbn, Vec<Owned>>,
}

impl Book {
    pub(super) fn new(ftl: &Ftl) -> Book {
        Book {
            geometry: *ftl.geometry(),
            blocks: FxHashMap::default(),
        }
    }

    pub(super) fn block_of(&self, at: Ppn) -> Pbn {
        self.geometry.block_of(at)
    }

    pub(super) fn note(&mut self, owned: Owned) {
        let block = self.block_of(owned.member.at);
        self.blocks.entry(block).or_default().push(owned);
    }

    /// The entries in a block.
    pub(super) fn in_block(&self, block: Pbn) -> &[Owned] {
        self.blocks.get(&block).map_or(&[], Vec::as_slice)
    }

    /// The entries in a page.
    pub(super) fn in_page(&self, at: Ppn) -> impl Iterator<Item = &Owned> {
        let here = self.in_block(self.block_of(at)).iter();
        here.filter(move |owned| owned.member.at == at)
    }

    pub(super) fn get(&self, member: Member) -> Option<&Owned> {
        self.in_page(member.at).find(|owned| owned.member == member)
    }

    /// The flag of an entry that matters.
    pub(super) fn flag(&self, member: Member) -> u8 {
        self.get(member).expect("it was noted").flag
    }

    /// Sets a flag in place, and here. Returns when that is done.
    pub(super) fn set(
        &mut self,
        ftl: &mut Ftl,
        now: Nanos,
        member: Member,
        flag: u8,
        cause: Cause,
    ) -> Result<Nanos, FtlError> {
        let here = self.blocks.get_mut(&self.geometry.block_of(member.at));
        let mut here = here.into_iter().flatten();
        let owned = here.find(|owned| owned.member == member);
        owned.expect("it was noted").flag = flag;
        let offset = spare::FLAGS.start + usize::from(member.index);
        ftl.reprogram(now, member.at, offset, &[flag], cause)
    }

    /// An entry does not matter any more.
    pub(super) fn remove(&mut self, member: Member) {
        let block = self.block_of(member.at);
        if let Some(here) = self.blocks.get_mut(&block) {
            here.retain(|owned| owned.member != member);
            if here.is_empty() {
                self.blocks.remove(&block);
            }
        }
    }

    /// A block was erased. Returns what was in it.
    pub(super) fn erased(&mut self, block: Pbn) -> Vec<Owned> {
        self.blocks.remove(&block).unwrap_or_default()
    }

    /// Bytes of the table.
    pub(super) fn bytes(&self) -> u64 {
        let entries: usize = self.blocks.values().map(Vec::capacity).sum();
        table_bytes::<Pbn, Vec<Owned>>(self.blocks.len()) + (entries * size_of::<Owned>()) as u64
    }

    /// Compares the table with flash, as far as the device can tell: what is here is there, and
    /// what is there and not here `need_not` be.
    pub(super) fn check(&self, ftl: &Ftl, need_not: impl Fn(&Owned) -> bool) -> Result<(), String> {
        let mut met = 0;
        let mut blocks = ftl.data_blocks();
        // What a cut left in a block whose first page is blank.
        blocks.retain(|&block| ftl.block_state(block) != BlockState::Free);
        for block in blocks {
            for page in 0..self.geometry.pages_per_block {
                let at = self.geometry.page(block, page);
                let Some(version) = peek_version(ftl, at) else {
                    met += self.in_page(at).count();
                    continue;
                };
                let Some(version) = version else { continue };
                for (index, entry) in version.list.entries.iter().enumerate() {
                    let owned = Owned {
                        tx: entry.tx,
                        member: Member {
                            at,
                            seq: version.head.seq as u32,
                            index: index as u8,
                        },
                        link: entry.link,
                        flag: version.tail.flags[index],
                    };
                    let kept = self.get(owned.member);
                    if kept.map_or(!need_not(&owned), |kept| *kept != owned) {
                        return Err(format!("page {at} has {owned:?}, the table {kept:?}"));
                    }
                    met += usize::from(kept.is_some());
                }
            }
        }
        let kept: usize = self.blocks.values().map(Vec::len).sum();
        match met == kept {
            true => Ok(()),
            false => Err(format!("{kept} entries are in the table, {met} on flash")),
        }
    }
}
