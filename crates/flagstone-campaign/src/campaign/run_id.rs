//! The complete configuration of a run as a single word, so that it can be repeated.
//!
//! ```text
//! cfc.page-flags.published/g17/b2/w4x24/f1/s91/n2/c113-5f-t/c7-0-n
//! |   |          |         |   |  |     |  |   |  one a cut: operation, dice (hex), torn or not;
//! |   |          |         |   |  |     |  |   |  `e` and `r` fall on an erase and a reprogram, `o`,
//! |   |          |         |   |  |     |  |   |  `f` and `d` on an erase that overtakes programs or
//! |   |          |         |   |  |     |  |   |  reprograms, a reprogram, or an erase, from there on;
//! |   |          |         |   |  |     |  |   |  `a` is a cut that was looked at on the way, with
//! |   |          |         |   |  |     |  |   |  dice of its own, see `Aim::Adverse`; the dice of
//! |   |          |         |   |  |     |  |   |  `l` name each operation that has landed
//! |   |          |         |   |  |     |  |   how many cuts
//! |   |          |         |   |  |     |  seed of what the clients do
//! |   |          |         |   |  |     faults, a bit each
//! |   |          |         |   |  clients x logical pages
//! |   |          |         |   base: 0 is a blank device, others are aged by that seed
//! |   |          |         shape: 0 is the plain one, see `shape.rs`; behind it `d`, eight digits and
//! |   |          |         a slash, if the device is like one that a user has described
//! |   |          the form as printed, or the name of a sabotage
//! |   mode; `ahead` where the device collects ahead of need
//! protocol, stack, or index@either
//! ```
//!
//! All fields are required, in this order: a truncated word is not a run id.

use super::{DeviceTraits, Faults, Sabotage, Subject};
use flagstone::nand::{Aim, Cut};
use flagstone_lab::nearest;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

/// The base of a run: everything that an aged device depends on, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseId {
    /// The subject of the run.
    pub subject: Subject,
    /// One of its modes; `None` for the default.
    pub variant: Option<&'static str>,
    /// Whether the device collects ahead of need, in steps.
    pub ahead: bool,
    /// The user's device description that it imitates.
    pub device: Option<Arc<DeviceTraits>>,
    /// Test the protocol as published instead of the repaired variant.
    pub published: bool,
    /// A lie of the flash, or a mistake above it, for controls only.
    pub sabotage: Sabotage,
    /// Shape of the device, the database on it and the clients; 0 is the plain shape.
    pub shape: u32,
    /// The seed for aging the device; 0 leaves it blank.
    pub age: u32,
    /// Number of concurrent transactions.
    pub clients: u32,
    /// Number of logical pages used.
    pub pages: u32,
    /// Faults other than cuts; blocks are added to make up for failing ones.
    pub faults: Faults,
}

/// A power cut of a run, and the operations that it can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fall {
    /// When the power fails, and with which outcome.
    pub cut: Cut,
    /// The operations to count.
    pub aim: Aim,
}

/// Letters that denote the aims in run ids.
const AIMS: [(char, Aim); 8] = [
    ('c', Aim::Any),
    ('e', Aim::Erase),
    ('r', Aim::Reprogram),
    ('o', Aim::Overtaking),
    ('f', Aim::OverFlag),
    ('d', Aim::OverErase),
    ('a', Aim::Adverse),
    ('l', Aim::Exact),
];

/// Everything that determines a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunId {
    /// The base.
    pub base: BaseId,
    /// Seed of the clients and the faults.
    pub seed: u64,
    /// The power cuts, in sequence.
    pub cuts: Vec<Fall>,
}

impl BaseId {
    /// The simplest base: plain shape, blank device, no faults, fewest clients and pages.
    pub(super) fn plain(subject: Subject, device: Option<Arc<DeviceTraits>>) -> BaseId {
        BaseId {
            subject,
            variant: None,
            ahead: false,
            device,
            published: false,
            sabotage: Sabotage::None,
            shape: 0,
            age: 0,
            clients: *CLIENTS.start(),
            pages: *PAGES.start(),
            faults: Faults::default(),
        }
    }
}

impl fmt::Display for BaseId {
    /// The first fields of a run id: names, shape, device, age, clients and pages, faults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without `..`: the word is also the key of a base, so it has every field.
        let BaseId {
            subject,
            variant,
            ahead,
            device,
            published,
            sabotage,
            shape,
            age,
            clients,
            pages,
            faults,
        } = self;
        write!(f, "{subject}")?;
        if let Some(variant) = variant {
            write!(f, ".{variant}")?;
        }
        if *ahead {
            write!(f, ".ahead")?;
        }
        if *published {
            write!(f, ".published")?;
        }
        if *sabotage != Sabotage::None {
            write!(f, ".{}", sabotage.name())?;
        }
        write!(f, "/g{shape}")?;
        if let Some(traits) = device {
            write!(f, "/d{:08x}", traits.digest())?;
        }
        let faults = faults.bits();
        write!(f, "/b{age}/w{clients}x{pages}/f{faults}")
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunId { base, seed, cuts } = self;
        write!(f, "{base}/s{seed}/n{}", cuts.len())?;
        for Fall { cut, aim } in cuts {
            let Cut { at, dice, torn } = cut;
            let letter = AIMS.iter().find(|(_, other)| other == aim);
            let letter = letter.expect("all have a letter").0;
            let torn = if *torn { 't' } else { 'n' };
            write!(f, "/{letter}{at}-{dice:x}-{torn}")?;
        }
        Ok(())
    }
}

/// A word that is not a run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{word}` is not a run id: {why}; a run id looks like cfc/g17/b2/w4x24/f1/s91/n1/c113-5f-t"
)]
pub struct RunIdError {
    word: String,
    why: String,
}

/// Allowed number of concurrent transactions.
pub(super) const CLIENTS: RangeInclusive<u32> = 1..=64;
/// Allowed number of logical pages.
pub(super) const PAGES: RangeInclusive<u32> = 2..=200;
/// Allowed number of power cuts.
pub(super) const CUTS: RangeInclusive<usize> = 1..=3;
/// Operations after which a cut can occur: no run has more.
const OPERATIONS: RangeInclusive<u64> = 0..=1_000_000;

/// The fields of a word, in order.
struct Fields<'a>(std::str::Split<'a, char>);

impl<'a> Fields<'a> {
    /// Takes the next field, which must begin with `letter`.
    fn next(&mut self, letter: char, what: &str) -> Result<&'a str, String> {
        let Some(field) = self.0.next() else {
            return Err(format!(
                "it ends before `{letter}`, {what}: was it cut short?"
            ));
        };
        let rest = field.strip_prefix(letter);
        rest.ok_or_else(|| format!("`{field}` stands where `{letter}`, {what}, belongs"))
    }

    /// Takes the next field: `letter` and a number in the range `from`. `what` names it in errors.
    fn number<T>(&mut self, letter: char, what: &str, from: RangeInclusive<T>) -> Result<T, String>
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        in_range(self.next(letter, what)?, what, from)
    }
}

/// Parses a number in the range `from`. `what` names the number in the error.
fn in_range<T>(text: &str, what: &str, from: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    let number = text.parse().ok().filter(|number| from.contains(number));
    number.ok_or_else(|| {
        let (low, high) = (from.start(), from.end());
        format!("{what} is `{text}`, not a number from {low} to {high}")
    })
}

/// Parses the first field of a run id: subject, then mode, form and sabotage in any order. `parse`
/// refuses other orders than that of [`BaseId`].
fn names(text: &str) -> Result<BaseId, String> {
    let mut names = text.split('.');
    let name = names.next().unwrap_or_default();
    let subject = Subject::by_name(name).ok_or_else(|| {
        let meant = nearest(name, &Subject::names());
        let meant = meant.map_or_else(String::new, |meant| format!(", did you mean `{meant}`?"));
        format!("there is no protocol, stack or index on one `{name}`{meant}")
    })?;
    let mut id = BaseId::plain(subject, None);
    for extra in names {
        let mode = subject.modes().skip(1).find(|mode| *mode == extra);
        let sabotage = Sabotage::by_name(extra).filter(|&sabotage| sabotage != Sabotage::None);
        match (mode, sabotage) {
            (Some(mode), _) => id.variant = Some(mode),
            (_, Some(sabotage)) if sabotage.suits(subject) => id.sabotage = sabotage,
            _ if extra == "ahead" && subject.collects_in_steps() => id.ahead = true,
            _ if extra == "published" && subject.is_as_published() => id.published = true,
            _ => return Err(format!("{subject} has no mode, form or sabotage `{extra}`")),
        }
    }
    Ok(id)
}

/// Parses a cut, such as `c113-5f-t`: letter of the aim, operation, dice in hexadecimal, torn or
/// not. `field` is `None` if the run id ends before it.
fn fall(field: Option<&str>) -> Result<Fall, String> {
    let field = field.ok_or("it ends before a cut: was it cut short?")?;
    let aims = |(letter, aim): (char, Aim)| field.strip_prefix(letter).map(|rest| (rest, aim));
    let Some((rest, aim)) = AIMS.into_iter().find_map(aims) else {
        return Err(format!(
            "expected a cut (`c`, or the letter of an aim), found `{field}`"
        ));
    };
    let mut parts = rest.split('-');
    let (Some(at), Some(dice), Some(torn), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!(
            "the cut `{field}` is not an operation, dice and `t` or `n`: was it cut short?"
        ));
    };
    let cut = Cut {
        at: in_range(at, "the operation of a cut", OPERATIONS)?,
        dice: u64::from_str_radix(dice, 16)
            .map_err(|_| format!("the dice of a cut are `{dice}`, not a hexadecimal number"))?,
        torn: match torn {
            "t" => true,
            "n" => false,
            _ => return Err(format!("a cut ends with `{torn}`, not with `t` or `n`")),
        },
    };
    Ok(Fall { cut, aim })
}

/// The device of a run: a device field after the shape must match `given`.
fn device(
    fields: &mut Fields<'_>,
    given: Option<&Arc<DeviceTraits>>,
) -> Result<Option<Arc<DeviceTraits>>, String> {
    let next = fields.0.clone().next();
    let named = next.and_then(|field| field.strip_prefix('d'));
    match (named, given) {
        (None, None) => Ok(None),
        (None, Some(traits)) => Err(format!(
            "the run does not use a device like {}: leave --device out",
            traits.name
        )),
        (Some(_), None) => {
            Err("the run uses a device like the one in a file: give that file with --device".into())
        }
        (Some(named), Some(traits)) => {
            fields.0.next();
            let digest = format!("{:08x}", traits.digest());
            if named == digest {
                Ok(Some(Arc::clone(traits)))
            } else {
                Err(format!(
                    "the run uses a device d{named}, but {} is d{digest}: use the original file",
                    traits.name
                ))
            }
        }
    }
}

/// Parses a run id. `on` is the device that the user gives, which the run id must name. Only the
/// spelling that `Display` writes is accepted, and only a run whose device is possible.
fn parse(word: &str, on: Option<&Arc<DeviceTraits>>) -> Result<RunId, String> {
    let mut fields = Fields(word.split('/'));
    let mut base = names(fields.0.next().unwrap_or_default())?;
    base.shape = fields.number('g', "the shape", 0..=u32::MAX)?;
    base.device = device(&mut fields, on)?;
    base.age = fields.number('b', "the base", 0..=u32::MAX)?;
    let used = fields.next('w', "clients and pages")?;
    let (clients, pages) = used
        .split_once('x')
        .ok_or_else(|| format!("`w{used}` is not clients x pages"))?;
    base.clients = in_range(clients, "the number of clients", CLIENTS)?;
    base.pages = in_range(pages, "the number of pages", PAGES)?;
    let bits = fields.number('f', "the faults", 0..=Faults::BITS_MAX)?;
    base.faults = Faults::from_bits(bits);
    let seed = fields.number('s', "the seed", 0..=u64::MAX)?;
    let cuts = fields.number('n', "the number of cuts", CUTS)?;
    let cuts = (0..cuts).map(|_| fall(fields.0.next()));
    let id = RunId {
        base,
        seed,
        cuts: cuts.collect::<Result<_, String>>()?,
    };
    if let Some(more) = fields.0.next() {
        return Err(format!("`{more}` follows the last cut"));
    }
    // It differs by a repeated mode or form, or by a number with a sign or leading zeros.
    let again = id.to_string();
    if again != word {
        return Err(format!("write it as `{again}`"));
    }
    super::scene::Scene::new(&id.base)?;
    Ok(id)
}

impl RunId {
    /// Parses a run id, on a device like a user-described one if the word says so.
    ///
    /// # Errors
    /// It is not a run id, or belongs to another device.
    pub fn parse_on(word: &str, on: Option<&Arc<DeviceTraits>>) -> Result<RunId, RunIdError> {
        let word = word.trim();
        parse(word, on).map_err(|why| RunIdError {
            word: word.into(),
            why,
        })
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(word: &str) -> Result<Self, RunIdError> {
        RunId::parse_on(word, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: [&str; 10] = [
        "scc.published/g0/b2/w4x24/f3/s91/n2/e113-5f-t/r7-0-n",
        "cfc.page-flags.published.sync-ignored/g17/b0/w1x2/f0/s0/n1/c0-0-n",
        "force:scc/g4294967295/b4294967295/w64x64/f15/s18446744073709551615/n1/c1000000-ffffffffffffffff-t",
        "cfc-ex.one-death/g3/b1/w32x24/f1/s7/n3/c3-5f-n/c4-1-n/c5-2-t",
        "bptree@wal/g1/b1/w4x24/f16/s7/n1/c3-5f-n",
        "lighttx.pairs-ignored/g3/b1/w4x24/f65/s7/n1/c3-5f-n",
        "seal.unscrubbed/g3/b1/w4x24/f129/s7/n1/c3-5f-n",
        "sal@wal.room-not-kept/g1/b1/w4x24/f0/s7/n1/c3-5f-n",
        "seal.early.ahead.count-dropped/g200001/b1/w4x24/f1/s7/n2/l3-1000000000005-t/l0-0-n",
        "afc-ex.flag-in-flight/g100003/b1/w4x24/f0/s7/n2/d3-5f-n/a77-0-n",
    ];

    fn error(word: &str) -> String {
        word.parse::<RunId>().expect_err(word).to_string()
    }

    #[test]
    fn a_run_id_comes_back_from_its_word() {
        for word in WHOLE {
            assert_eq!(word.parse::<RunId>().unwrap().to_string(), word);
        }
    }

    #[test]
    fn what_is_cut_short_is_no_run_id() {
        for word in WHOLE {
            // Only the dice could be shortened unnoticed, but `t` or `n` follows them.
            for end in (0..word.len()).filter(|&end| word.is_char_boundary(end)) {
                let _ = error(&word[..end]);
            }
        }
    }

    #[test]
    fn a_field_twice_one_that_is_missing_and_one_that_nobody_knows_are_refused() {
        for word in WHOLE {
            let fields: Vec<&str> = word.split('/').collect();
            for at in 0..fields.len() {
                let mut twice = fields.clone();
                twice.insert(at, fields[at]);
                let _ = error(&twice.join("/"));
                let mut without = fields.clone();
                without.remove(at);
                let _ = error(&without.join("/"));
                let mut other = fields.clone();
                other.insert(at, "q1");
                let _ = error(&other.join("/"));
            }
        }
    }

    #[test]
    fn a_wrong_word_says_what_is_wrong() {
        let rest = "g0/b2/w4x24/f3/s91/n1/c113-5f-t";
        let says = |word: &str, what| {
            let error = error(word);
            assert!(error.contains(what), "{error}");
        };
        for (word, what) in [
            ("scc".to_string(), "ends before `g`, the shape"),
            (
                "scc/s1".to_string(),
                "`s1` stands where `g`, the shape, belongs",
            ),
            (format!("ssc/{rest}"), "did you mean `scc`?"),
            (format!("cfc_ex/{rest}"), "did you mean `cfc-ex`?"),
            (
                format!("cfc.block-flags/{rest}"),
                "has no mode, form or sabotage `block-flags`",
            ),
            (
                format!("plain.published/{rest}"),
                "has no mode, form or sabotage `published`",
            ),
            (
                format!("afc-ex.one-death/{rest}"),
                "has no mode, form or sabotage `one-death`",
            ),
            (format!("scc.published.published/{rest}"), "write it as"),
            (
                format!("scc/{rest}/c1-1-n"),
                "`c1-1-n` follows the last cut",
            ),
        ] {
            says(&word, what);
        }
        for (part, other, what) in [
            ("w4x24", "w0x24", "a number from 1 to 64"),
            ("w4x24", "w4x201", "a number from 2 to 200"),
            ("f3", "f256", "a number from 0 to 255"),
            ("g0", "g4294967296", "the shape is"),
            ("g0", "g+0", "write it as"),
            ("n1", "n4", "a number from 1 to 3"),
            ("n1", "n2", "ends before a cut"),
            ("c113", "c1000001", "the operation of a cut"),
            ("5f", "zz", "not a hexadecimal number"),
            ("-t", "-x", "not with `t` or `n`"),
        ] {
            says(&format!("scc/{}", rest.replace(part, other)), what);
        }
    }
}
