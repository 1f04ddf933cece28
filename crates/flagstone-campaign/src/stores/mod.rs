//! Power cuts under stores: transactions on a medium where any subset of the unsynced sectors may
//! survive a cut.
//!
//! A run is a [`StoreRunId`]: equal ids give equal runs on every machine. A run draws a store, lets
//! a few clients write, and meanwhile copies the medium at writes and syncs. Each copy is cut: with
//! a random outcome for its sectors it is opened as a store, and must hold the acknowledged data,
//! with or without the transaction whose commit was in flight. Some of these stores are written to
//! and cut again.
//!
//! Campaigns that find nothing must still detect the [`Lie`]s.
//!
//! ```
//! use flagstone::commit::Kind;
//! use flagstone_campaign::stores::{Lie, StoreCampaign, StoreSubject};
//!
//! let campaign = StoreCampaign {
//!     subject: StoreSubject::Tables,
//!     protocol: Kind::Seal,
//!     lie: Lie::None,
//!     encrypted: false,
//!     on_chip: false,
//!     cuts: 4,
//!     depth: 1,
//!     seed: 1,
//!     stop_early: true,
//! };
//! assert_eq!(campaign.run(&|_| ()).violations, []);
//! ```

pub mod kill;
mod kill_tables;
pub mod bench;
pub mod counted;
mod compacting;
mod discards;
mod harness;
pub mod heads;
mod lie;
mod model;
mod older;
mod on_chip;
mod pages;
mod pair;
pub mod rot;
pub mod soak;
mod tables;
mod tight;
mod whole;
mod wide;

pub use harness::StoreTally;
pub use lie::Lie;
pub use on_chip::Landed;
pub use wide::WideTally;

use crate::campaign;
use flagstone::commit::Kind;
use flagstone_store::OpenOptions;
use harness::carry_out;
use pages::Pages;
use std::fmt;
use std::str::FromStr;
use tables::Tables;

/// Whether this program supports encrypted stores.
pub const ENCRYPTS: bool = cfg!(feature = "encryption");

/// Number of runs per batch: few at first, so that a small campaign stays small.
const BATCH: std::ops::RangeInclusive<usize> = 8..=64;

/// The contents of a run's stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreSubject {
    /// Pages.
    Pages,
    /// Tables in pages.
    Tables,
}

impl StoreSubject {
    /// The first word of run ids.
    fn word(self) -> &'static str {
        match self {
            StoreSubject::Pages => "store",
            StoreSubject::Tables => "tables",
        }
    }

    /// Whether `lie` is a control for runs with this subject.
    pub fn has(self, lie: Lie) -> bool {
        match lie {
            Lie::Horizon | Lie::Sums => false,
            Lie::FreedPages | Lie::DroppedRoots | Lie::MovedRoots => self == StoreSubject::Tables,
            Lie::Landings
            | Lie::Roots
            | Lie::SyncsOfTables
            | Lie::Discards
            | Lie::Compactions
            | Lie::OldVersions => self == StoreSubject::Pages,
            _ => true,
        }
    }
}

/// A run, fully determined by this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRunId {
    /// What the store holds.
    pub subject: StoreSubject,
    /// The commit protocol of the store.
    pub protocol: Kind,
    /// The lie of the medium.
    pub lie: Lie,
    /// Whether the store is filled before the run until it collects. Runs over tables then also
    /// have little space, many tables, and processes that end.
    pub filled: bool,
    /// Whether the store grows during the run: its pages are far apart, or it may take much space
    /// before it collects. Not used by runs over tables, whose stores always grow.
    pub grows: bool,
    /// Whether more is drawn at random: settings, clients, groups of commits, large transactions,
    /// closes, failing media, and copies of whole stores. Not for runs with a chip.
    pub wide: bool,
    /// Whether the store is encrypted. Programs without encryption have no such runs.
    pub encrypted: bool,
    /// Maximum number of cuts in a row.
    pub depth: u32,
    /// Seed of everything else.
    pub seed: u64,
}

impl fmt::Display for StoreRunId {
    /// Such as `store.seal.filled/n3/s17`: subject, protocol, lie, kinds of runs; depth; seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.subject.word(), self.protocol)?;
        if self.lie != Lie::None {
            write!(f, ".{}", self.lie.name())?;
        }
        if self.filled {
            write!(f, ".filled")?;
        }
        if self.grows {
            write!(f, ".grows")?;
        }
        if self.wide {
            write!(f, ".wide")?;
        }
        if self.encrypted {
            write!(f, ".encrypted")?;
        }
        write!(f, "/n{}/s{}", self.depth, self.seed)
    }
}

impl FromStr for StoreRunId {
    type Err = String;

    /// Parses a run id in the spelling of `Display`. Refuses a lie that is no control of the
    /// subject.
    fn from_str(text: &str) -> Result<StoreRunId, String> {
        let wrong = || {
            format!(
                "`{text}` is not a run id of a store, such as store.seal/n3/s17: use one that \
                 `store break` prints"
            )
        };
        let parts: Vec<&str> = text.split('/').collect();
        let &[subject, depth, seed] = parts.as_slice() else {
            return Err(wrong());
        };
        let mut names = subject.split('.');
        let subject = match names.next() {
            Some("store") => StoreSubject::Pages,
            Some("tables") => StoreSubject::Tables,
            _ => return Err(wrong()),
        };
        let protocol = names.next().and_then(Kind::by_name).ok_or_else(wrong)?;
        let number = |part: &str, letter| part.strip_prefix(letter)?.parse::<u64>().ok();
        let mut run = StoreRunId {
            subject,
            protocol,
            lie: Lie::None,
            filled: false,
            grows: false,
            wide: false,
            encrypted: false,
            depth: u32::try_from(number(depth, 'n').ok_or_else(wrong)?).map_err(|_| wrong())?,
            seed: number(seed, 's').ok_or_else(wrong)?,
        };
        for name in names {
            match name {
                "filled" => run.filled = true,
                "grows" => run.grows = true,
                "wide" => run.wide = true,
                "encrypted" => run.encrypted = true,
                lie => run.lie = Lie::by_name(lie).ok_or_else(wrong)?,
            }
        }
        if run.encrypted && !ENCRYPTS {
            return Err(format!(
                "`{text}` is about an encrypted store: build with the feature `encryption`"
            ));
        }
        // Tables have only runs under SEAL, and their stores always grow.
        let is_possible = match subject {
            StoreSubject::Pages => true,
            StoreSubject::Tables => run.protocol == Kind::Seal && !run.grows,
        };
        if run.to_string() == text && is_possible && subject.has(run.lie) {
            Ok(run)
        } else {
            Err(wrong())
        }
    }
}

impl StoreRunId {
    /// Executes the run.
    pub fn run(&self) -> StoreTally {
        match self.subject {
            StoreSubject::Pages => carry_out::<Pages>(self, false),
            StoreSubject::Tables => carry_out::<Tables>(self, false),
        }
    }

    /// Executes the run on a medium and on a simulated chip. Both are cut at the same operations,
    /// and restarts must find the same. Not available for tables.
    pub fn run_on_chip(&self) -> StoreTally {
        match self.subject {
            StoreSubject::Pages => carry_out::<Pages>(self, !self.wide),
            StoreSubject::Tables => self.run(),
        }
    }

    /// Adds the key to the options if the run uses an encrypted store.
    fn lock(&self, options: &mut OpenOptions) {
        lock(self.encrypted, options);
    }
}

/// Adds the key to the options if `encrypted`.
fn lock(encrypted: bool, options: &mut OpenOptions) {
    #[cfg(feature = "encryption")]
    if encrypted {
        options.key = Some(flagstone_store::Key::raw([17; 32]));
    }
    #[cfg(not(feature = "encryption"))]
    let _ = (encrypted, options);
}

/// The task of a campaign with the stores of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreCampaign {
    /// What the stores hold.
    pub subject: StoreSubject,
    /// The commit protocol.
    pub protocol: Kind,
    /// The lie of the medium, for controls.
    pub lie: Lie,
    /// Whether the stores are encrypted.
    pub encrypted: bool,
    /// Whether a simulated chip executes the same operations as each medium, see
    /// [`StoreRunId::run_on_chip`].
    pub on_chip: bool,
    /// Minimum number of cuts.
    pub cuts: u64,
    /// Maximum number of cuts in a row.
    pub depth: u32,
    /// Seed of the campaign.
    pub seed: u64,
    /// Stop at the first violation instead of counting all.
    pub stop_early: bool,
}

/// What a campaign found.
pub type StoreFindings = campaign::Findings<StoreRunId, StoreTally>;

/// Whether a new store with the protocol is so large, compared with the writes of a run, that it
/// never collects unless it is filled before.
fn begins_large(protocol: Kind) -> bool {
    let format = protocol.info().format;
    format.persist_map || format.logs > 0
}

/// Whether the protocol suits stores and has atomic transactions.
pub fn suits(protocol: Kind) -> bool {
    protocol.info().atomic && !protocol.info().reprograms
}

impl StoreCampaign {
    /// Executes the campaign. `progress` receives the number of cuts.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> StoreFindings {
        let ids = (0..).map(|number| StoreRunId {
            subject: self.subject,
            protocol: self.protocol,
            lie: self.lie,
            filled: number % 2 != 0
                && (self.subject == StoreSubject::Tables || begins_large(self.protocol)),
            grows: self.subject == StoreSubject::Pages && matches!(number % 8, 2 | 5),
            wide: !self.on_chip && matches!(number % 8, 3..=5),
            encrypted: self.encrypted,
            depth: self.depth.max(1),
            seed: self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number) & (u64::MAX >> 16),
        });
        let run = |id: &StoreRunId| {
            if self.on_chip {
                id.run_on_chip()
            } else {
                id.run()
            }
        };
        let carry_out = |id: &StoreRunId| {
            let tally = run(id);
            progress(tally.cuts);
            let found = tally.first.clone().map(|what| (*id, what));
            (tally, found)
        };
        let fails_without_lie = |id: &StoreRunId| {
            let lie = Lie::None;
            id.lie != lie && run(&StoreRunId { lie, ..*id }).violations > 0
        };
        StoreFindings::of(
            ids,
            |findings| (findings.runs as usize).clamp(*BATCH.start(), *BATCH.end()),
            carry_out,
            fails_without_lie,
            |StoreFindings { work, .. }| {
                work.cuts >= self.cuts || self.stop_early && work.violations > 0
            },
        )
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
