//! Commands that only look: whatever words they are given, they change nothing and start nothing.
//!
//! A program is here only if that is known of it, with the options that would make it do more. An option may be written
//! short of its last letters, and several letters may share one dash: both are taken for the option that they could be.

/// A program that only looks, unless it is told otherwise.
struct Looker {
    program: &'static str,
    letters: &'static str,            // of options with one dash that do more
    options: &'static [&'static str], // longer ones
    operands_max: usize, // words that are no options; more of them would be files that are written
}

const fn looker(program: &'static str) -> Looker {
    Looker { program, letters: "", options: &[], operands_max: usize::MAX }
}

const LOOKERS: &[Looker] = &[
    looker("ls"),
    looker("cat"),
    looker("head"),
    looker("tail"),
    looker("wc"),
    looker("pwd"),
    looker("echo"),
    looker("true"),
    looker("false"),
    looker("expr"),
    looker("seq"),
    looker("sleep"),
    looker("basename"),
    looker("dirname"),
    looker("realpath"),
    looker("readlink"),
    looker("stat"),
    looker("du"),
    looker("df"),
    looker("nl"),
    looker("tac"),
    looker("rev"),
    looker("cut"),
    looker("tr"),
    looker("comm"),
    looker("paste"),
    looker("column"),
    looker("cmp"),
    looker("od"),
    looker("hexdump"),
    looker("md5sum"),
    looker("sha1sum"),
    looker("sha256sum"),
    looker("cksum"),
    looker("id"),
    looker("whoami"),
    looker("uname"),
    looker("nproc"),
    looker("which"),
    looker("grep"),
    looker("egrep"),
    looker("fgrep"),
    Looker { operands_max: 1, ..looker("cd") },
    Looker { operands_max: 1, ..looker("uniq") },
    Looker { letters: "l", options: &["--paginate"], ..looker("diff") },
    Looker {
        letters: "CzZ",
        options: &["--compile", "--uncompress", "--uncompress-noreport"],
        ..looker("file")
    },
    Looker {
        letters: "oT",
        options: &["--output", "--compress-program", "--temporary-directory"],
        ..looker("sort")
    },
    Looker { letters: "oR", options: &["--output"], ..looker("tree") },
    Looker { letters: "z", options: &["--pre", "--search-zip", "--hostname-bin"], ..looker("rg") },
];

/// What `find` does besides finding.
const FIND_DOES: [&str; 9] =
    ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0", "-fprintf"];

/// Parts of git that only look, with words that make them do more.
const GIT: &[Looker] = &[
    looker("status"),
    Looker { options: &GIT_RUNS, ..looker("diff") },
    Looker { options: &GIT_RUNS, ..looker("log") },
    Looker { options: &GIT_RUNS, ..looker("show") },
    Looker { options: &GIT_RUNS, ..looker("blame") },
    Looker {
        letters: "O",
        options: &["--open-files-in-pager", "--ext-grep", "--textconv"],
        ..looker("grep")
    },
    Looker { options: &["--textconv", "--filters", "--batch-command"], ..looker("cat-file") },
    looker("ls-files"),
    looker("ls-tree"),
    looker("rev-parse"),
    looker("describe"),
    looker("merge-base"),
];

const GIT_RUNS: [&str; 3] = ["--output", "--ext-diff", "--textconv"];

/// Parts of git that only look when they are given nothing but these words.
const GIT_LISTS: [(&str, &[&str]); 5] = [
    ("branch", &["-a", "-r", "-v", "-vv", "--all", "--list", "--show-current", "--remotes"]),
    ("tag", &["-l", "--list"]),
    ("remote", &["-v", "--verbose"]),
    ("stash", &["list"]),
    ("worktree", &["list"]),
];

/// Programs that say their version and do nothing else.
const VERSIONED: [&str; 16] = [
    "bash", "cargo", "cmake", "gcc", "git", "go", "java", "make", "node", "npm", "pip", "python", "python3",
    "rg", "rustc", "rustup",
];

pub fn only_looks(argv: &[String]) -> bool {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    match words.as_slice() {
        [program, "--version"] if VERSIONED.contains(program) => true,
        ["git", "--no-pager", rest @ ..] | ["git", rest @ ..] => git_looks(rest),
        ["find", rest @ ..] => !rest.iter().any(|word| FIND_DOES.contains(word)),
        ["date", rest @ ..] => {
            rest.iter().all(|word| word.starts_with('+') || matches!(*word, "-u" | "--utc"))
        }
        ["sed", "-n", script, files @ ..] => {
            prints_lines(script) && !files.iter().any(|word| word.starts_with('-'))
        }
        [program, rest @ ..] => looks(LOOKERS, program, rest),
        [] => false,
    }
}

fn git_looks(words: &[&str]) -> bool {
    let [part, rest @ ..] = words else { return false };
    let listed = GIT_LISTS.iter().find(|(name, _)| name == part);
    let lists = listed.is_some_and(|(_, allowed)| rest.iter().all(|word| allowed.contains(word)));
    // What follows `stash` and `worktree` is not an option: without it they do something.
    lists && !(rest.is_empty() && matches!(*part, "stash" | "worktree")) || looks(GIT, part, rest)
}

fn looks(all: &[Looker], program: &str, rest: &[&str]) -> bool {
    let Some(looker) = all.iter().find(|looker| looker.program == program) else { return false };
    // What looks like an option counts as one behind `--` too: that is never less safe.
    let operands = rest.iter().filter(|word| !word.starts_with('-') || word.len() == 1).count();
    operands <= looker.operands_max && !rest.iter().any(|word| looker.does_more(word))
}

impl Looker {
    fn does_more(&self, word: &str) -> bool {
        if word.starts_with("--") {
            let name = word.split('=').next().unwrap_or_default();
            return name.len() > 2 && self.options.iter().any(|option| option.starts_with(name));
        }
        word.starts_with('-') && word.contains(|letter| self.letters.contains(letter))
    }
}

/// `10p`, `1,20p` or `5,$p`: sed's other words can write and run.
fn prints_lines(script: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(lines) = script.strip_suffix('p') else { return false };
    match lines.split_once(',') {
        Some((first, last)) => number(first) && (number(last) || last == "$"),
        None => number(lines),
    }
}
