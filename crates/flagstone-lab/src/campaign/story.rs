//! A run told operation by operation, in flash words.

use super::bases::Base;
use super::run::execute;
use super::run_id::RunId;
use super::scene::Scene;
use flagstone::ftl::{Header, Kind as PageKind, header};
use flagstone::nand::{OpKind, Traced};
use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

/// Repeats a run and tells it: one line an operation, notes of the host in between, the verdict
/// last. The flag says whether the run ended in a violation. Where one was met while the device was
/// aged, that is told.
pub fn tell(id: &RunId, with_reads: bool) -> (String, bool) {
    let story = Rc::new(RefCell::new(Vec::new()));
    let telling = Some(Rc::clone(&story));
    let mut base = Base::make(&id.base, &None);
    if base.is_err() {
        base = Base::make(&id.base, &telling);
    }
    let pages_per_block = match &base {
        Ok(base) => base.scene.geometry.pages_per_block,
        Err(_) => Scene::new(&id.base).map_or(1, |scene| scene.geometry.pages_per_block),
    };
    let (_, result) = execute(id, &base, &telling);
    let mut text = String::new();
    for entry in story.borrow().iter() {
        if let Some(line) = line(entry, pages_per_block, with_reads) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    let violated = result.is_err();
    let verdict = result.map_or_else(|what| format!("VIOLATED: {what}"), |()| "holds".into());
    let _ = writeln!(text, "{verdict}");
    (text, violated)
}

fn line(entry: &Traced, pages_per_block: u32, with_reads: bool) -> Option<String> {
    let micros = entry.now.0 as f64 / 1000.0;
    let time = if entry.now.0 >= u64::MAX / 4 {
        "       end".into()
    } else {
        format!("{micros:>7.0} us")
    };
    let place = |at: u32| {
        format!(
            "p{at:04} b{:02}.{}",
            at / pages_per_block,
            at % pages_per_block
        )
    };
    let what = match &entry.kind {
        OpKind::Note(text) => return Some(format!("{time}  {text}")),
        OpKind::Read { .. } if !with_reads => return None,
        OpKind::Read { at } => format!("read      {}", place(at.0)),
        OpKind::Program { at, spare } => {
            format!("program   {}  {}", place(at.0), describe(spare))
        }
        OpKind::Reprogram { at, offset, bytes } => {
            format!(
                "reprogram {}  spare byte {offset} := {bytes:02x?}",
                place(at.0)
            )
        }
        OpKind::Erase { block } => format!("erase     b{:02}", block.0),
        OpKind::Sync { until } => format!("wait      until {} us", until.0 / 1000),
    };
    let error = entry
        .error
        .map_or_else(String::new, |error| format!("  -> {error}"));
    Some(format!("{time}    {what}{error}"))
}

fn describe(spare: &[u8]) -> String {
    let Some(head) = Header::parse(spare) else {
        return "blank".into();
    };
    let tail: String = spare[header::SIZE..]
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
    let name = match head.kind {
        PageKind::Data => format!("lpn={}", head.lpn),
        PageKind::Trim => format!("lpn={} trimmed", head.lpn),
        PageKind::Summary => "summary".into(),
        PageKind::Map => format!("mapping page {}", head.lpn),
        PageKind::Root => format!("root part {}", head.lpn),
        PageKind::Log => format!("log {}", head.lpn),
    };
    if tail.is_empty() {
        format!("{name} seq={}", head.seq)
    } else {
        format!("{name} seq={} tail={tail}", head.seq)
    }
}
