//! Refuses combinations of options in which one would have no effect, so that no result is misread.

use super::Args;
use crate::commands::{Failure, note};
use flagstone::commit::Kind;
use flagstone::settings::Settings;
use flagstone_host::Stack;
use flagstone_lab::closed::Closed;
use flagstone_lab::device::DeviceSpec;
use flagstone_lab::replay::Fill;
use std::cmp::Ordering;

/// Refuses combinations that are invalid for any comparison.
pub(super) fn options(args: &Args) -> Result<(), Failure> {
    let host = &args.host;
    let database = [
        ("--frames", host.frames.is_some()),
        ("--policy", host.policy.is_some()),
        ("--log-pages", host.log_pages.is_some()),
        ("--warm-up", host.warm_up.is_some()),
    ];
    if host.stack.is_none() {
        refuse(
            &database,
            "applies only to databases, and devices without a database are compared: add --stack, \
             or leave it out",
        )?;
    }
    if args.workload.is_none()
        && let Some((key, _)) = args.drawn().given().iter().find(|(_, given)| *given)
    {
        refuse(
            &[(&format!("--{}", key.replace('_', "-")), true)],
            "applies only to generated transactions, and a trace is replayed: add --workload, or \
             leave it out",
        )?;
    }
    if args.workload.is_some() {
        let speedup = [("--speedup", args.speedup.is_some())];
        let why = "applies only to recorded times, which generated transactions do not have: \
                   replay a trace, or leave it out";
        refuse(&speedup, why)?;
    }
    if !args.image.is_empty() {
        let seeds = [("--seeds", args.seeds.is_some())];
        let why = "fills devices once per seed, and an image is filled already: leave it out";
        refuse(&seeds, why)?;
        if args.workload.is_none() && args.abort_ratio == 0.0 {
            let seed = [("--seed", args.seed.is_some())];
            let why = "applies only to the fill, --abort-ratio and --workload, and an image is \
                       filled already: leave it out";
            refuse(&seed, why)?;
        }
    }
    let table = !(args.json || args.csv || args.markdown);
    if !table {
        let wide = [("--wide", args.wide)];
        refuse(
            &wide,
            "applies only to the table on a terminal: leave it out",
        )?;
    }
    if !(args.json || args.csv) {
        let timing = [("--timing", args.timing)];
        refuse(
            &timing,
            "applies only to --json and --csv: add one of them, or leave it out",
        )?;
    }
    Ok(())
}

/// Reports how pages are mapped if the trace and the device differ in page size.
pub(super) fn page_sizes(sizes: Option<(u32, u32)>) {
    let Some((of_trace, of_device)) = sizes else {
        return;
    };
    let becomes = match of_trace.cmp(&of_device) {
        Ordering::Equal => return,
        Ordering::Greater => format!(
            "each trace page becomes {} device pages",
            of_trace / of_device
        ),
        Ordering::Less => format!("{} trace pages share one device page", of_device / of_trace),
    };
    note(&format!(
        "note: trace pages have {of_trace} bytes, device pages {of_device}: {becomes}"
    ));
}

/// Refuses options that have no effect on these protocols.
pub(super) fn protocols(args: &Args, kinds: &[Kind]) -> Result<(), Failure> {
    if kinds.iter().any(|kind| kind.info().published.is_some()) {
        return Ok(());
    }
    refuse(&[("--as-published", args.as_published)], ONE_FORM)
}

/// Refuses values that are not allowed for a setting. If the protocol refuses its defaults too, the
/// run itself reports that and leaves the protocol out.
pub(super) fn values(setup: &Fill) -> Result<(), Failure> {
    let mut defaults = setup.clone();
    defaults.options.settings = Settings::new();
    if setup.options == defaults.options || defaults.starts().is_err() {
        return Ok(());
    }
    let starts = setup.starts();
    starts.map_err(|error| Failure::Usage(format!("--set: {error}")))
}

/// Refuses values that are not allowed for settings of recovery managers and eviction policies.
pub(super) fn host_values(setup: &Closed) -> Result<(), Failure> {
    let mut defaults = setup.clone();
    (defaults.settings, defaults.policy_settings) = (Settings::new(), Settings::new());
    let check = |setup: &Closed| setup.host().check(setup.stack);
    match (check(&defaults), check(setup)) {
        (Ok(()), Err(error)) => Err(Failure::Usage(format!("--set: {error}"))),
        _ => Ok(()),
    }
}

/// Refuses options that have no effect on these stacks.
pub(super) fn stacks(args: &Args, stacks: &[Stack]) -> Result<(), Failure> {
    let host = &args.host;
    let forms = |stack: &Stack| match stack {
        Stack::Force(kind) => kind.info().published.is_some(),
        Stack::Wal | Stack::CfcEx | Stack::AfcEx => false,
    };
    if !stacks.iter().any(forms) {
        refuse(&[("--as-published", args.as_published)], ONE_FORM)?;
    }
    if stacks.iter().all(|stack| matches!(stack, Stack::Force(_))) {
        let why = "applies only to `wal`, `cfc-ex` and `afc-ex`, and --stack has none of them: \
                   leave it out";
        refuse(&[("--log-pages", host.log_pages.is_some())], why)?;
    }
    Ok(())
}

const ONE_FORM: &str = "has no effect here: no selected protocol has a published variant that \
                        differs; leave it out";

/// Refuses an open loop whose `last` transaction arrives beyond the end of virtual time, which is
/// summed over all planes.
pub(super) fn arrivals(args: &Args, last: u64, device: &DeviceSpec) -> Result<(), Failure> {
    let planes = f64::from(device.geometry.planes());
    let is_soon = |speedup| last < u64::MAX && last as f64 / speedup * planes <= i64::MAX as f64;
    if args.speedup.is_none_or(is_soon) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "the transactions arrive over more than {:.0} years: give a lower --repeat or a higher \
         --speedup",
        i64::MAX as f64 / planes / YEAR_NS
    )))
}

/// Nanoseconds per year.
const YEAR_NS: f64 = 365.0 * 24.0 * 3_600.0 * 1e9;

/// Refuses the first option that was given. `why` explains it.
fn refuse(options: &[(&str, bool)], why: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::Usage(format!("{option} {why}"))),
    }
}
