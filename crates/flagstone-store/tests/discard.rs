//! `discard` in the middle of a transaction, right after a collection, and a cut then. A block may
//! be given back to the medium only once its erase is durable: until then its old pages are what a
//! cut leaves.

use flagstone::commit::Kind;
use flagstone::units::Lpn;
use flagstone_store::medium::{Landing, Medium, Recorded};
use flagstone_store::{OpenOptions, PageStore};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGES: u32 = 120;

/// A medium on which a sync does nothing while `is_deaf`.
struct Deaf {
    below: Recorded,
    is_deaf: Arc<AtomicBool>,
}

impl Medium for Deaf {
    flagstone_store::forward_medium!(below: read_at write_at bytes reserve);

    fn sync(&self) -> io::Result<()> {
        if self.is_deaf.load(Ordering::Relaxed) {
            Ok(())
        } else {
            self.below.sync()
        }
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        self.below.discard(offset, bytes)
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left { self.0 << by } else { self.0 >> by };
        }
        (self.0 >> 20) % end
    }
}

/// What a store holds differs from what was committed.
fn differs(left: Recorded, options: &OpenOptions, held: &[u32]) -> Option<String> {
    let mut store = match PageStore::on(Box::new(left), options) {
        Ok(store) => store,
        Err(error) => return Some(format!("it does not open: {error}")),
    };
    let mut page = vec![0; PageStore::PAGE_BYTES];
    for (at, &wanted) in (0..).zip(held) {
        let found = match store.read(None, Lpn(at), &mut page) {
            Ok(Some(_)) => u32::from_le_bytes(*page.first_chunk().expect("it is longer")),
            Ok(None) => 0,
            Err(error) => return Some(format!("page {at}: {error}")),
        };
        if found != wanted {
            return Some(format!("page {at} holds {found}, not {wanted}"));
        }
    }
    store.device().check().err()
}

/// Commits transactions and discards after each collection. Returns the discards that gave
/// something back, and the cuts after which something else was there than had been committed.
fn discards(protocol: Kind, seed: u64, deafens: bool) -> (u64, Vec<String>) {
    let medium = Recorded::default();
    let is_deaf = Arc::new(AtomicBool::new(false));
    let mut options = OpenOptions::default().with_protocol(protocol);
    options.pages_per_block = 16;
    options.space = 1.2;
    let deaf = Deaf {
        below: medium.clone(),
        is_deaf: Arc::clone(&is_deaf),
    };
    let mut store = PageStore::on(Box::new(deaf), &options).expect("a store");
    let mut held = vec![0; PAGES as usize];
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut given, mut bad) = (0, Vec::new());
    let mut tag = 0;
    for _ in 0..200 {
        let tx = store.begin().expect("it begins");
        let (mut after, mut wrote) = (held.clone(), BTreeSet::new());
        for _ in 0..=dice.below(9) {
            let at = dice.below(PAGES.into()) as u32;
            if !wrote.insert(at) {
                continue;
            }
            tag += 1_u32;
            let before = store.device().stats().collections;
            store
                .write(tx, Lpn(at), &tag.to_le_bytes())
                .expect("there is room");
            after[at as usize] = tag;
            if store.device().stats().collections == before {
                continue;
            }
            is_deaf.store(deafens, Ordering::Relaxed);
            given += u64::from(store.discard().expect("no fault") > 0);
            is_deaf.store(false, Ordering::Relaxed);
            for cut in 0..6 {
                let landing = match cut {
                    0 => Landing::Nothing,
                    1 => Landing::Everything,
                    _ => Landing::Sectors(dice.below(1 << 30)),
                };
                let differs = differs(medium.cut(landing), &options, &held);
                bad.extend(differs.map(|what| format!("{protocol}, seed {seed}: {what}")));
            }
        }
        store.commit(tx).expect("it commits");
        held = after;
    }
    (given, bad)
}

fn protocols() -> impl Iterator<Item = Kind> {
    let takes = |kind: &Kind| kind.info().atomic && !kind.info().reprograms;
    Kind::ALL.iter().copied().filter(takes)
}

#[test]
fn nothing_is_given_back_before_its_erase_is_durable() {
    for protocol in protocols() {
        let (mut given, mut bad) = (0, Vec::new());
        for seed in 0..4 {
            let (some, found) = discards(protocol, seed, false);
            given += some;
            bad.extend(found);
        }
        assert_eq!(bad, Vec::<String>::new());
        assert!(given > 10, "{protocol}: {given}");
    }
}

/// The control: the syncs of a discard do nothing.
#[test]
fn a_discard_that_does_not_wait_is_found_out() {
    for protocol in [Kind::Scc, Kind::MixSl, Kind::Bpcc] {
        let found = (0..4).any(|seed| !discards(protocol, seed, true).1.is_empty());
        assert!(found, "{protocol}");
    }
}
