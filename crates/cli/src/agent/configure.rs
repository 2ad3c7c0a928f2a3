//! `flint config`: what the settings are and who says so, and a Codex set-up brought over.

use super::Scene;
use crate::args::{ConfigCommand, ModelArgs};
use crate::config::Config;
use crate::error::CliError;
use flint_agent::config::{Import, import, json_schema};
use flint_agent::limits::CONFIG_BYTES_MAX;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write, stdout};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub fn configure(config: &Config, model: &ModelArgs, command: &ConfigCommand) -> Result<(), CliError> {
    match command {
        ConfigCommand::Show(args) => {
            let scene = Scene::read(config, model, args)?;
            scene.warnings().iter().for_each(|warning| eprintln!("flint: {warning}"));
            print(&scene.loaded.config.show())
        }
        ConfigCommand::Schema => print(&format!("{:#}\n", json_schema())),
        ConfigCommand::Import { folder, dry_run, force } => {
            let folder = folder.clone().unwrap_or_else(|| config.user.join(".codex"));
            let files = read(&folder)?;
            match dry_run {
                true => preview(&config.home, &files)?,
                false => write(&config.home, &files, *force)?,
            }
            tell(&folder, &config.home, &files);
            Ok(())
        }
    }
}

/// Whoever reads may have read enough.
fn print(text: &str) -> Result<(), CliError> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(CliError::io("standard output")(error)),
        _ => Ok(()),
    }
}

/// A file of Codex as one of Flint.
struct Brought {
    name: String,
    from: PathBuf,
    import: Import,
}

const FILE: &str = "config.toml";

/// Profiles that are files of their own.
const PROFILES_MAX: usize = 100;

/// The files of a Codex set-up, its main one first. Without that one, profiles stand on nothing.
fn read(folder: &Path) -> Result<Vec<Brought>, CliError> {
    let profiles = profiles(folder)?;
    let from = folder.join(FILE);
    let main = match text(&from)? {
        Some(text) => text,
        None if profiles.is_empty() => {
            let folder = folder.display().to_string();
            let problem = format!("{} has no {FILE}: name Codex's folder", folder.escape_debug());
            return Err(CliError::Settings(problem));
        }
        None => String::new(),
    };
    let base = import(&from, &main, None).map_err(CliError::Config)?;
    let mut files = vec![Brought { name: FILE.to_owned(), from, import: base.clone() }];
    for name in profiles {
        let from = folder.join(&name);
        let Some(text) = text(&from)? else { continue };
        let import = import(&from, &text, Some(&base)).map_err(CliError::Config)?;
        files.push(Brought { name, from, import });
    }
    files.retain(|file| !file.import.text.is_empty() || !file.import.left.is_empty());
    Ok(files)
}

/// Names such as `deep.config.toml`, in their order.
fn profiles(folder: &Path) -> Result<Vec<String>, CliError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_profile = |name: &String| {
        let stem = name.strip_suffix(FILE).and_then(|stem| stem.strip_suffix('.'));
        stem.is_some_and(|stem| !stem.is_empty() && stem.chars().all(plain))
    };
    let mut names: Vec<String> = names(folder)?.into_iter().filter(is_profile).collect();
    if names.len() > PROFILES_MAX {
        let problem = format!("{} profiles are too many, at most {PROFILES_MAX} are read", names.len());
        return Err(CliError::Settings(problem));
    }
    names.sort();
    Ok(names)
}

fn names(folder: &Path) -> Result<Vec<String>, CliError> {
    let entries = fs::read_dir(folder).map_err(CliError::io(folder.display().to_string()))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// None: it is not there.
fn text(path: &Path) -> Result<Option<String>, CliError> {
    let io = || CliError::io(path.display().to_string());
    match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io()(error)),
        // A pipe would be waited for.
        Ok(about) if !about.is_file() => return Ok(None),
        Ok(_) => {}
    }
    let mut text = String::new();
    let file = File::open(path).map_err(io())?;
    file.take(CONFIG_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(io())?;
    Ok(Some(text))
}

/// What a file will say, and where that comes from.
fn contents(file: &Brought) -> String {
    format!("# From {}\n\n{}", file.from.display().to_string().escape_debug(), file.import.text)
}

fn preview(home: &Path, files: &[Brought]) -> Result<(), CliError> {
    for file in files.iter().filter(|file| !file.import.text.is_empty()) {
        let path = home.join(&file.name).display().to_string();
        print(&format!("# {}\n{}\n", path.escape_debug(), contents(file)))?;
    }
    Ok(())
}

/// All of them or none: what is there already is found before the first is written.
fn write(home: &Path, files: &[Brought], force: bool) -> Result<(), CliError> {
    fs::create_dir_all(home).map_err(CliError::io(home.display().to_string()))?;
    let files: Vec<&Brought> = files.iter().filter(|file| !file.import.text.is_empty()).collect();
    for file in &files {
        let (path, kept) = (home.join(&file.name), kept(home, file));
        // What was kept the first time is the user's own.
        let there = if force { kept } else { path };
        if there.symlink_metadata().is_ok() {
            let there = there.display().to_string();
            let remedy = match force {
                false => "--dry-run prints what would be written, --force replaces it and keeps a copy",
                true => "it is a copy from an earlier time: move it away first",
            };
            return Err(CliError::Settings(format!("{} is there already: {remedy}", there.escape_debug())));
        }
    }
    files.iter().try_for_each(|file| replace(home, file))
}

fn kept(home: &Path, file: &Brought) -> PathBuf {
    home.join(format!("{}.before-import", file.name))
}

fn replace(home: &Path, file: &Brought) -> Result<(), CliError> {
    let path = home.join(&file.name);
    let io = || CliError::io(path.display().to_string());
    match fs::rename(&path, kept(home, file)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(io()(error)),
        _ => {}
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    made.and_then(|mut made| made.write_all(contents(file).as_bytes())).map_err(io())?;
    eprintln!("flint: wrote {}", path.display().to_string().escape_debug());
    Ok(())
}

/// What was taken, and all that was not.
fn tell(folder: &Path, home: &Path, files: &[Brought]) {
    let taken: usize = files.iter().map(|file| file.import.taken.len()).sum();
    let left: Vec<String> =
        files.iter().flat_map(|file| &file.import.left).map(ToString::to_string).collect();
    eprintln!("flint: {taken} settings were taken, {} were not", left.len());
    left.iter().for_each(|left| eprintln!("  {left}"));
    let agents = folder.join("agents");
    let to = home.join("agents").display().to_string();
    let mut names = names(&agents).unwrap_or_default();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    for name in names {
        let path = agents.join(name).display().to_string();
        eprintln!(
            "  {}: agents are not copied; put what you want of them into {}",
            path.escape_debug(),
            to.escape_debug()
        );
    }
}
