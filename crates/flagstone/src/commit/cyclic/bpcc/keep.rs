//! Superseded versions that are kept though they straddle nothing: a naive BPCC.
//!
//! It has one responsibility set for a page in the place of one for each committed version. As long
//! as the set has something, no version that was committed since then is given to the collector.
//! What has to stay is among these versions, so this is as safe, and costs copies.

use super::{INFO, KEEPS_OBSOLETE};
use crate::commit::Options;
use crate::ftl::Ftl;
use crate::settings::BadSetting;
use crate::units::{Lpn, Ppn};
use std::collections::BTreeSet;

/// The superseded versions that are kept for the set of their page alone, by page.
#[derive(Debug, Clone)]
pub(super) struct Obsolete {
    /// Nothing where a version goes as soon as it straddles nothing.
    kept: Option<BTreeSet<(Lpn, Ppn)>>,
}

impl Obsolete {
    pub(super) fn new(options: &Options) -> Result<Obsolete, BadSetting> {
        let words = [("straddling", false), ("all", true)];
        let settings = &options.settings;
        let keeps_all = settings.choice(&INFO, KEEPS_OBSOLETE.name, &words)?;
        Ok(Obsolete {
            kept: keeps_all.then(BTreeSet::new),
        })
    }

    /// Whether any are.
    pub(super) fn are_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Keeps a version of a page.
    pub(super) fn keep(&mut self, page: Lpn, at: Ppn) {
        if let Some(kept) = &mut self.kept {
            kept.insert((page, at));
        }
    }

    /// Keeps none of a page any longer, and says where they are.
    pub(super) fn take(&mut self, page: Lpn) -> Vec<Ppn> {
        let Some(kept) = &mut self.kept else {
            return Vec::new();
        };
        let range = (page, Ppn(0))..=(page, Ppn(u32::MAX));
        let own: Vec<Ppn> = kept.range(range).map(|&(_, at)| at).collect();
        for &at in &own {
            kept.remove(&(page, at));
        }
        own
    }

    /// Follows a version that was moved. False if it is none of these.
    pub(super) fn relocated(&mut self, page: Lpn, from: Ppn, to: Ppn) -> bool {
        let Some(kept) = &mut self.kept else {
            return false;
        };
        kept.remove(&(page, from)) && kept.insert((page, to))
    }

    pub(super) fn memory(&self) -> u64 {
        let bytes = |kept: &BTreeSet<_>| crate::commit::table_bytes::<(Lpn, Ppn), ()>(kept.len());
        self.kept.as_ref().map_or(0, bytes)
    }

    /// All are on flash, and of pages of which a version straddles something.
    pub(super) fn check(&self, ftl: &Ftl, straddles: impl Fn(Lpn) -> bool) -> Result<(), String> {
        let kept = self.kept.iter().flatten();
        for &(page, at) in kept {
            if !ftl.is_live(at) || !straddles(page) {
                return Err(format!("obsolete page {at} of {page} is kept for nothing"));
            }
        }
        Ok(())
    }
}
