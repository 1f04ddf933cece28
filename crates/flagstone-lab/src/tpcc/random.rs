//! The specification's random quantities: NURand, strings, last names, and one stream per user of
//! randomness, so that a seed determines each client's requests.

use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;

/// One stream of random quantities.
#[derive(Debug, Clone)]
pub struct Random(Pcg64Mcg);

/// A stream of a seed: independent users take different streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The constants of [`Constants::load`].
    Load,
    /// The constants of [`Constants::run`].
    Run,
    /// A table's rows of a warehouse (0 for items) and a district (0 for none).
    Table(u8, i64, i64),
    /// A client.
    Client(u32),
}

impl Random {
    /// The stream `stream` of `seed`.
    pub fn new(seed: u64, stream: Stream) -> Self {
        let number = match stream {
            Stream::Load => 1,
            Stream::Run => 2,
            Stream::Client(client) => (1 << 56) | u64::from(client),
            Stream::Table(table, warehouse, district) => {
                (2 << 56) | (u64::from(table) << 48) | ((warehouse as u64) << 8) | district as u64
            }
        };
        // The generator's seeding mixes bits; multiplying keeps adjacent streams far apart.
        Random(Pcg64Mcg::seed_from_u64(
            seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        ))
    }

    /// Uniform within `[low, high]`, as random(x, y) of clause 2.1.4.
    pub fn uniform(&mut self, low: i64, high: i64) -> i64 {
        self.0.random_range(low..=high)
    }

    /// Returns `true` with a probability of `percent` percent.
    pub fn percent(&mut self, percent: i64) -> bool {
        self.uniform(1, 100) <= percent
    }

    /// NURand(A, x, y) of clause 2.1.6 with its constant `c`.
    pub fn nurand(&mut self, a: i64, c: i64, x: i64, y: i64) -> i64 {
        nurand(c, x, y, self.uniform(0, a), self.uniform(x, y))
    }

    /// Letters and digits, of a uniform length within `[low, high]` (clause 4.3.2.2).
    pub fn letters(&mut self, low: i64, high: i64) -> String {
        const SET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let length = self.uniform(low, high);
        (0..length)
            .map(|_| SET[self.0.random_range(0..SET.len())] as char)
            .collect()
    }

    /// Digits, of a uniform length within `[low, high]` (clause 4.3.2.2).
    pub fn digits(&mut self, low: i64, high: i64) -> String {
        let length = self.uniform(low, high);
        (0..length)
            .map(|_| char::from(b'0' + self.0.random_range(0..10u8)))
            .collect()
    }

    /// A zip code: four random digits and `11111` (clause 4.3.2.7).
    pub fn zip(&mut self) -> String {
        self.digits(4, 4) + "11111"
    }

    /// Data of an item or stock entry: one in ten contains `ORIGINAL` at a random position (clause
    /// 4.3.3.1).
    pub fn data(&mut self) -> String {
        let mut data = self.letters(26, 50);
        if self.percent(10) {
            let at = self.uniform(0, (data.len() - ORIGINAL.len()) as i64) as usize;
            data.replace_range(at..at + ORIGINAL.len(), ORIGINAL);
        }
        data
    }

    /// The numbers from 1 to `n` in random order.
    pub fn permutation(&mut self, n: i64) -> Vec<i64> {
        let mut numbers: Vec<i64> = (1..=n).collect();
        self.shuffle(&mut numbers);
        numbers
    }

    /// Shuffles `items` uniformly.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        items.shuffle(&mut self.0);
    }
}

/// The mark of original items.
pub const ORIGINAL: &str = "ORIGINAL";

/// The formula of clause 2.1.6 with its two random numbers given; A bounds the first.
fn nurand(c: i64, x: i64, y: i64, within_a: i64, within_range: i64) -> i64 {
    ((within_a | within_range) + c) % (y - x + 1) + x
}

/// The run-time constants C of NURand, one per A (clause 2.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constants {
    /// For customers' last names, A = 255.
    pub last_name: i64,
    /// For customers' numbers, A = 1023.
    pub customer: i64,
    /// For items, A = 8191.
    pub item: i64,
}

impl Constants {
    /// Constants with which a database is populated.
    pub fn load(seed: u64) -> Self {
        Constants::draw(&mut Random::new(seed, Stream::Load))
    }

    /// Constants for a run on a database that was populated with `last_name_loaded`. The
    /// distance between the two constants for last names is bounded (clause 2.1.6.1).
    pub fn run(seed: u64, last_name_loaded: i64) -> Self {
        let mut random = Random::new(seed, Stream::Run);
        loop {
            let drawn = Constants::draw(&mut random);
            if allowed_delta((drawn.last_name - last_name_loaded).abs()) {
                return drawn;
            }
        }
    }

    fn draw(random: &mut Random) -> Self {
        Constants {
            last_name: random.uniform(0, 255),
            customer: random.uniform(0, 1_023),
            item: random.uniform(0, 8_191),
        }
    }
}

/// Whether the last-name constants of load and run may differ by this (clause 2.1.6.1).
pub fn allowed_delta(delta: i64) -> bool {
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

/// The last name made of a number from 0 to 999: a syllable for each digit (clause 4.3.2.3).
pub fn last_name(number: i64) -> String {
    const SYLLABLES: [&str; 10] = [
        "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
    ];
    [number / 100, number / 10 % 10, number % 10]
        .iter()
        .map(|&digit| SYLLABLES[digit.rem_euclid(10) as usize])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_follow_the_syllables() {
        assert_eq!(last_name(371), "PRICALLYOUGHT"); // the specification's example
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
        let mut all: Vec<String> = (0..1_000).map(last_name).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 1_000);
    }

    #[test]
    fn nurand_is_the_printed_formula() {
        // (0x55 | 0x0f) + 7 = 0x66 = 102; 102 % 100 + 1
        assert_eq!(nurand(7, 1, 100, 0x55, 0x0f), 3);
        assert_eq!(nurand(0, 0, 999, 0, 999), 999);
        assert_eq!(
            nurand(8_191, 1, 100_000, 8_191, 100_000),
            ((8_191 | 100_000) + 8_191) % 100_000 + 1
        );
    }

    #[test]
    fn nurand_stays_in_bounds_and_is_as_skewed_as_the_formula_says() {
        let mut random = Random::new(1, Stream::Client(0));
        let draws = 200_000;
        let mut counts = vec![0u32; 3_001];
        for _ in 0..draws {
            counts[random.nurand(1_023, 259, 1, 3_000) as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        // The exact probabilities, by enumeration of both random numbers.
        let mut exact = vec![0u32; 3_001];
        for a in 0..=1_023 {
            for b in 1..=3_000 {
                exact[nurand(259, 1, 3_000, a, b) as usize] += 1;
            }
        }
        let share = |counts: &[u32], total: f64, picked: &[usize]| {
            picked.iter().map(|&i| f64::from(counts[i])).sum::<f64>() / total
        };
        let mut by_weight: Vec<usize> = (1..=3_000).collect();
        by_weight.sort_by_key(|&i| (std::cmp::Reverse(exact[i]), i));
        let hottest = &by_weight[..300];
        let expected = share(&exact, 1_024.0 * 3_000.0, hottest);
        let measured = share(&counts, f64::from(draws), hottest);
        assert!(
            expected > 0.3,
            "a tenth of the customers should draw far more than a tenth"
        );
        assert!(
            (measured - expected).abs() < 0.01,
            "{measured} against {expected}"
        );
    }

    #[test]
    fn the_constants_of_load_and_run_keep_their_distance() {
        for seed in 0..500 {
            let loaded = Constants::load(seed);
            let run = Constants::run(seed, loaded.last_name);
            assert!(
                allowed_delta((run.last_name - loaded.last_name).abs()),
                "seed {seed}"
            );
            assert!((0..=1_023).contains(&run.customer) && (0..=8_191).contains(&run.item));
        }
        assert!(![64, 96, 112, 120, 0].into_iter().any(allowed_delta));
        assert!([65, 119].into_iter().all(allowed_delta));
    }

    #[test]
    fn a_tenth_of_the_data_is_original() {
        let mut random = Random::new(7, Stream::Table(0, 0, 0));
        let data: Vec<String> = (0..20_000).map(|_| random.data()).collect();
        assert!(data.iter().all(|d| (26..=50).contains(&d.len())));
        let original = data.iter().filter(|d| d.contains(ORIGINAL)).count();
        assert!((1_850..2_150).contains(&original), "{original} of 20000");
    }

    #[test]
    fn strings_have_their_lengths_and_a_permutation_is_one() {
        let mut random = Random::new(3, Stream::Client(9));
        for _ in 0..1_000 {
            assert!((8..=16).contains(&random.letters(8, 16).len()));
            let zip = random.zip();
            assert!(zip.len() == 9 && zip.ends_with("11111"));
            assert!(random.digits(16, 16).bytes().all(|b| b.is_ascii_digit()));
        }
        let mut numbers = random.permutation(3_000);
        assert_ne!(numbers, (1..=3_000).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=3_000).collect::<Vec<_>>());
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..8)
                .map(|_| random.uniform(0, i64::MAX - 1))
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(1, Stream::Client(3)), draw(1, Stream::Client(3)));
        assert_ne!(draw(1, Stream::Client(3)), draw(1, Stream::Client(4)));
        assert_ne!(draw(1, Stream::Client(3)), draw(2, Stream::Client(3)));
        assert_ne!(
            draw(1, Stream::Table(1, 2, 3)),
            draw(1, Stream::Table(1, 3, 2))
        );
    }
}
