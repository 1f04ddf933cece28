//! Decodes a page of a root into named fields for display: the head of the part, the FTL's data,
//! and the protocol's data. Recovery does not use this.

use super::Info;
use super::records::RecordInfo;
use super::show::{Field, fields_of};
use crate::ftl::{RootImage, root_contents, root_part};
use crate::layout::{Layout, get};

/// Lines of related fields.
pub(super) type Lines = Vec<Vec<Field>>;

/// Decodes a protocol's data in a root.
pub(super) type Own = fn(&[u8]) -> Lines;

impl Info {
    /// Decodes a page of a root: the head of the part, and its contents if the root has only one
    /// part. A list becomes one field per entry, all with the same name.
    pub fn root_fields(&self, data: &[u8]) -> Vec<Vec<Field>> {
        lines(data, self.root)
    }
}

impl RecordInfo {
    /// See [`Info::root_fields`].
    pub fn root_fields(&self, data: &[u8]) -> Vec<Vec<Field>> {
        lines(data, None)
    }
}

/// The fields of a root page, one line for each group. A root of several pages is decoded up to its
/// head only. `own` decodes the data of the protocol.
fn lines(data: &[u8], own: Option<Own>) -> Lines {
    let mut head = fields_of(&[root_part::RECORD], data);
    head.retain(|field| field.name != "MAGIC");
    let mut lines = vec![head];
    let Some(bytes) = data.get(root_part::SIZE..) else {
        return lines;
    };
    let is_whole = get(data, root_part::PARTS) == 1;
    if let Some(image) = RootImage::parse(bytes).filter(|_| is_whole) {
        lines.push(fields_of(&[root_contents::RECORD], bytes));
        let pool = image.pool.iter().flatten();
        lines.push(list(
            "POOL",
            "a block for mapping pages and logs",
            4,
            pool.map(|block| u64::from(block.0)),
        ));
        let bad = image.bad.iter().map(|block| block.0);
        lines.push(list(
            "BAD",
            "a block that is out of service",
            4,
            bad.map(u64::from),
        ));
        let places = image.directory.iter().copied().map(u64::from);
        lines.push(list(
            "MAP",
            "where a part of the mapping table is",
            4,
            places,
        ));
        if let Some(own) = own.filter(|_| !image.blob.is_empty()) {
            lines.extend(own(&image.blob));
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// One field for each entry of a list.
pub(super) fn list(
    name: &'static str,
    meaning: &'static str,
    bytes: usize,
    values: impl Iterator<Item = u64>,
) -> Vec<Field> {
    let field = |value| Field::new(name, meaning, value, bytes);
    values.map(field).collect()
}

/// Block numbers of four bytes each.
pub(super) fn blocks(bytes: &[u8], name: &'static str, meaning: &'static str) -> Vec<Field> {
    let words = bytes.chunks_exact(4).map(|word| get(word, 0..4));
    list(name, meaning, 4, words)
}

/// Consecutive records of one layout, one line each.
pub(super) fn records(layout: Layout, bytes: &[u8]) -> Lines {
    let each = bytes.chunks_exact(layout.size);
    each.map(|bytes| fields_of(&[layout], bytes)).collect()
}
