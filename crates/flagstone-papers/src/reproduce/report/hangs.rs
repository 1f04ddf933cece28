//! The page's section on the settings that a paper leaves open: how much each changes the measured
//! figures, and where claims hold that do not hold in this report. Shows results of long analyses,
//! which are included in the program.

use super::super::sensitivity::{Analysis, Answer, OpenSettings, Place, answers};
use super::super::verdict::{Verdict, number};
use super::super::{Judged, Results};
use flagstone_lab::chart::escape;
use std::collections::{BTreeMap, BTreeSet};

/// The section of a paper; empty if there is no analysis of it.
pub(super) fn section(paper: &str, results: &Results, analyses: &[Analysis]) -> String {
    let own = |analysis: &&Analysis| analysis.paper == paper;
    let own: Vec<Analysis> = analyses.iter().filter(own).cloned().collect();
    if own.is_empty() {
        return String::new();
    }
    let open = |judged: &&Judged| {
        judged.claim.paper() == paper && judged.judgement.verdict != Verdict::Holds
    };
    let open: Vec<&Judged> = results.claims.iter().filter(open).collect();
    let answers = answers(&own);
    let mut rows = String::new();
    let mut places: Vec<(&Analysis, &Place)> = Vec::new();
    let mut seen = BTreeSet::new();
    for judged in &open {
        let id = judged.claim.id.as_str();
        let (bar, words) = match answers.get(id) {
            Some((analysis, answer)) => {
                let first = answer.holds_at.first();
                let place = first.and_then(|first| analysis.at(first));
                if let Some(place) = place.filter(|place| seen.insert(place.at.clone())) {
                    places.push((analysis, place));
                }
                let points = &answer.holds_at;
                let (several, alone): (Vec<&String>, Vec<&String>) =
                    points.iter().partition(|at| at.contains(", "));
                let mut words: Vec<String> = alone.iter().map(|at| short(at)).collect();
                if !several.is_empty() {
                    words.push(format!("{} with several changed", several.len()));
                }
                let share = points.len() as f64 / answer.tried.max(1) as f64;
                let bar = bar(share, &format!("{} of {}", points.len(), answer.tried));
                (bar, words.join("; "))
            }
            None => (
                String::new(),
                "not tried, or it holds in the shorter window of the analysis".into(),
            ),
        };
        rows += &format!(
            "<tr><td data-label=\"claim\"><b>{}</b></td><td data-label=\"here\">{}</td>\
             <td data-label=\"holds at\" class=\"bars\">{bar}</td><td data-label=\"points\">{}</td></tr>\n",
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
            escape(&short(&place.at)),
            place.counts(),
            analysis.claims(),
            escape(&holds),
        )
    };
    let items: String = places.iter().map(of).collect();
    format!(
        "<section class=\"hangs\"><h3>What settings move that the paper leaves open</h3>\n\
         <p><code>flagstone sensitivity {paper} --list</code> lists them with their bounds. A claim \
         that holds at a point is no evidence that the paper had that setting; what counts is how many \
         hold at once.</p>\n{}{}<details><summary>Where claims hold that do not hold here, as a share \
         of the points tried</summary>\n<div class=\"wide\"><table class=\"claims\"><thead><tr>\
         <th>claim</th><th>here</th><th>holds at</th><th>points</th></tr></thead><tbody>\n{rows}\
         </tbody></table></div>\n<ul>\n{items}</ul></details></section>\n",
        alone(paper, &open, &answers),
        moved(&own),
    )
}

/// For each setting, the number of failing claims that hold if it alone is changed.
fn alone(paper: &str, open: &[&Judged], answers: &BTreeMap<&str, (&Analysis, &Answer)>) -> String {
    let settings = OpenSettings::shipped(paper).map_or(Vec::new(), |file| file.open);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for setting in settings {
        counts.insert(setting.axis.name, 0);
    }
    let tried = open
        .iter()
        .filter_map(|judged| answers.get(judged.claim.id.as_str()));
    let mut all = 0;
    for (_, answer) in tried {
        all += 1;
        let points = answer.holds_at.iter().filter(|at| !at.contains(", "));
        let points: Vec<&String> = points.collect();
        for (setting, count) in &mut counts {
            let own = |at: &&String| {
                let rest = at.strip_prefix(setting.as_str());
                rest.is_some_and(|rest| rest.starts_with(' '))
            };
            *count += usize::from(points.iter().copied().any(|at| own(&at)));
        }
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.retain(|(_, count)| *count > 0);
    if counts.is_empty() {
        return String::new();
    }
    let row = |(setting, count): &(String, usize)| {
        let bar = bar(*count as f64 / all as f64, &count.to_string());
        format!("<tr><th>{}</th><td>{bar}</td></tr>\n", escape(setting))
    };
    format!(
        "<h4>Of {all} claims that do not hold here, those that hold with one setting changed</h4>\n\
         <table class=\"bars\"><tbody>\n{}</tbody></table>\n",
        counts.iter().map(row).collect::<String>()
    )
}

/// The mean total effect of each setting on the figures of a sample.
fn moved(analyses: &[Analysis]) -> String {
    let mut totals: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    let effects = analyses.iter().flat_map(|analysis| &analysis.effect);
    let figures = effects.clone().count();
    for share in effects.flat_map(|moved| &moved.share) {
        let total = totals.entry(&share.setting).or_default();
        *total = (total.0 + share.total, total.1 + 1);
    }
    if totals.is_empty() {
        return String::new();
    }
    let means = totals
        .into_iter()
        .map(|(name, (sum, count))| (name, sum / count as f64));
    let mut means: Vec<(&str, f64)> = means.collect();
    means.sort_by(|a, b| b.1.total_cmp(&a.1));
    let row = |(setting, mean): &(&str, f64)| {
        let bar = bar(*mean, &format!("{mean:.2}"));
        format!("<tr><th>{}</th><td>{bar}</td></tr>\n", escape(setting))
    };
    format!(
        "<h4>All settings varied at once: the part of the variance that each has in it, mean of \
         {figures} figures</h4>\n<table class=\"bars\"><tbody>\n{}</tbody></table>\n",
        means.iter().map(row).collect::<String>()
    )
}

/// A bar whose width is a share of the column, with space for its value as text.
fn bar(share: f64, words: &str) -> String {
    let percent = 60.0 * share.clamp(0.0, 1.0);
    format!(
        "<i class=\"bar\" style=\"width:{percent:.0}%\"></i> {}",
        escape(words)
    )
}

/// A point without the settings that have their defaults, with readable numbers.
fn short(point: &str) -> String {
    let settings = point.split(", ").filter(|part| !part.ends_with(" default"));
    let settings = settings.map(|part| match part.rsplit_once(' ') {
        Some((name, value)) if value.contains('.') => match value.parse() {
            Ok(value) => format!("{name} {}", number(value)),
            Err(_) => part.into(),
        },
        _ => part.into(),
    });
    let settings: Vec<String> = settings.collect();
    settings.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_named_by_what_is_changed() {
        assert_eq!(short("default"), "default");
        assert_eq!(short("over_provision 0.2"), "over_provision 0.200");
        assert_eq!(
            short("clients 100, frames default, gc_threshold 0.03928679, hot_rows last"),
            "clients 100, gc_threshold 0.0393, hot_rows last"
        );
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert!(bar(0.25, "1 of 4").contains("width:15%"));
        assert!(bar(3.0, "beyond").contains("width:60%"));
    }

    #[test]
    fn settings_of_a_sample_are_drawn_by_their_effect() {
        let shipped = Analysis::shipped();
        let sampled: Vec<Analysis> = shipped
            .into_iter()
            .filter(|one| !one.effect.is_empty())
            .collect();
        let drawn = moved(&sampled[..1]);
        let settings = sampled[0].effect[0].share.len();
        assert_eq!(drawn.matches("class=\"bar\"").count(), settings);
        assert_eq!(moved(&[]), "");
    }
}
