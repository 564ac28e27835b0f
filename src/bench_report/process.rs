//! What a process used so far: CPU time and memory, its own or a child's.

use std::time::Duration;
use std::{fs, io};

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// CPU time of this process over all its threads, user and system.
#[must_use]
pub fn cpu_own() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// CPU time of a process over all its threads, user and system. The kernel tells it in ticks, usually of 10 ms:
/// measure over seconds.
///
/// # Errors
/// When there is no such process.
pub fn cpu_of(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = cpu_ticks(&stat).ok_or_else(|| unreadable("stat"))?;
    Ok(Duration::from_secs(ticks) / u32::try_from(clock_ticks_per_second()).unwrap_or(100))
}

/// Resident memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rss {
    /// Bytes now.
    pub now_bytes: u64,
    /// The most bytes there ever were.
    pub peak_bytes: u64,
}

impl Rss {
    /// Memory now, in MB of 1,048,576 bytes.
    #[must_use]
    pub fn now_mb(self) -> f64 {
        megabytes(self.now_bytes)
    }

    /// The most memory, in MB of 1,048,576 bytes.
    #[must_use]
    pub fn peak_mb(self) -> f64 {
        megabytes(self.peak_bytes)
    }
}

/// Resident memory of this process.
///
/// # Errors
/// Where there is no /proc.
pub fn rss_own() -> io::Result<Rss> {
    rss_of(std::process::id())
}

/// Resident memory of a process.
///
/// # Errors
/// When there is no such process.
pub fn rss_of(pid: u32) -> io::Result<Rss> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    rss(&status).ok_or_else(|| unreadable("status"))
}

fn unreadable(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/PID/{file} has an unknown form"))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people: 53 bits are plenty")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// User and system ticks. The command's name may hold spaces and brackets, so fields are counted from its end.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn rss(status: &str) -> Option<Rss> {
    let bytes = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Rss { now_bytes: bytes("VmRSS:")?, peak_bytes: bytes("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let rows = [
            ("42 (sh) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20", Some(100)),
            ("42 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 1 2 0", Some(3)),
            ("42 (sh) S 1 2", None),
            ("", None),
        ];
        for (stat, want) in rows {
            assert_eq!(cpu_ticks(stat), want, "{stat}");
        }
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(rss(status), Some(Rss { now_bytes: 1 << 20, peak_bytes: 2 << 20 }));
        assert_eq!(rss("Name:\tx\n"), None, "a kernel thread has none");
        let own = rss_own().expect("linux");
        assert!(own.now_bytes > 0 && own.peak_bytes >= own.now_bytes, "{own:?}");
    }

    #[test]
    fn cpu_time_grows_with_work_and_both_ways_agree() {
        let start = cpu_own();
        while cpu_own().saturating_sub(start) < Duration::from_millis(50) {
            black_box((0..10_000_u64).fold(0, |sum, n| black_box(sum + n)));
        }
        let (before, told, after) = (cpu_own(), cpu_of(std::process::id()).expect("linux"), cpu_own());
        let tick = Duration::from_millis(20);
        assert!(told + tick >= before && told <= after + tick, "{before:?} {told:?} {after:?}");
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(cpu_of(u32::MAX).is_err());
        assert!(rss_of(u32::MAX).is_err());
    }
}
