//! Time units of traces, and exact parsing of decimal times.

/// The unit of a trace's time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// 100 nanoseconds, the unit of a Windows file time.
    Filetime,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimeUnit {
    /// All units, from the largest.
    pub const ALL: [TimeUnit; 5] = [
        TimeUnit::Seconds,
        TimeUnit::Milliseconds,
        TimeUnit::Microseconds,
        TimeUnit::Filetime,
        TimeUnit::Nanoseconds,
    ];

    /// The command-line name.
    pub fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Microseconds => "us",
            TimeUnit::Filetime => "100ns",
            TimeUnit::Nanoseconds => "ns",
        }
    }

    /// Nanoseconds per unit.
    pub fn ns(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Filetime => 100,
            TimeUnit::Nanoseconds => 1,
        }
    }

    /// Parses a number of this unit as whole nanoseconds, truncating: `1.5`, `.5`, `2e3`. `None` if
    /// it is not a number, negative, or out of range.
    pub fn nanoseconds(self, text: &str) -> Option<u64> {
        let (mut whole, mut rest) = (0_u64, 0);
        let mut bytes = text.bytes();
        let mut digits = 0;
        for byte in bytes.by_ref() {
            match byte {
                b'0'..=b'9' => {
                    let more = whole.checked_mul(10)?;
                    whole = more.checked_add(u64::from(byte - b'0'))?;
                    digits += 1;
                }
                b'.' => break,
                b'e' | b'E' => return self.scientific(text),
                _ => return None,
            }
        }
        let mut weight = self.ns();
        for byte in bytes {
            match byte {
                b'0'..=b'9' => {
                    weight /= 10;
                    rest += u64::from(byte - b'0') * weight;
                    digits += 1;
                }
                b'e' | b'E' => return self.scientific(text),
                _ => return None,
            }
        }
        match digits {
            0 => None,
            _ => whole.checked_mul(self.ns())?.checked_add(rest),
        }
    }

    fn scientific(self, text: &str) -> Option<u64> {
        let ns = text.parse::<f64>().ok()? * self.ns() as f64;
        (ns >= 0.0 && ns < i64::MAX as f64).then_some(ns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        let ms = |text| TimeUnit::Milliseconds.nanoseconds(text);
        assert_eq!(ms("0.000001"), Some(1));
        assert_eq!(ms("0.0000019"), Some(1));
        assert_eq!(ms("12345678901.1"), Some(12_345_678_901_100_000));
        assert_eq!(ms(".5"), Some(500_000));
        assert_eq!(ms("7."), Some(7_000_000));
        assert_eq!(ms("1.5e+2"), Some(150_000_000));
        let filetime = TimeUnit::Filetime.nanoseconds("128166385295514663");
        assert_eq!(filetime, Some(12_816_638_529_551_466_300));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "", ".", "-1", "1,5", "x", "1e", "-1e3", "NaN", "inf", "1e99", "0x10", "１",
        ] {
            assert_eq!(TimeUnit::Milliseconds.nanoseconds(text), None, "{text}");
        }
        assert_eq!(TimeUnit::Seconds.nanoseconds("18446744074"), None);
    }
}
