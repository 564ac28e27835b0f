//! A list of cores as people write it: `1`, `0,2`, `2-7`. Pure.

use std::str::FromStr;

use thiserror::Error;

/// Highest core number accepted: what the kernel's `cpu_set_t` can name.
const CORE_MAX: usize = 1023;

/// Cores in the order they were written, none twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

/// A core list that cannot be read. The person at the command line mends it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CoresError {
    /// Not a number and not a range.
    #[error("`{0}` is neither a core nor a range such as 2-7")]
    Unreadable(String),
    /// Beyond what the kernel can name.
    #[error("core {0} is beyond {CORE_MAX}")]
    TooHigh(usize),
}

impl FromStr for Cores {
    type Err = CoresError;

    fn from_str(text: &str) -> Result<Self, CoresError> {
        let mut cores = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let unreadable = |_| CoresError::Unreadable(part.to_owned());
            let first: usize = first.parse().map_err(unreadable)?;
            let last: usize = last.parse().map_err(unreadable)?;
            if first > last {
                return Err(CoresError::Unreadable(part.to_owned()));
            }
            if last > CORE_MAX {
                return Err(CoresError::TooHigh(last));
            }
            for core in first..=last {
                if !cores.contains(&core) {
                    cores.push(core);
                }
            }
        }
        Ok(Self(cores))
    }
}

#[cfg(test)]
mod tests {
    use super::{Cores, CoresError};

    #[test]
    fn a_core_list_reads_as_people_write_it() {
        let rows: [(&str, &[usize]); 4] =
            [("1", &[1]), ("0,2", &[0, 2]), ("2-4", &[2, 3, 4]), ("3, 1-3", &[3, 1, 2])];
        for (text, want) in rows {
            assert_eq!(text.parse(), Ok(Cores(want.to_vec())), "{text}");
        }
    }

    #[test]
    fn a_wrong_core_list_is_refused() {
        for text in ["", "a", "3-1", "1-", "1,,2", "-1"] {
            assert!(matches!(text.parse::<Cores>(), Err(CoresError::Unreadable(_))), "{text}");
        }
        assert_eq!("4096".parse::<Cores>(), Err(CoresError::TooHigh(4096)));
    }
}
