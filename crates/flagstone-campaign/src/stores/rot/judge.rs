//! What a damaged store may show: the right data, or an error.
//!
//! The right data is the state after the last acknowledged commit, or after the commit that a power
//! cut interrupted. Any page may give an error instead; then `check` must report damage.
//!
//! After a crash only later writes prove that a commit was durable. So the newest transactions may
//! be missing entirely if every later one is damaged as well: that is *undecidable*. The newest
//! commit with all pages intact must be there, with everything it built on.

use super::damage::{Aim, Damage, Site};
use super::past::{Bytes, Past};
use super::{End, RotRunId};
use super::{Outcome, Silence};
use crate::stores::Lie;
use flagstone_store::OpenOptions;
use flagstone_store::medium::Recorded;
use flagstone_store::tools::{Hints, repair};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// How a damaged store is examined.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Way {
    /// Whether it is opened read-only.
    pub(super) reads: bool,
    /// Whether `check` runs before anything is read.
    pub(super) checks_first: bool,
    /// Whether another transaction is then committed, and the store closed.
    pub(super) goes_on: bool,
}

/// What a store has shown.
pub(super) struct Looked<V> {
    pub(super) view: V,
    /// The findings of `check`; `None` if it found nothing.
    pub(super) wrong: Option<String>,
    /// Whether another transaction was committed, and the store closed.
    pub(super) went_on: bool,
}

/// The contents of a run's stores, and how clients use them.
pub(super) trait Kept: Sized {
    /// The committed contents at one moment.
    type State: Clone + Default + PartialEq;
    /// The data that was read.
    type View;

    /// Draws the stores of a run.
    fn draw(id: &RotRunId, dice: &mut Pcg64Mcg) -> Self;

    /// Describes the store, for reports.
    fn about(&self) -> String;

    /// The run.
    fn id(&self) -> &RotRunId;

    /// Number of blocks collected.
    fn collections(&self) -> u64;

    /// The options of the store.
    fn options(&self) -> OpenOptions;

    /// Opens the store, lets clients use it, and ends its life.
    fn live(
        &mut self,
        id: &RotRunId,
        past: &mut Past<Self::State>,
        end: End,
        dice: &mut Pcg64Mcg,
    ) -> Result<(), String>;

    /// Opens a store and reads everything. `newest` is the expected state. The error says why the
    /// store does not open.
    fn look(
        &self,
        medium: &Recorded,
        way: Way,
        newest: &Self::State,
    ) -> Result<Looked<Self::View>, String>;

    /// The state after the additional transaction of a damaged store.
    fn later(&self, state: &Self::State) -> Self::State;

    /// The first difference between the readable data and a state.
    fn differs(&self, view: &Self::View, state: &Self::State) -> Option<String>;

    /// Describes what could not be read.
    fn unread(&self, view: &Self::View) -> Option<String>;

    /// Describes the write whose data a page of the medium holds.
    fn written_by(&self, bytes: &Bytes) -> Option<String>;
}

/// Determines the state with which the life after a crash begins.
pub(super) fn go_on<K: Kept>(kept: &K, past: &mut Past<K::State>) -> Result<(), String> {
    let way = Way {
        reads: true,
        ..Way::default()
    };
    let looked = kept
        .look(&past.media.medium.snapshot(), way, past.newest())
        .map_err(|why| format!("it does not open: {why}"))?;
    if let Some(what) = kept.unread(&looked.view) {
        return Err(format!("{what} cannot be read"));
    }
    let Some(differs) = kept.differs(&looked.view, past.newest()) else {
        past.doubt = None;
        return Ok(());
    };
    match past.doubt.take() {
        Some(state) if kept.differs(&looked.view, &state).is_none() => {
            past.acknowledge(state, true, "the one that the power cut had caught".into());
            Ok(())
        }
        _ => Err(differs),
    }
}

/// The oldest commit whose state a damaged store may show: the newest one with all pages intact,
/// which must be there with everything before it. 0, the empty store, if no commit is intact.
fn first_allowed<S: Clone + Default>(past: &Past<S>, site: &Site<'_>, damage: &Damage) -> usize {
    let last = past.commits.len() - 1;
    let damaged = |place: &u64| damage.pages.contains_key(place);
    if site.shape.closed && !damaged(&site.shape.newest) {
        return last;
    }
    for number in (1..=last)
        .rev()
        .filter(|&number| past.commits[number].counts)
    {
        let (from, to) = (
            past.commits[number - 1].durable,
            past.commits[number].durable,
        );
        // Pages that the commit made durable.
        let is_of = |write: Option<u64>| write.is_some_and(|write| write > from && write <= to);
        let places: Vec<u64> = (site.log.pages.keys().copied())
            .filter(|&place| site.shape.is_in_blocks(place) && is_of(site.log.written(place)))
            .collect();
        // Pages of the transaction may have been written before the previous commit.
        let is_whole = !places.iter().any(damaged) && !site.takes_a_page_beside(damage, &places);
        if !places.is_empty() && is_whole {
            return number;
        }
    }
    0
}

/// Opens a damaged store and classifies the result. If a whole block, or everything that one flush
/// wrote, was lost at once, a silent loss is counted separately.
pub(super) fn verdict<K: Kept>(
    kept: &K,
    past: &Past<K::State>,
    site: &Site<'_>,
    damage: &Damage,
    left: &Recorded,
    dice: &mut Pcg64Mcg,
) -> Result<(Outcome, String), String> {
    let is_whole_block = site.takes_a_block(damage, left);
    let (outcome, what) = said(kept, past, site, damage, left, dice)?;
    let is_silent = matches!(outcome, Outcome::Silent(Silence::Data | Silence::Repair));
    if is_silent && (damage.aim == Aim::Commit || is_whole_block) {
        return Ok((Outcome::LostWhole, what));
    }
    Ok((outcome, what))
}

/// The outcome of a damaged store, before silent losses of whole blocks or flushes are told apart;
/// and what it showed, in words. `left` is the damaged medium.
fn said<K: Kept>(
    kept: &K,
    past: &Past<K::State>,
    site: &Site<'_>,
    damage: &Damage,
    left: &Recorded,
    dice: &mut Pcg64Mcg,
) -> Result<(Outcome, String), String> {
    let way = Way {
        reads: dice.random_range(0..3) == 0,
        checks_first: dice.random_range(0..3) == 0,
        goes_on: dice.random_range(0..3) == 0,
    };
    let repairs = kept.id().lie == Lie::None && dice.random_range(0..8) == 0;
    let first = first_allowed(past, site, damage);
    if repairs {
        let found = repaired(kept, past, first, left);
        if let Err(what) = found {
            return Ok((Outcome::Silent(Silence::Repair), what));
        }
    }
    let looked = match kept.look(left, way, past.newest()) {
        Ok(looked) => looked,
        Err(why) => return Ok((Outcome::Opening, format!("it does not open: {why}"))),
    };
    let Some(differs) = agrees(kept, past, &looked.view) else {
        let states = past.doubt.iter().chain([past.newest()]);
        if looked.went_on
            && let Err((way, what)) = still_there(kept, left, &looked.view, states)
        {
            return Ok((Outcome::Silent(way), what));
        }
        return Ok(match (kept.unread(&looked.view), looked.wrong) {
            (None, None) => (Outcome::Right, "all is there".into()),
            (None, Some(wrong)) => (
                Outcome::Right,
                format!("all is there, and check says: {wrong}"),
            ),
            (Some(what), Some(wrong)) => (
                Outcome::Reading,
                format!("{what} cannot be read, and check says: {wrong}"),
            ),
            (Some(what), None) => (
                Outcome::Silent(Silence::Check),
                format!("{what} cannot be read, and check says that all is well"),
            ),
        });
    };
    // An earlier state from `first` on: nothing intact proves the missing commits.
    let last = past.commits.len() - 1;
    for number in (first..last).rev() {
        let state = &past.commits[number].state;
        if kept.differs(&looked.view, state).is_none() {
            if looked.went_on
                && let Err((way, what)) = still_there(kept, left, &looked.view, [state].into_iter())
            {
                return Ok((Outcome::Silent(way), what));
            }
            let what = format!("the state of commit {number} of {last} is there");
            return Ok((Outcome::Undecidable, what));
        }
    }
    let opened = ["opened to write", "opened to read"][usize::from(way.reads)];
    let checked = match looked.wrong {
        Some(wrong) => format!("check says: {wrong}"),
        None => "check says that all is well".into(),
    };
    let earlier = (0..first).rev().find(|&number| {
        let state = &past.commits[number].state;
        kept.differs(&looked.view, state).is_none()
    });
    let earlier = earlier.map_or(String::new(), |number| {
        format!("; what is there is the state of commit {number}, and {first} has to be there")
    });
    let unread = kept
        .unread(&looked.view)
        .map_or(String::new(), |what| format!("; {what} cannot be read"));
    Ok((
        Outcome::Silent(Silence::Data),
        format!("{differs} ({opened}; {checked}{unread}{earlier})"),
    ))
}

/// Reopens a damaged store after another transaction and a close. Earlier contents must still be
/// present, or give an error. `states` are those that the first opening may have shown with `view`.
fn still_there<'a, K: Kept<State: 'a>>(
    kept: &K,
    left: &Recorded,
    view: &K::View,
    states: impl Iterator<Item = &'a K::State>,
) -> Result<(), (Silence, String)> {
    let when = "one more transaction was committed, and the store closed and opened again";
    let mut found: Option<String> = None;
    for state in states.filter(|state| kept.differs(view, state).is_none()) {
        let (way, later) = (Way::default(), kept.later(state));
        let Ok(looked) = kept.look(left, way, &later) else {
            return Ok(());
        };
        let Some(differs) = kept.differs(&looked.view, &later) else {
            return match (kept.unread(&looked.view), looked.wrong) {
                (Some(what), None) => Err((
                    Silence::Check,
                    format!("{when}: {what} cannot be read, and check says that all is well"),
                )),
                _ => Ok(()),
            };
        };
        found = Some(differs);
    }
    found.map_or(Ok(()), |differs| {
        Err((Silence::Data, format!("{when}: {differs}")))
    })
}

/// Compares a view with the required state and the one in doubt. Returns the differences if it
/// equals neither.
fn agrees<K: Kept>(kept: &K, past: &Past<K::State>, view: &K::View) -> Option<String> {
    let differs = kept.differs(view, past.newest())?;
    match &past.doubt {
        Some(state) => kept.differs(view, state).map(|_| differs),
        None => Some(differs),
    }
}

/// Repairs a damaged store into a new one. If the report names no loss, the state must be there of
/// commit `first` or a later one. The error describes a silent loss.
fn repaired<K: Kept>(
    kept: &K,
    past: &Past<K::State>,
    first: usize,
    left: &Recorded,
) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a folder for a repair: {error}"))?;
    let (from, to) = (
        folder.path().join("damaged"),
        folder.path().join("repaired"),
    );
    std::fs::write(&from, left.to_vec()).map_err(|error| format!("writing a store: {error}"))?;
    let options = kept.options();
    let hints = Hints {
        protocol: Some(kept.id().protocol),
        pages_per_block: Some(options.pages_per_block),
        newest: false,
    };
    let Ok(report) = repair(&from, &to, &options, &hints, false, &mut |_, _| ()) else {
        return Ok(());
    };
    if !report.is_whole() {
        return Ok(());
    }
    let bytes = std::fs::read(&to).map_err(|error| format!("reading a store: {error}"))?;
    let said = match report.mended.as_slice() {
        [] => "repair says that nothing is lost".to_string(),
        mended => format!(
            "repair says that nothing is lost, and: {}",
            mended.join("; ")
        ),
    };
    let medium = Recorded::with(&bytes);
    let looked = kept
        .look(&medium, Way::default(), past.newest())
        .map_err(|why| format!("{said}, and the repaired store does not open: {why}"))?;
    if let Some(what) = kept.unread(&looked.view) {
        return Err(format!(
            "{said}, and in the repaired store {what} cannot be read"
        ));
    }
    let Some(differs) = agrees(kept, past, &looked.view) else {
        return Ok(());
    };
    let mut allowed = past.commits[first..].iter();
    if allowed.any(|commit| kept.differs(&looked.view, &commit.state).is_none()) {
        Ok(())
    } else {
        Err(format!("{said}, and in the repaired store {differs}"))
    }
}
