//! Each setting's contribution to a figure's variance: total-effect indices by Jansen's estimator,
//! first-order indices by Saltelli's, with bootstrap intervals.
//!
//! With f at the points of both halves of a sample, N each, and at the mixed points of setting *i*:
//!
//! ```text
//!   total  T_i = mean of (f(A) - f(A with i of B))^2 / 2 / variance
//!   first  S_i = mean of f(B) (f(A with i of B) - f(A))  / variance
//! ```
//!
//! T_i is the average fraction of the variance that remains if all settings except *i* are known: a
//! setting with 0 never matters. Totals add up to more than 1 if settings interact. Saltelli et
//! al., Computer Physics Communications 181 (2010), Table 2.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Number of bootstrap samples for an interval.
const DRAWS: usize = 400;

/// An index with its 90 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// The estimate.
    pub value: f64,
    /// The fifth percentile of the bootstrap.
    pub low: f64,
    /// The 95th percentile.
    pub high: f64,
}

/// The indices of one setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effects {
    /// Its total effect.
    pub total: Effect,
    /// Its first-order effect.
    pub first: Effect,
}

/// Total and first-order index of a setting.
type Indices = (f64, f64);

/// Measured values at one point of both halves, and at the mixed points of each setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) mixed: Vec<f64>,
}

/// The indices of each setting; `None` if there are fewer than two rows, or the figure does not
/// vary.
pub(super) fn effects(rows: &[Row]) -> Option<Vec<Effects>> {
    let settings = rows.first()?.mixed.len();
    let whole: Vec<&Row> = rows.iter().collect();
    let estimates = estimate(&whole, settings)?;
    // The draws do not depend on the order of measurements.
    let mut random = Pcg64Mcg::seed_from_u64(0x5e25);
    let mut draws: Vec<Vec<Indices>> = Vec::new();
    for _ in 0..DRAWS {
        let drawn: Vec<&Row> = (0..rows.len())
            .map(|_| &rows[random.random_range(0..rows.len())])
            .collect();
        draws.extend(estimate(&drawn, settings));
    }
    let of = |value: f64, nth: usize, pick: fn(&Indices) -> f64| {
        let mut all: Vec<f64> = draws.iter().map(|draw| pick(&draw[nth])).collect();
        all.sort_by(f64::total_cmp);
        let at = |share: f64| match all.len() {
            0 => value,
            many => all[((many - 1) as f64 * share) as usize],
        };
        Effect {
            value,
            low: at(0.05),
            high: at(0.95),
        }
    };
    let each = estimates.iter().enumerate();
    let each = each.map(|(nth, &(total, first))| Effects {
        total: of(total, nth, |indices| indices.0),
        first: of(first, nth, |indices| indices.1),
    });
    Some(each.collect())
}

/// Estimates the indices of each setting. `None` if there are fewer than two rows, or no variance.
fn estimate(rows: &[&Row], settings: usize) -> Option<Vec<Indices>> {
    if rows.len() < 2 {
        return None;
    }
    let all = rows.iter().flat_map(|row| [row.a, row.b]);
    let count = 2.0 * rows.len() as f64;
    let mean = all.clone().sum::<f64>() / count;
    let variance = all.map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    if variance.is_nan() || variance <= 1e-12 * mean * mean {
        return None;
    }
    let index = |nth: usize| {
        let (mut total, mut first) = (0.0, 0.0);
        for row in rows {
            let change = row.mixed[nth] - row.a;
            total += change * change;
            // Subtracting the mean keeps the expected value, and removes much noise.
            first += (row.b - mean) * change;
        }
        let scale = rows.len() as f64 * variance;
        (total / 2.0 / scale, first / scale)
    };
    Some((0..settings).map(index).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::unit;

    /// Sobol's g-function, whose indices are known: a smaller `a` means a larger effect.
    fn g(x: &[f64], a: &[f64]) -> f64 {
        let each = x.iter().zip(a);
        each.map(|(x, a)| ((4.0 * x - 2.0).abs() + a) / (1.0 + a))
            .product()
    }

    fn rows(count: u32, a: &[f64]) -> Vec<Row> {
        let all = a.len();
        (0..count)
            .map(|of| {
                let half = |from: usize| -> Vec<f64> {
                    (0..all).map(|nth| unit(of, from + nth, 1)).collect()
                };
                let (x, y) = (half(0), half(all));
                let mixed = (0..all).map(|nth| {
                    let mut mixed = x.clone();
                    mixed[nth] = y[nth];
                    g(&mixed, a)
                });
                Row {
                    a: g(&x, a),
                    b: g(&y, a),
                    mixed: mixed.collect(),
                }
            })
            .collect()
    }

    #[test]
    fn the_indices_of_a_known_function_come_out() {
        let a = [0.0, 1.0, 9.0, 99.0];
        let part = |a: f64| 1.0 / 3.0 / (1.0 + a).powi(2);
        let all: f64 = a.iter().map(|&a| 1.0 + part(a)).product::<f64>() - 1.0;
        let found = effects(&rows(4096, &a)).unwrap();
        for (nth, effect) in found.iter().enumerate() {
            let others = (0..a.len()).filter(|&other| other != nth);
            let others: f64 = others.map(|other| 1.0 + part(a[other])).product();
            let (total, first) = (part(a[nth]) * others / all, part(a[nth]) / all);
            assert!(
                (effect.total.value - total).abs() < 0.02,
                "{nth}: {effect:?} {total}"
            );
            assert!(
                (effect.first.value - first).abs() < 0.02,
                "{nth}: {effect:?} {first}"
            );
            assert!(
                effect.total.low <= effect.total.value && effect.total.value <= effect.total.high
            );
        }
        // Control: with mixed-up settings the indices differ.
        let mut wrong = rows(4096, &a);
        wrong.iter_mut().for_each(|row| row.mixed.rotate_left(1));
        let wrong = effects(&wrong).unwrap();
        assert!((wrong[0].total.value - found[0].total.value).abs() > 0.2);
        // With few points the intervals are wide.
        let few = effects(&rows(8, &a)).unwrap();
        let width = |effect: Effect| effect.high - effect.low;
        assert!(width(few[0].total) > 3.0 * width(found[0].total));
    }

    #[test]
    fn what_does_not_vary_has_no_indices() {
        let same = Row {
            a: 1.5,
            b: 1.5,
            mixed: vec![1.5; 3],
        };
        assert_eq!(effects(&vec![same; 8]), None);
        assert_eq!(effects(&rows(1, &[0.0])), None);
        assert_eq!(effects(&[]), None);
    }
}
