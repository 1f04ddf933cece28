//! A story for a terminal: one timeline, a column per plane, and the final state.

use super::story::{Change, Lane, Pane, Step, Story};
use std::fmt::Write;

/// The story as text.
pub fn text(story: &Story) -> String {
    let mut out = format!("{}: {}\n", story.title, story.about);
    for (index, pane) in story.panes.iter().enumerate() {
        let _ = write!(out, "\n--- {} ---\n", pane.name);
        // The second run equals the first one until the cut, except for left-out steps.
        let all = index == 0 || story.panes.len() == 1;
        let from = if all {
            0
        } else {
            pane.steps.iter().position(is_cut).unwrap_or(0)
        };
        for step in &pane.steps[from..] {
            tell(&mut out, step, story.shape.planes);
        }
        end(&mut out, pane);
    }
    if !story.recovery.is_empty() {
        out.push_str("\nThe recovery table:\n");
        for rule in &story.recovery {
            let _ = writeln!(out, "  {:<7} {}: {}", rule.code, rule.facts, rule.verdict);
        }
    }
    out
}

fn is_cut(step: &Step) -> bool {
    step.lane == Lane::Power
}

/// The columns of the planes, with a mark for the one that works.
fn lanes(lane: Lane, planes: u32) -> String {
    let of = |plane| match lane {
        Lane::Plane(busy) if busy == plane => '●',
        Lane::Power => '━',
        _ => '│',
    };
    (0..planes).map(of).collect()
}

/// Appends a step: its line, and below it the details, spare areas and data of pages that changed.
fn tell(out: &mut String, step: &Step, planes: u32) {
    let time = step.at.map_or(String::new(), |at| format!("{at} µs"));
    let lanes = lanes(step.lane, planes);
    let text = match step.lane {
        Lane::Host => step.text.clone(),
        _ => format!("  {}", step.text),
    };
    let _ = writeln!(out, "{time:>11}  {lanes}  {text}");
    let mut more = step.more.clone();
    for change in step.changes.iter().filter(|_| step.folded.is_none()) {
        let Change::Pages(pages) = change else {
            continue;
        };
        for page in pages.values() {
            // The first two fields, kind and logical page, are in the step's text.
            let tail = page.spare.iter().skip(2);
            let fields: Vec<String> = tail
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            more.push(fields.join(" · "));
            more.extend(page.data.iter().cloned());
        }
    }
    for line in more {
        let _ = writeln!(out, "{:>11}  {lanes}      {line}", "");
    }
}

/// Appends the final state of a run.
fn end(out: &mut String, pane: &Pane) {
    let _ = writeln!(out, "\n{}", pane.ending.text);
    for why in &pane.ending.why {
        let _ = writeln!(out, "  {why}");
    }
    if pane.ending.pages.is_empty() {
        return;
    }
    let _ = writeln!(out, "  page  written last, durably   found");
    for (page, right, found, is_right) in &pane.ending.pages {
        let mark = if *is_right { "" } else { "   ← wrong" };
        let _ = writeln!(out, "  {page:>4}  {right:<22}  {found}{mark}");
    }
}
