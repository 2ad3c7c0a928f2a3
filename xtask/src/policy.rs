//! The dependency policy: licences, versions and sources of everything in `Cargo.lock`.
//!
//! By hand, because cargo-deny, which does this and more, takes minutes of two cores to build before the first
//! test can run; what is needed of it is this page. The policy itself is `xtask/policy.toml`.

use crate::cargo::cargo;
use crate::{Outcome, paths};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    licences: BTreeSet<String>,
    sources: BTreeSet<String>,
    duplicates: BTreeMap<String, String>, // package -> why it is there more than once
}

/// What `cargo metadata` says of the locked packages.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>, // none: of this workspace
}

/// Checks the repository; the error lists everything that breaks the policy.
pub fn run() -> Outcome {
    let text = std::fs::read_to_string(paths::repository().join("xtask/policy.toml"))?;
    let policy: Policy = toml::from_str(&text).map_err(|error| format!("xtask/policy.toml: {error}"))?;
    if !paths::repository().join("LICENSE").is_file() {
        return Err("LICENSE is missing".into());
    }
    let faults = faults(&policy, &metadata()?.packages);
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n").into()) }
}

/// `--locked`: a lock file that is not current is an error here.
fn metadata() -> Outcome<Metadata> {
    let output = cargo().args(["metadata", "--locked", "--quiet", "--format-version", "1"]).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn faults(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        faults.extend(licence_fault(policy, package));
        faults.extend(source_fault(policy, package));
    }
    faults.extend(duplicate_faults(policy, packages));
    faults
}

fn licence_fault(policy: &Policy, package: &Package) -> Option<String> {
    let who = format!("{} {}", package.name, package.version);
    let Some(licence) = &package.license else { return Some(format!("{who} names no licence")) };
    match satisfied(licence, &policy.licences) {
        Some(true) => None,
        Some(false) => Some(format!("{who}: the licence {licence:?} is not allowed")),
        None => Some(format!("{who}: the licence {licence:?} is not an SPDX expression")),
    }
}

fn source_fault(policy: &Policy, package: &Package) -> Option<String> {
    let source = package.source.as_ref().filter(|source| !policy.sources.contains(*source))?;
    Some(format!("{} {} comes from {source}, which is not allowed", package.name, package.version))
}

/// Each package once, but for those on the list; and no one on the list without need.
fn duplicate_faults(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let unlisted = versions.iter().filter(|(name, _)| !policy.duplicates.contains_key(**name));
    let unlisted =
        unlisted.map(|(name, found)| format!("{name} is there in more than one version: {found:?}"));
    let needless = policy.duplicates.keys().filter(|name| !versions.contains_key(name.as_str()));
    let needless = needless.map(|name| format!("{name} is there once: take it off the list of duplicates"));
    unlisted.chain(needless).collect()
}

/// Whether an SPDX expression can be satisfied with the allowed licences; none when it is not one.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> Option<bool> {
    // The slash is how expressions were written before there was `OR`.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let satisfied = any_of(&mut rest, allowed)?;
    rest.is_empty().then_some(satisfied)
}

fn any_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut satisfied = all_of(rest, allowed)?;
    while take(rest, "OR") {
        satisfied |= all_of(rest, allowed)?;
    }
    Some(satisfied)
}

fn all_of(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut satisfied = one(rest, allowed)?;
    while take(rest, "AND") {
        satisfied &= one(rest, allowed)?;
    }
    Some(satisfied)
}

/// A licence, one with an exception (which is allowed only under its full name), or an expression in brackets.
fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    if take(rest, "(") {
        let inner = any_of(rest, allowed)?;
        return take(rest, ")").then_some(inner);
    }
    let licence = word(rest)?;
    if take(rest, "WITH") {
        return Some(allowed.contains(&format!("{licence} WITH {}", word(rest)?)));
    }
    Some(allowed.contains(licence))
}

fn take(rest: &mut &[&str], wanted: &str) -> bool {
    let found = rest.first() == Some(&wanted);
    if found {
        *rest = &rest[1..];
    }
    found
}

fn word<'a>(rest: &mut &[&'a str]) -> Option<&'a str> {
    let (word, after) = rest.split_first()?;
    *rest = after;
    (!matches!(*word, "(" | ")" | "AND" | "OR" | "WITH")).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
        licences = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"]
        sources = ["registry"]
        duplicates = { twice = "a reason" }
    "#;

    fn policy() -> Policy {
        toml::from_str(POLICY).unwrap()
    }

    fn package(name: &str, version: &str, license: Option<&str>, source: Option<&str>) -> Package {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Package { name: name.into(), version: version.into(), license: own(license), source: own(source) }
    }

    #[test]
    fn expressions_mean_what_spdx_says() {
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("MIT OR GPL-3.0-only", Some(true)),
            ("MIT/GPL-3.0-only", Some(true)),
            ("MIT AND GPL-3.0-only", Some(false)),
            ("MIT AND ISC OR GPL-3.0-only", Some(true)),
            ("GPL-3.0-only OR MIT AND MPL-2.0", Some(false)),
            ("(MIT OR GPL-3.0-only) AND ISC", Some(true)),
            ("(MIT OR ISC) AND MPL-2.0", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("((MIT))", Some(true)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT)", None),
            ("MIT ISC", None),
            ("OR MIT", None),
            ("MIT WITH", None),
        ] {
            assert_eq!(satisfied(expression, &policy().licences), expected, "{expression:?}");
        }
    }

    #[test]
    fn every_fault_is_named() {
        let registry = Some("registry");
        let packages = [
            package("fine", "1.0.0", Some("MIT"), registry),
            package("ours", "1.0.0", Some("Apache-2.0"), None),
            package("viral", "1.0.0", Some("GPL-3.0-only"), registry),
            package("bare", "1.0.0", None, registry),
            package("forked", "1.0.0", Some("MIT"), Some("git+https://example.org/x")),
            package("both", "1.0.0", Some("MIT"), registry),
            package("both", "2.0.0", Some("MIT"), registry),
        ];
        assert_eq!(
            faults(&policy(), &packages),
            [
                "viral 1.0.0: the licence \"GPL-3.0-only\" is not allowed",
                "bare 1.0.0 names no licence",
                "forked 1.0.0 comes from git+https://example.org/x, which is not allowed",
                "both is there in more than one version: {\"1.0.0\", \"2.0.0\"}",
                "twice is there once: take it off the list of duplicates",
            ]
        );
    }

    #[test]
    fn a_listed_duplicate_is_no_fault() {
        let version = |version| package("twice", version, Some("MIT"), Some("registry"));
        assert_eq!(faults(&policy(), &[version("1.0.0"), version("2.0.0")]), [] as [String; 0]);
    }

    #[test]
    fn the_policy_itself_is_read_strictly() {
        assert!(toml::from_str::<Policy>("licences = []\nsources = []\nduplicates = {}\nmore = 1").is_err());
    }
}
