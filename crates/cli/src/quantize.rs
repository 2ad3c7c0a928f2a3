//! `flint quantize`: a model as one file, and what was done to it.

use crate::args::{BitsName, DeviceName, ModelArgs, QuantizeArgs};
use crate::config::Config;
use crate::device::Chosen;
use crate::error::CliError;
use crate::fidelity::{self, CHUNK, Compared, Heard};
use crate::interrupt;
use crate::models;
use crate::progress::{PullBar, Spinner};
use crate::worker;
use flint_engine::device::cpu::default_threads;
use flint_engine::load::ModelFile;
use flint_engine::quantize::{self, Bits, Done, Kind, Lies, Recipe};
use flint_models::Progress;
use serde::Serialize;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, Serialize)]
struct Report {
    source: String,
    file: PathBuf,
    lies: &'static str, // how matrices lie in it
    bytes_before: u64,
    bytes_after: u64,
    data_sha256: String,
    seconds: f64, // that writing took
    kinds: Vec<KindReport>,
    loads: Option<Loads>,
    fidelity: Option<Compared>,
    not_compared: Option<String>, // why
}

#[derive(Debug, Serialize)]
struct KindReport {
    name: String,
    tensors: usize,
    formats: Vec<String>,
    bytes_before: u64,
    bytes_after: u64,
    relative_error: f64,
}

/// Seconds, with the files in the system's cache.
#[derive(Debug, Serialize)]
struct Loads {
    before_s: f64,
    after_s: f64,
}

pub fn quantize(config: &Config, model: &ModelArgs, args: &QuantizeArgs) -> Result<(), CliError> {
    if args.check {
        return check(Path::new(&args.source));
    }
    interrupt::listen()?;
    let (name, source) = models::locate(config, Some(&args.source))?;
    let to = args.output.clone().unwrap_or_else(|| default_output(&source, &name, args.to));
    if to.exists() && !args.force {
        let problem = format!("{} is there already: give another name with -o, or --force", to.display());
        return Err(CliError::Usage(problem));
    }
    if to.exists() && to.canonicalize().ok() == source.canonicalize().ok() {
        return Err(CliError::Usage(format!("{} is the source: give another name with -o", to.display())));
    }
    let file = ModelFile::open(&source)?;
    let recipe = Recipe {
        bits: match args.to {
            BitsName::AsIs => Bits::AsItIs,
            BitsName::Q8 => Bits::Eight,
            BitsName::Q4 => Bits::Four,
        },
        again: args.again,
        lies: lies(config, model, &source)?,
    };
    let begun = Instant::now();
    let done = write(&file, recipe, model, &to)?;
    let seconds = begun.elapsed().as_secs_f64();
    let compared = match args.no_fidelity {
        true => Err("--no-fidelity was given".to_owned()),
        false => compare(config, model, &source, &to).map_err(|error| error.to_string()),
    };
    let (loads, fidelity, not_compared) = match compared {
        Ok((loads, fidelity)) => (Some(loads), Some(fidelity), None),
        Err(why) => (None, None, Some(why)),
    };
    let report = Report {
        source: name,
        file: to,
        lies: recipe.lies.name(),
        bytes_before: file.bytes,
        bytes_after: done.bytes,
        data_sha256: done.sha256,
        seconds,
        kinds: done.kinds.into_iter().map(|(name, kind)| KindReport::new(name, &kind)).collect(),
        loads,
        fidelity,
        not_compared,
    };
    if args.json { report.print_json() } else { report.print() }
}

/// As the device reads them; that of a card can be made where there is none.
fn lies(config: &Config, model: &ModelArgs, source: &Path) -> Result<Lies, CliError> {
    Ok(match model.device {
        DeviceName::Cuda => Lies::Tiles,
        DeviceName::Cpu | DeviceName::Auto => match Chosen::of(config, model, source)? {
            Chosen::Cpu { .. } => Lies::Panels,
            Chosen::Cuda(_) => Lies::Tiles,
        },
    })
}

/// The source's name with the bits, in this folder.
fn default_output(source: &Path, name: &str, to: BitsName) -> PathBuf {
    let stem = match source.is_dir() {
        true => source.file_name(),
        false => source.file_stem(),
    };
    // `.` and `..` have no name of their own.
    let stem = stem.map_or_else(|| name.replace(['/', '.'], "_"), |stem| stem.to_string_lossy().into_owned());
    let bits = match to {
        BitsName::AsIs => "",
        BitsName::Q8 => "-q8",
        BitsName::Q4 => "-q4",
    };
    PathBuf::from(format!("{stem}{bits}.flint"))
}

/// The file appears under its name when all of it is on the disk, and not before.
fn write(file: &ModelFile, recipe: Recipe, model: &ModelArgs, to: &Path) -> Result<Done, CliError> {
    let failed = |what: &str| CliError::io(format!("{} {what}", to.display()));
    let bytes = quantize::plan(file, recipe).iter().map(quantize::Planned::bytes).sum();
    check_space(to, bytes)?;
    let partial = Partial::beside(to);
    let mut out = BufWriter::new(File::create(&partial.0).map_err(failed("cannot be written"))?);
    let threads = model.threads.map_or_else(default_threads, usize::from);
    let mut bar = PullBar::new();
    bar.begin(&format!("writing {}", to.display()), Some(bytes), 0);
    let watch = &mut |at: u64, _| {
        bar.at(at);
        !bar.stop()
    };
    let done = quantize::write(file, recipe, threads, &mut out, watch)?;
    let synced = out.into_inner().map_err(std::io::IntoInnerError::into_error).and_then(|out| out.sync_all());
    synced.map_err(failed("cannot be written"))?;
    fs::rename(&partial.0, to).map_err(failed("cannot be moved into place"))?;
    Ok(done)
}

/// A file on its way; what is left of it goes when this does.
struct Partial(PathBuf);

impl Partial {
    fn beside(to: &Path) -> Partial {
        let name = to.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Partial(to.with_file_name(format!(".{name}.{}.partial", std::process::id())))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the rename there is none; one that cannot be removed is no reason to fail.
        let _ = fs::remove_file(&self.0);
    }
}

fn check_space(to: &Path, bytes: u64) -> Result<(), CliError> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match free_bytes(folder) {
        Some(free) if free < bytes => Err(CliError::Usage(format!(
            "{} will have {}, and the disk has {} left: free some, or write elsewhere with -o",
            to.display(),
            models::gigabytes(bytes),
            models::gigabytes(free)
        ))),
        _ => Ok(()),
    }
}

/// Bytes that the folder's file system can still take; `None` where it does not say.
fn free_bytes(folder: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    // SAFETY: all bits zero is a value of this struct of numbers.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and the struct is ours to be written.
    let told = unsafe { libc::statvfs(path.as_ptr(), &mut facts) };
    (told == 0).then(|| facts.f_bavail.saturating_mul(facts.f_frsize))
}

/// Both models on the same text, one after the other.
fn compare(
    config: &Config,
    model: &ModelArgs,
    source: &Path,
    made: &Path,
) -> Result<(Loads, Compared), CliError> {
    let tokens = fidelity::tokens(&ModelFile::open(source)?)?;
    let pool = ModelArgs { kv_tokens: Some(CHUNK as u32), ..model.clone() };
    let hear = |path: &Path, which: &str| -> Result<(f64, Heard), CliError> {
        let spinner = Spinner::new(format!("loading {}", path.display()));
        let begun = Instant::now();
        let mut runner = worker::runner(config, &pool, path)?;
        let seconds = begun.elapsed().as_secs_f64();
        spinner.say(format!("reading the text with {which}"));
        Ok((seconds, Heard::of(&mut *runner, &tokens)?))
    };
    let (before_s, before) = hear(source, "the source")?;
    let (after_s, after) = hear(made, "what was made of it")?;
    Ok((Loads { before_s, after_s }, Compared::of(&before, &after)))
}

fn check(path: &Path) -> Result<(), CliError> {
    let spinner = Spinner::new("reading the file");
    ModelFile::open(path)?;
    quantize::check(path)?;
    drop(spinner);
    println!("{} is as it was written", path.display());
    Ok(())
}

impl KindReport {
    fn new(name: String, kind: &Kind) -> KindReport {
        let formats = kind.formats.iter().map(|(before, after)| match before == after {
            true => (*before).to_owned(),
            false => format!("{before} to {after}"),
        });
        KindReport {
            name,
            tensors: kind.tensors,
            formats: formats.collect(),
            bytes_before: kind.before,
            bytes_after: kind.after,
            relative_error: kind.relative_error(),
        }
    }
}

impl Report {
    fn print_json(&self) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(self).map_err(|error| CliError::Peer(error.to_string()))?;
        println!("{text}");
        Ok(())
    }

    fn print(&self) -> Result<(), CliError> {
        println!("{:<26} {:>7} {:>9} {:>9} {:>9}  formats", "", "tensors", "before", "after", "error");
        for KindReport { name, tensors, formats, bytes_before, bytes_after, relative_error } in &self.kinds {
            let (before, after) = (models::gigabytes(*bytes_before), models::gigabytes(*bytes_after));
            let error = match relative_error {
                0.0 => "none".to_owned(),
                error => format!("{:.3}%", 100.0 * error),
            };
            println!("{name:<26} {tensors:>7} {before:>9} {after:>9} {error:>9}  {}", formats.join("; "));
        }
        let (before, after) = (models::gigabytes(self.bytes_before), models::gigabytes(self.bytes_after));
        println!("The error is what rounding changed, relative to the size of the weights.");
        if let Some(fidelity) = &self.fidelity {
            fidelity.print();
        }
        if let Some(why) = &self.not_compared {
            println!("What that does to answers was not measured: {why}.");
        }
        if let Some(Loads { before_s, after_s }) = self.loads {
            println!(
                "Loading took {before_s:.1} s before and {after_s:.1} s after, with the files in memory."
            );
        }
        println!("{} to {} in {:.0} s: {before} to {after}.", self.source, self.file.display(), self.seconds);
        println!("Try it: flint run -m {} 'Hello'", self.file.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_called_after_its_source() {
        let name = |source: &str, to| default_output(Path::new(source), source, to).display().to_string();
        assert_eq!(name("/srv/m/coder-7b.Q8_0.gguf", BitsName::Q4), "coder-7b.Q8_0-q4.flint");
        assert_eq!(name("coder.gguf", BitsName::AsIs), "coder.flint");
        assert_eq!(name("/tmp", BitsName::Q8), "tmp-q8.flint");
        assert_eq!(name("..", BitsName::Q8), "__-q8.flint");
    }

    #[test]
    fn what_cannot_fit_on_the_disk_is_refused_before_anything_is_written() {
        let error = check_space(Path::new("x.flint"), u64::MAX).unwrap_err().to_string();
        assert!(error.starts_with("x.flint will have 18446744073.7 GB, and the disk has "), "{error}");
        assert!(check_space(Path::new("x.flint"), 1).is_ok());
    }
}
