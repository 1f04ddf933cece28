//! Histories of keys and values that are rare among random ones: minimum and maximum, ascending and
//! descending runs, distant keys, and trees emptied from either end.

use super::model::Mirrored;
use super::{IndexError, IndexKind, Key, Settings, Value};
use flagstone::dice::Dice;

#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Close to the greatest key.
    Greatest,
    /// Distant keys, including the minimum and the maximum.
    FarApart,
    /// Keys of a few bits, at either end.
    Ends,
    /// Keys with one bit set, and their neighbours.
    Bits,
}

const SHAPES: [Shape; 4] = [Shape::Greatest, Shape::FarApart, Shape::Ends, Shape::Bits];

impl Shape {
    fn key(self, n: u64) -> Key {
        match self {
            Shape::Greatest => Key::MAX - n,
            Shape::FarApart => n.wrapping_mul(0x0040_0000_0000_0001),
            Shape::Ends if n.is_multiple_of(2) => n / 2,
            Shape::Ends => Key::MAX - n / 2,
            Shape::Bits => (1u64 << (n % 64)).wrapping_add(n / 64).wrapping_sub(3),
        }
    }
}

fn value(dice: &mut Dice) -> Value {
    match dice.below(6) {
        0 => 0,
        1 => Value::MAX,
        2 => dice.next(),
        _ => dice.below(200),
    }
}

fn change(
    both: &mut Mirrored,
    key: Key,
    value: Option<Value>,
    dice: &mut Dice,
) -> Result<(), String> {
    match value {
        Some(value) if both.map.contains_key(&key) && dice.one_in(2) => both.update(key, value),
        Some(value) => both.insert(key, value),
        None => both.delete(key),
    }
}

/// Compares all keys, and ranges that begin and end at some keys or next to them.
fn look(both: &mut Mirrored, keys: &[Key], dice: &mut Dice) -> Result<(), String> {
    both.compare(keys.iter().copied())?;
    if !both.index.info().ordered {
        return Ok(());
    }
    for (from, to) in [(0, 0), (Key::MAX, Key::MAX), (Key::MAX, 0), (5, 4)] {
        both.range(from, to)?;
    }
    let mut end = || {
        let key = keys[dice.pick(keys.len() as u32) as usize];
        key.wrapping_add(dice.below(3)).wrapping_sub(1)
    };
    (0..12).try_for_each(|_| both.range(end(), end()))
}

/// Fills an index with keys of a shape and empties it again, six times, and compares it with a map.
fn play(
    kind: IndexKind,
    settings: &Settings,
    page: usize,
    shape: Shape,
    seed: u64,
) -> Result<(), String> {
    let mut both = match Mirrored::open(kind, settings, page) {
        // The pages are too small for the settings.
        Err(IndexError::Settings(_)) => return Ok(()),
        opened => opened.map_err(|error| error.to_string())?,
    };
    let mut dice = Dice(seed);
    let count = 200 + 100 * (seed % 5);
    let mut keys: Vec<Key> = (0..count).map(|n| shape.key(n)).collect();
    keys.sort_unstable();
    keys.dedup();
    for round in 0..6 {
        let mut order = keys.clone();
        match dice.below(4) {
            0 => order.reverse(),
            1 => {}
            _ => (1..order.len()).for_each(|i| order.swap(i, dice.pick(i as u32 + 1) as usize)),
        }
        let keeps = [1, 2, 40][dice.pick(3) as usize];
        for &key in &order {
            let value = value(&mut dice);
            change(&mut both, key, Some(value), &mut dice)?;
        }
        look(&mut both, &keys, &mut dice).map_err(|what| format!("round {round}, full: {what}"))?;
        if dice.one_in(2) {
            both = both.reopen()?;
            look(&mut both, &keys, &mut dice)
                .map_err(|what| format!("round {round}, opened: {what}"))?;
        }
        match dice.below(3) {
            0 => order.sort_unstable(),
            1 => order.sort_unstable_by_key(|&key| std::cmp::Reverse(key)),
            _ => {}
        }
        for (n, &key) in order.iter().enumerate() {
            if keeps == 1 || n % keeps != 0 {
                both.delete(key)?;
            }
            if dice.one_in(60) {
                both.delete(key)?;
                look(&mut both, &keys, &mut dice)
                    .map_err(|what| format!("round {round}, {n}: {what}"))?;
            }
        }
        look(&mut both, &keys, &mut dice)
            .map_err(|what| format!("round {round}, empty: {what}"))?;
        if dice.one_in(2) {
            both = both.reopen()?;
            look(&mut both, &keys, &mut dice)
                .map_err(|what| format!("round {round}, opened: {what}"))?;
        }
    }
    Ok(())
}

#[test]
fn indexes_agree_with_a_map_on_keys_at_the_ends_of_their_range() {
    let mut wrong = Vec::new();
    for &kind in IndexKind::ALL {
        for shape in SHAPES {
            for seed in 0..6 {
                for (settings, page) in [
                    (kind.info().tiny(), 256),
                    (Settings::new().with("memory", 8192), 512),
                ] {
                    let played =
                        std::panic::catch_unwind(|| play(kind, &settings, page, shape, seed));
                    let played = played.unwrap_or_else(|_| Err("it panics".into()));
                    if let Err(what) = played {
                        wrong.push(format!("{kind} {shape:?} {page} {seed}: {what}"));
                    }
                }
            }
        }
    }
    let all = wrong.len();
    wrong.truncate(12);
    wrong.iter_mut().for_each(|what| what.truncate(300));
    assert!(wrong.is_empty(), "{all}: {wrong:#?}");
}
