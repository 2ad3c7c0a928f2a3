//! The keeper of commands that tests run: what `flint` itself is elsewhere.

fn main() {
    let mut words = std::env::args_os().skip(1);
    let kept = words.next().is_some_and(|word| word == flint_sandbox::KEEPER);
    std::process::exit(if kept { flint_sandbox::keep(words) } else { 2 });
}
