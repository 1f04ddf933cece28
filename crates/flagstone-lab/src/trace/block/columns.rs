//! The columns of a table of requests: descriptions, and presets for published traces.
//!
//! ```text
//! time:UNIT     when the request began: s, ms, us, ns, 100ns, filetime (100 ns since 1601)
//! op            read or write in words: R, Read, W, write, trim, flush …
//! op:write1     0 is a read and 1 a write            op:read1   1 is a read and 0 a write
//! op:flags      hexadecimal, and the lowest bit says read
//! offset:UNIT   the first byte: bytes, sectors, kib, mib, pages, or a number of bytes
//! size:UNIT     the length, in the same units; `bytes` and `sectors` alone are sizes
//! volume        part of the volume's name; `volume:disk` puts `disk ` before it
//! _             ignored              ...   any further columns, at the end
//! ```

use super::time::TimeUnit;

/// Default sector size in bytes.
pub const SECTOR_BYTES: u32 = 512;

/// Maximum number of columns in a description.
pub const COLUMNS_MAX: usize = 32;

/// The column separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    /// One character.
    Char(char),
    /// Any number of spaces and tabs.
    Space,
}

impl Delimiter {
    /// The delimiter with this name: one character, `tab` or `space`.
    ///
    /// # Errors
    /// Lists the valid names.
    pub fn parse(text: &str) -> Result<Delimiter, String> {
        let mut chars = text.chars();
        match (text, chars.next(), chars.next()) {
            ("space" | " ", ..) => Ok(Delimiter::Space),
            ("tab", ..) => Ok(Delimiter::Char('\t')),
            (_, Some(char), None) if char != '"' => Ok(Delimiter::Char(char)),
            _ => Err("a delimiter is one character, `tab` or `space`".to_string()),
        }
    }
}

/// How operations are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpCode {
    /// Operations are words or letters.
    Words,
    /// Operations are 0 and 1.
    Digit {
        /// Whether 1 is a read; otherwise it is a write.
        one_reads: bool,
    },
    /// Operations are hexadecimal flags, whose lowest bit means read.
    Flags,
}

/// The unit of offsets and sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A fixed number of bytes.
    Bytes(u64),
    /// Sectors, of 512 bytes by default.
    Sectors,
    /// Pages of the resulting trace.
    Pages,
}

/// The meaning of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// Ignored.
    Ignored,
    /// Start time of the request. Without a unit the user must state one.
    Time(Option<TimeUnit>),
    /// Start time as a Windows file time; other numbers are refused.
    FileTime,
    /// Read or write.
    Op(OpCode),
    /// Start of the request.
    Offset(Unit),
    /// Length of the request.
    Size(Unit),
    /// Part of the volume's name, with this word before it.
    Volume(Option<String>),
}

/// The description of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// From left to right.
    pub columns: Vec<Column>,
    /// Whether a line may have further columns.
    pub more: bool,
    /// The original text of the description.
    pub text: String,
}

impl Columns {
    /// Parses a description, for example `time:us,op,offset:sectors,bytes,volume`.
    ///
    /// # Errors
    /// Describes the mistake and the valid forms.
    pub fn parse(text: &str) -> Result<Columns, String> {
        let (list, more) = match text.strip_suffix(",...") {
            Some(list) => (list, true),
            None => (text, false),
        };
        let columns = list.split(',').map(|word| column(word.trim()));
        let columns: Vec<Column> = columns.collect::<Result<_, _>>()?;
        if columns.len() > COLUMNS_MAX {
            return Err(format!(
                "at most {COLUMNS_MAX} columns: end with `,...` instead"
            ));
        }
        let count = |is: fn(&Column) -> bool| columns.iter().filter(|column| is(column)).count();
        let times = count(|column| matches!(column, Column::Time(_) | Column::FileTime));
        // Each at most once, and all but the time at least once.
        for (what, found, needed) in [
            ("time", times, 0),
            ("op", count(|column| matches!(column, Column::Op(_))), 1),
            (
                "offset",
                count(|column| matches!(column, Column::Offset(_))),
                1,
            ),
            ("size", count(|column| matches!(column, Column::Size(_))), 1),
        ] {
            match found {
                0 if needed == 1 => return Err(format!("no column is the {what}")),
                0 | 1 => {}
                _ => return Err(format!("{found} columns are the {what}")),
            }
        }
        Ok(Columns {
            columns,
            more,
            text: text.to_string(),
        })
    }
}

/// Parses the description of one column: name, or name and unit.
fn column(word: &str) -> Result<Column, String> {
    let (name, unit) = match word.split_once(':') {
        Some((name, unit)) => (name, Some(unit)),
        None => (word, None),
    };
    match (name, unit) {
        ("_" | "skip", None) => Ok(Column::Ignored),
        ("time", Some("filetime")) => Ok(Column::FileTime),
        ("time", Some("?")) => Ok(Column::Time(None)),
        ("time", unit) => {
            let known = TimeUnit::ALL
                .into_iter()
                .find(|known| Some(known.name()) == unit);
            known.map(|unit| Column::Time(Some(unit))).ok_or_else(|| {
                format!(
                    "`{word}`: state time:s, time:ms, time:us, time:ns, time:100ns or time:filetime"
                )
            })
        }
        ("op", None | Some("words")) => Ok(Column::Op(OpCode::Words)),
        ("op", Some("flags")) => Ok(Column::Op(OpCode::Flags)),
        ("op", Some(digit @ ("read1" | "write1"))) => Ok(Column::Op(OpCode::Digit {
            one_reads: digit == "read1",
        })),
        ("op", Some(_)) => Err(format!(
            "`{word}`: op (words), op:write1 (0 reads, 1 writes), op:read1 (1 reads, 0 writes) or op:flags"
        )),
        ("offset", Some(given)) => Ok(Column::Offset(unit_of(word, given)?)),
        ("size", Some(given)) => Ok(Column::Size(unit_of(word, given)?)),
        ("bytes" | "sectors", None) => Ok(Column::Size(unit_of(word, name)?)),
        ("offset" | "size", None) => Err(format!(
            "`{word}`: state {name}:bytes, {name}:sectors, {name}:kib or {name}:pages"
        )),
        ("volume", word) => Ok(Column::Volume(word.map(str::to_string))),
        _ => Err(format!(
            "`{word}` is no column: time:UNIT, op, offset:UNIT, size:UNIT, bytes, volume, _"
        )),
    }
}

/// Parses a unit of lengths; `word` is the column's description, for the error.
fn unit_of(word: &str, given: &str) -> Result<Unit, String> {
    match given {
        "bytes" => Ok(Unit::Bytes(1)),
        "kib" => Ok(Unit::Bytes(1 << 10)),
        "mib" => Ok(Unit::Bytes(1 << 20)),
        "sectors" => Ok(Unit::Sectors),
        "pages" => Ok(Unit::Pages),
        _ => match given.parse() {
            Ok(bytes @ 1..) => Ok(Unit::Bytes(bytes)),
            _ => Err(format!(
                "`{word}`: bytes, sectors, kib, mib, pages, or a number of bytes"
            )),
        },
    }
}

/// The table format of a published trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// Description, for help and messages.
    pub about: &'static str,
    /// Its columns.
    pub columns: &'static str,
    /// The column separator.
    pub delimiter: Delimiter,
}

/// Every preset.
pub const PRESETS: [Preset; 8] = [
    Preset {
        name: "disksim",
        about: "a DiskSim ASCII trace, as MQSim reads it: TIME DEVICE SECTOR SECTORS 1 (read) or 0",
        columns: "time:?,volume:device,offset:sectors,size:sectors,op:read1",
        delimiter: Delimiter::Space,
    },
    Preset {
        name: "msr",
        about: "Microsoft Research Cambridge: Timestamp,Hostname,DiskNumber,Type,Offset,Size,\
                ResponseTime",
        columns: "time:filetime,volume,volume,op,offset:bytes,size:bytes,_",
        delimiter: Delimiter::Char(','),
    },
    Preset {
        name: "spc",
        about: "SPC format (UMass Financial and WebSearch): ASU,LBA,Size,Opcode,Timestamp",
        columns: "volume:ASU,offset:sectors,size:bytes,op,time:s,...",
        delimiter: Delimiter::Char(','),
    },
    Preset {
        name: "fiu",
        about: "FIU (I/O deduplication): TIME PID PROCESS LBA SECTORS W|R MAJOR MINOR MD5",
        columns: "time:ns,_,_,offset:sectors,size:sectors,op,volume,volume,...",
        delimiter: Delimiter::Space,
    },
    Preset {
        name: "alibaba",
        about: "Alibaba cloud block storage: device_id,opcode,offset,length,timestamp",
        columns: "volume:device,op,offset:bytes,size:bytes,time:us",
        delimiter: Delimiter::Char(','),
    },
    Preset {
        name: "tencent",
        about: "Tencent cloud block storage: Timestamp,Offset,Size,IOType,VolumeID",
        columns: "time:s,offset:sectors,size:sectors,op:write1,volume:volume",
        delimiter: Delimiter::Char(','),
    },
    Preset {
        name: "systor",
        about: "SYSTOR '17 (virtual desktops): Timestamp,Response,IOType,LUN,Offset,Size",
        columns: "time:s,_,op,volume:LUN,offset:bytes,size:bytes",
        delimiter: Delimiter::Char(','),
    },
    Preset {
        name: "cloudphysics",
        about: "CloudPhysics as text: Read|Write SECONDS LBA SECTORS (the binary vscsi form is \
                another)",
        columns: "op,time:s,offset:sectors,size:sectors",
        delimiter: Delimiter::Space,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_describes_a_table() {
        for preset in PRESETS {
            Columns::parse(preset.columns).unwrap_or_else(|why| panic!("{}: {why}", preset.name));
        }
    }

    #[test]
    fn a_description_that_is_none_says_what_would_do() {
        for (text, why) in [
            ("time:us,op,offset:bytes", "no column is the size"),
            ("time:us,offset:bytes,bytes", "no column is the op"),
            ("op,op,offset:bytes,bytes", "2 columns are the op"),
            ("time,op,offset:bytes,bytes", "state time:s"),
            ("time:min,op,offset:bytes,bytes", "state time:s"),
            ("op,offset,bytes", "state offset:bytes"),
            ("op,offset:blocks,bytes", "or a number of bytes"),
            ("op,offset:0,bytes", "or a number of bytes"),
            ("op:rw,offset:bytes,bytes", "op:write1 (0 reads, 1 writes)"),
            ("what,op,offset:bytes,bytes", "`what` is no column"),
            ("", "`` is no column"),
        ] {
            let said = Columns::parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        assert!(Delimiter::parse("ab").is_err() && Delimiter::parse("").is_err());
    }
}
