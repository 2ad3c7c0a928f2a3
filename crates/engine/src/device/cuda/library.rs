//! NVRTC where its name alone does not find it: pip and the toolkit put it into folders that the system's loader does not know.

use super::compile::compiler_present;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What NVRTC loads by its name alone, and so has to be there before it.
const BUILTINS: &str = "libnvrtc-builtins.so.";
const COMPILER: &str = "libnvrtc.so.";

/// Whether NVRTC is there: by its name, or in one of these folders, the first that has it.
pub fn find_compiler(folders: &[PathBuf]) -> bool {
    compiler_present() || (folders.iter().any(|folder| load_from(folder)) && compiler_present())
}

/// Loads it by its path: whoever asks for its name then finds it.
fn load_from(folder: &Path) -> bool {
    let Some(compiler) = newest(folder, COMPILER) else { return false };
    if let Some(builtins) = newest(folder, BUILTINS) {
        load(&builtins);
    }
    load(&compiler)
}

/// The library of this name with the highest version.
fn newest(folder: &Path, name: &str) -> Option<PathBuf> {
    let version = |path: &PathBuf| -> Option<Vec<u32>> {
        let rest = path.file_name()?.to_str()?.strip_prefix(name)?;
        rest.split('.').map(|part| part.parse().ok()).collect()
    };
    let paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    paths.filter_map(|path| Some((version(&path)?, path))).max().map(|(_, path)| path)
}

fn load(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a library of NVIDIA's, whose start-up code does nothing but set it up. It stays loaded.
    !unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) }.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_of_a_folder_is_taken() {
        let folder = std::env::temp_dir().join(format!("flint-nvrtc-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let names =
            ["libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.so.12.4", "libnvrtc.so.alt", "libnvrtc.alt.so.14"];
        names.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
        assert_eq!(newest(&folder, COMPILER), Some(folder.join("libnvrtc.so.13")));
        assert_eq!(newest(&folder, BUILTINS), None);
        assert_eq!(newest(&folder.join("none"), COMPILER), None);
        // An empty file is no library.
        assert!(!load_from(&folder) && !load_from(&folder.join("none")));
        fs::remove_dir_all(&folder).unwrap();
    }
}
