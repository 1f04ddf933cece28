//! Settings of the Bw-delta tree.

use crate::IndexInfo;
use flagstone::settings::settings;

pub(crate) const INFO: IndexInfo = IndexInfo {
    name: "bw-delta",
    idea: "a tree over a log of fragments, which adds deltas to leaves without reading them",
    paper: "[SAL]",
    ordered: true,
    buffers: true,
    settings: settings! {
        chain_max: "8", "maximum number of deltas of a node before it gets a new base, 1 to 200";
        node_max: "128", "maximum number of records of a node before it splits, 3 to 4000";
        node_min: "32", "minimum number of records of a node before it merges, 2 to half of \
                         node_max";
        segment_pages: "64",
            "pages per write of the log; fewer if the memory is less than 16 times that";
        log_factor: "2",
            "ratio of the log's bytes to live bytes above which the log is cleaned, 1.1 to 10";
        delta_share: "0.75",
            "share for deltas of the memory not used by inner nodes, 0.1 to 0.95";
        map_charged: "false",
            "whether the map of nodes and the list of segments count in `memory`, of which an \
             eighth is left to nodes and deltas";
        update: "blind", "deltas of an update: blind (one delta), or pair (a deletion and an \
                          insertion)";
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
        "1 to 2 reads per fragment of a leaf",
        "part of a page, programmed with other fragments; reads all fragments every chain_max \
         deltas",
        "one base per leaf, of about half a page",
    ],
};
