//! Which core does what. Pure: cores and wishes in, a plan out.

use thiserror::Error;

use crate::shard::SHARDS_MAX;

/// What the operator asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Number of shards; `None` = one per core that is left.
    pub shards: Option<u8>,
    /// Core of the ingress thread.
    pub ingress_core: Option<usize>,
    /// Cores of the shards, in order.
    pub shard_cores: Vec<usize>,
}

/// Which core does what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The ingress thread's.
    pub ingress: usize,
    /// Each shard's.
    pub shards: Vec<usize>,
}

/// The wishes don't fit the machine. The operator changes a flag.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// Not in the process's affinity mask.
    #[error("core {core} is not available to this process (available: {available}); change {flag}")]
    NoSuchCore {
        /// Which.
        core: usize,
        /// The flag that named it.
        flag: &'static str,
        /// Those that are.
        available: String,
    },
    /// More shards than bits in a permit word.
    #[error("--shards {0}: at most 32 shards are possible")]
    TooMany(u8),
    /// None.
    #[error("--shards 0: at least one shard is needed")]
    None,
    /// The list of cores is shorter than the number of shards.
    #[error("--shards {shards} but --shard-cores names {cores} cores; name one core per shard")]
    TooFewCores {
        /// Shards asked for.
        shards: u8,
        /// Cores named.
        cores: usize,
    },
}

/// Makes a plan. With one or two cores the ingress shares the first with shard 0, as two threads;
/// from three on it has its own.
///
/// # Errors
/// The first wish that can't be met.
pub fn plan(available: &[usize], wishes: &Wishes) -> Result<Plan, PlacementError> {
    let check = |core: usize, flag| {
        if available.contains(&core) {
            return Ok(core);
        }
        let names: Vec<String> = available.iter().map(ToString::to_string).collect();
        Err(PlacementError::NoSuchCore { core, flag, available: names.join(",") })
    };
    for &core in &wishes.shard_cores {
        check(core, "--shard-cores")?;
    }
    let first = available.first().copied().unwrap_or(0);
    let ingress = wishes.ingress_core.map_or(Ok(first), |core| check(core, "--ingress-core"))?;
    let shared = available.len() <= 2;
    let cores: Vec<usize> = if wishes.shard_cores.is_empty() {
        let mut others: Vec<usize> =
            available.iter().copied().filter(|&core| shared || core != ingress).collect();
        if shared && wishes.ingress_core.is_some() {
            // The ingress was put on a core of the operator's choice: start with the other one.
            others.sort_by_key(|&core| core == ingress);
        }
        others
    } else {
        wishes.shard_cores.clone()
    };
    let default = if wishes.shard_cores.is_empty() && shared { 1 } else { cores.len().min(SHARDS_MAX) };
    let shards = wishes.shards.map_or(default, usize::from);
    match wishes.shards {
        Some(0) => return Err(PlacementError::None),
        Some(shards) if usize::from(shards) > SHARDS_MAX => return Err(PlacementError::TooMany(shards)),
        Some(shards) if !wishes.shard_cores.is_empty() && wishes.shard_cores.len() < usize::from(shards) => {
            return Err(PlacementError::TooFewCores { shards, cores: wishes.shard_cores.len() });
        }
        _ => {}
    }
    // More shards than cores share them, round-robin: slower, but it runs.
    let shards = (0..shards.max(1)).map(|at| cores.get(at % cores.len().max(1)).copied().unwrap_or(first));
    Ok(Plan { ingress, shards: shards.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cores, wishes, the ingress's core, the shards' cores, why.
    type Row<'a> = (&'a [usize], &'a Wishes, usize, &'a [usize], &'a str);

    #[test]
    fn every_machine_gets_a_plan() {
        let none = Wishes::default();
        let two = Wishes { shards: Some(2), ..Wishes::default() };
        let listed = Wishes { ingress_core: Some(1), shard_cores: vec![2, 3], ..Wishes::default() };
        let apart = Wishes { ingress_core: Some(0), shards: Some(1), ..Wishes::default() };
        let rows: [Row<'_>; 8] = [
            (&[0], &none, 0, &[0], "one core"),
            (&[0, 1], &none, 0, &[0], "two cores: one is left to the targets and brokers"),
            (&[0, 1], &two, 0, &[0, 1], "two cores, two shards: the ingress shares"),
            (&[0, 1], &apart, 0, &[1], "two cores, told apart"),
            (&[0, 1, 2, 3], &none, 0, &[1, 2, 3], "the ingress has its own"),
            (&[4, 5, 6], &none, 4, &[5, 6], "a mask that does not start at 0"),
            (&[0, 1, 2, 3], &listed, 1, &[2, 3], "as listed"),
            (&[0], &two, 0, &[0, 0], "more shards than cores"),
        ];
        for (available, wishes, ingress, shards, why) in rows {
            assert_eq!(plan(available, wishes), Ok(Plan { ingress, shards: shards.to_vec() }), "{why}");
        }
    }

    #[test]
    fn impossible_wishes_are_refused_by_flag() {
        let wishes = |shards, shard_cores: &[usize]| Wishes {
            shards,
            shard_cores: shard_cores.to_vec(),
            ingress_core: None,
        };
        assert_eq!(plan(&[0], &wishes(Some(0), &[])), Err(PlacementError::None));
        assert_eq!(plan(&[0], &wishes(Some(33), &[])), Err(PlacementError::TooMany(33)));
        assert!(
            plan(&[0], &wishes(None, &[7])).is_err_and(|error| error.to_string().contains("--shard-cores"))
        );
        assert!(plan(&[0, 1], &wishes(Some(2), &[1])).is_err());
    }
}
