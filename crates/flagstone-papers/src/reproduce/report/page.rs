//! The web page: the verdicts by paper; then, for each paper, the choices that decide its verdicts,
//! and its figures; and a table of all claims. One self-contained file.

use super::super::claims::Claim;
use super::super::figures::{Chart, Experiment};
use super::super::sensitivity::Analysis;
use super::super::verdict::{Verdict, number};
use super::super::{Catalogue, Counts, Judged, Measured, Results};
use super::chart::{Places, fitting, svg};
use super::decides::{badge, cause, in_a_box};
use super::strip;
use super::{hangs, sentence, summary};
use flagstone_lab::chart::{colour, escape, sign};
use std::collections::BTreeMap;

/// The style class of a verdict.
pub(super) fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Direction => "direction",
        Verdict::Tie => "tie",
        Verdict::TooFew => "few",
        Verdict::Differs => "differs",
        Verdict::NotMeasured => "none",
    }
}

/// The complete page.
pub(super) fn page(catalogue: &Catalogue, results: &Results) -> String {
    let mut body = String::new();
    body += "<h1>What the papers publish, and what was measured</h1>\n";
    body += &head(catalogue, results);
    for experiment in &catalogue.experiments {
        let own = |measured: &&Measured| measured.paper == experiment.paper;
        let figures: Vec<&Measured> = results.figures.iter().filter(own).collect();
        if !figures.is_empty() {
            body += &paper(experiment, &figures, catalogue, results);
        }
    }
    body += "<h2 id=\"claims\">All claims</h2>\n";
    body += &filters(results);
    body += &claims_table(
        results.claims.iter().collect::<Vec<_>>().as_slice(),
        catalogue,
        results,
        "all-claims",
    );
    body += &tolerances(catalogue);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Flagstone: reproduction</title>\n<style>\n{}</style>\n</head>\n<body>\n{body}\
         <script>\n{}</script>\n</body>\n</html>\n",
        include_str!("style.css"),
        include_str!("page.js"),
    )
}

/// The introduction: what was measured, how it is judged, and the verdicts by paper, as numbers and
/// as a picture.
fn head(catalogue: &Catalogue, results: &Results) -> String {
    let counts = results.counts();
    let apart = match counts.apart().join(", ") {
        apart if apart.is_empty() => apart,
        apart => format!(" Counted apart, since they prove nothing: {apart}."),
    };
    let seeds = match results.seeds() {
        1 => String::new(),
        seeds => format!(
            " Each run was made with {seeds} seeds: verdicts are those of all, figures and measured \
             values those of seed 1."
        ),
    };
    format!(
        "<p>Of {} measured claims {} hold. Size {}, Flagstone {}.{apart}{seeds} A claim \
         <em>holds</em> if its direction is the published one and its figure within the \
         <a href=\"#tolerances\">tolerance</a> of its kind, which was fixed beforehand; otherwise its \
         <em>direction holds</em>, or it <em>differs</em>. Times are virtual and exact.</p>\n\
         <div class=\"top\">{}{}</div>\n",
        counts.claims(),
        counts.measured(Verdict::Holds),
        results.mode.name(),
        env!("CARGO_PKG_VERSION"),
        papers(catalogue, results),
        strip::of_report(catalogue, results),
    )
}

/// The number of verdicts of each kind by paper.
fn papers(catalogue: &Catalogue, results: &Results) -> String {
    let all = results.counts();
    let shown = Verdict::ALL
        .into_iter()
        .filter(|verdict| all.measured(*verdict) > 0);
    let shown: Vec<Verdict> = shown.collect();
    let heads = shown
        .iter()
        .map(|own| format!("<th class=\"{}\">{own}</th>", class(*own)));
    let mut text = format!(
        "<div class=\"wide\"><table class=\"papers\"><thead><tr><th>paper</th>{}</tr></thead><tbody>\n",
        heads.collect::<String>()
    );
    for experiment in &catalogue.experiments {
        let own = results.claims.iter();
        let own = own.filter(|judged| judged.claim.paper() == experiment.paper);
        let counts = Counts::of(own.map(|own| (own.basis, own.judgement.verdict)));
        if counts == Counts::default() {
            continue;
        }
        let cell = |verdict: &Verdict| match counts.measured(*verdict) {
            0 => "<td class=\"n\"></td>".to_string(),
            count => format!("<td class=\"n {}\">{count}</td>", class(*verdict)),
        };
        text += &format!(
            "<tr><th><a href=\"#{}\">{}</a></th>{}</tr>\n",
            escape(&experiment.paper),
            escape(experiment.name()),
            shown.iter().map(cell).collect::<String>()
        );
    }
    text + "</tbody></table></div>\n"
}

/// The form that filters the table of all claims.
fn filters(results: &Results) -> String {
    let mut papers: Vec<&str> = results
        .claims
        .iter()
        .map(|judged| judged.claim.paper())
        .collect();
    papers.dedup();
    let options = |names: &[&str]| {
        let option = |name: &&str| format!("<option>{}</option>", escape(name));
        "<option value=\"\">all</option>".to_string()
            + &names.iter().map(option).collect::<String>()
    };
    format!(
        "<form id=\"filter\"><label>paper <select name=\"paper\">{}</select></label> \
         <label>verdict <select name=\"verdict\">{}</select></label> \
         <output id=\"shown\"></output></form>\n",
        options(&papers),
        options(&Verdict::ALL.map(Verdict::name)),
    )
}

/// A table of claims with their parts.
fn claims_table(claims: &[&Judged], catalogue: &Catalogue, results: &Results, id: &str) -> String {
    let mut text = format!(
        "<div class=\"wide\"><table id=\"{id}\" class=\"claims\"><thead><tr><th>claim</th>\
         <th>published</th><th>measured</th><th>accepted</th><th>deviation</th><th>verdict</th></tr>\
         </thead><tbody>\n"
    );
    for judged in claims {
        let claim = &judged.claim;
        let (short, verdict) = (summary(judged), judged.judgement.verdict);
        let parts = &judged.judgement.parts;
        let (measured, accepted) = match parts.as_slice() {
            [part] => (escape(&part.measured), escape(&part.accepted)),
            parts => {
                let of = |what: &str, text: &str| {
                    format!("<li><code>{}</code> {}</li>", escape(what), escape(text))
                };
                let list = |items: String| format!("<ul>{items}</ul>");
                let measured = parts
                    .iter()
                    .map(|part| of(&part.what, &part.measured))
                    .collect();
                let mut accepted: Vec<&str> = parts.iter().map(|p| p.accepted.as_str()).collect();
                accepted.dedup();
                let item = |text: &&str| format!("<li>{}</li>", escape(text));
                (list(measured), list(accepted.iter().map(item).collect()))
            }
        };
        // A claim may also be in tables of figures; links lead to the complete one.
        let target = match id {
            "all-claims" => format!(" id=\"c-{}\"", escape(&claim.id)),
            _ => String::new(),
        };
        text += &format!(
            "<tr{target} data-paper=\"{}\" data-verdict=\"{verdict}\"><td data-label=\"claim\"><b>{}</b><br>\
             <small>{}, {}: {}</small></td><td data-label=\"published\">{}</td>\
             <td data-label=\"measured\">{measured}</td><td data-label=\"accepted\">{accepted}</td>\
             <td data-label=\"deviation\" class=\"n\">{}</td>\
             <td data-label=\"verdict\">{}{}{}</td></tr>\n",
            escape(claim.paper()),
            escape(&claim.id),
            claim.kind.name(),
            places(claim, results),
            escape(&claim.metric),
            escape(&short.published),
            escape(&short.deviation),
            badge(judged),
            by_seed(judged),
            cause(judged, catalogue),
        );
    }
    text + "</tbody></table></div>\n"
}

/// The verdict under each seed, if there are several and they differ.
fn by_seed(judged: &Judged) -> String {
    let seeds = &judged.seeds;
    if seeds.iter().all(|own| Some(own) == seeds.first()) {
        return String::new();
    }
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    seeds
        .iter()
        .for_each(|own| *counts.entry(*own).or_default() += 1);
    let words = counts
        .iter()
        .rev()
        .map(|(verdict, count)| format!("{verdict} {count}"));
    let words = words.collect::<Vec<_>>().join(", ");
    format!("<small>of {} seeds: {words}</small> ", seeds.len())
}

/// The claim's place in the paper, with links to the figures on this page.
fn places(claim: &Claim, results: &Results) -> String {
    let there = |id: &&str| {
        let is = |m: &Measured| m.paper == claim.paper() && m.spec.id == **id;
        results.figures.iter().any(is)
    };
    let link = |id: &str| format!(" <a href=\"#f-{}-{id}\">{id}</a>", claim.paper());
    let links: String = claim
        .figures()
        .into_iter()
        .filter(there)
        .map(link)
        .collect();
    escape(&claim.place) + &links
}

/// The tolerances of each kind of claim, with their reasons.
fn tolerances(catalogue: &Catalogue) -> String {
    use super::super::claims::ClaimKind::{Cross, Order, Ratio, Trend, Value};
    let item = |kind: super::super::claims::ClaimKind| {
        let reason = catalogue.tolerances.reason(kind);
        format!("<li><b>{}</b>: {}</li>\n", kind.name(), escape(reason))
    };
    let items: String = [Ratio, Value, Order, Trend, Cross]
        .into_iter()
        .map(item)
        .collect();
    let count = escape(&catalogue.tolerances.count.reason);
    format!(
        "<details id=\"tolerances\"><summary>Tolerances, by kind of claim</summary><ul>\n{items}\
         <li><b>counts</b>: {count}</li>\n</ul></details>\n"
    )
}

/// The section of a paper: the choices that decide its verdicts next to its first figure, then the
/// other figures.
fn paper(
    experiment: &Experiment,
    figures: &[&Measured],
    catalogue: &Catalogue,
    results: &Results,
) -> String {
    let (name, title) = (experiment.name(), experiment.title.as_str());
    let title = if title.starts_with(name) {
        title.to_string()
    } else {
        format!("{name}: {title}")
    };
    let mut text = format!(
        "<h2 id=\"{}\">{}</h2>\n<p class=\"cite\">{}</p>\n<div class=\"paper\">\n{}",
        escape(&experiment.paper),
        escape(&title),
        escape(&experiment.cite),
        in_a_box(experiment),
    );
    // A series has the same colour and shape in all figures of a paper.
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in figures.iter().flat_map(|measured| &measured.data.series) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let place = |name: &str| names.iter().position(|known| *known == name).unwrap_or(0);
    for measured in figures {
        text += &figure(measured, catalogue, results, &place);
    }
    text += "</div>\n";
    text += &hangs::section(&experiment.paper, results, &Analysis::shipped());
    if !experiment.notes.is_empty() {
        let item = |note: &String| format!("<li>{}</li>\n", escape(note));
        let items: String = experiment.notes.iter().map(item).collect();
        text += &format!(
            "<details><summary>One setting for the whole paper</summary>\n<ul>\n{items}</ul></details>\n"
        );
    }
    text
}

/// The section of a figure: a sentence, the chart with its legend, the verdicts on its claims, its
/// setting and its data. `place` gives each series its colour and shape.
fn figure(
    measured: &Measured,
    catalogue: &Catalogue,
    results: &Results,
    place: Places<'_>,
) -> String {
    let spec = &measured.spec;
    let mut text = format!(
        "<section id=\"f-{}-{}\"><h3>{}: {}</h3>\n<p>{}</p>\n",
        escape(&measured.paper),
        escape(&spec.id),
        escape(&spec.place),
        escape(&spec.title),
        escape(&sentence::sentence(measured)),
    );
    let own = |judged: &&Judged| {
        judged.claim.paper() == measured.paper && judged.claim.figures().contains(&spec.id.as_str())
    };
    let claims: Vec<&Judged> = results.claims.iter().filter(own).collect();
    if let Some(svg) = svg(measured, &claims, place) {
        let has_points = spec.chart == Chart::Lines;
        let chip = |(name, _): &(String, Vec<_>)| {
            let of_it = colour(place(name));
            let sample = if has_points {
                format!("<b style=\"color:{of_it}\">{}</b>", sign(place(name)))
            } else {
                format!("<i style=\"background:{of_it}\"></i>")
            };
            format!("<span>{sample} {}</span> ", escape(name))
        };
        let mut chips: String = measured.data.series.iter().map(chip).collect();
        let label = &spec.x.label;
        if fitting(label) != *label {
            chips += &format!("<br><small>Below: {}.</small>", escape(label));
        }
        let strip = strip::of_figure(&claims);
        if results.seeds() > 1 {
            chips += &format!("<span>seed 1 of {}</span> ", results.seeds());
        }
        if !strip.is_empty() {
            chips += "<span class=\"said\"><b>–</b> published; where that is a ratio, to the other series as measured</span>";
        }
        text += &format!(
            "<figure>{svg}\n<figcaption class=\"legend\">{chips}</figcaption>{strip}</figure>\n"
        );
    }
    if !claims.is_empty() {
        text += &verdicts(&claims, catalogue);
        let id = format!("c-{}-{}", measured.paper, spec.id);
        text += "<details><summary>Published beside measured</summary>\n";
        text += &claims_table(&claims, catalogue, results, &id);
        text += "</details>\n";
    }
    text + &setting(measured) + &data(measured) + "</section>\n"
}

/// The verdicts on the claims of a figure, each with its cause.
fn verdicts(claims: &[&Judged], catalogue: &Catalogue) -> String {
    let item = |judged: &&Judged| {
        let claim = &judged.claim;
        let values = match judged.judgement.parts.as_slice() {
            [part] if part.value.is_some() => {
                format!(": published {}, measured {}", part.published, part.measured)
            }
            _ => String::new(),
        };
        format!(
            "<li>{}<a href=\"#c-{}\">{}</a>{} {}</li>\n",
            badge(judged),
            escape(&claim.id),
            escape(&claim.metric),
            escape(&values),
            cause(judged, catalogue),
        )
    };
    let items: String = claims.iter().map(item).collect();
    format!("<ul class=\"verdicts\">\n{items}</ul>\n")
}

/// The common settings of all points of a figure.
fn setting(measured: &Measured) -> String {
    let mut shared: Option<serde_json::Map<String, serde_json::Value>> = None;
    for cell in &measured.cells {
        let settings = cell.run.settings();
        let Some(settings) = settings.as_object() else {
            continue;
        };
        match &mut shared {
            None => shared = Some(settings.clone()),
            Some(shared) => shared.retain(|key, value| settings.get(key) == Some(value)),
        }
    }
    let shared = shared.unwrap_or_default();
    let given = shared.iter().filter(|(_, value)| !value.is_null());
    let item = |(key, value): (&String, &serde_json::Value)| {
        let value = escape(&value.to_string());
        format!("<li><code>{} = {value}</code></li>", escape(key))
    };
    let items: String = given.map(item).collect();
    let metric = escape(&measured.spec.metric);
    format!(
        "<details><summary>Setting</summary><p>Measured: <code>{metric}</code>. All points share:</p>\
         <ul>{items}</ul></details>\n"
    )
}

/// The values of a figure as a table, a row for each series.
fn data(measured: &Measured) -> String {
    let names = measured.data.names();
    let cell = |name: &str| format!("<th>{}</th>", escape(name));
    let head: String = names.iter().map(|name| cell(name)).collect();
    let mut rows = String::new();
    for (series, points) in &measured.data.series {
        let value = |name: &&str| {
            let point = points.iter().find(|point| point.name == **name);
            let y = point.and_then(|point| point.y);
            format!("<td class=\"n\">{}</td>", y.map_or("–".into(), number))
        };
        let cells: String = names.iter().map(value).collect();
        rows += &format!("<tr><th>{}</th>{cells}</tr>\n", escape(series));
    }
    let file = format!("{}.{}.csv", measured.paper, measured.spec.id);
    format!(
        "<details><summary>Data</summary><p><a href=\"{file}\">{file}</a></p><div class=\"wide\">\
         <table><thead><tr><th>{}</th>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\
         </details>\n",
        escape(&measured.spec.x.label),
    )
}
