//! The key that somebody probably meant.

const LETTERS_MAX: usize = 64;

/// The nearest of these names that has as many parts, if it is near: a third of its letters may differ.
pub fn likely(path: &[String], names: impl IntoIterator<Item = &'static str>) -> Option<String> {
    let given = path.join(".");
    let near = |name: String| {
        let far = distance(&given, &name)?;
        (far <= name.len().div_ceil(3)).then_some((far, name))
    };
    let named = |key: &str| {
        let parts: Vec<&str> = key.split('.').collect();
        let name =
            parts.iter().zip(path).map(|(part, given)| if *part == "*" { given.as_str() } else { part });
        (parts.len() == path.len()).then(|| name.collect::<Vec<_>>().join("."))
    };
    names.into_iter().filter_map(|key| near(named(key)?)).min().map(|(_, name)| name)
}

/// Letters to be put in, left out or changed to make one word of the other; none for words that are too long.
fn distance(a: &str, b: &str) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().max(b.len()) > LETTERS_MAX {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied()
}
