//! Power cuts under transactions of SAL-hashing, over a device that promises nothing but single
//! pages; and controls that must fail.

use super::{Mistake, SalTx, Transactions};
use crate::commit::{Device, Kind, Options};
use crate::dice::Dice;
use crate::ftl::Config;
use crate::index::{DeviceStore, IndexError, IndexKind, Key, Settings, Store, Value};
use crate::nand::{Cut, PowerCut, Shared, small};
use crate::units::Nanos;
use std::collections::BTreeMap;

const KEYS: u64 = 120;
const LOG_PAGES: u32 = 120;

type Map = BTreeMap<Key, Value>;

fn store(flash: &Shared<PowerCut>) -> Result<Box<dyn Store>, IndexError> {
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

fn open(
    flash: &Shared<PowerCut>,
    mistake: Option<Mistake>,
) -> Result<(Transactions, Nanos), IndexError> {
    let store = store(flash)?;
    Transactions::with(
        store,
        &settings(),
        LOG_PAGES,
        5,
        Nanos::ZERO,
        mistake.into(),
    )
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

/// Two transactions at a time, one of even and one of odd keys, until `ends` of them have ended.
fn play(
    db: &mut Transactions,
    mut now: Nanos,
    dice: &mut Dice,
    oracle: &mut Oracle,
    ends: u64,
) -> Result<Nanos, IndexError> {
    let mut live: [Option<(SalTx, Map)>; 2] = [None, None];
    let mut ended = 0;
    while ended < ends {
        let who = dice.below(2);
        let slot = &mut live[who as usize];
        let (tx, changes) = slot.get_or_insert_with(|| (db.begin(), Map::new()));
        match dice.below(10) {
            0 => {
                now = db.abort(now, *tx)?;
                *slot = None;
                ended += 1;
            }
            1 | 2 => {
                // A deletion is a zero here.
                let mut after = oracle.sure.clone();
                for (&key, &value) in changes.iter() {
                    match value {
                        0 => after.remove(&key),
                        value => after.insert(key, value),
                    };
                }
                oracle.in_doubt = Some(after);
                now = db.commit(now, *tx)?;
                oracle.sure = oracle.in_doubt.take().expect("it was set");
                *slot = None;
                ended += 1;
            }
            3 => {
                let key = dice.below(KEYS / 2) * 2 + who;
                let (found, done) = db.get(now, Some(*tx), key)?;
                now = done;
                let own = changes.get(&key).or(oracle.sure.get(&key)).copied();
                assert_eq!(found, own.filter(|&value| value != 0), "key {key}");
            }
            roll => {
                let key = dice.below(KEYS / 2) * 2 + who;
                let value = if roll < 8 { dice.below(1 << 30) + 1 } else { 0 };
                now = db.change(now, *tx, key, (value != 0).then_some(value))?;
                changes.insert(key, value);
            }
        }
    }
    Ok(now)
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

/// What restarts did, and updates rolled back in the buffer and beneath.
#[derive(Debug, Default)]
struct Seen {
    cuts: u64,
    cut_restarts: u64,
    open_flushes: u64,
    pages: u64,
    redone: u64,
    losers: u64,
    rolled: (u64, u64),
}

/// Cuts the power again and again under one history.
fn campaign(seed: u64, cuts: u64, mistake: Option<Mistake>, seen: &mut Seen) -> Result<(), String> {
    let mut flash = small::flash();
    let mut dice = Dice(seed);
    let mut oracle = Oracle::default();
    for i in 0..cuts {
        let at = |what: String| format!("seed {seed}, cut {i}: {what}");
        let say = |error: IndexError| at(error.to_string());
        let cut = Cut {
            at: dice.below(260),
            dice: dice.next(),
            torn: dice.below(2) == 0,
        };
        switch_on(&mut flash, Some(cut));
        let ran = match open(&flash, mistake) {
            Ok((mut db, now)) => {
                let ran = play(&mut db, now, &mut dice, &mut oracle, 40);
                let rolled = db.rolled_back();
                seen.rolled = (seen.rolled.0 + rolled.0, seen.rolled.1 + rolled.1);
                ran.map(|_| ())
            }
            Err(error) => {
                seen.cut_restarts += u64::from(is_power_loss(&error));
                Err(error)
            }
        };
        match ran {
            Ok(()) => {}
            Err(error) if is_power_loss(&error) => seen.cuts += 1,
            Err(error) => return Err(say(error)),
        }
        switch_on(&mut flash, None);
        let (mut db, now) = open(&flash, mistake).map_err(say)?;
        let restart = db.restarted();
        seen.open_flushes += restart.open_flushes;
        seen.pages += restart.pages;
        seen.redone += restart.redone;
        seen.losers += restart.losers;
        judge(&mut db, now, &mut oracle).map_err(at)?;
    }
    Ok(())
}

/// With R1 to R4; without any of them they do not, see below.
#[test]
fn transactions_survive_power_cuts() {
    let mut seen = Seen::default();
    for seed in 0..30 {
        assert_eq!(campaign(seed, 50, None, &mut seen), Ok(()));
    }
    assert!(seen.cuts > 400 && seen.cut_restarts > 10, "{seen:?}");
    assert!(seen.open_flushes > 5 && seen.pages > 100, "{seen:?}");
    assert!(seen.redone > 100 && seen.losers > 100, "{seen:?}");
    assert!(seen.rolled.0 > 100 && seen.rolled.1 > 10, "{seen:?}");
}

#[test]
fn mistakes_are_found() {
    let mistakes = [
        Mistake::FlushNotLogged,
        Mistake::EndIgnored,
        Mistake::CommitNotForced,
        Mistake::NoUndo,
        Mistake::UndoNotLogged,
        // What the departures R1 to R4 are for.
        Mistake::PagesFirst,
        Mistake::CoversAll,
        Mistake::RemovedAlone,
        Mistake::UndoneFirst,
    ];
    for mistake in mistakes {
        let found = std::panic::catch_unwind(|| {
            (0..100).any(|seed| campaign(seed, 50, Some(mistake), &mut Seen::default()).is_err())
        });
        assert!(found.unwrap_or(true), "{mistake:?} passes");
    }
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
