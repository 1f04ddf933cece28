//! Tables of requests: presets and described columns.

use super::*;
use crate::trace::block::columns::{Columns, Delimiter};

#[test]
fn disksim_lines_that_are_none_say_why() {
    for (line, why) in [
        ("0.0 0 2000 16", "expected 5 columns, found 4"),
        ("0.0 0 2000 16 0 9", "expected 5 columns, found 6"),
        ("-1 0 0 8 0", "column 1, `-1`, is no time in ms"),
        ("0 0 -5 8 0", "column 3, `-5`, is no offset in sectors"),
        (
            "0 0 36028797018963968 8 0",
            "`36028797018963968`, is no offset in sectors, or too large",
        ),
        ("0 0 0 x 0", "column 4, `x`, is no size in sectors"),
        ("0 0 0 8 W", "column 5, `W`, is no operation, 0 or 1"),
        // Size and flags swapped: not a write of 2 MiB.
        (
            "0 1 0 4096 8",
            "trace import csv --delimiter space --columns",
        ),
        (
            "0 0 0 131073 0",
            "a request of 67109376 bytes is longer than the 67108864 allowed",
        ),
        ("0 0 36028797018963967 2 0", "overflow 64 bits"),
    ] {
        let said = failure(disksim(&format!("0 0 0 8 0\n{line}\n")));
        assert!(said.starts_with("line 2: "), "{said}");
        assert!(said.contains(why) && said.contains(line), "{said}");
    }
    assert_eq!(
        failure(disksim("\n")),
        "no request of format disksim in the input"
    );
    let odd = table_with("", &BlockOptions::new(3000), &preset("msr"));
    assert!(failure(odd).contains("a power of two from 512 bytes to 1 MiB"));
}

#[test]
fn msr_lines_are_read_with_their_file_times() {
    let text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
                128166385295514663,hm,0,Write,9056014336,2048,2833\n\
                128166385295514878,hm,0,Write,11855351808,512,2617\r\n\
                128166385301451520,hm,1,read,3163095040,8192,3438\n\
                128166385301451521,hm,1,Read,0,0,1\n";
    let imported = msr(text);
    assert_eq!(
        events(&imported),
        [
            (0, 0, Op::Read, 0),
            (0, 0, Op::Write, 0),
            (0, 0, Op::Commit, 0),
            (21, 1, Op::Read, 1),
            (21, 1, Op::Write, 1),
            (21, 1, Op::Commit, 0),
            (593_685, 2, Op::Read, 2),
            (593_685, 2, Op::Read, 3),
            (593_685, 2, Op::Commit, 0),
        ]
    );
    assert_eq!(skipped(&imported), [("requests of no bytes", 1)]);
    let names: Vec<_> = imported
        .unwrap()
        .0
        .relations
        .into_iter()
        .map(|r| r.name)
        .collect();
    assert_eq!(names, ["hm.0", "hm.1"]);
}

#[test]
fn msr_lines_that_are_none_say_why() {
    for (line, why) in [
        (
            "128166385295514663,hm,0,Write,1,2",
            "expected 7 columns, found 6: columns were taken as time:filetime,volume,volume,op",
        ),
        ("0.5,hm,0,Write,1,2,3", "`0.5` is no Windows file time"),
        (
            "1700000000,hm,0,Write,1,2,3",
            "`1700000000` is no Windows file time",
        ),
        (
            "128166385295514663,hm,0,Erase,1,2,3",
            "column 4, `Erase`, is no read, write, trim or flush",
        ),
        (
            "128166385295514663,hm,0,Read,-1,2,3",
            "`-1`, is no offset in bytes",
        ),
        (
            "128166385295514663,hm,0,Read,1,2k,3",
            "`2k`, is no size in bytes",
        ),
        (
            "128166385295514663,hm,0,Read,18446744073709551615,2,3",
            "overflow 64 bits",
        ),
    ] {
        let said = failure(msr(&format!("{line}\n")));
        assert!(said.starts_with("line 1: ") && said.contains(why), "{said}");
    }
    let in_us = Table {
        time_unit: Some(TimeUnit::Microseconds),
        ..preset("msr")
    };
    let rebased = table("0,hm,0,Write,0,512,1\n25,hm,0,Write,0,512,1\n", &in_us);
    assert_eq!(events(&rebased)[3].0, 25);
}

#[test]
fn what_is_left_of_a_page_that_is_written_in_part_is_read_first() {
    // The end of page 0, pages 1 and 2, and the beginning of page 3; then whole pages, and a read.
    let text = "128166385295514663,h,0,Write,3584,9216,1\n\
                128166385295514664,h,0,Write,4096,8192,1\n\
                128166385295514665,h,0,Read,512,512,1\n";
    let ops = |options: &BlockOptions| {
        let imported = table_with(text, options, &preset("msr"));
        let of_write = events(&imported)
            .into_iter()
            .take_while(|it| it.2 != Op::Commit);
        let ops: Vec<_> = of_write.map(|(_, _, op, page)| (op, page)).collect();
        let (trace, report) = imported.unwrap();
        (
            ops,
            report.in_part,
            trace.provenance["writes of parts of pages"].clone(),
        )
    };
    let mut options = BlockOptions::new(4096);
    let writes = [0, 1, 2, 3].map(|page| (Op::Write, page));
    let (read, count, said) = ops(&options);
    assert_eq!(
        read,
        [&[(Op::Read, 0), (Op::Read, 3)], &writes[..]].concat()
    );
    assert_eq!((count, &said[..]), (1, "1, whose pages are read first"));
    options.whole_pages = true;
    let (whole, count, said) = ops(&options);
    assert_eq!(whole, writes);
    assert_eq!((count, &said[..]), (1, "1, whose pages are taken as whole"));
}

/// Two requests in each published format: a write of pages 0 and 1 and a later read of page 1.
#[test]
fn every_preset_reads_its_format() {
    for (name, text, volume) in [
        ("disksim", "1 7 0 16 0\n2 7 8 8 1\n", "device 7"),
        (
            "msr",
            "128166385295514663,hm,1,Write,0,8192,1\n128166385295524663,hm,1,Read,4096,4096,1\n",
            "hm.1",
        ),
        (
            "spc",
            "2,0,8192,W,0.001\n2,8,4096,r,0.002000,extra\n",
            "ASU 2",
        ),
        (
            "fiu",
            "89967176404538 29 gzip 0 16 W 6 0 56f11b71\n89967177404538 29 gzip 8 8 R 6 0 56f11b71\n",
            "6.0",
        ),
        (
            "alibaba",
            "device_id,opcode,offset,length,timestamp\n\
             419,W,0,8192,1577808000000046\n419,R,4096,4096,1577808000001046\n",
            "device 419",
        ),
        (
            "tencent",
            "1538323200,0,16,1,1283\n1538323201,8,8,0,1283\n",
            "volume 1283",
        ),
        (
            "systor",
            "Timestamp,Response,IOType,LUN,Offset,Size\n\
             1455592920.000001,0.0004,W,3,0,8192\n1455592920.001001,,R,3,4096,4096\n",
            "LUN 3",
        ),
        (
            "cloudphysics",
            "Write 0.001 0 16\nRead 0.002 8 8\n",
            "volume",
        ),
    ] {
        let mut preset = preset(name);
        if name == "disksim" {
            preset.time_unit = Some(TimeUnit::Milliseconds);
        }
        let imported = table(text, &preset);
        let later = if name == "tencent" { 1_000_000 } else { 1000 };
        assert_eq!(
            events(&imported),
            [
                (0, 0, Op::Write, 0),
                (0, 0, Op::Write, 1),
                (0, 0, Op::Commit, 0),
                (later, 1, Op::Read, 1),
                (later, 1, Op::Commit, 0),
            ],
            "{name}"
        );
        assert_eq!(imported.unwrap().0.relations[0].name, volume);
    }
}

fn columns(text: &str) -> Table {
    Table::new(Columns::parse(text).unwrap())
}

#[test]
fn described_columns_are_read_in_their_units() {
    let mut described = columns("time:us,op,offset:sectors,bytes,volume");
    let lines = "time,what,lba,bytes,disk\n1,Write,8,4096,\"a,b\"\n2,read,8,1,sdb\n";
    let (trace, _) = table(lines, &described).unwrap();
    let names: Vec<_> = trace.relations.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["a,b", "sdb"]);
    assert_eq!(trace.provenance["times"], "us, as stated");
    described.sector_bytes = Some(4096);
    assert_eq!(table(lines, &described).unwrap().0.pages, 2);

    let mut others = columns("_,op:flags,size:kib,offset:pages,time:s,...");
    others.delimiter = Delimiter::Char(';');
    others.skip_lines = 1;
    let lines = "made by hand\nx;a1;4;0;0.5;y\n\nx; 10 ;8;2;1.5\n";
    assert_eq!(
        events(&table(lines, &others)),
        [
            (0, 0, Op::Read, 0),
            (0, 0, Op::Commit, 0),
            (1_000_000, 1, Op::Write, 1),
            (1_000_000, 1, Op::Write, 2),
            (1_000_000, 1, Op::Commit, 0),
        ]
    );
    // A first line whose numbers are quoted is no line of names.
    let quoted = columns("op,offset:bytes,bytes");
    let lines = "\"w\",\"0\",\"4096\"\n\"w\",\"4096\",\"4096\"\n";
    assert_eq!(table(lines, &quoted).unwrap().0.pages, 2);
    // Flushes end transactions here as well; without times all events are at time 0.
    let flushes = columns("op,offset:bytes,bytes");
    let lines = "w,0,4096\nw,4096,4096\nflush,0,0\n";
    let at_flush = table_with(lines, &at_flushes(), &flushes);
    assert_eq!(events(&at_flush).len(), 3);
    for (which, lines, why) in [
        (&flushes, "1,0,4096\n", "op:write1 if 1 is a write"),
        (&others, "0\nx;g;4;0;0\n", "`g`, is no hexadecimal flags"),
        (&preset("disksim"), "0 0 0 8 0\n", "give --time-unit"),
    ] {
        let said = failure(table(lines, which));
        assert!(said.contains(why), "{said}");
    }
    described = columns("op,offset:bytes,bytes");
    described.sector_bytes = Some(512);
    assert!(failure(table("", &described)).contains("no column counts sectors"));
}

#[test]
fn columns_that_cannot_be_what_they_are_taken_for_are_refused() {
    // The columns of another simulator: time, device, read (1), sector, sectors.
    let addresses = (0..200).map(|n: u64| n * 7919 % 1009);
    let swapped: String = (addresses.clone().enumerate())
        .map(|(n, at)| format!("{n} 0 {at} 0 1\n"))
        .collect();
    let said = failure(disksim(&swapped));
    assert!(said.contains("the size is 0 in 200 of 200 lines"), "{said}");
    assert!(said.contains("--delimiter space --columns"), "{said}");
    let swapped: String = addresses.map(|at| format!("{at} 0 8 8 1\n")).collect();
    let said = failure(disksim(&swapped));
    assert!(
        said.starts_with("the times of 200 lines are not in order"),
        "{said}"
    );
}
