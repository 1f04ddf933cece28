//! Stores whose newer superblock is lost: data that the older one does not know must not be lost
//! silently.
//!
//! A store grows over several openings. After each operation of its medium, the newer superblock is
//! damaged or zeroed. The store must then open with all acknowledged data, or be refused.

use super::*;
use crate::flash::{mark, mark_page, signed_mark, signer_of};
use crate::superblock::superblock;
use flagstone::layout::get;

/// A medium at one moment, and its acknowledged contents.
type Moment = (Recorded, Pages);

/// A closed opening, then two that are killed; the second one grows the store.
fn moments(protocol: Kind) -> Vec<Moment> {
    let medium = Recorded::default();
    let open = || PageStore::on(Box::new(medium.clone()), &small(protocol)).expect("a store");
    let mut moments = Vec::new();
    let mut pages = Pages::new();
    let mut store = open();
    store.put_all(0..40, b"first");
    pages.extend((0..40).map(|at| (at, Some(b"first".to_vec()))));
    store.close().expect("no fault");
    for (round, data) in [&b"second"[..], b"third", b"fourth"]
        .into_iter()
        .enumerate()
    {
        let mut store = open();
        let began = store.info().blocks;
        for at in (0..400).step_by(25) {
            store.put_all(at..at + 25, data);
            pages.extend((at..at + 25).map(|at| (at, Some(data.to_vec()))));
            moments.push((medium.cut(Landing::Nothing), pages.clone()));
        }
        assert!(round > 0 || store.info().blocks > began, "it has not grown");
        match round {
            // The opening between the killed ones was closed.
            1 => store.close().expect("no fault"),
            _ => std::mem::forget(store),
        }
    }
    moments
}

/// Offset of the newer superblock; openings and blocks in the older one.
fn older(bytes: &[u8]) -> (usize, u64, u64) {
    let sequence = |at: usize| get(&bytes[at..], superblock::SEQUENCE);
    let (newer, older) = if sequence(0) > sequence(4096) {
        (0, 4096)
    } else {
        (4096, 0)
    };
    let field = |range| get(&bytes[older..], range);
    (newer, field(superblock::BOOT), field(superblock::BLOCKS))
}

/// Whether the older superblock knows the latest opening, and all blocks of the store.
fn knows(medium: &Recorded, boot: u64, blocks: u64) -> (bool, bool) {
    let pages = u64::from(small(Kind::Seal).pages_per_block);
    let end = medium.bytes().expect("a length") / 4096;
    let mut knows = (true, true);
    for block in (0..).take_while(|&block| mark_page(pages as u32, block) < end) {
        let place = mark_page(pages as u32, block);
        let bytes = signed_mark(medium, place).expect("a mark");
        let generation = match signer_of(&bytes) {
            Some(_) => get(&bytes, mark::GENERATION),
            None => 0,
        };
        knows.0 &= generation >> 32 <= boot || u64::from(block) >= blocks;
        knows.1 &= generation == 0 || u64::from(block) < blocks;
    }
    knows
}

#[test]
fn a_store_whose_newer_superblock_is_lost_is_whole_or_refused() {
    for protocol in [Kind::Seal, Kind::Scc] {
        let (mut opened, mut later, mut larger) = (0, 0, 0);
        for (medium, pages) in moments(protocol) {
            let whole = medium.to_vec();
            let (newer, boot, blocks) = older(&whole);
            let (knows_boot, knows_blocks) = knows(&medium, boot, blocks);
            for lost in [0, 0x55] {
                let mut bytes = whole.clone();
                bytes[newer..newer + 4096].fill(lost);
                for options in [OpenOptions::existing(), OpenOptions::existing().reading()] {
                    let medium = Recorded::with(&bytes);
                    let is_known = knows_boot && knows_blocks;
                    match PageStore::on(Box::new(medium.clone()), &options) {
                        // A later opening would reuse generations that blocks already have.
                        Ok(_) if !is_known => panic!("{protocol}: the older one is believed"),
                        Ok(mut store) => {
                            assert!(contents(&mut store) == pages, "it has lost something");
                            opened += 1;
                        }
                        Err(StoreError::Damaged(_)) => {
                            later += u32::from(!knows_boot);
                            larger += u32::from(knows_boot && !knows_blocks);
                            assert_eq!(medium.written(), 0, "it was changed");
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
        let all = [opened, later, larger];
        assert!(all.iter().all(|&times| times > 3), "{protocol}: {all:?}");
    }
}
