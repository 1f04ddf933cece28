//! Entry point of a fuzz target, as in `flagstone_lab::fuzzing`: parses run ids.

use crate::campaign::RunId;
use crate::stores;

/// Parses a run id of a device or of a store. It must survive a round trip.
pub fn run_id(bytes: &[u8]) -> bool {
    let Ok(word) = std::str::from_utf8(bytes) else {
        return false;
    };
    if let Ok(id) = word.parse::<stores::StoreRunId>() {
        assert_eq!(id.to_string(), word);
        return true;
    }
    let Ok(id) = word.parse::<RunId>() else {
        return false;
    };
    let again = id.to_string();
    assert_eq!(again.parse::<RunId>().map(|id| id.to_string()), Ok(again));
    true
}
