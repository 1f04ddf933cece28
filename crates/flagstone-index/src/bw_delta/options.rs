//! Settings of the Bw-delta tree.

use crate::IndexInfo;
use flagstone::settings::settings;

pub(crate) const INFO: IndexInfo = IndexInfo {
    name: "bw-delta",
    idea: "a tree that adds deltas to leaves it does not read, over a log of fragments",
    paper: "[SAL]",
    ordered: true,
    buffers: true,
    settings: settings! {
        chain_max: "8", "deltas of a node after which it gets a new base, 1 to 200";
        node_max: "128", "records of a node beyond which it splits, 3 to 4000";
        node_min: "32", "records of a node below which it merges, 2 to half of node_max";
        segment_pages: "64",
            "pages that the log writes at once; fewer if memory is less than 16 times that";
        log_factor: "2",
            "bytes of the log for each live one, beyond which it is cleaned, 1.1 to 10";
        delta_share: "0.75",
            "how much of the memory that inner nodes leave is for deltas, 0.1 to 0.95";
        update: "blind", "blind (one delta) or pair (one that deletes and one that inserts)";
    },
    tiny: &[
        ("memory", "6000"),
        ("node_max", "8"),
        ("node_min", "3"),
        ("chain_max", "4"),
        ("segment_pages", "3"),
        ("log_factor", "2"),
    ],
    costs: [
        "1 to 2 reads for each fragment of a leaf",
        "a fragment of a page, programmed with others; all fragments read every chain_max deltas",
        "a base for each leaf, of half a page or so",
    ],
};
