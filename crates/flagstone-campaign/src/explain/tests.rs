//! The example on every protocol: it is complete, shows what was recorded, and printed forms lose
//! data where the repaired ones do not.

use super::*;
use flagstone::commit::Kind;
use std::sync::OnceLock;

/// The examples of all protocols, played once for several tests.
fn all() -> &'static [(&'static str, Story)] {
    static ALL: OnceLock<Vec<(&str, Story)>> = OnceLock::new();
    let story = |name| (name, explain(name).expect("it is known").expect("it plays"));
    ALL.get_or_init(|| names().into_iter().map(story).collect())
}

/// Required parts that a story lacks.
fn lacks(story: &Story) -> Vec<&'static str> {
    let steps = &story.panes[0].steps;
    let says = |what: &str| steps.iter().any(|step| step.text.contains(what));
    let erases = |step: &Step| {
        step.changes
            .iter()
            .any(|change| matches!(change, Change::Erase(_)))
    };
    let mut lacks = Vec::new();
    let mut need = |holds: bool, what| {
        if !holds {
            lacks.push(what);
        }
    };
    let begun = steps
        .iter()
        .filter(|step| step.text.ends_with(" begins"))
        .count();
    need(begun >= 3, "three transactions");
    need(says("is rolled back"), "a transaction that is rolled back");
    need(says("is acknowledged"), "a commit");
    need(says("The power fails"), "a power cut");
    need(says("starts from its flash alone"), "a restart");
    need(steps.iter().any(erases), "a collection");
    need(steps.iter().any(|step| step.ruled.is_some()), "a ruling");
    need(steps.iter().any(|step| step.tables.is_some()), "tables");
    lacks
}

#[test]
fn every_protocol_has_an_example_with_all_its_parts() {
    for &(name, ref story) in all() {
        assert_eq!(lacks(story), [""; 0], "{name}");
        let is_atomic = name != "plain";
        assert_eq!(story.panes[0].ending.good, is_atomic, "{name}");
        let known: Vec<&str> = story.recovery.iter().map(|rule| rule.code).collect();
        for step in story.panes.iter().flat_map(|pane| &pane.steps) {
            if let Some((row, _)) = step.ruled {
                assert!(known.contains(&row), "{name}: no row {row}");
            }
        }
    }
}

#[test]
fn a_story_without_a_part_is_noticed() {
    let mut story = explain("seal").unwrap().unwrap();
    let is_cut = |step: &Step| step.text.contains("The power fails");
    story.panes[0]
        .steps
        .retain(|step| !is_cut(step) && step.ruled.is_none());
    assert_eq!(lacks(&story), ["a power cut", "a ruling"]);
}

#[test]
fn printed_forms_lose_data_at_the_same_cut() {
    for &(name, ref story) in all() {
        let kind = Kind::by_name(name);
        let loses = kind.is_none_or(|kind| kind.info().published.is_some());
        assert_eq!(story.panes.len() == 2, loses, "{name}");
        if let [repaired, published] = story.panes.as_slice() {
            assert!(repaired.ending.good && !published.ending.good, "{name}");
            assert!(!published.ending.why.is_empty(), "{name}: nothing says why");
            assert!(
                published.ending.pages.iter().any(|(.., right)| !right),
                "{name}"
            );
        }
    }
}

#[test]
fn steps_build_what_the_flash_holds_in_the_end() {
    // The image after the cut is read from the chip. Except for operations in flight, it must be
    // the result of the previous steps.
    for name in ["cfc", "seal", "mixsl", "scc"] {
        let story = explain(name).unwrap().unwrap();
        let mut pages = story.panes[0].start.clone();
        let mut compared = 0;
        for step in &story.panes[0].steps {
            for change in &step.changes {
                match change {
                    Change::Pages(new) => {
                        for (&at, page) in new {
                            pages[at as usize] = Some(page.clone());
                        }
                    }
                    Change::Erase(block) => {
                        let per_block = story.shape.pages_per_block;
                        let first = (block * per_block) as usize;
                        pages[first..first + per_block as usize].fill(None);
                    }
                    Change::All(image) => {
                        let same = pages.iter().zip(image).filter(|(a, b)| a == b).count();
                        let different = image.len() - same;
                        let in_flight = step.more.len() * story.shape.pages_per_block as usize;
                        assert!(different <= in_flight, "{name}: {different} differ");
                        compared += same;
                    }
                }
            }
        }
        assert!(compared > 50, "{name}: {compared}");
    }
}

#[test]
fn the_printed_scc_loses_by_its_first_departure() {
    let story = explain("scc").unwrap().unwrap();
    let published = &story.panes[1];
    assert!(published.ending.why[0].contains("leaves out D1 "));
    // The rolled back transaction counts, because its link found what it refers to.
    let rolled_back = published
        .steps
        .iter()
        .find(|step| step.text.contains("is rolled back"));
    let who = rolled_back.and_then(|step| step.who.clone());
    let ruled = |pane: &Pane| {
        let of = |step: &&Step| step.ruled.is_some() && step.who == who;
        pane.steps.iter().find(of).and_then(|step| step.ruled)
    };
    assert_eq!(ruled(published), Some(("@C", true)));
    assert_eq!(ruled(&story.panes[0]), None, "its version was erased");
}

/// The descriptions of all programmed pages of a kind.
fn contents<'a>(story: &'a Story, kind: &'a str) -> impl Iterator<Item = &'a [String]> {
    let steps = story.panes.iter().flat_map(|pane| &pane.steps);
    let changes = steps.flat_map(|step| &step.changes);
    let pages = changes.filter_map(|change| match change {
        Change::Pages(pages) => Some(pages.values()),
        _ => None,
    });
    let of_kind = pages.flatten().filter(move |page| page.kind == kind);
    of_kind.map(|page| &page.data[..])
}

#[test]
fn roots_and_pages_of_logs_are_shown_field_by_field() {
    let mut shown = BTreeSet::new();
    for &(name, ref story) in all() {
        for lines in contents(story, "root") {
            let is_of_ftl = lines.len() > 2
                && lines[0].starts_with("GENERATION ")
                && lines[1].starts_with("LOG_FROM ");
            assert!(is_of_ftl, "{name}: {lines:?}");
            let has = |what: &str| lines.iter().any(|line| line.contains(what));
            let own = match name {
                "lighttx" | "mhl-d" => has("VERSION ") && has("AVAILABLE_BLOCK b"),
                "seal-r" => has("UNTO ") && has("BLOCK b"),
                "aw" | "mhl-m" => has("LOGS "),
                "mixsl" | "g-mixsl" => has("WATERMARK "),
                _ => true,
            };
            assert!(own, "{name}: {lines:?}");
            shown.insert((name, "root"));
        }
        for lines in contents(story, "log") {
            let is_whole = match name {
                "aw" | "mhl-m" => lines[0].starts_with("GROUP ") && lines[1].contains("PPN p"),
                "mixsl" | "g-mixsl" => {
                    lines[0].starts_with("COUNT ") && lines[1].contains("STATUS ")
                }
                _ => lines.len() > 1,
            };
            assert!(is_whole, "{name}: {lines:?}");
            shown.insert((name, "log"));
        }
    }
    for one in [
        ("mhl-d", "root"),
        ("seal-r", "root"),
        ("aw", "log"),
        ("mixsl", "log"),
    ] {
        assert!(shown.contains(&one), "{one:?} is not among {shown:?}");
    }
}

#[test]
fn lighttx_as_printed_takes_the_older_of_two_writes() {
    let story = explain("lighttx").unwrap().unwrap();
    let [repaired, published] = &story.panes[..] else {
        panic!("both forms are shown");
    };
    let wrong = |pane: &Pane| {
        let wrong = pane.ending.pages.iter().filter(|(.., right)| !right);
        wrong
            .map(|(_, _, found, _)| found.clone())
            .collect::<Vec<_>>()
    };
    assert!(wrong(repaired).is_empty());
    assert!(
        wrong(published)
            .iter()
            .all(|found| found.ends_with("'s write 1"))
    );
    assert_eq!(wrong(published).len(), 1, "{:?}", published.ending.pages);
    let why = &published.ending.why;
    assert!(why[0].ends_with("the older may win."), "{why:?}");
}

/// The run id of a counterexample of SCC as printed: what #6 wrote is rolled back but counts, since
/// #7 writes the version that it refers to.
const RING: &str = "scc.published/g0/b0/w1x2/f1/s169/n1/d0-f-n";

/// What a filter by words would keep: the transactions that the violation names, and the writers of
/// the page that it names.
fn by_words(whole: &Pane) -> BTreeSet<String> {
    let numbers = |text: &str, word: &str| {
        let behind = text.split(word).skip(1);
        let number =
            |rest: &str| -> String { rest.chars().take_while(char::is_ascii_digit).collect() };
        behind.map(number).collect::<BTreeSet<_>>()
    };
    let pages = numbers(&whole.ending.text, "page ");
    let mut kept = numbers(&whole.ending.text, "#");
    for step in &whole.steps {
        if step.text.contains(" writes ") && !numbers(&step.text, "page ").is_disjoint(&pages) {
            kept.extend(numbers(&step.text, "#"));
        }
    }
    kept
}

#[test]
fn a_story_keeps_what_the_violated_page_depends_on_and_leaves_the_rest_out() {
    use crate::campaign::{Detail, RunId, tell};
    let id = RunId::parse_on(RING, None).expect("a run id");
    let told = |everything| {
        let detail = Detail {
            reads: false,
            everything,
        };
        let (story, violated) = tell(&id, detail);
        assert!(violated);
        story.panes.into_iter().next().expect("a run")
    };
    let (whole, story) = (told(true), told(false));
    let says = |pane: &Pane, what: &str| pane.steps.iter().any(|step| step.text.contains(what));
    // The violation does not mention #7, but the version that it wrote closes the ring.
    let named = by_words(&whole);
    assert!(named.contains("6") && !named.contains("7"), "{named:?}");
    for needed in [
        "#6 aborts",
        "#7 asks to commit",
        "program page 0 of #7",
        "what #7 wrote counts",
    ] {
        assert!(says(&story, needed), "{needed} is left out");
    }
    // Left-out steps are present if everything is requested.
    for other in ["#3 aborts", "#2 begins"] {
        assert!(says(&whole, other) && !says(&story, other), "{other}");
    }
    assert!(says(&story, "steps of others") && !says(&whole, "steps of others"));
}

/// The names of transactions in a text, such as `T6` or `#6`.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '#'));
    words.filter(|word| {
        let number = word.strip_prefix(['T', '#']);
        number.is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
    })
}

/// Names on which text and picture of a story disagree: those that no cell and no client has, and
/// pages whose transaction field differs from their cell.
fn strangers(story: &Story) -> BTreeSet<String> {
    let (mut known, mut named) = (BTreeSet::new(), BTreeSet::new());
    let mut strangers = BTreeSet::new();
    for pane in &story.panes {
        let mut pages: Vec<&Page> = pane.start.iter().flatten().collect();
        let mut texts = vec![&pane.ending.text];
        texts.extend(&pane.ending.why);
        let places = pane.ending.pages.iter();
        texts.extend(places.flat_map(|(_, right, found, _)| [right, found]));
        for step in &pane.steps {
            known.extend(step.who.iter().filter(|_| step.lane == Lane::Host));
            texts.push(&step.text);
            texts.extend(&step.more);
            let tables = step.tables.iter().flat_map(|tables| &tables.own);
            texts.extend(tables.flat_map(|table| table.rows.iter().flatten()));
            for change in &step.changes {
                match change {
                    Change::Pages(new) => pages.extend(new.values()),
                    Change::All(image) => pages.extend(image.iter().flatten()),
                    Change::Erase(_) => {}
                }
            }
        }
        for page in pages {
            known.extend(&page.owner);
            texts.extend(&page.data);
            let own = page
                .spare
                .iter()
                .filter(|(field, _)| matches!(*field, "XID" | "TXID"));
            for (field, says) in own {
                named.extend(names_in(says));
                if let (Some(name), Some(owner)) = (names_in(says).next(), &page.owner)
                    && name != owner
                {
                    strangers.insert(format!("{field} {says} in a cell of {owner}"));
                }
            }
        }
        named.extend(texts.into_iter().flat_map(|text| names_in(text)));
    }
    let is_strange = |name: &&&str| !known.iter().any(|known| known == *name);
    strangers.extend(named.iter().filter(is_strange).map(|name| name.to_string()));
    strangers
}

#[test]
fn text_tables_and_fields_call_a_transaction_as_its_cells_do() {
    use crate::campaign::{Detail, RunId, tell};
    for (name, story) in all() {
        assert_eq!(strangers(story), BTreeSet::new(), "{name}");
    }
    for id in [
        RING,
        "lighttx.published/g0/b0/w1x4/f1/s2963/n1/o0-63-n",
        "aw.published/g0/b0/w1x7/f1/s5772/n1/c22-45-n",
        "mixsl.published/g26326/b0/w1x2/f1/s1650/n2/d26-78-n/c0-68ff-n",
    ] {
        let run = RunId::parse_on(id, None).expect("a run id");
        let detail = Detail {
            reads: false,
            everything: true,
        };
        let (mut story, _) = tell(&run, detail);
        assert_eq!(strangers(&story), BTreeSet::new(), "{id}");
        // Control: the identifier that the device uses for the transaction.
        story.panes[0].ending.text += " T6";
        assert_eq!(strangers(&story), BTreeSet::from(["T6".into()]), "{id}");
    }
}

#[test]
fn equal_calls_give_equal_pages_that_fetch_nothing() {
    let (one, two) = (
        explain("seal").unwrap().unwrap(),
        explain("seal").unwrap().unwrap(),
    );
    let page = page(&one);
    assert_eq!(page, super::page(&two));
    for word in ["http://", "https://", "src=", "@import", "url("] {
        // An XML name space is not fetched, and arrows refer to parts of the page.
        let page = page
            .replace("http://www.w3.org/2000/svg", "")
            .replace("url(#", "");
        assert!(!page.contains(word), "{word}");
    }
    assert!(!page.contains("{{"), "a place that nothing was put into");
}

#[test]
fn the_text_tells_the_same_story() {
    let story = explain("seal").unwrap().unwrap();
    let text = text(&story);
    for step in &story.panes[0].steps {
        assert!(text.contains(&step.text), "{}", step.text);
    }
    assert!(explain("sael").is_none());
}
