//! Everything but the secrets, in words that Landlock understands.
//!
//! Landlock has no exceptions: a right to a folder is one to all that is in it, now and later. So a folder with a secret
//! somewhere below is not granted itself; what stands in it is, one by one. Nothing can be listed there, and what is
//! made there later cannot be read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Kernel file systems and devices get rules of their own, or none.
const APART: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Devices that do no harm.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Those, and the terminals of this process's own streams. Others belong to other programs of the same user, who could be
/// typed to and read along with; so a command cannot open new ones either.
pub fn devices() -> Vec<PathBuf> {
    let own = (0..3).filter_map(|stream| fs::read_link(format!("/proc/self/fd/{stream}")).ok());
    let terminals = own.filter(|path| path.starts_with("/dev/pts"));
    DEVICES.iter().map(PathBuf::from).chain(terminals).collect()
}

/// The largest trees that hold no secret.
pub fn readable(secrets: &[PathBuf]) -> Vec<PathBuf> {
    let mut hidden = BTreeSet::new();
    for secret in secrets {
        hidden.insert(secret.clone());
        // What a link leads to is hidden too.
        hidden.extend(secret.canonicalize());
    }
    hidden.extend(APART.map(PathBuf::from));
    let mut granted = Vec::new();
    grant(Path::new("/"), &hidden, &mut granted);
    granted.extend(APART[..2].iter().map(PathBuf::from));
    granted
}

fn grant(folder: &Path, hidden: &BTreeSet<PathBuf>, granted: &mut Vec<PathBuf>) {
    if hidden.contains(folder) {
        return;
    }
    // In this order whatever is below a path comes right behind it.
    let below = hidden.range(folder.to_owned()..).next().is_some_and(|path| path.starts_with(folder));
    if !below {
        granted.push(folder.to_owned());
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // A link is only followed where it leads: that place has its own rule, or none.
        if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            grant(&entry.path(), hidden, granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beside_a_secret_is_granted_one_by_one() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().canonicalize().unwrap().join(path);
        for folder in ["project", ".ssh", ".config/gh", ".config/editor", "real", "real-not"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at(".netrc"), "").unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        let secrets = [".ssh", ".config/gh", ".netrc", "link"].map(at);
        let granted = readable(&secrets);
        for path in ["project", ".config/editor", "real-not"] {
            assert!(granted.contains(&at(path)), "{path}");
        }
        for path in ["", ".ssh", ".config", ".config/gh", ".netrc", "real", "link"] {
            assert!(!granted.contains(&at(path)), "{path}");
        }
        let holds = |path: &Path| secrets.iter().any(|secret| secret.starts_with(path));
        assert!(!granted.iter().any(|path| holds(path)), "{granted:?}");
        assert!(granted.contains(&PathBuf::from("/usr")) && granted.contains(&PathBuf::from("/proc")));
        assert!(!granted.iter().any(|path| path.starts_with("/dev")));
    }
}
