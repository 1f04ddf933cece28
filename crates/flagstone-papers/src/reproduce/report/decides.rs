//! Why claims do not hold: the cause next to each verdict, and a box with the choices that decide a
//! paper's verdicts. Both are data of the paper's files.

use super::super::figures::{Decides, Experiment};
use super::super::verdict::Verdict;
use super::super::{Basis, Catalogue, Judged};
use super::page::class;
use flagstone_lab::chart::escape;

/// The box of a paper; empty if its file has no entries.
pub(super) fn in_a_box(experiment: &Experiment) -> String {
    if experiment.decides.is_empty() {
        return String::new();
    }
    let item = |entry: &Decides| {
        format!(
            "<dt id=\"d-{}-{}\">{}</dt><dd>{}</dd>\n",
            escape(&experiment.paper),
            escape(&entry.id),
            escape(&entry.what),
            escape(&entry.says)
        )
    };
    let items: String = experiment.decides.iter().map(item).collect();
    format!("<aside class=\"decides\"><h3>What decides</h3>\n<dl>\n{items}</dl></aside>\n")
}

/// The verdict on a claim, with its sign, and with its basis unless that is measurement.
pub(super) fn badge(judged: &Judged) -> String {
    let verdict = judged.judgement.verdict;
    let sign = match verdict {
        Verdict::Holds => "●",
        Verdict::Direction => "▲",
        Verdict::Tie | Verdict::TooFew => "■",
        Verdict::Differs => "◆",
        Verdict::NotMeasured => "△",
    };
    let class = class(verdict);
    let badge = format!("<span class=\"v {class}\">{sign} {verdict}</span>");
    match judged.basis {
        Basis::Measured => badge,
        Basis::Formula => badge + "<small>a formula of the paper, not measured</small> ",
        Basis::Given => {
            let how = judged.claim.given.as_deref().unwrap_or_default();
            format!("{badge}<small>given: {}</small> ", escape(how))
        }
    }
}

/// Why a claim does not hold, with a link to the choice that decides it. Empty if it holds, or if
/// nothing was measured.
pub(super) fn cause(judged: &Judged, catalogue: &Catalogue) -> String {
    let claim = &judged.claim;
    let open = !matches!(
        judged.judgement.verdict,
        Verdict::Holds | Verdict::NotMeasured
    );
    let Some(cause) = claim.cause.as_deref().filter(|_| open) else {
        return String::new();
    };
    let mut experiments = catalogue.experiments.iter();
    let own = experiments.find(|experiment| experiment.paper == claim.paper());
    let mut entries = own.into_iter().flat_map(|experiment| &experiment.decides);
    let is_it = |entry: &&Decides| claim.decided_by.as_ref() == Some(&entry.id);
    let entry = entries.find(is_it);
    let link = entry.map_or(String::new(), |entry| {
        let (paper, id) = (escape(claim.paper()), escape(&entry.id));
        format!(" <a href=\"#d-{paper}-{id}\">{}</a>", escape(&entry.what))
    });
    format!("<span class=\"why\">{}{link}</span>", escape(cause))
}
