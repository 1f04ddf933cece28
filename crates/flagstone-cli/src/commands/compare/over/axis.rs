//! The axes of a grid: settings that can be varied, and their values.

use super::super::Args;
use crate::commands::Failure;
use flagstone_lab::no_such;
use flagstone_lab::workload::Pattern;
use std::str::FromStr;

/// Default number of points of a range.
const POINTS: u32 = 5;
/// Maximum number of points of a range.
const POINTS_MAX: u32 = 200;

/// A setting that an axis can vary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Setting {
    AbortRatio,
    Clients,
    Fill,
    GcThreshold,
    Load,
    ReadShare,
    Theta,
    TransactionPages,
}

impl Setting {
    const ALL: [(Setting, &'static str, &'static str); 8] = [
        (Setting::AbortRatio, "abort-ratio", "--abort-ratio"),
        (Setting::Clients, "clients", "--clients"),
        (Setting::Fill, "fill", "--fill"),
        (Setting::GcThreshold, "gc-threshold", "--gc-threshold"),
        (Setting::Load, "load", "--speedup"),
        (Setting::ReadShare, "read-share", "--read-share"),
        (Setting::Theta, "theta", "--workload"),
        (
            Setting::TransactionPages,
            "transaction-pages",
            "--pages-per-transaction",
        ),
    ];

    fn entry(self) -> (Setting, &'static str, &'static str) {
        let mut all = Setting::ALL.into_iter();
        all.find(|entry| entry.0 == self).expect("all are named")
    }

    pub(in super::super) fn name(self) -> &'static str {
        self.entry().1
    }

    /// The command-line option that sets the same setting without a grid.
    fn option(self) -> &'static str {
        self.entry().2
    }

    fn is_whole(self) -> bool {
        matches!(self, Setting::Clients | Setting::TransactionPages)
    }

    /// The smallest and the largest allowed value.
    fn bounds(self) -> (f64, f64) {
        match self {
            Setting::Clients => (1.0, 4096.0),
            Setting::TransactionPages => (1.0, 4096.0),
            Setting::Load => (1e-6, 1e6),
            Setting::Theta => (0.0, 10.0),
            _ => (0.0, 1.0),
        }
    }
}

/// A setting and its values along the axis.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Axis {
    pub(in super::super) setting: Setting,
    pub(in super::super) values: Vec<f64>,
}

impl FromStr for Axis {
    type Err = String;

    /// Parses `SETTING=LOW..HIGH[:POINTS]` or `SETTING=VALUE:VALUE...`. No value may occur twice.
    fn from_str(text: &str) -> Result<Axis, String> {
        let (name, values) = text.split_once('=').ok_or(
            "must be SETTING=VALUES, such as abort-ratio=0..0.5 or clients=1:4:16".to_string(),
        )?;
        let names = Setting::ALL.map(|(_, name, _)| name);
        let found = Setting::ALL.into_iter().find(|entry| entry.1 == name);
        let (setting, ..) = found.ok_or_else(|| no_such("setting", name, &names))?;
        let number = |text: &str| -> Result<f64, String> {
            let (least, most) = setting.bounds();
            match text.parse::<f64>() {
                Ok(value) if setting.is_whole() && value.fract() != 0.0 => {
                    Err(format!("{name} must be a whole number, not {text}"))
                }
                Ok(value) if (least..=most).contains(&value) => Ok(value),
                Ok(_) => Err(format!("{name} must be {least} to {most}, not {text}")),
                Err(_) => Err(format!("{name} must be a number, not `{text}`")),
            }
        };
        let mut values = match values.split_once("..") {
            Some((low, rest)) => {
                let (high, points) = rest.split_once(':').unwrap_or((rest, ""));
                let points = match points {
                    "" => POINTS,
                    points => points
                        .parse()
                        .ok()
                        .filter(|points| (2..=POINTS_MAX).contains(points))
                        .ok_or_else(|| {
                            format!("a range must have 2 to {POINTS_MAX} points, not {points}")
                        })?,
                };
                let (low, high) = (number(low)?, number(high)?);
                if low >= high {
                    return Err(format!("{low}..{high} is empty: give the lower end first"));
                }
                between(low, high, points, setting.is_whole())
            }
            None => values.split(':').map(number).collect::<Result<_, _>>()?,
        };
        values.dedup();
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        if sorted.len() < values.len() {
            return Err(format!("{name} has a value twice"));
        }
        Ok(Axis { setting, values })
    }
}

/// Points of a range: evenly spaced, or spaced by a constant factor for distant whole numbers.
fn between(low: f64, high: f64, points: u32, whole: bool) -> Vec<f64> {
    let by_factors = whole && high / low > 8.0;
    let steps = f64::from(points - 1);
    let step = (high - low) / steps;
    let nth = |n: u32| {
        // The ends are as given: a rounded one could be beyond the bounds.
        if n == 0 {
            return low;
        }
        if n == points - 1 {
            return high;
        }
        let share = f64::from(n) / steps;
        let value = if by_factors {
            low * (high / low).powf(share)
        } else {
            low + (high - low) * share
        };
        // A tenth is rounded to the number 0.1, not to a neighbour of it.
        let digits = if whole {
            1.0
        } else if step < 1e-3 {
            1e10
        } else {
            1e4
        };
        (value * digits).round() / digits
    };
    let mut values: Vec<f64> = (0..points).map(nth).collect();
    values.dedup();
    values
}

/// Refuses grids that cannot be drawn, and options whose setting is varied by an axis.
pub(super) fn check(args: &Args, axes: &[Axis]) -> Result<(), Failure> {
    if axes.len() > 2 {
        return Err(Failure::Usage(format!(
            "--over takes one or two settings, not {}",
            axes.len()
        )));
    }
    if let [one, other] = axes
        && one.setting == other.setting
    {
        let name = one.setting.name();
        return Err(Failure::Usage(format!("--over names {name} twice")));
    }
    for axis in axes {
        let is_given = match axis.setting {
            Setting::AbortRatio => args.abort_ratio != 0.0,
            Setting::Clients => args.clients.is_some(),
            Setting::Fill => args.fill.is_some(),
            Setting::GcThreshold => args.gc_threshold.is_some(),
            Setting::Load => args.speedup.is_some(),
            Setting::ReadShare => args.read_share.is_some(),
            Setting::Theta => args.workload.is_some(),
            Setting::TransactionPages => args.pages_per_transaction.is_some(),
        };
        if is_given {
            return Err(Failure::Usage(format!(
                "--over varies {}, and {} sets it: leave one of them out",
                axis.setting.name(),
                axis.setting.option()
            )));
        }
    }
    let is_closed = args.clients.is_some() || names(axes, Setting::Clients);
    if (args.speedup.is_some() || names(axes, Setting::Load)) && is_closed {
        return Err(Failure::Usage(
            "--clients means a closed loop, --speedup and load mean an open loop: leave one of \
             them out"
                .into(),
        ));
    }
    if names(axes, Setting::Theta) && args.trace.is_some() {
        return Err(Failure::Usage(
            "theta applies only to generated transactions, and a trace is replayed: leave one of \
             them out"
                .into(),
        ));
    }
    Ok(())
}

/// Whether one of the axes varies this setting.
pub(super) fn names(axes: &[Axis], setting: Setting) -> bool {
    axes.iter().any(|axis| axis.setting == setting)
}

/// The arguments for one point of the grid.
pub(super) fn set(args: &Args, axes: &[Axis], place: &[f64]) -> Args {
    let mut args = args.clone();
    for (axis, &value) in axes.iter().zip(place) {
        match axis.setting {
            Setting::AbortRatio => args.abort_ratio = value,
            Setting::Clients => args.clients = Some(value as u32),
            Setting::Fill => args.fill = Some(value),
            Setting::GcThreshold => args.gc_threshold = Some(value),
            Setting::Load => args.speedup = Some(value),
            Setting::ReadShare => args.read_share = Some(value),
            Setting::Theta => args.workload = Some(Pattern::Zipf { theta: value }),
            Setting::TransactionPages => args.pages_per_transaction = Some(value as u32),
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<f64>, String> {
        text.parse().map(|axis: Axis| axis.values)
    }

    #[test]
    fn ranges_and_lists_are_read() {
        assert_eq!(
            values("abort-ratio=0..0.4").unwrap(),
            [0.0, 0.1, 0.2, 0.3, 0.4]
        );
        assert_eq!(values("fill=0.3..0.9:3").unwrap(), [0.3, 0.6, 0.9]);
        assert_eq!(values("clients=1..16").unwrap(), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(values("clients=2..6:3").unwrap(), [2.0, 4.0, 6.0]);
        assert_eq!(
            values("transaction-pages=1:8:64").unwrap(),
            [1.0, 8.0, 64.0]
        );
        assert_eq!(values("theta=0.9").unwrap(), [0.9]);
        assert_eq!(values("load=1e-6..2:3").unwrap(), [1e-6, 1.0, 2.0]);
        assert_eq!(values("load=1e-6..3e-6:3").unwrap(), [1e-6, 2e-6, 3e-6]);
    }

    #[test]
    fn what_cannot_be_a_grid_says_why() {
        for (text, why) in [
            ("fill", "SETTING=VALUES"),
            ("full=0..1", "no setting"),
            ("fill=0..2", "must be 0 to 1"),
            ("fill=a", "must be a number"),
            ("fill=0.5..0.1", "lower end first"),
            ("fill=0..1:1", "2 to 200 points"),
            ("fill=0..1:x", "2 to 200 points"),
            ("clients=1.5", "whole number"),
            ("clients=4:2:4", "twice"),
            ("load=NaN", "must be"),
        ] {
            let error = values(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
