//! Names of GGUF files that are one model in several parts: `NAME-00001-of-00003.gguf`.

/// Parts of one model, at most.
const PARTS_MAX: u32 = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitName {
    stem: String,
    total: u32,
}

impl SplitName {
    pub(crate) fn parse(name: &str) -> Option<SplitName> {
        let (rest, total) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, total) = (number_of(number)?, number_of(total)?);
        let real = (1..=total).contains(&number) && total <= PARTS_MAX;
        real.then(|| SplitName { stem: stem.into(), total })
    }

    /// The names of all parts, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = String> {
        (1..=self.total).map(|number| format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.total))
    }
}

fn number_of(text: &str) -> Option<u32> {
    let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

/// The addresses of all parts of the model at an address, that one last: when it is there, all are.
pub(crate) fn part_urls(url: &str) -> Vec<String> {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (path, query) = url.split_at(end);
    let Some((folder, name)) = path.rsplit_once('/') else { return vec![url.into()] };
    let parts = SplitName::parse(name).into_iter().flat_map(|split| split.parts().collect::<Vec<_>>());
    let others = parts.filter(|part| part != name).map(|part| format!("{folder}/{part}{query}"));
    others.chain([url.to_string()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_an_address() {
        let check = |url: &str, want: &[&str]| assert_eq!(part_urls(url), want);
        check("http://a/m.gguf?x=1", &["http://a/m.gguf?x=1"]);
        check(
            "http://a/b/m-00002-of-00003.gguf?x=1/2",
            &[
                "http://a/b/m-00001-of-00003.gguf?x=1/2",
                "http://a/b/m-00003-of-00003.gguf?x=1/2",
                "http://a/b/m-00002-of-00003.gguf?x=1/2",
            ],
        );
        for odd in
            ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-1-of-2.gguf", "m-00001-of-99999.gguf"]
        {
            check(&format!("http://a/{odd}"), &[&format!("http://a/{odd}")]);
        }
    }
}
