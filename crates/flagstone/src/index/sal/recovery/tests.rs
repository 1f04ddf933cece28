//! Transactions of SAL-hashing in small scenes, over a device that promises nothing but single
//! pages. Campaigns of the lab cut the power under them, and look for each mistake.

use super::{Mistake, Transactions};
use crate::commit::{Device, Kind, Options};
use crate::dice::Dice;
use crate::ftl::Config;
use crate::index::{
    BackingStore, DeviceStore, IndexError, IndexKind, Key, MemStore, Result, Settings, Value,
};
use crate::nand::{Cut, PowerCut, Shared, small};
use crate::units::Nanos;
use std::collections::BTreeMap;

const KEYS: u64 = 120;
const LOG_PAGES: u32 = 120;

type Map = BTreeMap<Key, Value>;

fn store(flash: &Shared<PowerCut>) -> Result<Box<dyn BackingStore>> {
    let config = Config {
        over_provision: 0.3,
        logical_pages: None,
        ..Config::small(0, None)
    };
    let flash = Box::new(flash.clone());
    let device = Device::open(flash, Kind::Plain, config, &Options::default(), Nanos::ZERO);
    let device = device.map_err(|error| IndexError::Store(error.into()))?;
    Ok(Box::new(DeviceStore::new(device)))
}

fn settings() -> Settings {
    IndexKind::Sal.info().tiny().with("memory", 4096)
}

fn open(flash: &Shared<PowerCut>, mistake: Option<Mistake>) -> Result<(Transactions, Nanos)> {
    open_on(store(flash)?, mistake, Nanos::ZERO)
}

fn open_on(
    store: Box<dyn BackingStore>,
    mistake: Option<Mistake>,
    now: Nanos,
) -> Result<(Transactions, Nanos)> {
    Transactions::with(store, &settings(), LOG_PAGES, 5, now, mistake.into())
}

fn is_power_loss(error: &IndexError) -> bool {
    matches!(error, IndexError::Store(error) if error.is_power_loss())
}

/// What is known of the records: as they were committed, and with a transaction whose commit was
/// not answered.
#[derive(Default)]
struct Oracle {
    sure: Map,
    in_doubt: Option<Map>,
}

/// Whether all is as the oracle says.
fn judge(db: &mut Transactions, mut now: Nanos, oracle: &mut Oracle) -> Result<Nanos, String> {
    db.index().check()?;
    let mut found = Map::new();
    for key in 0..KEYS {
        let (value, done) = db.get(now, None, key).map_err(|error| error.to_string())?;
        now = done;
        found.extend(value.map(|value| (key, value)));
    }
    let doubt = oracle.in_doubt.take();
    if found != oracle.sure && Some(&found) != doubt.as_ref() {
        let wrong = (0..KEYS).find(|key| found.get(key) != oracle.sure.get(key));
        return Err(format!("key {wrong:?} is not as it was committed"));
    }
    oracle.sure = found;
    db.index().check()?;
    Ok(now)
}

fn switch_on(flash: &mut Shared<PowerCut>, cut: Option<Cut>) {
    small::restart(flash, 6, false, cut);
}

#[test]
fn keys_of_another_transaction_are_refused() {
    let flash = small::flash();
    let (mut db, now) = open(&flash, None).expect("a blank device");
    let (one, other) = (db.begin(), db.begin());
    let now = db.change(now, one, 5, Some(7)).expect("free");
    for refused in [
        db.change(now, other, 5, None).map(|_| ()),
        db.get(now, Some(other), 5).map(|_| ()),
        db.get(now, None, 5).map(|_| ()),
    ] {
        let error = refused.expect_err("the key is taken");
        assert!(matches!(error, IndexError::Store(error) if error.is_restart()));
    }
    let now = db.abort(now, one).expect("abort");
    let (found, _) = db.get(now, Some(other), 5).expect("free again");
    assert_eq!(found, None);
    assert_eq!(db.rolled_back(), (1, 0));
}

/// R3.
#[test]
fn an_older_change_in_the_buffer_comes_back() {
    let flash = small::flash();
    let (mut db, now) = open(&flash, None).expect("a blank device");
    let one = db.begin();
    let now = db.change(now, one, 5, Some(7)).expect("free");
    let now = db.commit(now, one).expect("commit");
    let other = db.begin();
    let now = db.change(now, other, 5, None).expect("free");
    let now = db.change(now, other, 5, Some(9)).expect("its own");
    let now = db.abort(now, other).expect("abort");
    assert_eq!(db.get(now, None, 5).expect("free").0, Some(7));
}

/// A transaction that changes all that it may lives while others commit, until the log has come
/// round many times; then the power goes, and each restart that would roll it back is cut as well.
/// Returns how many updates it had.
fn one_stays_while_others_commit(mistake: Option<Mistake>) -> Result<u64, String> {
    let mut flash = small::flash();
    let say = |error: IndexError| error.to_string();
    let (mut db, mut now) = open(&flash, mistake).map_err(say)?;
    let mut oracle = Oracle::default();
    let long = db.begin();
    let mut updates = 0;
    // Others have room as long as this one leaves some.
    while updates < 60 {
        let key = updates * 2 % KEYS;
        now = db.change(now, long, key, Some(updates + 1)).map_err(say)?;
        updates += 1;
    }
    for round in 0..2_000 {
        let (tx, key) = (db.begin(), round * 2 % KEYS + 1);
        now = db.change(now, tx, key, Some(round + 1)).map_err(say)?;
        now = db.commit(now, tx).map_err(say)?;
        oracle.sure.insert(key, round + 1);
    }
    let refused = loop {
        match db.change(now, long, 0, Some(updates + 1)) {
            Ok(done) => (now, updates) = (done, updates + 1),
            Err(error) => break error,
        }
    };
    let is_restart = matches!(&refused, IndexError::Store(error) if error.is_restart());
    if !is_restart {
        return Err(say(refused));
    }
    drop(db);
    for at in 0..40 {
        let (dice, torn) = (at * 77, false);
        let at = at * 3;
        switch_on(&mut flash, Some(Cut { at, dice, torn }));
        match open(&flash, mistake) {
            Err(error) if !is_power_loss(&error) => return Err(say(error)),
            _ => {}
        }
    }
    switch_on(&mut flash, None);
    let (mut db, now) = open(&flash, mistake).map_err(say)?;
    judge(&mut db, now, &mut oracle)?;
    Ok(updates)
}

/// R5.
#[test]
fn a_transaction_that_stays_does_not_keep_the_log_from_coming_round() {
    let updates = one_stays_while_others_commit(None).expect("it holds");
    assert!(updates > 80, "{updates} updates");
    let error = one_stays_while_others_commit(Some(Mistake::NotCarried)).expect_err("the control");
    assert!(
        error.contains("more than the 120 pages of the log"),
        "{error}"
    );
}

/// Fills an index until changes are refused, and goes on; restarts come in between, with a
/// transaction that lives. Returns how many changes were refused.
fn one_is_full(pages: u32, seed: u64, mistake: Option<Mistake>) -> Result<u32, String> {
    let say = |error: IndexError| error.to_string();
    let (keys, mut dice) = (u64::from(pages) * 30, Dice(seed));
    let mut store: Box<dyn BackingStore> = Box::new(MemStore::new(256, 1 + LOG_PAGES + pages));
    let (mut map, mut refused, mut now) = (Map::new(), 0, Nanos::ZERO);
    for _ in 0..12 {
        let (mut db, done) = open_on(store, mistake, now).map_err(say)?;
        now = done;
        for round in 0..40 {
            let (tx, mut next) = (db.begin(), map.clone());
            let mut full = false;
            for _ in 0..dice.below(9) {
                let (key, value) = (dice.below(keys), dice.next());
                let new = (!dice.one_in(5)).then_some(value);
                match db.change(now, tx, key, new) {
                    Ok(done) => now = done,
                    Err(IndexError::Full { .. }) => {
                        full = true;
                        break;
                    }
                    Err(error) => return Err(say(error)),
                }
                match new {
                    Some(value) => next.insert(key, value),
                    None => next.remove(&key),
                };
            }
            refused += u32::from(full);
            if round == 39 {
                break; // It lives when the power goes.
            }
            if full || dice.one_in(5) {
                now = db.abort(now, tx).map_err(say)?;
            } else {
                now = db.commit(now, tx).map_err(say)?;
                map = next;
            }
            let key = dice.below(keys);
            let (found, done) = db.get(now, None, key).map_err(say)?;
            now = done;
            if found != map.get(&key).copied() {
                return Err(format!("key {key} is not as it was committed"));
            }
        }
        store = db.into_store();
    }
    let (mut db, mut now) = open_on(store, mistake, now).map_err(say)?;
    if map.len() < 2 * pages as usize {
        return Err(format!("{} records are in {pages} pages", map.len()));
    }
    for key in 0..keys {
        let (found, done) = db.get(now, None, key).map_err(say)?;
        now = done;
        if found != map.get(&key).copied() {
            return Err(format!(
                "key {key} is not as it was committed, after a restart"
            ));
        }
    }
    db.index().check()?;
    Ok(refused)
}

#[test]
fn a_full_index_restarts_and_has_what_is_committed() {
    for (pages, seed) in [(60, 1), (60, 3), (100, 4), (100, 5)] {
        let refused = one_is_full(pages, seed, None).expect("it holds");
        assert!(refused > 20, "{pages}: {refused}");
    }
    let error = one_is_full(60, 3, Some(Mistake::RoomNotKept)).expect_err("the control");
    assert!(error.contains("are in use"), "{error}");
}
