//! What a confined command can still do, and what is left of it.

mod support;

use flint_sandbox::{Limits, Mode, Policy, PolicyError, REFUSED, Sandbox};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use support::{ESCAPE, Outside, can_confine, policy, sandbox};

fn shell(sandbox: &Sandbox, outside: &Outside, line: &str) -> Output {
    let mut command = sandbox.command(["sh", "-c", line], &outside.work);
    command.stdin(Stdio::null()).output().unwrap()
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn with(outside: &Outside, change: impl FnOnce(&mut Policy)) -> Sandbox {
    let mut policy = policy(outside, Mode::WorkspaceWrite);
    change(&mut policy);
    Sandbox::new(policy, ESCAPE.into()).unwrap()
}

#[test]
fn work_goes_on_in_the_workspace() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let line = "mkdir a && echo hello > a/b && mv a/b c && ln -s c d && cat d && ls >/dev/null && rm c \
                && head -c 4 /dev/urandom | wc -c && echo t > $TMPDIR/t && (sleep 0.01; echo done) | cat";
    let output = shell(&sandbox(&outside), &outside, line);
    assert_eq!(says(&output), "hello\n4\ndone", "{output:?}");
    assert!(outside.temporary.join("t").exists());
}

#[test]
fn programs_of_the_system_run() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let output =
        shell(&sandbox(&outside), &outside, "git init -q . && git status --short && python3 -c 'print(6*7)'");
    assert_eq!(says(&output), "42", "{output:?}");
}

#[test]
fn modes_owners_and_times_change_in_the_workspace() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let line = "echo 'echo ran' > a && chmod +x a && ./a && touch -d 2001-01-01 a && date -r a +%Y && mkdir b && cp -p a b/a \
                && chown $(id -u):$(id -g) b/a && tar cf c.tar b && rm -r b && tar xpf c.tar && date -r b/a +%Y && ln -s a l \
                && touch -h l && chmod 600 l && stat -c %a a && python3 -c 'import os; f = open(\"a\"); os.fchmod(f.fileno(), 0o640); \
                os.chmod(f\"/proc/self/fd/{f.fileno()}\", 0o644); os.utime(f.fileno())' && stat -c %a a; chmod 1 nothing";
    let output = shell(&sandbox(&outside), &outside, line);
    assert_eq!(says(&output), "ran\n2001\n2001\n600\n644", "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn the_exit_code_is_the_commands_own() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let sandbox = sandbox(&outside);
    assert_eq!(shell(&sandbox, &outside, "exit 7").status.code(), Some(7));
    assert_eq!(shell(&sandbox, &outside, "kill -9 $$").status.code(), Some(137));
    let nothing = sandbox.command(["no-such-program"], &outside.work).output().unwrap();
    // 126 where the search for it comes to a folder that this user may not enter.
    assert!(matches!(nothing.status.code(), Some(126 | 127)), "{nothing:?}");
}

#[test]
fn who_may_only_read_writes_nothing() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let sandbox = Sandbox::new(policy(&outside, Mode::ReadOnly), ESCAPE.into()).unwrap();
    let output = shell(
        &sandbox,
        &outside,
        "ls . && echo x > new; echo x > $TMPDIR/new; echo x > /dev/null && echo read",
    );
    assert_eq!(says(&output), "read", "{output:?}");
    assert!(!outside.work.join("new").exists() && !outside.temporary.join("new").exists());
}

#[test]
fn keys_in_the_environment_stay_behind() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let mut command =
        with(&outside, |policy| policy.environment = vec!["PROBE".into()]).command(["env"], &outside.work);
    let output = command.output().unwrap();
    let names: Vec<&str> = std::str::from_utf8(&output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    assert!(names.contains(&"PATH") && names.contains(&"TMPDIR"), "{names:?}");
    assert!(
        !names.iter().any(|name| name.starts_with("CARGO_PKG") || name.starts_with("NEXTEST")),
        "{names:?}"
    );
}

#[test]
fn the_network_can_be_allowed() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let sandbox = with(&outside, |policy| policy.network = true);
    let run = |name: &str| {
        let words = [ESCAPE, name].into_iter().map(str::to_owned).chain(outside.words());
        sandbox.command(words, &outside.work).status().unwrap().code()
    };
    assert_eq!((run("tcp_connect"), run("udp_send")), (Some(0), Some(0)));
    // Daemons of this machine are not the network.
    assert_eq!((run("unix_connect"), run("unix_abstract"), run("packets")), (Some(1), Some(1), Some(1)));
}

#[test]
fn limits_hold() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let limits =
        Limits { file_bytes: Some(1 << 20), open_files: Some(64), cpu_seconds: Some(1), ..Limits::default() };
    let sandbox = with(&outside, |policy| policy.limits = limits);
    let output =
        shell(&sandbox, &outside, "ulimit -n; dd if=/dev/zero of=big bs=1M count=3 2>/dev/null; wc -c < big");
    assert_eq!(says(&output), "64\n1048576", "{output:?}");
    let begun = Instant::now();
    let endless = shell(&sandbox, &outside, "while :; do :; done");
    assert!(!endless.status.success() && begun.elapsed() < Duration::from_secs(60));
}

/// Starts a command that has a daemon write its process id, and waits until that is there.
fn daemon(sandbox: &Sandbox, outside: &Outside, then: &str) -> (std::process::Child, u32) {
    let line =
        format!("(setsid sh -c 'echo $$ > pid.new; mv pid.new pid; sleep 1000' >/dev/null 2>&1 &); {then}");
    let child = sandbox.command(["sh", "-c", &line], &outside.work).stdin(Stdio::null()).spawn().unwrap();
    let path = outside.work.join("pid");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    (child, std::fs::read_to_string(path).unwrap().trim().parse().unwrap())
}

fn runs(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

#[test]
fn daemons_end_with_the_command() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let (mut child, daemon) = daemon(&sandbox(&outside), &outside, "while [ ! -e pid ]; do :; done; exit 3");
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(!runs(daemon));
}

#[test]
fn a_command_that_is_told_to_end_leaves_nothing() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let (mut child, daemon) = daemon(&sandbox(&outside), &outside, "trap '' TERM; sleep 1000");
    // SAFETY: this takes numbers only; the child was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!runs(daemon));
}

#[test]
fn folders_with_secrets_are_no_workspace() {
    let outside = Outside::new();
    let mut home = policy(&outside, Mode::WorkspaceWrite);
    home.root = outside.home.clone();
    let error = Sandbox::new(home.clone(), ESCAPE.into()).unwrap_err();
    assert!(matches!(error, PolicyError::HoldsSecret { .. }), "{error}");
    home.root = outside.home.join(".ssh/keys");
    std::fs::create_dir(&home.root).unwrap();
    let error = Sandbox::new(home.clone(), ESCAPE.into()).unwrap_err();
    assert!(matches!(error, PolicyError::WithinSecret { .. }), "{error}");
    std::os::unix::fs::symlink(&outside.home, outside.work.join("link")).unwrap();
    home.root = outside.work.join("link");
    assert!(matches!(Sandbox::new(home.clone(), ESCAPE.into()), Err(PolicyError::HoldsSecret { .. })));
    home.root = "relative".into();
    assert!(matches!(Sandbox::new(home.clone(), ESCAPE.into()), Err(PolicyError::Relative(_))));
    home.root = std::ffi::OsStr::from_bytes(b"/\xff").into();
    assert!(matches!(Sandbox::new(home, ESCAPE.into()), Err(PolicyError::NotText(_))));
}

#[test]
fn what_cannot_be_read_is_not_run() {
    let output = std::process::Command::new(ESCAPE)
        .args([flint_sandbox::KEEPER, "{}", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(REFUSED));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("flint: the command was not run: its policy cannot be read"), "{said}");
}

#[test]
fn the_terminals_of_others_are_out_of_reach() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let (mut leader, mut follower) = (0, 0);
    let nothing = std::ptr::null_mut();
    // SAFETY: openpty fills in the two descriptors; no name or settings are asked for.
    let made =
        unsafe { libc::openpty(&mut leader, &mut follower, nothing, std::ptr::null(), std::ptr::null()) };
    assert_eq!(made, 0);
    let other = std::fs::read_link(format!("/proc/self/fd/{follower}")).unwrap();
    let line = format!("echo typed > {0} || head -c 1 {0}; ls /dev/pts", other.display());
    let output = shell(&sandbox(&outside), &outside, &line);
    assert!(!output.status.success() && says(&output).is_empty(), "{output:?}");
    let mut byte = 0u8;
    // SAFETY: the byte lives as long as the calls, and both descriptors are this test's own.
    let read = unsafe {
        libc::fcntl(leader, libc::F_SETFL, libc::O_NONBLOCK);
        let read = libc::read(leader, (&raw mut byte).cast(), 1);
        libc::close(leader);
        libc::close(follower);
        read
    };
    assert_eq!(read, -1, "something was written to it");
}
