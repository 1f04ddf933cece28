//! What the pages of a chip hold: headers, data, roots, and fields as a device shows them.

use flagstone::commit::Field;
use flagstone::ftl::{Header, PageKind};
use flagstone::nand::{Chip, Flash};
use flagstone::units::Ppn;

/// Lines of related fields.
pub(crate) type Lines = Vec<Vec<Field>>;

pub(crate) fn header_at(chip: &Chip, at: Ppn) -> Option<Header> {
    Header::parse(chip.peek_spare(at)).filter(|_| chip.is_programmed(at))
}

/// Programmed pages, with their headers.
pub(crate) fn programmed(chip: &Chip) -> Vec<(Ppn, Header)> {
    let pages = (0..chip.geometry().pages()).map(Ppn);
    pages
        .filter_map(|at| Some((at, header_at(chip, at)?)))
        .collect()
}

pub(crate) fn data_at(chip: &Chip, at: Ppn) -> Vec<u8> {
    let mut data = vec![0; chip.geometry().page_bytes as usize];
    let bytes = chip.peek(at, &mut data, &mut []).expect("it can be read");
    data.truncate(bytes);
    data
}

/// The page of the newest root with a single part, and its decoded fields.
pub(crate) fn newest_root(chip: &Chip, show: impl Fn(&[u8]) -> Lines) -> Option<(Vec<u8>, Lines)> {
    let roots = programmed(chip).into_iter();
    let roots = roots.filter(|(_, head)| head.kind == PageKind::Root);
    let whole = roots.filter_map(|(at, head)| {
        let data = data_at(chip, at);
        (named(&show(&data), "PARTS") == [1]).then_some((head.seq, data))
    });
    let (_, data) = whole.max()?;
    let lines = show(&data);
    Some((data, lines))
}

/// The values of the fields with this name.
pub(crate) fn named(lines: &[Vec<Field>], name: &str) -> Vec<u64> {
    let fields = lines.iter().flatten().filter(|field| field.name == name);
    fields.map(|field| field.value).collect()
}

/// The bytes from which fields were decoded.
pub(crate) fn bytes_of<'a>(fields: impl IntoIterator<Item = &'a Field>) -> Vec<u8> {
    let fields = fields.into_iter();
    fields
        .flat_map(|field| field.value.to_le_bytes()[..field.bytes].to_vec())
        .collect()
}
