//! Functions for fuzz targets. Each passes bytes to parsers and returns whether one of them
//! accepted the bytes; none may panic on any input. The targets are in `fuzz/`; the tests here run
//! the same functions, and those of `flagstone::fuzzing`, on seeded damage.

pub mod sample;
#[cfg(test)]
mod tests;

use crate::Stack;
use flagstone::nand::Contents;
use std::sync::OnceLock;

/// Parses records of the host's log.
pub fn log(bytes: &[u8]) -> bool {
    crate::log::is_log(bytes)
}

/// Opens, reads and writes a damaged device. The first byte selects a stack; each following
/// [`EDIT`] bytes damage a device of that stack with a history ([`sample`]). If the highest bit of
/// the first byte is set, writes enough to collect all blocks.
pub fn flash(bytes: &[u8]) -> bool {
    open_damaged(bytes).is_ok()
}

/// The records found in a damaged device, or why it cannot be opened.
fn open_damaged(bytes: &[u8]) -> Result<sample::Records, String> {
    static WHOLE: OnceLock<Vec<(Stack, Contents)>> = OnceLock::new();
    let all = WHOLE.get_or_init(|| {
        let stacks = Stack::all().into_iter();
        stacks
            .map(|stack| (stack, sample::contents(stack)))
            .collect()
    });
    let (&which, edits) = bytes.split_first().ok_or("it names no stack")?;
    let (stack, whole) = &all[usize::from(which & 0x7f) % all.len()];
    let mut contents = whole.clone();
    for edit in edits.chunks_exact(EDIT) {
        damage(&mut contents, edit);
    }
    match which & 0x80 {
        0 => sample::open(*stack, contents),
        _ => sample::open_and_write(*stack, contents, sample::MANY_ROUNDS),
    }
}

/// Bytes of one piece of damage: the kind of damage, a page (2), a place in it (2), and a value.
pub const EDIT: usize = 6;

/// Carries out an edit of [`EDIT`] bytes. Kinds 0 to 2 damage spare areas, the others data.
fn damage(contents: &mut Contents, edit: &[u8]) {
    let word = |at: usize| usize::from(u16::from_le_bytes([edit[at], edit[at + 1]]));
    let (page, place, value) = (word(1), word(3), edit[5]);
    let kept = contents.spare_kept;
    // Damage to blank pages has no effect, so choose among written ones.
    let written: Vec<usize> = (0..contents.programs.len())
        .filter(|&page| contents.programs[page] > 0)
        .collect();
    let at = |page: usize| written[page % written.len()] * kept;
    let data = page % contents.data.len().max(1);
    match (edit[0] % 6, contents.data.get_mut(data)) {
        (0, _) => contents.spare[at(page) + place % kept] ^= value,
        // Changes a number of up to eight bytes.
        (1, _) => {
            let start = place % kept;
            let end = (start + 8).min(kept);
            contents.spare[at(page) + start..at(page) + end].fill(value);
        }
        (2, _) => {
            let other = at(place);
            let copy = contents.spare[other..other + kept].to_vec();
            contents.spare[at(page)..at(page) + kept].copy_from_slice(&copy);
        }
        (3, Some((_, bytes))) if !bytes.is_empty() => {
            let place = place % bytes.len();
            bytes[place] ^= value;
        }
        (4, Some((_, bytes))) if !bytes.is_empty() => {
            let start = place % bytes.len();
            let end = (start + 8).min(bytes.len());
            bytes[start..end].fill(value);
        }
        (_, Some((_, bytes))) => *bytes = bytes[..place % (bytes.len() + 1)].into(),
        (_, None) => {}
    }
}
