//! Parses a line of `pg_waldump`.
//!
//! ```text
//! rmgr: Heap        len (rec/tot):    171/   171, tx:        735, lsn: 0/05274448, prev …, \
//! desc: UPDATE off 39 …, blkref #0: rel 1663/5/16396 blk 8196, \
//! blkref #1: rel 1663/5/16396 fork vm blk 0
//! rmgr: Transaction len (rec/tot): …, \
//! desc: COMMIT 2026-11-21 21:28:08.660433 UTC; subxacts: 739 740
//! ```

/// Resource managers of PostgreSQL 12 to 18; others are an extension's or a later version's.
pub const RESOURCE_MANAGERS: [&str; 22] = [
    "XLOG",
    "Transaction",
    "Storage",
    "CLOG",
    "Database",
    "Tablespace",
    "MultiXact",
    "RelMap",
    "Standby",
    "Heap2",
    "Heap",
    "Btree",
    "Hash",
    "Gin",
    "Gist",
    "Sequence",
    "SPGist",
    "BRIN",
    "CommitTs",
    "ReplicationOrigin",
    "Generic",
    "LogicalMessage",
];

/// The common part of a record.
#[derive(Debug, PartialEq, Eq)]
pub struct WalRecord<'a> {
    /// The resource manager.
    pub manager: &'a str,
    /// The transaction, 0 for none.
    pub xid: u32,
    /// The text after `desc: `, including block references.
    pub description: &'a str,
}

/// Parses a line that starts with `rmgr: `; `None` if it lacks the common form.
pub fn parse(line: &str) -> Option<WalRecord<'_>> {
    let rest = line.strip_prefix("rmgr: ")?;
    let (manager, rest) = rest.split_once(" len (rec/tot):")?;
    let (_, rest) = rest.split_once(", tx:")?;
    let (xid, rest) = rest.split_once(", lsn: ")?;
    let (_, description) = rest.split_once(", desc: ")?;
    Some(WalRecord {
        manager: manager.trim_end(),
        xid: xid.trim_start().parse().ok()?,
        description,
    })
}

/// A fork of a relation, in PostgreSQL's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fork {
    /// The rows or index entries.
    Main,
    /// The free space map.
    Fsm,
    /// The visibility map.
    Vm,
    /// The initial contents of an unlogged relation.
    Init,
}

/// A file of pages: a fork of a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct File {
    /// Tablespace, database and file number.
    pub relation: [u32; 3],
    /// The fork.
    pub fork: Fork,
}

/// A page that a record changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockReference {
    /// The file that contains it.
    pub file: File,
    /// The page in the file, from 0.
    pub block: u32,
}

/// Calls `each` for every block reference in `text`. The error is the text of a malformed
/// reference.
pub fn block_references(text: &str, mut each: impl FnMut(BlockReference)) -> Result<(), &str> {
    let mut rest = text;
    while let Some(at) = rest.find("blkref #") {
        let reference = &rest[at..];
        let (block, length) = block_reference(reference).ok_or(reference)?;
        each(block);
        rest = &reference[length..];
    }
    Ok(())
}

/// Whether a record's description can contain block references. Others contain arbitrary text of
/// users (a message, the name of a prepared transaction or of a restore point).
pub fn may_reference_blocks(record: &WalRecord<'_>) -> bool {
    match record.manager {
        "LogicalMessage" | "Transaction" => false,
        "XLOG" => record.description.starts_with("FPI"),
        _ => true,
    }
}

/// Parses `blkref #N: rel A/B/C [fork F] blk N` at the beginning of a text. Returns the reference
/// and its length.
fn block_reference(text: &str) -> Option<(BlockReference, usize)> {
    let mut scan = Scan(text.strip_prefix("blkref #")?);
    scan.number()?;
    scan.word(": rel ")?;
    let tablespace = scan.number()?;
    scan.word("/")?;
    let database = scan.number()?;
    scan.word("/")?;
    let relation = scan.number()?;
    let fork = match scan.word(" fork ") {
        None => Fork::Main,
        Some(()) => {
            let forks = [
                ("main", Fork::Main),
                ("fsm", Fork::Fsm),
                ("vm", Fork::Vm),
                ("init", Fork::Init),
            ];
            forks
                .into_iter()
                .find(|(name, _)| scan.word(name).is_some())?
                .1
        }
    };
    scan.word(" blk ")?;
    let block = scan.number()?;
    let file = File {
        relation: [tablespace, database, relation],
        fork,
    };
    Some((BlockReference { file, block }, text.len() - scan.0.len()))
}

struct Scan<'a>(&'a str);

impl Scan<'_> {
    fn word(&mut self, word: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(word)?;
        Some(())
    }

    fn number(&mut self) -> Option<u32> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let number = self.0[..digits].parse().ok()?;
        self.0 = &self.0[digits..];
        Some(number)
    }
}

/// The meaning of a record of the resource manager `Transaction`.
#[derive(Debug, PartialEq, Eq)]
pub enum Control {
    /// A transaction ends.
    End {
        /// Whether the transaction committed.
        commit: bool,
        /// The transaction that ends, if it was prepared earlier; `None` for the record's own
        /// transaction.
        prepared: Option<u32>,
        /// The time in microseconds since 1970, in the dump's time zone.
        stamp_us: i64,
        /// Subtransactions that end the same way.
        children: Vec<u32>,
    },
    /// Subtransactions of a transaction that is still running.
    Assignment {
        /// The transaction.
        top: u32,
        /// Its newly announced subtransactions.
        children: Vec<u32>,
    },
    /// Any other record. It ends no transaction.
    Other,
}

/// Parses the description of a `Transaction` record; `None` if it is malformed. An unknown kind is
/// [`Control::Other`].
pub fn control(description: &str) -> Option<Control> {
    let (verb, rest) = description.split_once(' ').unwrap_or((description, ""));
    let (commit, prepared) = match verb {
        "COMMIT" => (true, false),
        "ABORT" => (false, false),
        "COMMIT_PREPARED" => (true, true),
        "ABORT_PREPARED" => (false, true),
        "ASSIGNMENT" => {
            let (top, _) = rest.strip_prefix("xtop ")?.split_once(": ")?;
            return Some(Control::Assignment {
                top: top.parse().ok()?,
                children: children(rest)?,
            });
        }
        _ => return Some(Control::Other),
    };
    let (prepared, rest) = match rest.split_once(": ").filter(|_| prepared) {
        Some((xid, rest)) => (Some(xid.parse().ok()?), rest),
        None if prepared => return None,
        None => (None, rest),
    };
    let stamp = rest.split_once(';').map_or(rest, |(stamp, _)| stamp);
    Some(Control::End {
        commit,
        prepared,
        stamp_us: microseconds(stamp)?,
        children: children(rest)?,
    })
}

/// The list after `subxacts: `, empty if there is none.
fn children(text: &str) -> Option<Vec<u32>> {
    let Some((_, list)) = text.split_once("subxacts: ") else {
        return Some(Vec::new());
    };
    let list = list.split_once(';').map_or(list, |(list, _)| list);
    list.split_ascii_whitespace()
        .map(|xid| xid.parse().ok())
        .collect()
}

/// `2026-11-21 21:28:08.660433 UTC` in microseconds since 1970, whatever the zone is called.
fn microseconds(stamp: &str) -> Option<i64> {
    let mut words = stamp.split_ascii_whitespace();
    let mut date = words
        .next()?
        .splitn(3, '-')
        .map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = words.next()?.split_once('.')?;
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let fraction: i64 = fraction.parse().ok().filter(|_| fraction.len() == 6)?;
    // Differences within this range fit into 64 bits of nanoseconds.
    let fits = (1970..2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    fits.then(|| {
        let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
        seconds * 1_000_000 + fraction
    })
}

/// Days from 1970-01-01, counted from a March so that the leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let before_year = 365 * year + year / 4 - year / 100 + year / 400;
    before_year + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(text: &str) -> Result<Vec<(String, Fork, u32)>, &str> {
        let mut found = Vec::new();
        block_references(text, |r| {
            let [space, database, relation] = r.file.relation;
            found.push((
                format!("{space}/{database}/{relation}"),
                r.file.fork,
                r.block,
            ));
        })?;
        Ok(found)
    }

    #[test]
    fn a_record_is_taken_apart() {
        let line = "rmgr: Heap        len (rec/tot):    171/   171, tx:        735, lsn: 0/05274448, \
                    prev 0/052743F8, desc: UPDATE off 39 xmax 735 flags 0x03 ; new off 45 xmax 0, \
                    blkref #0: rel 1663/5/16396 blk 8196 FPW, blkref #1: rel 1663/5/16396 fork vm blk 0";
        let record = parse(line).unwrap();
        assert_eq!((record.manager, record.xid), ("Heap", 735));
        assert_eq!(
            references(record.description).unwrap(),
            [
                ("1663/5/16396".to_string(), Fork::Main, 8196),
                ("1663/5/16396".to_string(), Fork::Vm, 0)
            ]
        );
        assert_eq!(
            parse("rmgr: Heap        len (rec/tot):    171/   171, tx:"),
            None
        );
        assert_eq!(
            parse("rmgr: Heap len (rec/tot): 1/1, tx: x, lsn: 0/1, prev 0/0, desc: A"),
            None
        );
        let custom = "rmgr: my wal len (rec/tot): 1/1, tx: 4, lsn: 0/1, prev 0/0, desc: A";
        assert_eq!(parse(custom).unwrap().manager, "my wal");
    }

    #[test]
    fn a_malformed_reference_is_not_passed_over() {
        for text in [
            "X, blkref #0: rel 1663/5 blk 1",
            "X, blkref #0: rel 1663/5/7 fork odd blk 1",
            "X, blkref #0: rel 1663/5/7 blk 4294967296",
            "X, blkref #0: rel 1663/5/7 blk",
        ] {
            assert!(
                references(text).unwrap_err().starts_with("blkref #0"),
                "{text}"
            );
        }
    }

    #[test]
    fn ends_are_read_in_every_form() {
        let at = 1_795_296_488_660_433; // date -u -d '2026-11-21 21:28:08' +%s
        assert_eq!(
            control("COMMIT 2026-11-21 21:28:08.660433 UTC; subxacts: 739 740; inval msgs: x 1"),
            Some(Control::End {
                commit: true,
                prepared: None,
                stamp_us: at,
                children: vec![739, 740]
            })
        );
        assert_eq!(
            control("ABORT_PREPARED 743: 2026-11-21 21:28:08.660433 CET"),
            Some(Control::End {
                commit: false,
                prepared: Some(743),
                stamp_us: at,
                children: vec![]
            })
        );
        assert_eq!(
            control("ASSIGNMENT xtop 758: subxacts: 759 760"),
            Some(Control::Assignment {
                top: 758,
                children: vec![759, 760]
            })
        );
        assert_eq!(
            control("INVALIDATION ; inval msgs: catcache 55"),
            Some(Control::Other)
        );
        assert_eq!(
            control("PREPARE gid a; b: 2026-11-21 21:28:08.66 UTC"),
            Some(Control::Other)
        );
        for bad in [
            "COMMIT",
            "COMMIT yesterday",
            "COMMIT 2026-11-21 21:28:08 UTC",
            "COMMIT_PREPARED x",
        ] {
            assert_eq!(control(bad), None, "{bad}");
        }
    }

    #[test]
    fn days_follow_the_calendar() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 2, 29), 11_016);
        assert_eq!(days(2000, 3, 1), 11_017);
        assert_eq!(days(2100, 3, 1) - days(2100, 2, 28), 1);
    }
}
