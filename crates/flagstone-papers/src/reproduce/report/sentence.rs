//! Describes a figure in one sentence, generated from its data.

use super::super::Measured;
use super::super::figures::Chart;
use super::super::measure::Point;
use super::super::verdict::number;

/// The sentence.
pub(super) fn sentence(figure: &Measured) -> String {
    let known: Vec<(&str, Vec<(&Point, f64)>)> = figure
        .data
        .series
        .iter()
        .map(|(name, points)| {
            let known = points.iter().filter_map(|point| Some((point, point.y?)));
            (name.as_str(), known.collect())
        })
        .filter(|(_, points): &(&str, Vec<_>)| !points.is_empty())
        .collect();
    if known.is_empty() {
        return "Nothing was measured.".into();
    }
    let sweeps = known.iter().any(|(_, points)| points.len() > 1);
    if figure.spec.chart == Chart::Lines && sweeps {
        over_the_sweep(&known)
    } else {
        at_each_point(&known)
    }
}

/// The change of each series from the first to the last point.
fn over_the_sweep(known: &[(&str, Vec<(&Point, f64)>)]) -> String {
    let (first, last) = (known[0].1[0].0, known[0].1[known[0].1.len() - 1].0);
    let words: Vec<String> = known
        .iter()
        .map(|(name, points)| {
            let ys = || points.iter().map(|(_, y)| *y);
            let (low, high) = (ys().fold(f64::INFINITY, f64::min), ys().fold(0.0, f64::max));
            let (start, end) = (points[0].1, points[points.len() - 1].1);
            if high <= low * 1.05 {
                format!("{name} stays at {}", number((low + high) / 2.0))
            } else {
                let verb = if end >= start { "goes up" } else { "goes down" };
                let mut text = format!("{name} {verb} from {} to {}", number(start), number(end));
                if high > 1.05 * start.max(end) || low * 1.05 < start.min(end) {
                    text += &format!(" (between {} and {})", number(low), number(high));
                }
                text
            }
        })
        .collect();
    format!(
        "From {} to {}: {}.",
        first.name,
        last.name,
        words.join("; ")
    )
}

/// The highest and the lowest series at each point.
fn at_each_point(known: &[(&str, Vec<(&Point, f64)>)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (point, _) in known.iter().flat_map(|(_, points)| points) {
        if !names.contains(&point.name.as_str()) {
            names.push(&point.name);
        }
    }
    // A single point needs no name.
    let only = names.len() == 1;
    let words = names.into_iter().map(|name| {
        let place = if only {
            String::new()
        } else {
            format!("{name}: ")
        };
        let mut all: Vec<(f64, &str)> = known
            .iter()
            .filter_map(|(series, points)| {
                let (_, y) = points.iter().find(|(point, _)| point.name == name)?;
                Some((*y, *series))
            })
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let word = |(y, series): &(f64, &str)| format!("{series} with {}", number(*y));
        match all.as_slice() {
            [] => String::new(),
            [one] => format!("{place}{}", word(one)),
            [most, .., least] if only => {
                format!("Most: {}; least: {}", word(most), word(least))
            }
            [most, .., least] => {
                format!("{place}most {}, least {}", word(most), word(least))
            }
        }
    });
    let text = words.filter(|text| !text.is_empty()).collect::<Vec<_>>();
    text.join("; ") + "."
}
