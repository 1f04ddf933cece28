//! Names of runs with rot.

use super::super::{ENCRYPTS, Lie, StoreSubject, suits};
use flagstone::commit::Kind;
use flagstone_store::OpenOptions;
use std::fmt;
use std::str::FromStr;

/// A run with rot, fully determined by this id: a history, and its damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotRunId {
    /// What the store holds.
    pub subject: StoreSubject,
    /// The commit protocol of the store.
    pub protocol: Kind,
    /// The deliberate mistake.
    pub lie: Lie,
    /// Whether the store is encrypted.
    pub encrypted: bool,
    /// Seed of the run.
    pub seed: u64,
    /// The number of the damage; `None` for all.
    pub damage: Option<u32>,
}

impl RotRunId {
    fn word(&self) -> &'static str {
        match self.subject {
            StoreSubject::Pages => "rot",
            StoreSubject::Tables => "rot-tables",
        }
    }

    /// Whether pages state what was durable, unencrypted.
    pub(super) fn has_statements(&self) -> bool {
        self.protocol.info().format.horizons && !self.encrypted
    }

    /// Gives a store its identity, and its key if it is encrypted.
    pub(super) fn lock(&self, options: &mut OpenOptions) {
        options.identity = Some(super::super::older::identity_of(self.seed));
        super::super::lock(self.encrypted, options);
    }

    /// Whether `lie` is a control for runs with rot.
    pub fn has(lie: Lie) -> bool {
        matches!(lie, Lie::None | Lie::Checksums | Lie::Horizon | Lie::Sums)
    }
}

impl fmt::Display for RotRunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.word(), self.protocol)?;
        if self.lie != Lie::None {
            write!(f, ".{}", self.lie.name())?;
        }
        if self.encrypted {
            write!(f, ".encrypted")?;
        }
        write!(f, "/s{}", self.seed)?;
        match self.damage {
            Some(number) => write!(f, "/d{number}"),
            None => Ok(()),
        }
    }
}

impl FromStr for RotRunId {
    type Err = String;

    /// Parses a run id in the spelling of `Display`. Refuses a lie that is no control of such runs.
    fn from_str(text: &str) -> Result<RotRunId, String> {
        let wrong = || {
            format!(
                "`{text}` is not a run id with rot, such as rot.seal/s17/d3: use one that `store \
                 break --rot` prints"
            )
        };
        let parts: Vec<&str> = text.split('/').collect();
        let (subject, seed, damage) = match parts.as_slice() {
            [subject, seed] => (subject, seed, None),
            [subject, seed, damage] => (subject, seed, Some(damage)),
            _ => return Err(wrong()),
        };
        let number = |part: &str, letter| part.strip_prefix(letter)?.parse::<u64>().ok();
        let mut names = subject.split('.');
        let subject = match names.next() {
            Some("rot") => StoreSubject::Pages,
            Some("rot-tables") => StoreSubject::Tables,
            _ => return Err(wrong()),
        };
        let protocol = names.next().and_then(Kind::by_name).ok_or_else(wrong)?;
        let damage = match damage {
            Some(damage) => {
                let number = number(damage, 'd').ok_or_else(wrong)?;
                Some(u32::try_from(number).map_err(|_| wrong())?)
            }
            None => None,
        };
        let mut run = RotRunId {
            subject,
            protocol,
            lie: Lie::None,
            encrypted: false,
            seed: number(seed, 's').ok_or_else(wrong)?,
            damage,
        };
        for name in names {
            match name {
                "encrypted" => run.encrypted = true,
                lie => run.lie = Lie::by_name(lie).ok_or_else(wrong)?,
            }
        }
        if run.encrypted && !ENCRYPTS {
            return Err(format!(
                "`{text}` is about an encrypted store: build with the feature `encryption`"
            ));
        }
        let is_possible = match subject {
            StoreSubject::Pages => suits(protocol),
            StoreSubject::Tables => protocol == Kind::Seal,
        };
        if run.to_string() == text && is_possible && RotRunId::has(run.lie) {
            Ok(run)
        } else {
            Err(wrong())
        }
    }
}
