//! Draws the operations of a window from a seed, and tracks the existing keys.

use super::keys::{KeyKind, Keys};
use super::workload::{KeyChoice, KeyWorkload, Mix, WindowSpec};
use flagstone_index::{IndexInfo, Key, Value, hash};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Inserts a missing key.
    Insert(Key, Value),
    /// Sets the value of an existing key.
    Update(Key, Value),
    /// Deletes an existing key.
    Delete(Key),
    /// Searches an existing key.
    Search(Key),
    /// Searches a missing key.
    Miss(Key),
    /// Scans a range, from the first key to the second.
    Scan(Key, Key),
    /// Searches a key, then updates it.
    Modify(Key, Value),
}

/// Assumed bytes of keys per bucket, for ordering keys by bucket.
const BUCKET_KEYS: u64 = 192;

/// The existing keys, and the random streams that select among them.
pub struct Draw {
    fresh: Keys,
    dice: Pcg64Mcg,
    present: Vec<Key>,
    /// Mask of values that fit the index.
    mask: u64,
    written: u64,
    uniform: bool,
}

impl Draw {
    /// A generator without existing keys.
    pub fn new(workload: &KeyWorkload, value_bytes: usize, seed: u64) -> Draw {
        Draw {
            fresh: Keys::new(workload.keys, seed),
            dice: Pcg64Mcg::seed_from_u64(seed ^ 0x6f70_6572),
            present: Vec::with_capacity(workload.most_keys() as usize),
            mask: u64::MAX >> (64 - 8 * value_bytes),
            written: 0,
            uniform: workload.keys == KeyKind::Uniform,
        }
    }

    /// The existing keys.
    pub fn present(&self) -> &[Key] {
        &self.present
    }

    fn value(&mut self) -> Value {
        self.written += 1;
        self.written.wrapping_mul(0x9e37_79b9_7f4a_7c15) & self.mask
    }

    /// A new key and its value.
    pub fn pair(&mut self) -> (Key, Value) {
        let key = self.fresh.draw();
        self.present.push(key);
        (key, self.value())
    }

    /// A new key.
    pub fn insert(&mut self) -> Operation {
        let (key, value) = self.pair();
        Operation::Insert(key, value)
    }

    /// Sorts the keys by place, if a window needs that: by key for an ordered index, by bucket for
    /// others. A bucket's number is the last bits of the hash.
    pub fn sort_by_place(&mut self, workload: &KeyWorkload, info: &IndexInfo) {
        let hot = |spec: &WindowSpec| matches!(spec.access, KeyChoice::Hot(_));
        if !workload.windows.iter().any(hot) {
            return;
        }
        if info.ordered {
            self.present.sort_unstable();
        } else {
            let buckets = (self.present.len() as u64 / BUCKET_KEYS).max(1);
            let mask = buckets.next_power_of_two() - 1;
            let scattered = workload.scattered;
            let place = |bucket: u64| if scattered { hash(bucket) } else { bucket };
            self.present
                .sort_unstable_by_key(|&key| (place(hash(key) & mask), key));
        }
    }

    /// The operations of a window.
    pub fn window<'a>(&'a mut self, spec: &'a WindowSpec) -> impl Iterator<Item = Operation> + 'a {
        let mut left = spec.operations;
        let chooser = Chooser::new(spec.access, self.present.len());
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            Some(self.operation(&spec.mix, &chooser))
        })
    }

    /// Draws an operation by the weights of a mix, and its key by `chooser`.
    fn operation(&mut self, mix: &Mix, chooser: &Chooser) -> Operation {
        let weights = [
            mix.insert, mix.update, mix.delete, mix.search, mix.miss, mix.scan, mix.modify,
        ];
        let whole: f64 = weights.iter().sum();
        let mut point = unit(&mut self.dice) * whole;
        // The drawn kind, in the order of `weights`; rounding must not select one of weight 0.
        let mut kind = 0;
        for (at, weight) in weights.iter().enumerate() {
            if *weight > 0.0 {
                kind = at;
                if point < *weight {
                    break;
                }
                point -= weight;
            }
        }
        // Without keys, only insertions and searches of missing keys are possible.
        if self.present.is_empty() && kind != 4 {
            kind = 0;
        }
        match kind {
            0 => self.insert(),
            1 => {
                let key = self.key(chooser);
                Operation::Update(key, self.value())
            }
            2 => {
                let at = chooser.draw(&mut self.dice, self.present.len());
                Operation::Delete(self.present.swap_remove(at))
            }
            3 => Operation::Search(self.key(chooser)),
            // A random number of 64 bits is practically never an existing key.
            4 => Operation::Miss(self.dice.next_u64().min(u64::MAX - 1)),
            5 => {
                let from = self.key(chooser);
                // The range has about `keys` keys if these are uniform.
                let keys = self.dice.random_range(1..=100u64);
                let apart = if self.uniform {
                    u64::MAX / self.present.len() as u64
                } else {
                    64
                };
                Operation::Scan(from, from.saturating_add(keys.saturating_mul(apart)))
            }
            _ => {
                let key = self.key(chooser);
                Operation::Modify(key, self.value())
            }
        }
    }

    fn key(&mut self, chooser: &Chooser) -> Key {
        self.present[chooser.draw(&mut self.dice, self.present.len())]
    }
}

/// A uniform number from 0 to below 1.
fn unit(dice: &mut Pcg64Mcg) -> f64 {
    (dice.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Selects one of a number of keys.
enum Chooser {
    Uniform,
    /// The exponent that maps a uniform number to a place.
    Hot(f64),
    Zipf(Zipf<f64>),
    Latest(Zipf<f64>),
}

impl Chooser {
    fn new(access: KeyChoice, keys: usize) -> Chooser {
        let law = |theta| Zipf::new(keys.max(1) as f64, theta).expect("an exponent of a workload");
        match access {
            KeyChoice::Uniform => Chooser::Uniform,
            KeyChoice::Hot(share) if share <= 0.5 => Chooser::Uniform,
            // A share s of the accesses goes to the first 1 - s of the places: s^x = 1 - s.
            KeyChoice::Hot(share) => Chooser::Hot((1.0 - share).ln() / share.ln()),
            KeyChoice::Zipf(theta) => Chooser::Zipf(law(theta)),
            KeyChoice::Latest(theta) => Chooser::Latest(law(theta)),
        }
    }

    fn draw(&self, dice: &mut Pcg64Mcg, keys: usize) -> usize {
        let at = match self {
            Chooser::Uniform => dice.random_range(0..keys),
            Chooser::Hot(exponent) => (unit(dice).powf(*exponent) * keys as f64) as usize,
            // Keys are in the order in which they were drawn, which is random.
            Chooser::Zipf(law) => law.sample(dice) as usize - 1,
            Chooser::Latest(law) => keys.saturating_sub(law.sample(dice) as usize),
        };
        at.min(keys - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::BenchOptions;
    use super::*;
    use flagstone_index::IndexKind;
    use std::collections::BTreeSet;

    fn workload(name: &str, records: u64) -> KeyWorkload {
        KeyWorkload::new(
            name,
            &BenchOptions {
                records,
                ..BenchOptions::default()
            },
        )
        .unwrap()
    }

    fn loaded(workload: &KeyWorkload, seed: u64) -> Draw {
        let mut draw = Draw::new(workload, 8, seed);
        (0..workload.load).for_each(|_| _ = draw.insert());
        draw.sort_by_place(workload, IndexKind::Extendible.info());
        draw
    }

    #[test]
    fn equal_seeds_draw_equal_operations() {
        let workload = workload("lazy-update-mix", 2000);
        let all = |seed| -> Vec<Operation> {
            let mut draw = loaded(&workload, seed);
            draw.window(&workload.windows[0]).collect()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn operations_are_of_keys_that_are_there() {
        for (name, _) in super::super::workload::WORKLOADS {
            let workload = workload(name, 3000);
            let mut draw = loaded(&workload, 3);
            let mut there: BTreeSet<Key> = draw.present().iter().copied().collect();
            for spec in &workload.windows {
                for operation in draw.window(spec) {
                    match operation {
                        Operation::Insert(key, _) => assert!(there.insert(key), "{name}"),
                        Operation::Delete(key) => assert!(there.remove(&key), "{name}"),
                        Operation::Update(key, _)
                        | Operation::Search(key)
                        | Operation::Modify(key, _)
                        | Operation::Scan(key, _) => assert!(there.contains(&key), "{name}"),
                        Operation::Miss(key) => assert!(!there.contains(&key), "{name}"),
                    }
                }
            }
        }
    }

    #[test]
    fn eighty_percent_go_to_a_fifth_of_the_buckets() {
        for scattered in [false, true] {
            let workload = KeyWorkload {
                scattered,
                ..workload("E", 100_000)
            };
            let mut draw = loaded(&workload, 1);
            let buckets = (workload.load / BUCKET_KEYS).next_power_of_two();
            let bucket = |key: Key| (hash(key) & (buckets - 1)) as usize;
            let mut counts = vec![0u64; buckets as usize];
            let spec = WindowSpec {
                operations: 100_000,
                ..workload.windows[5].clone()
            };
            for operation in draw.window(&spec) {
                let Operation::Search(key) = operation else {
                    panic!("{operation:?}")
                };
                counts[bucket(key)] += 1;
            }
            let fifth = buckets as usize / 5;
            let first: u64 = counts[..fifth].iter().sum();
            counts.sort_unstable();
            let hottest: u64 = counts[buckets as usize - fifth..].iter().sum();
            assert!((79_000..83_000).contains(&hottest), "{hottest}");
            assert_eq!(first < 60_000, scattered, "{first}");
        }
    }
}
