//! Determines what a violated page depends on, so that a story can leave out the rest.
//!
//! A page is wrong because of its versions, or because of something that decided about them. So,
//! starting from the violated pages, the story keeps:
//!
//! ```text
//!   a violated page    every version of it, and the transactions that wrote these
//!   a transaction      all that it asked for, all of its pages, and what the restart decided of it
//!   a page             what it names: the place behind its link and whatever is written there
//!                      later; the version that it names, or the next newer one of that page
//!   a place            programs and reprograms there, the erases of its block, the summary of the
//!                      block where that holds verdicts
//!   both               pages of the log that name them, and the last root before each cut
//! ```
//!
//! A violation's text names the violated pages, and the writers of the data found there. It does
//! not name a transaction whose version completes another one's ring, or whose page lies where
//! another one's link points.

use super::story::{Change, Lane, Page, Pane};
use std::collections::BTreeSet;

/// The pages and transactions from which the search for dependencies begins.
#[derive(Debug, Clone, Default)]
pub(super) struct Violated {
    /// Logical pages with wrong contents.
    pub(super) pages: BTreeSet<u32>,
    /// Names of transactions that wrote these pages, or that the violation names.
    pub(super) by: BTreeSet<String>,
}

/// A version of a page, as written by a step.
struct Version<'a> {
    /// The step; 0 for versions from before the first step.
    step: usize,
    at: u32,
    page: &'a Page,
}

impl Version<'_> {
    /// The logical page, if it is a version of one.
    fn lpn(&self) -> Option<u32> {
        let is_version = matches!(self.page.kind, "data" | "trim");
        let digits = self.page.label.trim_end_matches('∅');
        is_version.then(|| digits.parse().ok()).flatten()
    }

    /// Whether one of these transactions wrote it, or has an entry in its data.
    fn is_of(&self, names: &BTreeSet<String>) -> bool {
        let owner = self.page.owner.as_ref();
        owner.is_some_and(|owner| names.contains(owner))
            || self.page.kind == "data" && self.page.data.iter().any(|line| names_any(line, names))
    }
}

/// Whether a line contains one of the names as a whole word.
fn names_any(line: &str, names: &BTreeSet<String>) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '#'));
    words.any(|word| names.contains(word))
}

/// For each step, whether the violated pages depend on it.
pub(super) fn on(pane: &Pane, violated: &Violated, pages_per_block: u32) -> Vec<bool> {
    let before = (0..).zip(&pane.start);
    let before = before.filter_map(|(at, page)| Some((0, at, page.as_ref()?)));
    let later = pane.steps.iter().enumerate().flat_map(|(step, of)| {
        let each = of.changes.iter().filter_map(|change| match change {
            Change::Pages(pages) => Some(pages.iter()),
            _ => None,
        });
        each.flatten().map(move |(&at, page)| (step, at, page))
    });
    let all = before.chain(later);
    let versions: Vec<Version<'_>> = all
        .map(|(step, at, page)| Version { step, at, page })
        .collect();
    let (names, places) = closure(&versions, violated);
    let blocks: BTreeSet<u32> = places.iter().map(|at| at / pages_per_block).collect();
    // Whether a log page names one of the transactions, or a violated page.
    let logs = |page: &Page| {
        let is_of_page = |line: &str| {
            let mut fields = line.split(" · ");
            fields.any(|field| {
                let page = field
                    .strip_prefix("LPN page ")
                    .and_then(|lpn| lpn.parse().ok());
                page.is_some_and(|lpn| violated.pages.contains(&lpn))
            })
        };
        let mut lines = page.data.iter();
        lines.any(|line| names_any(line, &names) || is_of_page(line))
    };
    let mut kept: Vec<bool> = pane
        .steps
        .iter()
        .map(|step| step.who.as_ref().is_some_and(|who| names.contains(who)))
        .collect();
    let mut root = None;
    for (nth, step) in pane.steps.iter().enumerate() {
        for change in &step.changes {
            kept[nth] |= match change {
                Change::Erase(block) => blocks.contains(block),
                Change::All(_) => false,
                Change::Pages(pages) => pages.iter().any(|(at, page)| match page.kind {
                    "root" => {
                        root = Some(nth);
                        false
                    }
                    "log" => logs(page),
                    "summary" => {
                        let is_told = page.data.iter().any(|line| line.contains("committed"));
                        is_told && blocks.contains(&(at / pages_per_block))
                    }
                    _ => places.contains(at) && step.lane != Lane::Restart,
                }),
            };
        }
        if step.lane == Lane::Power
            && let Some(root) = root.take()
        {
            kept[root] = true;
        }
        if step.ruled.is_some() {
            kept[nth] |= step.pages.iter().any(|at| places.contains(at));
        }
    }
    kept
}

/// The transactions and physical pages that the violated pages depend on.
fn closure(versions: &[Version<'_>], violated: &Violated) -> (BTreeSet<String>, BTreeSet<u32>) {
    let mut names = violated.by.clone();
    for version in versions {
        if version
            .lpn()
            .is_some_and(|lpn| violated.pages.contains(&lpn))
        {
            names.extend(version.page.owner.clone());
        }
    }
    loop {
        let mut more = names.clone();
        let mut places = BTreeSet::new();
        for version in versions.iter().filter(|version| version.is_of(&names)) {
            places.insert(version.at);
            for &link in &version.page.links {
                places.insert(link);
                // The contents when the link was written, and later contents.
                let there = versions.iter().filter(|other| other.at == link);
                let (earlier, later): (Vec<_>, Vec<_>) =
                    there.partition(|other| other.step <= version.step);
                let seen = earlier.last().into_iter().chain(&later);
                more.extend(seen.filter_map(|other| other.page.owner.clone()));
            }
            if let Some((lpn, number)) = version.page.next {
                let named = |other: &&Version<'_>| {
                    let own = other.page.version;
                    own.is_some_and(|own| own.0 == lpn && own.1 >= number)
                };
                let named: Vec<_> = versions.iter().filter(named).collect();
                // The linked version decides if it is present; otherwise the oldest newer one does.
                let least = named.iter().filter_map(|other| other.page.version).min();
                let named = named
                    .into_iter()
                    .filter(|other| other.page.version == least);
                more.extend(named.filter_map(|other| other.page.owner.clone()));
            }
        }
        if more == names {
            return (names, places);
        }
        names = more;
    }
}
