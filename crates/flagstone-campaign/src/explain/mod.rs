//! Explains protocols and counterexamples step by step: requests to a device, its flash operations,
//! pages with their spare areas, tables in memory, and the row of the recovery table by which a
//! restart decided about each transaction.
//!
//! A *tale* is a recording made while the real code runs: by `script` for the example of `flagstone
//! explain`, by a campaign for `flagstone replay`. It is converted into a [`Story`], which is plain
//! data. [`page()`] renders it as a web page, and [`text()`] for a terminal.
//!
//! ```
//! use flagstone_campaign::explain::{explain, names, text};
//!
//! assert!(names().contains(&"cfc"));
//! let story = explain("cfc").expect("a protocol")?;
//! assert!(!story.panes[0].steps.is_empty());
//! println!("{}", text(&story));
//! # Ok::<(), String>(())
//! ```

mod cells;
mod counterexample;
mod depends;
mod page;
mod script;
mod steps;
mod story;
mod subject;
mod tale;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use counterexample::Told;
pub use page::page;
pub use story::*;
pub use text::text;

use cells::{Names, Reader};
use script::{Example, PAGES, Seen};
use std::collections::BTreeSet;
use steps::Teller;
pub(crate) use subject::What;
use subject::{Form, Subject};
pub(crate) use tale::{Remark, Shown, Tale, image};

/// The names of the protocols that can be explained.
pub fn names() -> Vec<&'static str> {
    What::names()
}

/// The example for a protocol, and the same cut on the protocol as published, if that one loses
/// data. `None` if there is no such protocol.
///
/// # Errors
/// The example cannot be executed, which is a bug.
pub fn explain(protocol: &str) -> Option<Result<Story, String>> {
    What::by_name(protocol).map(story)
}

/// The example for a protocol. Both forms are panes if the published one loses data; long examples
/// are condensed to the transactions that they are about.
fn story(what: What) -> Result<Story, String> {
    let subject = Subject::new(what, PAGES);
    let example = Example::find(&subject)?;
    let reader = Reader {
        what,
        pages_per_block: subject.geometry.pages_per_block,
    };
    let (tale, seen) = example.tell(&subject, Form::Default)?;
    let touched: BTreeSet<u32> = seen.touched(example.first()).collect();
    let teller = Teller {
        reader,
        names: Names {
            sign: "T",
            ..Names::default()
        },
        geometry: subject.geometry,
        pages: touched.clone(),
        with_reads: true,
    };
    let ending = |seen: &Seen, form| ending(what, seen, &touched, form);
    let mut panes = vec![teller.pane("with its repairs", &tale, ending(&seen, Form::Default))];
    if example.published_loses {
        let (tale, seen) = example.tell(&subject, Form::Published)?;
        panes.push(teller.pane("as published", &tale, ending(&seen, Form::Published)));
    } else {
        panes[0].name = what.name().into();
    }
    if let Some(about) = example.about() {
        let about: BTreeSet<String> = about.map(|name| format!("T{name}")).collect();
        for pane in &mut panes {
            let is_about = |step: &Step| {
                let of = step.who.iter().chain(&step.by);
                let is_of_all = step.lane == Lane::Restart && step.who.is_none();
                is_of_all || of.into_iter().any(|who| about.contains(who))
            };
            let is_about: Vec<bool> = pane.steps.iter().map(is_about).collect();
            counterexample::condense(pane, &is_about);
        }
    }
    let geometry = &subject.geometry;
    Ok(Story {
        title: what.name().into(),
        about: format!("{}.", what.idea()),
        shape: Shape {
            planes: geometry.planes(),
            blocks_per_plane: geometry.blocks_per_plane,
            pages_per_block: geometry.pages_per_block,
        },
        recovery: rules(what),
        meanings: reader.meanings(),
        panes,
    })
}

/// The rows of a protocol's recovery table.
fn rules(what: What) -> Vec<Rule> {
    let rule = |row: &flagstone::commit::Row| Rule {
        code: row.code,
        facts: row.facts,
        verdict: row.verdict,
    };
    what.recovery().iter().map(rule).collect()
}

/// The final contents of the pages that the example has touched, and of all wrong ones; and why
/// they are wrong.
fn ending(what: What, seen: &Seen, touched: &BTreeSet<u32>, form: Form) -> Ending {
    let places = seen.pages.iter();
    let shown = places.filter(|place| touched.contains(&place.page) || !place.right);
    let pages = shown.map(|place| {
        let right = match place.doubted {
            Some(_) => format!(
                "{}, or {}",
                place.words(place.before),
                place.words(place.doubted)
            ),
            None => place.words(place.before),
        };
        (place.page, right, place.words(place.found), place.right)
    });
    let mut why = Vec::new();
    let text = match &seen.wrong {
        None => "Every page holds what it must: each acknowledged commit is there, and of each \
                 other transaction all or nothing."
            .to_string(),
        Some(wrong) => {
            if form == Form::Published {
                why = what.published();
            } else {
                why.push("It has no commit protocol: each write counts by itself.".into());
            }
            format!("Data is lost: {wrong}.")
        }
    };
    Ending {
        good: seen.wrong.is_none(),
        text,
        why,
        pages: pages.collect(),
    }
}
