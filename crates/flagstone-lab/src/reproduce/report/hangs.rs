//! The page's section on the settings that a paper's claims depend on: results of long analyses,
//! which are shipped with the program.

use super::super::sensitivity::{Analysis, Place, answers};
use super::super::verdict::Verdict;
use super::super::{Judged, Results};
use crate::chart::escape;
use std::collections::BTreeSet;

/// Maximum number of points named per claim.
const SHOWN: usize = 4;

/// The section of a paper; empty if there is no analysis of it.
pub(super) fn section(paper: &str, results: &Results, analyses: &[Analysis]) -> String {
    let own = |analysis: &&Analysis| analysis.paper == paper;
    let own: Vec<Analysis> = analyses.iter().filter(own).cloned().collect();
    if own.is_empty() {
        return String::new();
    }
    let answers = answers(&own);
    let open = |judged: &&Judged| {
        judged.claim.paper() == paper && judged.judgement.verdict != Verdict::Holds
    };
    let mut rows = String::new();
    let mut places: Vec<(&Analysis, &Place)> = Vec::new();
    let mut seen = BTreeSet::new();
    for judged in results.claims.iter().filter(open) {
        let id = judged.claim.id.as_str();
        let words = match answers.get(id) {
            Some((analysis, answer)) => {
                let first = answer.holds_at.first();
                let place = first.and_then(|first| analysis.at(first));
                if let Some(place) = place.filter(|place| seen.insert(place.at.clone())) {
                    places.push((analysis, place));
                }
                answer.words(SHOWN)
            }
            None => "not tried, or it holds in the shorter window of the analysis".into(),
        };
        rows += &format!(
            "<tr><td data-label=\"claim\"><b>{}</b></td><td data-label=\"here\">{}</td>\
             <td data-label=\"holds\">{}</td></tr>\n",
            escape(id),
            judged.judgement.verdict,
            escape(&words),
        );
    }
    let of = |(analysis, place): &(&Analysis, &Place)| {
        let default = analysis.at("default");
        let default = default.map_or(String::new(), |at| {
            format!(" With the default settings {}.", at.counts())
        });
        let holds = place.holds.join(", ");
        format!(
            "<li><b>{}</b>: {}, of the {} claims tried there.{default} There hold: {}.</li>\n",
            escape(&place.at),
            place.counts(),
            analysis.claims(),
            escape(&holds),
        )
    };
    let items: String = places.iter().map(of).collect();
    format!(
        "<details class=\"hangs\"><summary>What the claims hang on that do not hold</summary>\n\
         <p>Settings that the paper leaves open were varied, <code>flagstone sensitivity {paper} \
         --list</code> lists them. Points are one setting changed, or several. A claim that holds at \
         a point is no evidence that the paper had that setting; what counts is how many hold at \
         once.</p>\n<div class=\"wide\"><table class=\"claims\"><thead><tr><th>claim</th>\
         <th>here</th><th>it holds</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n\
         <ul>\n{items}</ul></details>\n"
    )
}
