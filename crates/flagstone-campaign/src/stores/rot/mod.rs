//! Rot under stores: pages of the medium that change after they were durable.
//!
//! A run draws a history: transactions, collections, closes, reopenings, power cuts, and an end.
//! Then it damages copies of the resulting medium. A damaged store must give the right data or an
//! error. Wrong data, or missing data without an error, is a *silent* loss: the finding of this
//! campaign.
//!
//! ```text
//!   past.rs     media that remember what their pages held, and when each commit was durable
//!   damage.rs   which pages are damaged, and how
//!   judge.rs    what a damaged store may say
//!   pages.rs    histories of pages
//!   tables.rs   histories of tables
//!   id.rs       runs by their names
//!   tally.rs    counts by damage
//! ```
//!
//! ```
//! use flagstone::commit::Kind;
//! use flagstone_campaign::stores::rot::RotCampaign;
//! use flagstone_campaign::stores::{Lie, StoreSubject};
//!
//! let campaign = RotCampaign {
//!     subject: StoreSubject::Pages,
//!     protocol: Kind::Seal,
//!     lie: Lie::None,
//!     encrypted: false,
//!     damages: 16,
//!     seed: 1,
//!     stop_early: false,
//! };
//! let findings = campaign.run(&|_| ());
//! assert!(findings.work.damaged() >= 16);
//! ```

mod damage;
mod id;
mod judge;
mod pages;
mod past;
mod tables;
mod tally;
#[cfg(test)]
mod tests;

pub use damage::{Aim, Harm};
pub use id::RotRunId;
pub use past::End;
pub use tally::{Outcome, RotTally, Silence};

use super::{BATCH, Lie, StoreSubject};
use crate::campaign;
use crate::campaign::caught;
use damage::{Damage, Site};
use flagstone::commit::Kind;
use flagstone_store::medium::Recorded;
use judge::{Kept, verdict};
use pages::RottenPages;
use past::Past;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use tables::RottenTables;

/// Number of damaged copies per history.
pub const DAMAGES: u32 = 8;

/// Seed modifier for damage.
const DAMAGE: u64 = 0xda3a << 40;

/// Number of last commits in a report, besides those whose pages are damaged.
const TOLD: usize = 12;

/// The task of a campaign with rot under the stores of one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotCampaign {
    /// What the stores hold.
    pub subject: StoreSubject,
    /// The commit protocol.
    pub protocol: Kind,
    /// The deliberate mistake, for controls.
    pub lie: Lie,
    /// Whether the stores are encrypted.
    pub encrypted: bool,
    /// Minimum number of damaged stores.
    pub damages: u64,
    /// Seed of the campaign.
    pub seed: u64,
    /// Stop at the first silent loss instead of counting all.
    pub stop_early: bool,
}

/// What a campaign found.
pub type RotFindings = campaign::Findings<RotRunId, RotTally>;

impl RotCampaign {
    /// Executes the campaign. `progress` receives the number of damaged stores examined.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> RotFindings {
        let ids = (0..).map(|number| RotRunId {
            subject: self.subject,
            protocol: self.protocol,
            lie: self.lie,
            encrypted: self.encrypted,
            seed: self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(number) & (u64::MAX >> 16),
            damage: None,
        });
        let carry_out = |id: &RotRunId| {
            let tally = id.run();
            progress(tally.damaged());
            let found = tally.first.clone();
            (tally, found)
        };
        let fails_without_lie = |id: &RotRunId| {
            let lie = Lie::None;
            id.lie != lie && RotRunId { lie, ..*id }.run().silent() > 0
        };
        RotFindings::of(
            ids,
            |findings| (findings.runs as usize).clamp(*BATCH.start(), *BATCH.end()),
            carry_out,
            fails_without_lie,
            |RotFindings { work, .. }| {
                work.damaged() >= self.damages || self.stop_early && work.silent() > 0
            },
        )
    }
}

impl RotRunId {
    /// Executes the run: one damaged store, or all of the history.
    pub fn run(&self) -> RotTally {
        match self.subject {
            StoreSubject::Pages => carry_out::<RottenPages>(self),
            StoreSubject::Tables => carry_out::<RottenTables>(self),
        }
    }

    /// The medium of one damaged store: before the damage, and after it.
    ///
    /// # Errors
    /// The id names a whole history, which has several; or the history fails before that.
    pub fn media(&self) -> Result<[Vec<u8>; 2], String> {
        match self.subject {
            StoreSubject::Pages => media::<RottenPages>(self),
            StoreSubject::Tables => media::<RottenTables>(self),
        }
    }

    /// Draws one of the damages of the history. The judge continues with the same random numbers.
    fn draw<K: Kept>(
        &self,
        site: &Site<'_>,
        past: &Past<K::State>,
        number: u32,
    ) -> (Damage, Recorded, Pcg64Mcg) {
        let seed = self.seed ^ DAMAGE ^ u64::from(number) << 56;
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let commit_of = |write| past.commit_of(write);
        let (damage, left) = Damage::draw(site, &commit_of, &mut dice);
        (damage, left, dice)
    }
}

/// The medium of a run with one damage, before the damage and after it.
fn media<K: Kept>(id: &RotRunId) -> Result<[Vec<u8>; 2], String> {
    let number = id.damage.ok_or("the id has no number of a damage")?;
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    let mut kept = K::draw(id, &mut dice);
    let past = history(id, &mut kept, &mut dice)?;
    let site = Site::of(&past.media, id.has_statements());
    let (_, left, _) = id.draw::<K>(&site, &past, number);
    Ok([past.media.medium.to_vec(), left.to_vec()])
}

/// Executes a run. A panic of a store is a finding.
fn carry_out<K: Kept>(id: &RotRunId) -> RotTally {
    let mut tally = RotTally {
        histories: 1,
        ..RotTally::default()
    };
    let mut dice = Pcg64Mcg::seed_from_u64(id.seed);
    let mut kept = K::draw(id, &mut dice);
    let past = match caught(|| history(id, &mut kept, &mut dice)) {
        Ok(past) => past,
        Err(what) => {
            tally.before += 1;
            tally.first = Some((*id, format!("before any damage: {what}")));
            return tally;
        }
    };
    tally.commits = past.commits.len() as u64 - 1;
    tally.collections = kept.collections();
    let site = Site::of(&past.media, id.has_statements());
    let all = match id.damage {
        Some(one) => one..one + 1,
        None => 0..DAMAGES,
    };
    for number in all {
        let one = RotRunId {
            damage: Some(number),
            ..*id
        };
        let (damage, left, mut dice) = id.draw::<K>(&site, &past, number);
        let judged = caught(|| verdict(&kept, &past, &site, &damage, &left, &mut dice));
        let (outcome, what) = match judged {
            Ok(judged) => judged,
            Err(panic) => (Outcome::Silent(Silence::Panic), panic),
        };
        tally.count(damage.aim, damage.harm, outcome);
        if let Outcome::Silent(way) = outcome {
            tally.silent_by_way[way as usize] += 1;
            tally
                .examples
                .entry((damage.aim, damage.harm))
                .or_insert(one);
            tally.silent_by_end[past.end as usize] += 1;
            let story = story(&kept, &past, &site, &damage);
            tally.first.get_or_insert((one, format!("{what}\n{story}")));
        } else if id.damage.is_some() {
            let story = story(&kept, &past, &site, &damage);
            tally.told = Some(format!("{what}\n{story}"));
        }
    }
    tally
}

/// Draws a history and executes it.
fn history<K: Kept>(
    id: &RotRunId,
    kept: &mut K,
    dice: &mut Pcg64Mcg,
) -> Result<Past<K::State>, String> {
    let mut past = Past::new();
    let lives = dice.random_range(1..=4);
    for life in 0..lives {
        let end = End::ALL[dice.random_range(0..End::ALL.len())];
        if life > 0 {
            judge::go_on(kept, &mut past)?;
        }
        kept.live(id, &mut past, end, dice)?;
        past.end = end;
        past.tell(end.about());
    }
    Ok(past)
}

/// A report on a damaged store.
fn story<K: Kept>(kept: &K, past: &Past<K::State>, site: &Site<'_>, damage: &Damage) -> String {
    let mut lines = vec![format!("  store: {}", kept.about())];
    let skipped = past.commits.len().saturating_sub(TOLD);
    // The commit that made a medium page durable.
    let of = |place: &u64| past.commit_of(site.log.written(*place).unwrap_or(0));
    let damaged: BTreeSet<usize> = damage.pages.keys().map(of).collect();
    let mut events = past.events.iter().peekable();
    let mut left_out = 0;
    for (number, commit) in past.commits.iter().enumerate() {
        let is_told = number >= skipped || damaged.contains(&number);
        if is_told {
            if left_out > 0 {
                lines.push(format!("  ... {left_out} commits"));
            }
            lines.push(format!("  commit {number}: {}", commit.about));
        }
        left_out = if is_told { 0 } else { left_out + 1 };
        while let Some((_, event)) = events.next_if(|(after, _)| *after <= number) {
            if is_told {
                lines.push(format!("    {event}"));
            }
        }
    }
    let aim = Aim::ALL.iter().find(|(aim, _)| *aim == damage.aim);
    let (_, aim) = aim.expect("all are named");
    lines.push(format!("  damaged: {aim}"));
    for (&place, what) in &damage.pages {
        let write = site.log.written(place).unwrap_or(0);
        let commit = match past.commit_of(write) {
            number if number < past.commits.len() => format!("durable by commit {number}"),
            _ => "written after the last commit".into(),
        };
        let about = site.about(place, &|bytes| kept.written_by(bytes));
        lines.push(format!(
            "    medium page {place}, {about}, {commit}: {what}"
        ));
    }
    lines.join("\n")
}
