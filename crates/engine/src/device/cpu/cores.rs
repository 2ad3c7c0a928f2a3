//! Which cores this process has, how many threads they are for, and which thread goes where.

use crate::limits::CPUS_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// CPUs that are one core to the machine: threads on them share its arithmetic.
pub type Core = BTreeSet<usize>;

/// The part of the machine that this process may use.
#[derive(Debug)]
pub struct Cores {
    cores: Vec<Core>, // of each what is allowed
    quota: usize,     // processors' time that there is
    nodes: usize,     // of memory
}

/// Threads to use: one for each physical core that this process may run on, and no more than it has processor time for.
pub fn default_threads() -> usize {
    Cores::of_this_process().map_or_else(quota, |cores| cores.threads())
}

/// What a quota leaves of the CPUs that are allowed.
fn quota() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Cores {
    /// None where the system does not tell.
    pub fn of_this_process() -> Option<Cores> {
        let nodes = std::fs::read_to_string("/sys/devices/system/node/online").ok();
        let nodes = nodes.and_then(|list| cpu_list(&list)).map_or(1, |nodes| nodes.len());
        Some(Cores::new(&cpus_allowed()?, siblings, quota(), nodes))
    }

    /// A core goes by its first CPU. Of whose siblings nothing is known is a core by itself.
    fn new(
        allowed: &BTreeSet<usize>,
        siblings: impl Fn(usize) -> Option<BTreeSet<usize>>,
        quota: usize,
        nodes: usize,
    ) -> Cores {
        let mut cores = BTreeMap::<usize, Core>::new();
        for &cpu in allowed {
            let first = siblings(cpu).and_then(|cpus| cpus.first().copied()).unwrap_or(cpu);
            cores.entry(first).or_default().insert(cpu);
        }
        Cores { cores: cores.into_values().collect(), quota, nodes }
    }

    fn threads(&self) -> usize {
        self.cores.len().min(self.quota).max(1)
    }

    /// A core for each of so many threads, if they are to stay where they are: when they need all cores, and the system could
    /// do it wrong, by putting two on one core or one away from the memory that it filled. Who leaves cores free leaves the
    /// choice to the system, and on cores of one CPU by one memory there is nothing to choose.
    pub fn places(self, threads: usize) -> Option<Vec<Core>> {
        let choice = self.nodes > 1 || self.cores.iter().any(|core| core.len() > 1);
        let all = threads > 1 && threads == self.cores.len() && threads <= self.quota;
        (all && choice).then_some(self.cores)
    }
}

/// From now on this thread runs on these CPUs. Where the system refuses, it runs where it ran.
#[cfg(target_os = "linux")]
pub fn stay(core: &Core) {
    // SAFETY: the set is plain bits, all of them zero at first; CPUs beyond its size are left out.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in core.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn stay(_: &Core) {}

/// CPUs that this thread may run on, where the system tells.
fn cpus_allowed() -> Option<BTreeSet<usize>> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    cpu_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// CPUs that share a core with this one, itself among them.
fn siblings(cpu: usize) -> Option<BTreeSet<usize>> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    cpu_list(&std::fs::read_to_string(path).ok()?)
}

/// Such as "0-3,8".
fn cpu_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut cpus = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `siblings` is a list for each core.
    fn cores_of(allowed: &str, siblings: &[&str], quota: usize, nodes: usize) -> Cores {
        let cores: Vec<Core> = siblings.iter().map(|core| cpu_list(core).unwrap()).collect();
        let core = |cpu| cores.iter().find(|core| core.contains(&cpu)).cloned();
        Cores::new(&cpu_list(allowed).unwrap(), core, quota, nodes)
    }

    const PAIRS: [&str; 4] = ["0-1", "2-3", "4-5", "6-7"];
    const HALVES: [&str; 4] = ["0,4", "1,5", "2,6", "3,7"];

    #[test]
    fn a_thread_for_each_core_that_is_allowed_and_paid_for() {
        for (allowed, siblings, quota, expected, why) in [
            ("0-1", &["0", "1"][..], 2, 2, "two cores of one thread"),
            ("0-7", &PAIRS, 8, 4, "all of the machine, siblings side by side"),
            ("0-7", &HALVES, 8, 4, "all of the machine, siblings far apart"),
            ("0-1", &PAIRS, 2, 1, "both threads of one core"),
            ("1,5", &HALVES, 2, 1, "both threads of one core, far apart"),
            ("0-3", &HALVES, 4, 4, "a thread of each core"),
            ("3-4", &PAIRS, 2, 2, "one thread of two cores each"),
            ("5", &PAIRS, 1, 1, "the second thread of a core alone"),
            ("0-7", &PAIRS, 2, 2, "a quota below the cores"),
            ("0-7", &PAIRS, 6, 4, "a quota between cores and threads"),
            ("0-1", &PAIRS, 1, 1, "a quota of one"),
            ("0-2", &[], 3, 3, "nothing known of siblings"),
            ("0-2", &["0-1"], 3, 2, "something known of them"),
        ] {
            assert_eq!(cores_of(allowed, siblings, quota, 1).threads(), expected, "{why}");
        }
    }

    #[test]
    fn threads_stay_where_the_system_could_put_them_wrong() {
        let flat = &["0", "1", "2", "3"];
        for (allowed, siblings, quota, nodes, threads, expected, why) in [
            ("0-7", &PAIRS[..], 8, 1, 4, Some(&["0-1", "2-3", "4-5", "6-7"][..]), "cores of two CPUs"),
            ("0-7", &HALVES, 8, 1, 4, Some(&["0,4", "1,5", "2,6", "3,7"]), "the same, far apart"),
            ("0-6", &HALVES, 7, 1, 4, Some(&["0,4", "1,5", "2,6", "3"]), "what is not allowed is left out"),
            ("0-3", flat, 4, 2, 4, Some(&["0", "1", "2", "3"]), "two memories"),
            ("0-3", flat, 4, 1, 4, None, "nothing to choose"),
            ("0-7", &PAIRS, 8, 1, 3, None, "a core left free"),
            ("0-7", &PAIRS, 8, 1, 8, None, "two threads a core wanted"),
            ("0-7", &PAIRS, 2, 1, 4, None, "less time than threads"),
            ("0-1", &PAIRS, 2, 1, 1, None, "one thread"),
        ] {
            let places = cores_of(allowed, siblings, quota, nodes).places(threads);
            let expected: Option<Vec<Core>> =
                expected.map(|cores| cores.iter().map(|core| cpu_list(core).unwrap()).collect());
            assert_eq!(places, expected, "{why}");
        }
    }

    #[test]
    fn lists_of_cpus_are_read() {
        let list = |text| cpu_list(text).map(Vec::from_iter);
        assert_eq!(list(" 0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(list("7"), Some(vec![7]));
        for bad in ["", "a", "1-", "3-1", "0-4294967295", "1,,2"] {
            assert_eq!(list(bad), None, "{bad:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_tells_which_cpus_share_a_core() {
        let allowed = cpus_allowed().unwrap();
        assert!(!allowed.is_empty());
        assert!(allowed.iter().all(|&cpu| siblings(cpu).is_none_or(|own| own.contains(&cpu))));
        assert!(default_threads() >= 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_stays_where_it_is_put() {
        let last = cpus_allowed().unwrap().into_iter().next_back().unwrap();
        let thread = std::thread::spawn(move || {
            stay(&Core::from([last]));
            cpus_allowed()
        });
        assert_eq!(thread.join().unwrap(), Some(Core::from([last])));
    }
}
