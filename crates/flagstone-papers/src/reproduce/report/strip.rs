//! Pictures of published and measured figures: one strip per figure of a paper, and one for the
//! whole report. The centre of a strip is the published value.

use super::super::verdict::{Part, Verdict};
use super::super::{Basis, Catalogue, Judged, Results};
use super::page::class;
use flagstone_lab::chart::escape;
use std::fmt::Write;

/// Larger deviations are drawn at the edge, with an arrow.
const SPAN: f64 = 0.5;
const WIDTH: f64 = 560.0;
/// Position of the scale's centre, and half of its length.
const MIDDLE: f64 = 400.0;
const HALF: f64 = 140.0;
const ROW: f64 = 22.0;
/// Height of the scale at the bottom.
const FOOT: f64 = 26.0;

/// The mark of a deviation. Each verdict has its own shape, independent of colour.
fn mark(svg: &mut String, deviation: f64, y: f64, verdict: Verdict, title: &str) {
    let x = MIDDLE + deviation.clamp(-SPAN, SPAN) / SPAN * HALF;
    let class = class(verdict);
    let shape = match (verdict, deviation.abs() > SPAN) {
        (_, true) => {
            let tip = if deviation > 0.0 { 9.0 } else { -9.0 };
            format!("<path d=\"M{x} {}l{tip} 5l{} 5z\"/>", y - 5.0, -tip)
        }
        (Verdict::Holds, _) => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"4.5\"/>"),
        (Verdict::Differs, _) => {
            format!("<path d=\"M{x} {}l5 5l-5 5l-5 -5z\"/>", y - 5.0)
        }
        (Verdict::Tie | Verdict::TooFew, _) => {
            format!("<path d=\"M{} {}h8v8h-8z\"/>", x - 4.0, y - 4.0)
        }
        (Verdict::Direction | Verdict::NotMeasured, _) => {
            format!("<path d=\"M{x} {}l5 9h-10z\"/>", y - 5.0)
        }
    };
    let title = escape(title);
    let _ = write!(
        svg,
        "<g class=\"{class} mark\"><title>{title}</title>{shape}</g>"
    );
}

/// The scale below a strip with `rows` rows, and the line of published values.
fn scale(svg: &mut String, rows: usize) {
    let bottom = rows as f64 * ROW;
    for percent in [-50, -25, 0, 25, 50] {
        let x = MIDDLE + f64::from(percent) / 100.0 / SPAN * HALF;
        let class = if percent == 0 { "published" } else { "grid" };
        let word = match percent {
            0 => "published".to_string(),
            percent => format!("{percent:+} %"),
        };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"{bottom}\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{word}</text>",
            bottom + 16.0
        );
    }
}

fn start(rows: usize, label: &str) -> String {
    let height = rows as f64 * ROW + FOOT;
    let label = escape(label);
    format!(
        "<svg class=\"strip\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">"
    )
}

fn name(svg: &mut String, row: usize, text: &str) {
    let y = row as f64 * ROW + ROW / 2.0 + 4.0;
    let short: String = text.chars().take(36).collect();
    let _ = write!(svg, "<text x=\"0\" y=\"{y}\">{}</text>", escape(&short));
}

/// The published values of a figure's claims, and the measured ones. Empty if no claim has a
/// number.
pub(super) fn of_figure(claims: &[&Judged]) -> String {
    let parts: Vec<&Part> = claims
        .iter()
        .flat_map(|judged| &judged.judgement.parts)
        .filter(|part| part.deviation.is_some())
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    let mut svg = start(parts.len(), "published values and measured ones");
    scale(&mut svg, parts.len());
    for (row, part) in parts.iter().enumerate() {
        name(&mut svg, row, &format!("{}: {}", part.what, part.published));
        let deviation = part.deviation.unwrap_or_default();
        let title = format!(
            "{}: published {}, measured {}, {:+.1} %",
            part.what,
            part.published,
            part.measured,
            100.0 * deviation
        );
        let y = row as f64 * ROW + ROW / 2.0;
        mark(&mut svg, deviation, y, part.verdict, &title);
    }
    format!("{svg}</svg>\n")
}

/// All claims with numbers, one row per paper.
pub(super) fn of_report(catalogue: &Catalogue, results: &Results) -> String {
    let mut papers: Vec<&str> = Vec::new();
    for judged in &results.claims {
        let has_number = |part: &Part| part.deviation.is_some();
        let paper = judged.claim.paper();
        if judged.judgement.parts.iter().any(has_number) && !papers.contains(&paper) {
            papers.push(paper);
        }
    }
    if papers.is_empty() {
        return String::new();
    }
    let mut svg = start(
        papers.len(),
        "how far measured figures are from published ones",
    );
    scale(&mut svg, papers.len());
    for (row, paper) in papers.iter().enumerate() {
        let mut experiments = catalogue.experiments.iter();
        let own = experiments.find(|experiment| experiment.paper == *paper);
        name(&mut svg, row, own.map_or(paper, |own| own.name()));
        let measured = results
            .claims
            .iter()
            .filter(|judged| judged.basis == Basis::Measured);
        for judged in measured.filter(|judged| judged.claim.paper() == *paper) {
            for part in &judged.judgement.parts {
                let Some(deviation) = part.deviation else {
                    continue;
                };
                let title = format!("{}: {:+.1} %", judged.claim.id, 100.0 * deviation);
                let y = row as f64 * ROW + ROW / 2.0;
                let _ = write!(svg, "<a href=\"#c-{}\">", escape(&judged.claim.id));
                mark(&mut svg, deviation, y, part.verdict, &title);
                svg += "</a>";
            }
        }
    }
    let shapes = [
        ("holds", "● holds"),
        ("direction", "▲ its direction holds"),
        ("tie", "■ a tie"),
        ("few", "■ too few to say"),
        ("differs", "◆ differs"),
    ];
    let shapes = shapes.map(|(class, words)| format!("<span class=\"{class}\">{words}</span> "));
    format!(
        "<figure>{svg}</svg>\n<figcaption class=\"legend\">Each mark is a measured figure, as far from \
         the published one as it lies from the line, and leads to its claim: {}\
         <span>◀ ▶ beyond 50 %</span></figcaption></figure>\n",
        shapes.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_the_scale_is_an_arrow_at_its_edge() {
        let mut near = String::new();
        mark(&mut near, 0.1, 11.0, Verdict::Holds, "near");
        assert!(near.contains("<circle cx=\"428\""), "{near}");
        let mut far = String::new();
        mark(&mut far, 3.0, 11.0, Verdict::Differs, "a < b");
        assert!(far.contains("M540 ") && far.contains("a &lt; b"), "{far}");
        assert!(!far.contains("circle"));
    }
}
