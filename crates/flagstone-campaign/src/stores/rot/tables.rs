//! Histories of tables: transactions with savepoints on several tables of both kinds, as in the
//! campaign with power cuts under tables.

use super::super::harness::{Done, StoreRun, failed};
use super::super::lie::Lying;
use super::super::tables::Tables;
use super::super::tables::states::{Rows, State, bytes_of};
use super::super::tight::Tight;
use super::super::{StoreRunId, StoreSubject};
use super::judge::{Kept, Looked, Way};
use super::pages::check as check_pages;
use super::past::{Bytes, Past};
use super::{End, RotRunId};
use flagstone_store::medium::{Landing, Recorded};
use flagstone_store::tables::{LostKeys, ReadTx, Store, TableKind};
use flagstone_store::{OpenOptions, PageStore, StoreError};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// The row of a damaged store's additional transaction: a key that clients do not use.
const LATER_TABLE: &str = "apples";
const LATER_KEY: &[u8] = b"later";
const LATER: u64 = 1 << 40;

/// The store of a run, and how clients use it.
pub(super) struct RottenTables {
    id: RotRunId,
    pages_per_block: u32,
    space: f64,
    clients: StoreRun<Tables>,
    erases: u64,
    tight: Option<Tight>,
}

/// The data that was read from a table.
pub(super) struct Shown {
    kind: Option<TableKind>,
    /// The rows, up to an error other than damage.
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Ranges of lost keys that the iterator reported, and whether it ended with another error.
    lost: Vec<LostKeys>,
    has_ended: bool,
    /// Keys that were looked up, with their values if readable.
    got: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    errors: Vec<String>,
}

/// The data that was read from all tables.
pub(super) struct View {
    /// The names of the tables; `None` if they cannot be read.
    names: Option<Vec<String>>,
    tables: BTreeMap<String, Shown>,
    errors: Vec<String>,
}

impl RottenTables {
    /// Ends the life of a store, and sets the medium that it leaves. Except after a close, the log
    /// is taken before the store is dropped, whose writes are none of the past.
    fn end(
        &mut self,
        store: Store,
        past: &mut Past<State>,
        end: End,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let medium = past.media.medium.clone();
        let left = match end {
            End::Closed => {
                store.close().map_err(failed("close"))?;
                past.leave(medium.snapshot(), past.media.log());
                return Ok(());
            }
            End::Killed => medium.cut(Landing::Everything),
            End::KilledInTransaction => {
                let mut tx = store.write().map_err(failed("begin"))?;
                let mut after = past.newest().clone();
                self.clients.change(&mut tx, &mut after, dice)?;
                let left = medium.cut(Landing::Everything);
                let log = past.media.log();
                past.leave(left, log);
                return Ok(());
            }
            End::Cut => {
                medium.fail_at(Some(medium.operations() + dice.random_range(0..8)));
                let after = past.newest().clone();
                self.cut(&store, past, after, dice);
                let (kind, number) = (dice.random_range(0..8), dice.random());
                medium.cut(Landing::draw(medium.pending(), kind, number))
            }
        };
        let log = past.media.log();
        past.leave(left, log);
        drop(store);
        Ok(())
    }

    /// Commits another transaction on a medium that is about to fail.
    fn cut(
        &mut self,
        store: &Store,
        past: &mut Past<State>,
        mut after: State,
        dice: &mut Pcg64Mcg,
    ) {
        let Ok(mut tx) = store.write() else {
            past.tell("the power fails at the begin of a transaction");
            return;
        };
        if self.clients.change(&mut tx, &mut after, dice).is_err() {
            past.tell("the power fails while a transaction writes");
            return;
        }
        match tx.commit() {
            Ok(()) => {
                let counts = after != *past.newest();
                past.acknowledge(
                    after,
                    counts,
                    "a transaction, before the power is cut".into(),
                );
            }
            Err(_) => {
                past.tell("the power fails during a commit");
                past.doubt = Some(after);
            }
        }
    }
}

/// Commits another transaction, and closes the store.
fn go_on(store: Store) -> Result<(), StoreError> {
    let mut tx = store.write()?;
    tx.table(LATER_TABLE)?.insert(LATER_KEY, &bytes_of(LATER))?;
    tx.commit()?;
    store.close()
}

/// Describes the changes from one state to the next.
fn changes(before: &State, after: &State) -> String {
    let mut all = Vec::new();
    for (name, rows) in after {
        let empty = Rows::new();
        let old = before.get(name).unwrap_or(&empty);
        let put: Vec<_> = rows
            .iter()
            .filter(|(key, tag)| old.get(*key) != Some(tag))
            .collect();
        let gone = old.keys().filter(|key| !rows.contains_key(*key)).count();
        if !put.is_empty() || gone > 0 || !before.contains_key(name) {
            let first = put.first().map_or(String::new(), |(key, tag)| {
                format!(" (first {}={tag})", short(key))
            });
            let name = short(name.as_bytes());
            all.push(format!(
                "{name}: {} rows put{first}, {gone} removed",
                put.len()
            ));
        }
    }
    let dropped = before.keys().filter(|name| !after.contains_key(*name));
    all.extend(dropped.map(|name| format!("{} dropped", short(name.as_bytes()))));
    if all.is_empty() {
        "no change".into()
    } else {
        all.join("; ")
    }
}

/// The beginning of a key or name.
fn short(bytes: &[u8]) -> String {
    match bytes {
        [] => "(empty)".into(),
        bytes if bytes.len() > 24 => format!("{}...", bytes[..24].escape_ascii()),
        bytes => bytes.escape_ascii().to_string(),
    }
}

/// Reads a table: all rows, then each key of `wanted`.
fn show(read: &ReadTx, name: &str, wanted: Option<&Rows>) -> Shown {
    let mut shown = Shown {
        kind: None,
        rows: Vec::new(),
        lost: Vec::new(),
        has_ended: false,
        got: BTreeMap::new(),
        errors: Vec::new(),
    };
    let table = match read.table(name) {
        Ok(table) => table,
        Err(error) => {
            shown.errors.push(error.to_string());
            return shown;
        }
    };
    shown.kind = Some(table.kind());
    for row in table.iter() {
        match row {
            Ok((key, value)) => shown.rows.push((key, (*value).to_vec())),
            Err(error) => {
                shown.errors.push(error.to_string());
                match error {
                    StoreError::Lost { lost, .. } => shown.lost.push(lost),
                    _ => shown.has_ended = true,
                }
            }
        }
    }
    for key in wanted.into_iter().flat_map(Rows::keys) {
        match table.get(key) {
            Ok(value) => {
                let value = value.as_deref().map(<[u8]>::to_vec);
                shown.got.insert(key.clone(), value);
            }
            Err(error) => shown.errors.push(error.to_string()),
        }
    }
    shown
}

/// Whether a key is in a range of lost keys.
fn is_in(key: &[u8], lost: &LostKeys) -> bool {
    let to = lost.to.as_deref();
    key >= &lost.from[..] && to.is_none_or(|to| key < to)
}

/// Describes contents of a table that contradict its expected rows.
fn not_in(shown: &Shown, rows: &Rows) -> Option<String> {
    let mut wanted: Vec<(&Vec<u8>, u64)> = rows.iter().map(|(key, &tag)| (key, tag)).collect();
    let is_whole = shown.errors.is_empty();
    for (key, value) in &shown.rows {
        match rows.get(key) {
            None => return Some(format!("key {} is there, and should not", short(key))),
            Some(&tag) if *value != bytes_of(tag) => {
                return Some(format!(
                    "key {} has not the value of write {tag}",
                    short(key)
                ));
            }
            Some(_) => {}
        }
    }
    for (key, value) in &shown.got {
        let tag = rows.get(key).copied();
        if *value != tag.map(bytes_of) {
            let found = value.as_ref().map_or("nothing".into(), |value| {
                let tag = value.first_chunk().map(|tag| u64::from_le_bytes(*tag));
                tag.map_or("a short value".to_string(), |tag| {
                    format!("perhaps write {tag}")
                })
            });
            let wanted = tag.map_or("nothing".into(), |tag| format!("write {tag}"));
            return Some(format!("key {} reads as {found}, not {wanted}", short(key)));
        }
    }
    // A range yields all keys except those it reports as lost, up to any other error.
    let is_ordered = shown.kind == Some(TableKind::Ordered);
    if is_whole || is_ordered {
        wanted.retain(|(key, _)| !shown.lost.iter().any(|lost| is_in(key, lost)));
        if shown.has_ended {
            wanted.truncate(shown.rows.len());
        }
        let mut found: Vec<&Vec<u8>> = shown.rows.iter().map(|(key, _)| key).collect();
        if !is_ordered {
            found.sort_unstable();
        }
        let keys: Vec<&Vec<u8>> = wanted.iter().map(|(key, _)| *key).collect();
        if found != keys {
            let missing = keys.iter().find(|key| !found.contains(key));
            let missing = missing.map_or("keys are out of order".into(), |key| {
                format!("key {} is missing", short(key))
            });
            return Some(format!(
                "{missing} ({} of {} keys)",
                found.len(),
                rows.len()
            ));
        }
    }
    None
}

impl Kept for RottenTables {
    type State = State;
    type View = View;

    fn draw(id: &RotRunId, dice: &mut Pcg64Mcg) -> RottenTables {
        let drawn = [16, 16, 20, 32, 64][dice.random_range(0..5)];
        let tight = Tight::draw(id.seed);
        let pages_per_block = tight.map_or(drawn, |tight| tight.pages_per_block);
        let run = StoreRunId {
            subject: StoreSubject::Tables,
            protocol: id.protocol,
            lie: id.lie,
            filled: false,
            grows: false,
            wide: false,
            encrypted: id.encrypted,
            depth: 1,
            seed: id.seed,
        };
        RottenTables {
            id: *id,
            pages_per_block,
            space: [1.2, 1.5, 2.0, 30.0][dice.random_range(0..4)],
            clients: StoreRun::of(&run, Tables::plain(pages_per_block)),
            erases: 0,
            tight,
        }
    }

    fn about(&self) -> String {
        format!("tables, {} pages a block", self.pages_per_block)
    }

    fn id(&self) -> &RotRunId {
        &self.id
    }

    fn collections(&self) -> u64 {
        self.erases
    }

    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::default();
        options.pages_per_block = self.pages_per_block;
        options.space = self.space;
        options.mistake = crate::made(self.id.lie.of_device());
        self.id.lock(&mut options);
        options
    }

    fn live(
        &mut self,
        _: &RotRunId,
        past: &mut Past<State>,
        end: End,
        dice: &mut Pcg64Mcg,
    ) -> Done<()> {
        let medium = past
            .media
            .dressed(self.id.lie, self.pages_per_block, self.tight);
        let opened = Store::on(medium, &self.options());
        let store = opened.map_err(failed("it does not open"))?;
        let steps = [0..2, 2..10, 10..40][dice.random_range(0..3)].clone();
        for _ in 0..dice.random_range(steps) {
            if dice.random_range(0..12) == 0 {
                let moved = store.idle(dice.random_range(1..40));
                self.erases += u64::from(moved.map_err(failed("while it is idle"))? > 0);
            }
            let mut tx = store.write().map_err(failed("begin"))?;
            let mut after = past.newest().clone();
            self.clients.change(&mut tx, &mut after, dice)?;
            if dice.random_range(0..8) == 0 {
                drop(tx);
                past.tell("a transaction is rolled back");
                continue;
            }
            let (counts, about) = (after != *past.newest(), changes(past.newest(), &after));
            match tx.commit() {
                Err(StoreError::Full(_)) if self.tight.is_some() => {
                    past.tell("a transaction finds no room");
                    continue;
                }
                done => done.map_err(failed("commit"))?,
            }
            past.acknowledge(after, counts, about);
        }
        self.end(store, past, end, dice)
    }

    fn look(&self, medium: &Recorded, way: Way, newest: &State) -> Result<Looked<View>, String> {
        let mut options = self.options();
        options.create = false;
        options.read_only = way.reads;
        let lying = Lying::new(medium.clone(), self.id.lie, self.pages_per_block);
        let opened = Store::on(Box::new(lying), &options);
        let store = opened.map_err(|error| error.to_string())?;
        // As the `check` command does: the pages of the store, then its tables.
        let check = || {
            let mut reading = options.clone();
            reading.read_only = true;
            let lying = Lying::new(medium.snapshot(), self.id.lie, self.pages_per_block);
            let of_pages = match PageStore::on(Box::new(lying), &reading) {
                Ok(mut store) => check_pages(&mut store),
                Err(error) => Some(error.to_string()),
            };
            of_pages.or_else(|| store.check().err())
        };
        let before = way.checks_first.then(check);
        let mut view = View {
            names: None,
            tables: BTreeMap::new(),
            errors: Vec::new(),
        };
        match store.read() {
            Err(error) => view.errors.push(error.to_string()),
            Ok(read) => {
                let names = read.tables();
                match names {
                    Ok(names) => view.names = Some(names.into_iter().map(|it| it.0).collect()),
                    Err(error) => view.errors.push(error.to_string()),
                }
                let wanted = newest.keys().map(|name| (*name).to_string());
                let names: Vec<String> =
                    view.names.iter().flatten().cloned().chain(wanted).collect();
                for name in names {
                    // A table that was not found should not exist.
                    let is_listed = view
                        .names
                        .as_ref()
                        .is_none_or(|names| names.contains(&name));
                    if is_listed && !view.tables.contains_key(&name) {
                        let shown = show(&read, &name, newest.get(name.as_str()));
                        view.tables.insert(name, shown);
                    }
                }
            }
        }
        let wrong = before.unwrap_or_else(check);
        let went_on = way.goes_on && !way.reads && go_on(store).is_ok();
        Ok(Looked {
            view,
            wrong,
            went_on,
        })
    }

    fn later(&self, state: &State) -> State {
        let mut later = state.clone();
        later
            .entry(LATER_TABLE)
            .or_default()
            .insert(LATER_KEY.to_vec(), LATER);
        later
    }

    fn differs(&self, view: &View, state: &State) -> Option<String> {
        if let Some(names) = &view.names {
            let wanted: Vec<&str> = state.keys().copied().collect();
            if *names != wanted {
                return Some(format!("the tables are {names:?}, not {wanted:?}"));
            }
        }
        view.tables.iter().find_map(|(name, shown)| {
            let empty = Rows::new();
            let rows = match state.get(name.as_str()) {
                Some(rows) => rows,
                // Without the list of tables, a missing table may be looked up.
                None if shown.kind.is_none() => return None,
                None => &empty,
            };
            let differs = not_in(shown, rows)?;
            Some(format!("table {}: {differs}", short(name.as_bytes())))
        })
    }

    fn unread(&self, view: &View) -> Option<String> {
        let of_tables = view.tables.values().flat_map(|shown| &shown.errors);
        let mut errors = view.errors.iter().chain(of_tables);
        errors
            .next()
            .map(|first| format!("part of the tables (`{first}`)"))
    }

    fn written_by(&self, _: &Bytes) -> Option<String> {
        None
    }
}
