//! A run's whole configuration in one word, so that it can be repeated.
//!
//! ```text
//! cfc.page-flags.published/s91/b2/w4x24/f0/c113-5f-t/c7-0-n
//! |   |          |         |   |  |     |  one per cut: operation, dice (hex), torn or not
//! |   |          |         |   |  |     faults, a bit each
//! |   |          |         |   |  clients x logical pages
//! |   |          |         |   base: 0 is a blank device, others are aged by that seed
//! |   |          |         seed of the workload
//! |   |          the form as printed
//! |   variant
//! protocol, or stack
//! ```

use super::{Faults, Subject};
use flagstone::nand::Cut;
use std::fmt;
use std::str::FromStr;

/// Everything that decides what a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunId {
    /// What is under test.
    pub subject: Subject,
    /// One of its modes, or none for the default.
    pub variant: Option<&'static str>,
    /// The form as printed.
    pub published: bool,
    /// Seed of the workload.
    pub seed: u64,
    /// Which aged device it starts on; 0 is a blank one.
    pub base: u32,
    /// Transactions side by side.
    pub clients: u32,
    /// Logical pages that are used.
    pub pages: u32,
    /// What goes wrong besides the cuts.
    pub faults: Faults,
    /// The power cuts, one after the other.
    pub cuts: Vec<Cut>,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.subject)?;
        if let Some(variant) = self.variant {
            write!(f, ".{variant}")?;
        }
        if self.published {
            write!(f, ".published")?;
        }
        let RunId {
            seed,
            base,
            clients,
            pages,
            ..
        } = self;
        write!(
            f,
            "/s{seed}/b{base}/w{clients}x{pages}/f{}",
            self.faults.bits()
        )?;
        for cut in &self.cuts {
            write!(
                f,
                "/c{}-{:x}-{}",
                cut.at,
                cut.dice,
                if cut.torn { 't' } else { 'n' }
            )?;
        }
        Ok(())
    }
}

/// A word that is no run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a run id: {why}; a run id looks like cfc/s91/b2/w4x24/f0/c113-5f-t")]
pub struct RunIdError {
    word: String,
    why: String,
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(word: &str) -> Result<Self, RunIdError> {
        let fail = |why: String| RunIdError {
            word: word.into(),
            why,
        };
        let mut parts = word.trim().split('/');
        let mut names = parts.next().unwrap_or_default().split('.');
        let name = names.next().unwrap_or_default();
        let subject = Subject::by_name(name);
        let subject = subject.ok_or_else(|| fail(format!("no protocol or stack `{name}`")))?;
        let (mut variant, mut published) = (None, false);
        for extra in names {
            if extra == "published" {
                published = true;
            } else {
                let known = subject.modes().iter().find(|mode| **mode == extra);
                variant = Some(*known.ok_or_else(|| fail(format!("no mode `{extra}`")))?);
            }
        }
        let mut id = RunId {
            subject,
            variant,
            published,
            seed: 0,
            base: 0,
            clients: 4,
            pages: 24,
            faults: Faults::default(),
            cuts: Vec::new(),
        };
        for part in parts {
            let bad = || fail(format!("`{part}` is not understood"));
            let (letter, rest) = part.split_at_checked(1).ok_or_else(bad)?;
            match letter {
                "s" => id.seed = rest.parse().map_err(|_| bad())?,
                "b" => id.base = rest.parse().map_err(|_| bad())?,
                "w" => {
                    let (clients, pages) = rest.split_once('x').ok_or_else(bad)?;
                    id.clients = clients.parse().map_err(|_| bad())?;
                    id.pages = pages.parse().map_err(|_| bad())?;
                    if !(1..=64).contains(&id.clients) || !(2..=64).contains(&id.pages) {
                        return Err(bad());
                    }
                }
                "f" => {
                    let bits = rest.parse().map_err(|_| bad())?;
                    id.faults = Faults::from_bits(bits).ok_or_else(bad)?;
                }
                "c" => {
                    let mut fields = rest.split('-');
                    let mut next = || fields.next().ok_or_else(bad);
                    let at = next()?.parse().map_err(|_| bad())?;
                    let dice = u64::from_str_radix(next()?, 16).map_err(|_| bad())?;
                    let torn = next()? == "t";
                    id.cuts.push(Cut { at, dice, torn });
                }
                _ => return Err(bad()),
            }
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_comes_back_from_its_word() {
        for word in [
            "plain.published/s91/b2/w4x24/f3/c113-5f-t/c7-0-n",
            "force:scc/s7/b0/w4x24/f0/c3-5f-n",
        ] {
            assert_eq!(word.parse::<RunId>().unwrap().to_string(), word);
        }
    }

    #[test]
    fn a_wrong_word_says_what_is_wrong() {
        let error = |word: &str| word.parse::<RunId>().unwrap_err().to_string();
        assert!(error("nope/s1").contains("no protocol or stack `nope`"));
        assert!(error("plain/q1").contains("`q1` is not understood"));
        assert!(error("plain/c1-zz-t").contains("`c1-zz-t` is not understood"));
    }
}
