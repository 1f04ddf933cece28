//! The story of a campaign run: the steps that led to its violation, and the reason. Omits steps
//! that the violated pages do not depend on.

use super::cells::{Names, Reader};
use super::depends::{self, Violated};
use super::steps::Teller;
use super::story::{Ending, Lane, Pane, Shape, Step, Story};
use super::subject::What;
use super::tale::{Event, Remark, Tale};
use flagstone::nand::Geometry;
use std::collections::BTreeSet;

/// A recorded run of a campaign.
pub(crate) struct Told<'a> {
    pub(crate) run_id: String,
    pub(crate) what: What,
    pub(crate) geometry: Geometry,
    pub(crate) tale: &'a Tale,
    /// The violation, if there was one.
    pub(crate) violation: Option<String>,
    /// Whether the protocol runs as published or with a deliberate mistake.
    pub(crate) published: bool,
    pub(crate) sabotage: Option<&'static str>,
    pub(crate) with_reads: bool,
    /// Whether to keep all steps.
    pub(crate) whole: bool,
}

impl Told<'_> {
    /// The story of the run: only the steps that the violated pages depend on, unless all are
    /// wanted or the violation names no page.
    pub(crate) fn story(self) -> Story {
        let reader = Reader {
            what: self.what,
            pages_per_block: self.geometry.pages_per_block,
        };
        let teller = Teller {
            reader,
            names: Names {
                sign: "#",
                ..Names::default()
            },
            geometry: self.geometry,
            pages: BTreeSet::new(),
            with_reads: self.with_reads,
        };
        let mut pane = teller.pane(&self.run_id, self.tale, self.ending());
        let violated = self.violated();
        if !violated.by.is_empty() && !self.whole {
            let depends = depends::on(&pane, &violated, self.geometry.pages_per_block);
            condense(&mut pane, &depends);
        }
        Story {
            title: self.run_id.clone(),
            about: format!("A run of a campaign on {}.", self.what.name()),
            shape: Shape {
                planes: self.geometry.planes(),
                blocks_per_plane: self.geometry.blocks_per_plane,
                pages_per_block: self.geometry.pages_per_block,
            },
            recovery: super::rules(self.what),
            meanings: reader.meanings(),
            panes: vec![pane],
        }
    }

    /// All remarks about transactions: the transaction's name, and the text.
    fn said(&self) -> Vec<(u64, String)> {
        let said = self
            .tale
            .events()
            .into_iter()
            .filter_map(|event| match event {
                Event::Remark(Remark::Said {
                    who: Some(who),
                    text,
                    ..
                }) => Some((who, text)),
                _ => None,
            });
        said.collect()
    }

    /// The pages and transactions that the violation names, and the writers of a page, record or
    /// key that it names. Empty if it names none.
    fn violated(&self) -> Violated {
        let Some(violation) = &self.violation else {
            return Violated::default();
        };
        let mut by: BTreeSet<u64> = numbers_after(violation, "#").collect();
        for thing in ["page ", "record ", "key "] {
            let places: BTreeSet<u64> = numbers_after(violation, thing).collect();
            for (who, text) in self.said() {
                let writes = text.contains("writes") || text.contains("changes");
                if writes
                    && numbers_after(&text, thing)
                        .next()
                        .is_some_and(|at| places.contains(&at))
                {
                    by.insert(who);
                }
            }
        }
        let pages = numbers_after(violation, "page ");
        Violated {
            pages: pages.filter_map(|page| page.try_into().ok()).collect(),
            by: by.into_iter().map(|who| format!("#{who}")).collect(),
        }
    }

    /// The verdict, and the reasons for a violation.
    fn ending(&self) -> Ending {
        let Some(violation) = &self.violation else {
            return Ending {
                good: true,
                text: "holds: what was acknowledged is there, what was in doubt is there as a whole or \
                       not at all, and nothing else is"
                    .into(),
                why: Vec::new(),
                pages: Vec::new(),
            };
        };
        let mut why = self.invariants(violation);
        if let Some(sabotage) = self.sabotage {
            why.push(format!(
                "This run contains a deliberate mistake: {sabotage}. Without it in the run id, the \
                 run is executed correctly."
            ));
        }
        if self.published {
            why.extend(self.what.published());
        }
        Ending {
            good: false,
            text: format!("VIOLATED: {violation}"),
            why,
            pages: Vec::new(),
        }
    }

    /// The violated invariants of atomic devices, from the outcome of the transactions that the
    /// violation names.
    fn invariants(&self, violation: &str) -> Vec<String> {
        let said = self.said();
        let has = |who: u64, what: &str| {
            said.iter()
                .any(|(name, text)| *name == who && text.contains(what))
        };
        let mut why = Vec::new();
        for part in violation.split("; ") {
            let Some((found, right)) = part.split_once(", not ") else {
                continue;
            };
            if let Some(found) = numbers_after(found, "#").next() {
                let aborted = has(found, "abort") || has(found, "rolled back");
                let asked = has(found, "asks to commit");
                if aborted {
                    why.push(format!("#{found} was rolled back, and what it wrote is there: a transaction that was rolled back must leave nothing."));
                } else if asked && !has(found, "acknowledged") {
                    why.push(format!("#{found} was asking to commit, and a part of what it wrote is there: such a transaction must be there as a whole or not at all."));
                } else if !asked && has(found, "begins") {
                    why.push(format!("#{found} had not asked to commit, and what it wrote is there: it must leave nothing."));
                }
            }
            if let Some(right) = numbers_after(right, "#").next() {
                let is_known = has(right, "acknowledged");
                why.push(if is_known { format!("The commit of #{right} was acknowledged, and what it wrote is not there: an acknowledged commit must be there after a restart.") } else { format!("#{right} wrote what should be there: its commit was certain before.") });
            }
        }
        why.sort();
        why.dedup();
        why
    }
}

/// The numbers that follow a word in a text.
fn numbers_after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = u64> + 'a {
    text.match_indices(word).filter_map(move |(at, _)| {
        let rest = &text[at + word.len()..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().ok()
    })
}

/// Replaces consecutive steps that are unrelated to the story by one that has their changes. Steps
/// of the power, and steps of the host and the restart that concern no single transaction, always
/// stay.
pub(super) fn condense(pane: &mut Pane, is_about: &[bool]) {
    let mut kept: Vec<Step> = Vec::new();
    for (step, is_about) in std::mem::take(&mut pane.steps).into_iter().zip(is_about) {
        let is_general = match step.lane {
            Lane::Power => true,
            Lane::Restart => step.ruled.is_none(),
            Lane::Host => step.who.is_none(),
            Lane::Plane(_) | Lane::Wait => false,
        };
        if *is_about || is_general {
            kept.push(step);
            continue;
        }
        match kept.last_mut() {
            Some(last) if last.folded.is_some() => {
                let folded = last.folded.get_or_insert(0);
                *folded += 1;
                last.text = left_out(*folded);
                last.changes.extend(step.changes);
                last.part = step.part;
                last.tables = step.tables.or(last.tables.take());
            }
            _ => kept.push(Step {
                text: left_out(1),
                lane: Lane::Wait,
                who: None,
                more: Vec::new(),
                pages: Vec::new(),
                ruled: None,
                folded: Some(1),
                ..step
            }),
        }
    }
    pane.steps = kept;
}

fn left_out(steps: u32) -> String {
    let s = if steps == 1 { "" } else { "s" };
    format!("… {steps} step{s} of others")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_words() {
        let text = "page 5 holds write 0 of #12 to page 5, not write 2 of #7 to page 5";
        assert_eq!(numbers_after(text, "#").collect::<Vec<_>>(), [12, 7]);
        assert_eq!(numbers_after(text, "page ").collect::<Vec<_>>(), [5, 5, 5]);
        assert_eq!(numbers_after("page #", "#").count(), 0);
    }
}
