//! Keeps replaced versions that straddle nothing: a naive BPCC.
//!
//! It has one responsibility set per page instead of one per committed version. While the set is
//! not empty, no version committed since then may be collected. The versions that BPCC must keep
//! are among these, so this is equally safe, at the cost of more copies.

use super::{INFO, KEEPS_OBSOLETE};
use crate::commit::Options;
use crate::ftl::Ftl;
use crate::settings::BadSetting;
use crate::units::{Lpn, Ppn};
use std::collections::BTreeSet;

/// The replaced versions that are kept only because of the set of their page, by page.
#[derive(Debug, Clone)]
pub(super) struct Obsolete {
    /// `None` if versions are released as soon as they straddle nothing.
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

    /// Whether replaced versions that straddle nothing are kept.
    pub(super) fn are_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Keeps a version of a page.
    pub(super) fn keep(&mut self, page: Lpn, at: Ppn) {
        if let Some(kept) = &mut self.kept {
            kept.insert((page, at));
        }
    }

    /// Releases all versions of a page. Returns their places.
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

    /// Updates a moved version. Returns `false` if the table does not have it.
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

    /// Checks that all kept versions are on flash, and that `straddles` holds for their pages.
    pub(super) fn check(&self, ftl: &Ftl, straddles: impl Fn(Lpn) -> bool) -> Result<(), String> {
        let kept = self.kept.iter().flatten();
        for &(page, at) in kept {
            if !ftl.blocks.is_live(at) || !straddles(page) {
                return Err(format!("obsolete page {at} of {page} is kept for nothing"));
            }
        }
        Ok(())
    }
}
