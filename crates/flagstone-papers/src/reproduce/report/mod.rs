//! The output of `flagstone reproduce`: one line of JSON per claim, a web page, and the data of
//! each figure as comma-separated values.

mod chart;
mod decides;
mod hangs;
mod page;
mod sentence;
mod published;
mod strip;

use super::verdict::{Judgement, Verdict};
use super::{Catalogue, Judged, Measured, Results};
use flagstone_lab::output::{Output, OutputError, make_folder};
use serde_json::{Value, json};
use std::path::Path;

/// A summary of a claim in three short texts, for tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The published figures or statement.
    pub published: String,
    /// The measured figures.
    pub measured: String,
    /// The largest deviation, in percent.
    pub deviation: String,
}

/// Summarizes a claim.
pub fn summary(judged: &Judged) -> Summary {
    let parts = &judged.judgement.parts;
    let join = |of: fn(&super::verdict::Part) -> &String| {
        let mut texts: Vec<&str> = parts.iter().map(|part| of(part).as_str()).collect();
        texts.dedup();
        texts.join("; ")
    };
    let published = match &judged.claim.says {
        Some(says) => says.clone(),
        None => join(|part| &part.published),
    };
    Summary {
        published,
        measured: join(|part| &part.measured),
        deviation: percent(&judged.judgement),
    }
}

fn percent(judgement: &Judgement) -> String {
    let deviation = judgement.deviation();
    deviation.map_or(String::new(), |part| format!("{:+.1} %", part * 100.0))
}

/// A claim as a JSON object.
pub fn json(judged: &Judged) -> Value {
    let Judged {
        claim,
        basis,
        judgement,
        seeds,
        seconds,
    } = judged;
    let figures: Vec<Value> = claim
        .points()
        .into_iter()
        .map(|(name, figure)| {
            let (low, high) = figure.ends();
            let value = if low == high {
                json!(low)
            } else {
                json!([low, high])
            };
            if name.is_empty() {
                value
            } else {
                json!({ name: value })
            }
        })
        .collect();
    let published = match (&claim.says, figures.as_slice()) {
        (Some(says), []) => json!(says),
        (_, [one]) => one.clone(),
        (_, several) => json!(several),
    };
    let measured: Vec<Value> = judgement
        .parts
        .iter()
        .map(|part| match part.value {
            Some(value) => json!(value),
            None => json!(part.measured),
        })
        .collect();
    let measured = match measured.as_slice() {
        [one] => one.clone(),
        several => json!(several),
    };
    let parts: Vec<Value> = judgement
        .parts
        .iter()
        .map(|part| {
            json!({
                "what": part.what,
                "published": part.published,
                "accepted": part.accepted,
                "measured": part.measured,
                "deviation": part.deviation,
                "verdict": part.verdict.name(),
            })
        })
        .collect();
    json!({
        "id": claim.id,
        "paper": claim.paper(),
        "kind": claim.kind.name(),
        "basis": basis.name(),
        "metric": claim.metric,
        "where": claim.place,
        "published": published,
        "measured": measured,
        "unit": claim.unit,
        "deviation": judgement.deviation(),
        "verdict": judgement.verdict.name(),
        "cause": claim.cause.as_ref().filter(|_| judgement.verdict != Verdict::Holds),
        "seeds": seeds.iter().map(|verdict| verdict.name()).collect::<Vec<_>>(),
        "seconds": seconds,
        "parts": parts,
    })
}

/// The files of a report in a folder.
#[derive(Debug)]
pub struct Report {
    page: Output,
    /// The data file of each figure, in order.
    data: Vec<Output>,
}

impl Report {
    /// Creates the folder, and checks that the page and the data of these figures, given by paper
    /// and id, can be written there. `inputs` are files that must not be replaced.
    ///
    /// # Errors
    /// The first file that cannot be written.
    pub fn new<'a>(
        folder: &Path,
        figures: impl Iterator<Item = (&'a str, &'a str)>,
        inputs: &[&Path],
    ) -> Result<Report, OutputError> {
        make_folder(folder)?;
        let output = |name: String| Output::new(&folder.join(name), inputs);
        Ok(Report {
            page: output("index.html".into())?,
            data: figures
                .map(|(paper, figure)| output(format!("{paper}.{figure}.csv")))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Writes the page and the data. Returns the path of the page.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, catalogue: &Catalogue, results: &Results) -> Result<&Path, OutputError> {
        for (output, measured) in self.data.iter().zip(&results.figures) {
            output.write(csv(measured).as_bytes())?;
        }
        self.page.write(page::page(catalogue, results).as_bytes())?;
        Ok(self.page.path())
    }
}

/// A figure's data: one line per point.
fn csv(measured: &Measured) -> String {
    let mut text = String::from("series,x,y\n");
    for (series, points) in &measured.data.series {
        for point in points {
            let y = point.y.map_or(String::new(), |y| y.to_string());
            text.push_str(&format!("{series},{},{y}\n", point.name));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::engine::Outcome;
    use crate::reproduce::figures::Mode;
    use crate::reproduce::runs;
    use crate::reproduce::sensitivity::Analysis;
    use std::collections::BTreeMap;

    fn results() -> (Catalogue, Results) {
        let catalogue = Catalogue::shipped();
        let selection = catalogue
            .select(&["lighttx.fig7", "lighttx.fig9", "mixsl"])
            .unwrap();
        let plan = catalogue.plan(&selection, Mode::Quick);
        let outcome = |(at, hash): (usize, String)| {
            let metrics = BTreeMap::from([("ended_tps".to_string(), 100.0 + at as f64)]);
            (
                hash,
                Outcome::Done {
                    metrics,
                    seconds: 1.0,
                },
            )
        };
        let outcomes = runs(&plan).into_keys().enumerate().map(outcome).collect();
        let results = catalogue.judge(&selection, Mode::Quick, plan, &outcomes);
        (catalogue, results)
    }

    #[test]
    fn the_page_needs_nothing_but_itself() {
        let (catalogue, results) = results();
        let page = page::page(&catalogue, &results);
        // Two charts, and a strip of published values beside each and for the whole report.
        assert_eq!(page.matches("<svg viewBox").count(), 2);
        assert_eq!(page.matches("<svg class=\"strip\"").count(), 3);
        assert!(page.contains("data-verdict=\"not measured\""));
        for judged in &results.claims {
            assert!(page.contains(&judged.claim.id), "{}", judged.claim.id);
        }
        // Charts refer to parts of themselves.
        let page = page.replace("url(#", "");
        for outside in [
            "http:", "https:", "//cdn", "@import", "url(", "<link", "src=",
        ] {
            assert!(!page.contains(outside), "the page has {outside}");
        }
        // All colours are the page's or the series', so dark mode is readable.
        assert!(!page.contains("#010101") && !page.contains("#020202"));
    }

    #[test]
    fn a_label_that_an_axis_has_no_room_for_is_beside_it() {
        let (catalogue, mut results) = results();
        let long = "transactions under way; uncommitted pages and what waits for them; zones";
        let before = page::page(&catalogue, &results);
        assert!(!before.contains("Below:"));
        for measured in &mut results.figures {
            measured.spec.x.label = long.into();
        }
        let page = page::page(&catalogue, &results);
        assert!(page.contains(&format!("Below: {long}.")));
        let cut = "transactions under way; uncommitted pages and what waits …";
        assert!(page.contains(&format!(">{cut}<")), "{page}");
    }

    #[test]
    fn the_filter_finds_what_it_needs_in_the_page() {
        let (catalogue, results) = results();
        let page = page::page(&catalogue, &results);
        for part in [
            "id=\"filter\"",
            "name=\"paper\"",
            "name=\"verdict\"",
            "id=\"shown\"",
            "<table id=\"all-claims\"",
        ] {
            assert_eq!(page.matches(part).count(), 1, "{part}");
        }
        let options: Vec<&str> = page.split("<option>").skip(1).collect();
        let options: Vec<&str> = options
            .iter()
            .filter_map(|rest| Some(rest.split_once('<')?.0))
            .collect();
        let table = page.split_once("id=\"all-claims\"").expect("the table").1;
        let table = table.split_once("</table>").expect("its end").0;
        let mut rows = 0;
        for row in table.split("data-paper=\"").skip(1) {
            let (paper, rest) = row.split_once('"').expect("its paper");
            let verdict = rest.split('"').nth(1).expect("its verdict");
            assert!(
                options.contains(&paper) && options.contains(&verdict),
                "{row}"
            );
            rows += 1;
        }
        assert_eq!(rows, results.claims.len());
    }

    #[test]
    fn the_page_says_where_claims_hold_that_do_not_here() {
        let (_, mut results) = results();
        let analysis = |id: &str, holds_at: &str| {
            let text = format!(
                "[[analysis]]\npaper = \"lighttx\"\nnames = [\"lighttx\"]\npoints = 7\nbest = \"b <1>\"\n\
                 [[analysis.claim]]\nid = \"{id}\"\ndefault = \"differs\"\ntried = 7\n\
                 holds_at = {holds_at}\n\
                 [[analysis.place]]\nat = \"b <1>\"\nholds = [\"{id}\"]\ndirection = []\ndiffers = []\n"
            );
            Analysis::parse(&text).unwrap()
        };
        let of_paper = |judged: &Judged| judged.claim.paper() == "lighttx";
        let at = results.claims.iter().position(of_paper).unwrap();
        let judged = &mut results.claims[at];
        let id = judged.claim.id.clone();
        judged.judgement.verdict = Verdict::Differs;
        let section =
            |results: &Results, found: &[Analysis]| hangs::section("lighttx", results, found);
        let found = section(&results, &analysis(&id, "[\"b <1>\"]"));
        assert!(
            found.contains(&id) && found.contains("1 of 7</td>") && found.contains("b &lt;1&gt;"),
            "{found}"
        );
        assert!(
            found.contains("1 hold, 0 in direction, 0 differ"),
            "{found}"
        );
        let found = section(&results, &analysis(&id, "[]"));
        assert!(found.contains("0 of 7</td>"), "{found}");
        // Control: a claim that holds needs no other setting, and a paper may have no analyses.
        assert_eq!(section(&results, &[]), "");
        results.claims[at].judgement.verdict = Verdict::Holds;
        let found = section(&results, &analysis(&id, "[]"));
        assert!(!found.contains(&id), "{found}");
    }

    #[test]
    fn a_claim_that_does_not_hold_says_why_and_where_that_is_explained() {
        let (catalogue, mut results) = results();
        let own = |judged: &&mut Judged| judged.claim.id == "lighttx.fig7.npc";
        let judged = results.claims.iter_mut().find(own).unwrap();
        judged.claim.cause = Some("it is <so>.".into());
        judged.claim.decided_by = Some("load".into());
        judged.judgement.verdict = Verdict::Differs;
        let why = "it is &lt;so&gt;. <a href=\"#d-lighttx-load\">The load</a>";
        // Beside the figure, in its table and in the table of all claims.
        assert_eq!(page::page(&catalogue, &results).matches(why).count(), 3);
        let judged = results.claims.iter_mut().find(own).unwrap();
        judged.judgement.verdict = Verdict::Holds;
        let page = page::page(&catalogue, &results);
        assert!(!page.contains(why));
        for rest in page.split("href=\"#").skip(1) {
            let id = rest.split('"').next().unwrap();
            assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
        }
    }

    #[test]
    fn a_page_of_several_seeds_says_whose_figures_it_shows() {
        let (catalogue, one) = results();
        let page = page::page(&catalogue, &one);
        assert!(!page.contains("seed 1"));
        let (mut two, first) = (one.clone(), one.claims[0].judgement.verdict);
        let other = match first {
            Verdict::Holds => Verdict::Differs,
            _ => Verdict::Holds,
        };
        two.claims[0].seeds = vec![other];
        let page = page::page(&catalogue, &Results::across(vec![one, two]));
        assert!(page.contains("values those of seed 1."));
        assert_eq!(
            page.matches("<span>seed 1 of 2</span>").count(),
            2,
            "one a chart"
        );
        assert!(page.contains(&format!("{other} 1")) && page.contains("of 2 seeds:"));
    }

    #[test]
    fn a_claim_is_one_object() {
        let (_, results) = results();
        let find = |id: &str| {
            let found = results.claims.iter().find(|judged| judged.claim.id == id);
            json(found.unwrap())
        };
        let ratio = find("lighttx.fig7.npc");
        for key in [
            "id",
            "paper",
            "kind",
            "published",
            "measured",
            "deviation",
            "verdict",
            "seconds",
        ] {
            assert!(!ratio[key].is_null(), "{key}");
        }
        assert_eq!(ratio["published"], 1.196);
        assert!(ratio["seconds"].as_f64().unwrap() > 10.0);
        let other = find("mixsl.fig3a.order");
        assert_eq!(other["verdict"], "not measured");
    }
}
