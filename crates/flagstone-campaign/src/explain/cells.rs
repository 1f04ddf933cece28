//! Describes flash pages: owner, and contents of spare areas and log pages, field by field as
//! declared with `layout!`.

use super::story::Page;
use super::subject::What;
use super::tale::Kept;
use crate::payload::name_of;
use flagstone::commit::{Field, cyclic_number, seal_count};
use flagstone::ftl::{Header, PageKind, VERDICT_BYTES, header, verdict};
use flagstone::layout::get;
use std::collections::BTreeMap;

/// How transactions are named. Each transaction has one name in all texts, cells, fields and
/// tables.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    /// Prefix of the name: `T` or `#`.
    pub(super) sign: &'static str,
    /// Names by device identifier, where they differ.
    pub(super) by_tx: BTreeMap<u64, u64>,
}

impl Names {
    pub(super) fn name(&self, name: u64) -> String {
        format!("{}{name}", self.sign)
    }

    /// The name of a transaction that a page's field gives by its device identifier.
    pub(super) fn tx(&self, tx: u64) -> String {
        match self.of_tx(tx) {
            Some(name) if self.sign == "T" => self.name(name),
            Some(name) => format!("{} (id {tx})", self.name(name)),
            None => format!("id {tx}"),
        }
    }

    /// Replaces transaction identifiers by names in a text of the device, which displays them as
    /// `T6` (see [`TxId`](flagstone::units::TxId)).
    pub(super) fn in_text(&self, text: &str) -> String {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words = text.split_inclusive(|c| !is_word(c));
        let renamed = words.map(|word| {
            let bare = word.trim_end_matches(|c| !is_word(c));
            match bare.strip_prefix('T').map(str::parse) {
                Some(Ok(tx)) => {
                    let name = self.of_tx(tx).map(|name| self.name(name));
                    name.unwrap_or_else(|| format!("id {tx}")) + &word[bare.len()..]
                }
                _ => word.to_string(),
            }
        });
        renamed.collect()
    }

    /// The number in a transaction's name, for its device identifier.
    pub(super) fn of_tx(&self, tx: u64) -> Option<u64> {
        match self.sign {
            "T" => Some(tx),
            _ => self.by_tx.get(&tx).copied(),
        }
    }
}

/// Decodes the pages of a protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) what: What,
    pub(super) pages_per_block: u32,
}

impl Reader {
    /// The name of the transaction that wrote a page.
    pub(super) fn owner(&self, kept: &Kept, names: &Names) -> Option<u64> {
        let head = Header::parse(&kept.spare)?;
        if !head.is_version() {
            return None;
        }
        if let What::Records(kind) = self.what {
            let entries = kind.info().entries(&kept.spare, &kept.data);
            if let Some((tx, _)) = entries.first() {
                return names.of_tx(tx.0);
            }
            let page = flagstone::page::Page::parse(&kept.data).ok();
            return page.and_then(|page| page.get(0).and_then(name_of));
        }
        let fields = self.what.tail_fields(&kept.spare);
        let is_tx = |field: &&Field| matches!(field.name, "XID" | "TXID") && field.value > 0;
        let named = fields.iter().find(is_tx);
        name_of(&kept.data).or_else(|| names.of_tx(named?.value))
    }

    /// Describes a page.
    pub(super) fn page(&self, kept: &Kept, names: &Names) -> Page {
        if kept.torn {
            return Page {
                kind: "torn",
                label: "torn".into(),
                ..Page::default()
            };
        }
        let Some(head) = Header::parse(&kept.spare) else {
            return Page {
                kind: "unknown",
                label: "?".into(),
                ..Page::default()
            };
        };
        let (kind, label, what) = match head.kind {
            PageKind::Data => ("data", head.lpn.to_string(), "data"),
            PageKind::Trim => ("trim", format!("{}∅", head.lpn), "trimmed page"),
            PageKind::Trims => ("trims", format!("≤{}∅", head.lpn), "list of trimmed pages"),
            PageKind::Summary => ("summary", "sum".into(), "summary of the block"),
            PageKind::Map => ("map", "map".into(), "part of the mapping table"),
            PageKind::Root => ("root", "root".into(), "part of a root"),
            PageKind::Log => ("log", "log".into(), "page of the log"),
        };
        let lpn = match head.kind {
            PageKind::Data | PageKind::Trim => format!("page {}", head.lpn),
            PageKind::Trims => format!("pages up to {}", head.lpn),
            _ => head.lpn.to_string(),
        };
        let mut page = Page {
            kind,
            label,
            owner: self.owner(kept, names).map(|name| names.name(name)),
            spare: vec![
                ("KIND", what.into()),
                ("LPN", lpn),
                ("SEQ", head.seq.to_string()),
            ],
            ..Page::default()
        };
        if head.is_version() {
            let fields = self.what.tail_fields(&kept.spare);
            self.tail(&mut page, head.lpn.0.into(), &fields, names);
        }
        match (self.what, head.kind) {
            (What::Pages(kind), PageKind::Log) => {
                let (head, entries) = kind.info().log_fields(&kept.data);
                page.data.push(self.line(&head, names));
                page.data
                    .extend(entries.iter().map(|fields| self.line(fields, names)));
            }
            (What::Pages(kind), PageKind::Summary) if kind.info().format.late_summaries => {
                page.data = self.verdicts(kind.info().format.tail_bytes, &kept.data);
            }
            (what, PageKind::Root) => {
                let lines = what.root_fields(&kept.data);
                page.data = lines.iter().map(|line| self.line(line, names)).collect();
            }
            (What::Records(kind), PageKind::Data) => {
                for (tx, slots) in kind.info().entries(&kept.spare, &kept.data) {
                    let slots: Vec<String> = slots.iter().map(u16::to_string).collect();
                    let tx = names.tx(tx.0);
                    page.data
                        .push(format!("entry of {tx}: records {}", slots.join(", ")));
                }
            }
            _ => {}
        }
        page
    }

    /// Describes the fields of a spare area after the common header.
    fn tail(&self, page: &mut Page, lpn: u64, fields: &[Field], names: &Names) {
        let value = |name: &str| {
            let field = fields.iter().find(|field| field.name == name);
            field.map(|field| field.value)
        };
        for field in fields {
            page.spare.push((field.name, self.words(field, names)));
            if field.name == "LINK" && !field.is_blank() {
                page.links.push(field.value as u32);
            }
            if field.name.starts_with("FLAG") {
                let says = self.what.flag(field.value as u8);
                page.flag = match (page.flag, says) {
                    (Some(one), Some(other)) if one != other => Some("mixed"),
                    _ => says,
                };
            }
        }
        let number = |name| value(name).map(|word| cyclic_number(word).0);
        page.version = number("NUMBER").map(|number| (lpn, number));
        page.next = value("NEXT_PAGE").zip(number("NEXT_NUMBER"));
    }

    /// Describes a field.
    fn words(&self, field: &Field, names: &Names) -> String {
        let value = field.value;
        match field.name {
            // In SEAL's last pages the field also says whether there is a sum of write sequences.
            "COUNT" if field.bytes == 4 && seal_count(value).1 => {
                format!("{} and a sum", seal_count(value).0)
            }
            "NUMBER" if cyclic_number(value).1 => {
                format!("{}, again in its ring", cyclic_number(value).0)
            }
            "NUMBER" | "NEXT_NUMBER" => cyclic_number(value).0.to_string(),
            "XID" | "TXID" | "TX" if value == 0 => "none".into(),
            "XID" | "TXID" | "TX" => names.tx(value),
            "LINK" | "PPN" | "MAP" if field.is_blank() => "none".into(),
            "LINK" | "PPN" | "MAP" => format!("p{value}"),
            "BAD" => format!("b{value}"),
            name if name.ends_with("BLOCK") => format!("b{value}"),
            "LINK_SEQ" if field.is_blank() => "none".into(),
            "NEXT_PAGE" | "LPN" => format!("page {value}"),
            "STATUS" => if value == 1 { "committed" } else { "aborted" }.into(),
            name if name.starts_with("FLAG") && name != "FLAGS" || name == "BORN" => {
                match self.what.flag(value as u8) {
                    Some(says) => format!("{says} ({value:02x})"),
                    None => format!("{value:02x}"),
                }
            }
            _ => value.to_string(),
        }
    }

    /// Fields in one line. Consecutive fields of the same name become a list.
    fn line(&self, fields: &[Field], names: &Names) -> String {
        let alike = fields.chunk_by(|one, other| one.name == other.name);
        let each = alike.map(|fields| {
            let words: Vec<String> = fields
                .iter()
                .map(|field| self.words(field, names))
                .collect();
            format!("{} {}", fields[0].name, words.join(", "))
        });
        each.collect::<Vec<_>>().join(" · ")
    }

    /// Describes the verdicts in a late summary page about the pages of its block.
    fn verdicts(&self, tail_bytes: usize, data: &[u8]) -> Vec<String> {
        let (pages, stride) = (self.pages_per_block as usize - 1, header::SIZE + tail_bytes);
        let verdicts = data.get(pages * stride..).unwrap_or_default();
        let each = verdicts.chunks_exact(VERDICT_BYTES).take(pages).enumerate();
        each.map(|(page, bytes)| match get(bytes, verdict::VERDICT) {
            0 => format!("page {page} of the block: nothing known"),
            ahead => {
                let seq = Header::parse(&data[page * stride..]).map_or(0, |head| head.seq);
                format!(
                    "page {page} of the block: committed, place {}",
                    seq + ahead - 1
                )
            }
        })
        .collect()
    }

    /// The meanings of fields, by name.
    pub(super) fn meanings(&self) -> BTreeMap<&'static str, &'static str> {
        let own = self.what.tail_fields(&[0; 64]);
        let mut all: BTreeMap<&str, &str> = own
            .iter()
            .map(|field| (field.name, field.meaning))
            .collect();
        for &(name, _, _, meaning) in header::RECORD.fields {
            all.insert(name, meaning);
        }
        all
    }
}
