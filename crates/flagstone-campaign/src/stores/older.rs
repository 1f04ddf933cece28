//! The initial contents of a run's medium: nothing, an older store, or noise.
//!
//! The older store is created by the clients of the run as well, with other draws and other
//! contents. It counts openings and erases like the run's store, so that only the identity
//! distinguishes their pages. Its superblocks are zeroed, as a user does before creating a new
//! store there. Its marks are zeroed or overwritten, as by a creation that is cut before its
//! superblock is written: no store is created over marks of another one.
//!
//! Uses random numbers of its own, so that clients behave the same whatever the medium holds.

use super::harness::{Done, Life, Media, StoreRun, World};
use super::tight::Tight;
use super::{Lie, StoreRunId};
use flagstone_store::MEDIUM_PAGE_BYTES;
use flagstone_store::medium::Recorded;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Seed modifiers: for the initial contents, for the older store, and for an older store of another
/// shape.
const HOLDS: u64 = 0x01de << 40;
const OLDER: u64 = 0x01d1 << 40;
const SHAPED: u64 = 0x5a9e << 40;
const SPARSE: u64 = 0x59a2 << 40;

/// Write numbers of an older store start after this one.
const OLDER_TAG: u64 = 1 << 32;

/// Maximum number of bytes of noise.
const NOISE_MAX: usize = 4 << 20;

/// The initial contents of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    /// A store of the same shape.
    Store,
    /// A store with blocks and contents of other sizes.
    OtherStore,
    Noise,
}

impl StoreRunId {
    /// The initial contents of the run's medium, and random numbers to create them.
    fn held(&self) -> (Held, Pcg64Mcg) {
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed ^ HOLDS);
        let held = match dice.random_range(0..8) {
            _ if self.lie == Lie::Identities => Held::Store,
            0 | 1 => Held::Store,
            2 => Held::OtherStore,
            3 => Held::Noise,
            _ => Held::Nothing,
        };
        (held, dice)
    }

    /// Whether creating a store needs `force` because the medium is not blank.
    pub(super) fn forces(&self) -> bool {
        self.held().0 != Held::Nothing
    }

    /// Whether the medium is sparse, like a file with holes: in half of the wide runs.
    pub(super) fn is_sparse(&self) -> bool {
        let mut dice = Pcg64Mcg::seed_from_u64(self.seed ^ SPARSE);
        match Tight::of(self) {
            Some(tight) => tight.is_sparse,
            None => self.wide && dice.random_range(0..2) == 0,
        }
    }

    /// The identity seed of the run's stores.
    pub(super) fn identity(&self) -> u64 {
        match self.lie {
            Lie::Identities => 0,
            _ => identity_of(self.seed),
        }
    }
}

/// The identity seed for run seed `seed`: hashed with the finaliser of splitmix64, so that adjacent
/// seeds differ everywhere.
pub(super) fn identity_of(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The medium of a run.
///
/// # Errors
/// The older store fails, which is a violation.
pub(super) fn medium<W: World>(id: &StoreRunId) -> Done<Recorded> {
    let medium = filled::<W>(id)?;
    medium.be_sparse(id.is_sparse());
    Ok(medium)
}

/// The medium of a run, filled with its initial contents. The superblocks of an older store are
/// zeros, and its marks are zeros or noise.
fn filled<W: World>(id: &StoreRunId) -> Done<Recorded> {
    let (held, mut dice) = id.held();
    let mut bytes = match held {
        Held::Nothing => return Ok(Recorded::default()),
        Held::Noise => {
            let mut bytes = vec![0; dice.random_range(1..=NOISE_MAX)];
            dice.fill_bytes(&mut bytes);
            bytes
        }
        Held::Store => older::<W>(id, id.seed, &mut dice)?,
        Held::OtherStore => older::<W>(id, id.seed ^ SHAPED, &mut dice)?,
    };
    let is_scrambled = dice.random_range(0..2) == 0;
    for (place, page) in bytes.chunks_mut(MEDIUM_PAGE_BYTES).enumerate() {
        let is_mark = page.starts_with(b"Mark");
        if is_mark && is_scrambled {
            dice.fill_bytes(page);
        } else if is_mark || place < 2 {
            page.fill(0);
        }
    }
    Ok(Recorded::with(&bytes))
}

/// The medium of an older store. `shape` is the seed that determines its shape.
fn older<W: World>(id: &StoreRunId, shape: u64, dice: &mut Pcg64Mcg) -> Done<Vec<u8>> {
    let lie = match id.lie {
        Lie::Identities => Lie::Identities,
        _ => Lie::None,
    };
    let shaped = StoreRunId { seed: shape, ..*id };
    let (world, _) = W::draw(&shaped, &mut Pcg64Mcg::seed_from_u64(shape));
    let seed = id.seed ^ OLDER;
    let mut run = StoreRun::of(&StoreRunId { seed, lie, ..*id }, world);
    run.tag = OLDER_TAG;
    let media = Media {
        medium: Recorded::default(),
        chip: None,
    };
    let wrong = |what| format!("in the older store: {what}");
    let state = if id.filled {
        W::fill(&mut run, &media).map_err(wrong)?
    } else {
        W::State::default()
    };
    // It lives longer than the run's store, so that there are old contents wherever that store
    // grows to.
    let steps = 2 * dice.random_range(W::STEPS[0].clone());
    let mut life = Life::new(media, state, 1);
    W::live(&mut run, &mut life, steps, dice).map_err(wrong)?;
    Ok(life.media.medium.to_vec())
}
