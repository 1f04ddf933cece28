//! Sobol samples: points that fill a multi-dimensional cube evenly, from a seed.
//!
//! The sequence is Joe and Kuo's with Owen's scrambling, from the crate `sobol_burley`. A scrambled
//! sequence has no point at the corner of the cube, and each seed gives another, equally even
//! sample. A point is a function of its number, its dimension and the seed; there is no state.

/// Maximum number of points per sample: the sequence is even up to here.
pub const SAMPLE_MAX: u32 = 1 << 16;

/// Maximum number of dimensions per sample.
pub(crate) const DIMENSIONS_MAX: usize = sobol_burley::NUM_DIMENSIONS as usize;

/// A coordinate of a point, from 0 to less than 1.
///
/// # Panics
/// The point is [`SAMPLE_MAX`] or more, or the sequence lacks the dimension.
pub fn unit(point: u32, dimension: usize, seed: u32) -> f64 {
    assert!(point < SAMPLE_MAX, "point {point} of a sample");
    let dimension = u32::try_from(dimension).expect("few dimensions");
    f64::from(sobol_burley::sample(point, dimension, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_power_of_two_of_points_has_one_in_each_interval() {
        for seed in [1, 2] {
            for dimension in [0, 1, 7, 40] {
                let mut hit = [false; 64];
                for point in 0..64 {
                    hit[(unit(point, dimension, seed) * 64.0) as usize] = true;
                }
                assert!(hit.iter().all(|hit| *hit), "{dimension} {seed}");
            }
        }
        // Control: independent random samples leave some parts empty.
        let mut hit = [false; 64];
        for point in 0..64 {
            hit[(unit(0, 0, point) * 64.0) as usize] = true;
        }
        assert!(!hit.iter().all(|hit| *hit));
    }

    #[test]
    fn a_point_is_the_same_on_every_machine() {
        let point: Vec<f64> = (0..3).map(|dimension| unit(5, dimension, 1)).collect();
        assert_eq!(
            point,
            [0.2956409454345703, 0.15592944622039795, 0.4141831398010254]
        );
    }
}
