//! Draws keys from a seed: their distribution affects the results of trees.
//!
//! ```text
//!   uniform    64 random bits
//!   names      names of authors that do not exist, as numbers: given names and surnames made of
//!              syllables, each drawn by Zipf's law: some names are crowded, most are rare
//!   ascending  each key above all before it, as times are
//! ```
//!
//! A name becomes a real number in [0, 1] as in [LazyBtree] §5.1: its letters are the digits after
//! the point, in base 27. The number is scaled to 64 bits; if the key exists, the next free one is
//! used.

use flagstone_index::Key;
use flagstone_lab::names::{self, Named};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How keys are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// 64 random bits.
    Uniform,
    /// Names of authors, see the module's header.
    Names,
    /// Ascending: each key is above all earlier ones.
    Ascending,
}

impl KeyKind {
    /// All kinds, with their names.
    pub const ALL: [(KeyKind, &'static str); 3] = [
        (KeyKind::Uniform, "uniform"),
        (KeyKind::Names, "names"),
        (KeyKind::Ascending, "ascending"),
    ];

    /// The kind with this name.
    ///
    /// # Errors
    /// Lists the names that exist.
    pub fn by_name(name: &str) -> Result<KeyKind, String> {
        names::by_name(name)
    }
}

impl Named for KeyKind {
    const WHAT: &'static str = "kind of keys";

    fn all() -> Vec<(Self, &'static str)> {
        KeyKind::ALL.to_vec()
    }
}

impl Serialize for KeyKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        names::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for KeyKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        names::deserialize(from)
    }
}

/// Draws distinct keys.
#[derive(Debug)]
pub struct Keys {
    rng: Pcg64Mcg,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Uniform,
    Names(Box<Names>),
    Ascending(u64),
}

impl Keys {
    /// Keys of kind `kind`.
    pub fn new(kind: KeyKind, seed: u64) -> Keys {
        let mut rng = Pcg64Mcg::seed_from_u64(seed ^ 0x6b65_7973);
        let source = match kind {
            KeyKind::Uniform => Source::Uniform,
            KeyKind::Names => Source::Names(Box::new(Names::new(&mut rng))),
            KeyKind::Ascending => Source::Ascending(0),
        };
        Keys { rng, source }
    }

    /// Draws a new key, below `u64::MAX`.
    pub fn draw(&mut self) -> Key {
        match &mut self.source {
            // Two of 2^64 are practically never equal; an index would then have one key less.
            Source::Uniform => self.rng.next_u64().min(u64::MAX - 1),
            Source::Names(names) => names.draw(&mut self.rng),
            Source::Ascending(last) => {
                *last += 1 + self.rng.random_range(0..64);
                *last
            }
        }
    }
}

const SURNAMES: u32 = 60_000;
const GIVEN_NAMES: u32 = 6_000;

#[derive(Debug)]
struct Names {
    given: Vec<String>,
    surnames: Vec<String>,
    given_rank: Zipf<f64>,
    surname_rank: Zipf<f64>,
    seen: FxHashSet<Key>,
}

impl Names {
    fn new(rng: &mut Pcg64Mcg) -> Names {
        let mut list = |count: u32| (0..count).map(|_| word(rng)).collect();
        Names {
            given: list(GIVEN_NAMES),
            surnames: list(SURNAMES),
            given_rank: Zipf::new(f64::from(GIVEN_NAMES), 0.9).expect("a sound law"),
            surname_rank: Zipf::new(f64::from(SURNAMES), 0.7).expect("a sound law"),
            seen: FxHashSet::default(),
        }
    }

    fn draw(&mut self, rng: &mut Pcg64Mcg) -> Key {
        let name = self.name(rng);
        let mut key = number(&name);
        while !self.seen.insert(key) {
            key = (key + 1) % (u64::MAX - 1);
        }
        key
    }

    /// Given name, sometimes an initial, surname, as in bibliographies.
    fn name(&self, rng: &mut Pcg64Mcg) -> String {
        let pick = |list: &[String], law: &Zipf<f64>, rng: &mut Pcg64Mcg| {
            let rank = (law.sample(rng) as usize).clamp(1, list.len());
            list[rank - 1].clone()
        };
        let mut name = pick(&self.given, &self.given_rank, rng);
        if rng.random_range(0..10) < 3 {
            name.push(' ');
            name.push(char::from(b'a' + rng.random_range(0..26u8)));
        }
        name.push(' ');
        name + &pick(&self.surnames, &self.surname_rank, rng)
    }
}

/// A word of two or three syllables.
fn word(rng: &mut Pcg64Mcg) -> String {
    const ONSETS: &[u8] = b"mmmjjjsssddrrllkkttbbhnpgcfvwyzx";
    const VOWELS: &[u8] = b"aaaaaeeeeiiiooouu";
    const CODAS: &[u8] = b"      nnnrrslmkt";
    let mut pick = |letters: &[u8]| char::from(letters[rng.random_range(0..letters.len())]);
    let mut word = String::new();
    let syllables = if pick(b"aab") == 'a' { 2 } else { 3 };
    for _ in 0..syllables {
        word.push(pick(ONSETS));
        word.push(pick(VOWELS));
        let coda = pick(CODAS);
        if coda != ' ' {
            word.push(coda);
        }
    }
    word
}

/// Number of letters that distinguish keys: 27^13 is below 2^62.
const LETTERS: usize = 13;

/// A number for a name that preserves the order of names.
fn number(name: &str) -> Key {
    let digit = |byte: u8| {
        if byte.is_ascii_lowercase() {
            u64::from(byte - b'a' + 1)
        } else {
            0
        }
    };
    let digits = name.bytes().map(digit).chain(std::iter::repeat(0));
    digits.take(LETTERS).fold(0, |sum, digit| sum * 27 + digit) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_keys_and_no_key_twice() {
        for (kind, name) in KeyKind::ALL {
            let draw = |seed| -> Vec<Key> {
                let mut keys = Keys::new(kind, seed);
                (0..20_000).map(|_| keys.draw()).collect()
            };
            let first = draw(1);
            assert_eq!(first, draw(1), "{name}");
            assert_ne!(first, draw(2), "{name}");
            let mut sorted = first.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), first.len(), "{name}");
            assert_eq!(first == sorted, kind == KeyKind::Ascending, "{name}");
        }
    }

    #[test]
    fn names_keep_their_order_and_crowd() {
        assert!(number("anna smith") < number("anna smits"));
        assert!(number("anna") < number("anna a") && number("z") > number("yz"));
        let mut keys = Keys::new(KeyKind::Names, 1);
        let mut thousandths = vec![0u32; 1000];
        for _ in 0..100_000 {
            thousandths[(keys.draw() / (u64::MAX / 1000 + 1)) as usize] += 1;
        }
        thousandths.sort_unstable();
        let top: u32 = thousandths[900..].iter().sum();
        assert!(
            top > 40_000,
            "a tenth of the domain has {top} of 100,000 names"
        );
    }

    #[test]
    fn an_unknown_kind_names_the_nearest() {
        let error = KeyKind::by_name("unifrom").unwrap_err();
        assert!(error.contains("did you mean `uniform`"), "{error}");
    }
}
