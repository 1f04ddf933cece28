//! The expected contents of a store: pages whose bytes identify the write.

use flagstone::commit::DeviceError;
use flagstone::units::Lpn;
use flagstone_store::{PageStore, StoreError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// The number of a write, which determines its bytes.
pub(super) type Tag = u64;

/// The writes of a transaction; `None` is a trim.
pub(super) type Writes = BTreeMap<u32, Option<Tag>>;

/// The pages that clients write to: `count` pages at equal distances.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) count: u32,
    pub(super) apart: u32,
}

impl Places {
    /// The page number of place `index`.
    pub(super) fn at(self, index: u32) -> u32 {
        index * self.apart
    }

    /// Pages that no client writes to: between the places, just after them, and far away.
    pub(super) fn never_written(self) -> impl Iterator<Item = u32> {
        let end = self.at(self.count - 1) + 1;
        let between = (self.apart > 1).then_some(1);
        let behind = [0, 1, 7, 63, 1_000, 100_000].map(|far| end + far);
        between.into_iter().chain(behind)
    }

    /// A random place.
    pub(super) fn draw(self, dice: &mut Pcg64Mcg) -> u32 {
        self.at(dice.random_range(0..self.count))
    }
}

/// Seed modifier for bulk trims.
const BULK_TRIMS: u64 = 0x5eeb << 40;

/// The pages that a client trims together with write number `tag`. In half of the runs some trims
/// come in bulk. Uses its own random numbers: clients behave the same with and without it.
pub(super) fn bulk_trimmed(seed: u64, tag: Tag, pages: Places) -> Vec<u32> {
    let trims_in_bulk = Pcg64Mcg::seed_from_u64(seed ^ BULK_TRIMS).random_bool(0.5);
    let mut dice = Pcg64Mcg::seed_from_u64(seed ^ BULK_TRIMS ^ tag << 8);
    let count = match dice.random_range(0..8) {
        0..4 if trims_in_bulk => dice.random_range(1..6),
        4..7 if trims_in_bulk => dice.random_range(6..40),
        7 if trims_in_bulk => dice.random_range(0..2 * pages.count),
        _ => 0,
    };
    (0..count).map(|_| pages.draw(&mut dice)).collect()
}

/// The committed contents of all pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Model {
    pages: BTreeMap<u32, Tag>,
}

/// The bytes of a write.
pub(super) fn bytes_of(tag: Tag) -> Vec<u8> {
    let word = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = 16 + (word >> 32) as usize % (PageStore::PAGE_BYTES - 15);
    let mut bytes = vec![word as u8; len];
    bytes[..8].copy_from_slice(&tag.to_le_bytes());
    let end = bytes.len() - 8;
    bytes[end..].copy_from_slice(&tag.to_le_bytes());
    bytes
}

impl Model {
    /// The contents after `writes`.
    pub(super) fn with(&self, writes: &Writes) -> Model {
        let mut pages = self.pages.clone();
        for (&at, &tag) in writes {
            match tag {
                Some(tag) => pages.insert(at, tag),
                None => pages.remove(&at),
            };
        }
        Model { pages }
    }

    /// The number of the write that a page holds.
    pub(super) fn tag(&self, at: u32) -> Option<Tag> {
        self.pages.get(&at).copied()
    }

    /// The nonempty pages from `first` on.
    pub(super) fn held_from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        self.pages.range(first..).map(|(&at, _)| at)
    }

    /// Compares a store with the model. The error describes the first difference.
    pub(super) fn compare(&self, store: &mut PageStore, pages: Places) -> Result<(), String> {
        self.compare_by(pages, |at, page| store.read(None, at, page))
    }

    /// Compares the model with pages returned by `read`.
    pub(super) fn compare_by(
        &self,
        pages: Places,
        mut read: impl FnMut(Lpn, &mut [u8]) -> Result<Option<usize>, StoreError>,
    ) -> Result<(), String> {
        let mut page = vec![0; PageStore::PAGE_BYTES];
        let written = (0..pages.count).map(|index| pages.at(index));
        for at in written.chain(pages.never_written()) {
            let found = match read(Lpn(at), &mut page) {
                Ok(bytes) => bytes.map(|bytes| &page[..bytes]),
                Err(StoreError::Device(DeviceError::Unreadable(_))) => {
                    return Err(format!("page {at} cannot be read"));
                }
                Err(error) => return Err(format!("reading page {at}: {error}")),
            };
            let wanted = self.pages.get(&at).copied();
            if found != wanted.map(bytes_of).as_deref() {
                let tag = |bytes: &[u8]| {
                    let word = bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
                    word.unwrap_or_default()
                };
                let found = found.map_or("nothing".into(), |it| format!("write {}", tag(it)));
                let wanted = wanted.map_or("nothing".into(), |tag| format!("write {tag}"));
                return Err(format!("page {at} holds {found}, not {wanted}"));
            }
        }
        Ok(())
    }
}
