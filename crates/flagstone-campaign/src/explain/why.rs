//! Explains why the published form of a protocol loses data, and which departure repairs it, with
//! texts from docs/protocols.md.

const PROTOCOLS: &str = include_str!("../../../../docs/protocols.md");

/// The sections for record protocols, in the header of `flagstone::commit::records`.
const RECORDS: [&str; 2] = [
    "The printed form sets flags before the pages that they commit are durable. The repaired form \
     waits: all pages of a transaction are durable before the first flag that commits it.",
    "The printed form reclaims a version whose pending records are all aborted, and with it what \
     others had committed there. In the repaired form, records that are not pending count as \
     committed when a version is to be reclaimed.",
];

/// The mistake of a protocol as published, the resulting loss, and the departures that repair it.
pub(crate) fn published(protocol: &str) -> Vec<String> {
    if matches!(protocol, "cfc-ex" | "afc-ex") {
        return RECORDS.map(String::from).to_vec();
    }
    let quoted = format!("`{protocol}`");
    let rows = PROTOCOLS.lines().filter(|line| line.starts_with('|'));
    let row = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let mut row =
        row.filter(|cells| cells.len() == 5 && cells[1].split(", ").any(|name| name == quoted));
    let Some(row) = row.next() else {
        return Vec::new();
    };
    let (left_out, lost) = (row[2], row[3]);
    let mut all = vec![format!("The printed form leaves out {left_out}. {lost}")];
    all.extend(departures(protocol, left_out));
    all
}

/// Expands a list of departure numbers and ranges. A protocol may refer to those of another one.
fn departures(protocol: &str, list: &str) -> Vec<String> {
    let of = match protocol {
        "mhl-m" => "aw",
        "g-mixsl" => "mixsl",
        other => other,
    };
    let heading = format!("### {of}");
    let section = PROTOCOLS.lines().skip_while(|line| *line != heading);
    let section = section.skip(1).take_while(|line| !line.starts_with("###"));
    let items = section.filter_map(|line| line.strip_prefix("- D"));
    let numbers: Vec<u32> = list
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let is_range = list.contains(" to ");
    let named = |number: u32| match (is_range, numbers.as_slice()) {
        (true, [low, high, rest @ ..]) => {
            (*low..=*high).contains(&number) || rest.contains(&number)
        }
        _ => numbers.contains(&number),
    };
    items
        .filter(|item| {
            let number: String = item.chars().take_while(char::is_ascii_digit).collect();
            number.parse().is_ok_and(named)
        })
        .map(|item| format!("D{item}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone::commit::Kind;

    #[test]
    fn every_printed_form_that_loses_data_has_its_reasons() {
        for kind in Kind::ALL {
            let why = published(kind.info().name);
            assert_eq!(why.len() > 1, kind.info().as_published, "{kind}: {why:?}");
        }
        let scc = published("scc");
        assert!(
            scc[0].contains("leaves out D1.") && scc[1].starts_with("D1. "),
            "{scc:?}"
        );
        assert_eq!(published("cfc").len(), 5, "D1 to D4");
    }
}
