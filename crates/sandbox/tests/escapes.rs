//! Over a hundred programs try to get out of the sandbox. None does, and nothing outside changes.

mod support;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use support::{ESCAPE, Outside, can_confine, sandbox};

/// These get out where nobody holds them, on any machine: so the rest of the test shows something.
const REAL: [&str; 60] = [
    "write_new",
    "write_over",
    "append",
    "open_for_both",
    "open_truncating",
    "truncate_by_path",
    "remove",
    "remove_folder",
    "make_folder",
    "make_pipe",
    "make_socket",
    "rename_out",
    "rename_in",
    "rename_there",
    "exchange",
    "link_out",
    "link_in_and_write",
    "link_secret_in",
    "link_by_descriptor",
    "make_link_there",
    "write_through_link",
    "write_through_folder",
    "write_by_dots",
    "write_after_leaving",
    "write_by_root_of_process",
    "unnamed_file",
    "overwrite_program",
    "shell_redirect",
    "shell_touch",
    "shell_copy",
    "write_again_by_proc",
    "mode",
    "mode_of_secret",
    "mode_of_folder",
    "mode_through_link",
    "mode_of_what_is_read",
    "mode_by_proc",
    "mode_by_folder_of_process",
    "mode_by_dots",
    "mode_sets_user_here",
    "owner",
    "times",
    "times_by_path",
    "times_by_old_call",
    "read_secret",
    "list_secret",
    "list_parent_of_secret",
    "read_secret_through_link",
    "read_secret_by_root_of_process",
    "read_secret_from_its_folder",
    "shell_cat_secret",
    "move_secret_in",
    "tcp_connect",
    "tcp_listen",
    "udp_send",
    "unix_connect",
    "unix_abstract",
    "signal",
    "signal_thread",
    "signal_by_descriptor",
];

fn names() -> BTreeSet<String> {
    let output = Command::new(ESCAPE).arg("list").output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn none_gets_out() {
    if !can_confine() {
        return;
    }
    let outside = Outside::new();
    let sandbox = sandbox(&outside);
    let (names, before) = (names(), outside.snapshot());
    assert!(names.len() >= 120, "{}", names.len());
    let mut free = Vec::new();
    for name in &names {
        let mut command = sandbox
            .command([ESCAPE, name].into_iter().map(str::to_owned).chain(outside.words()), &outside.work);
        let output = command.stdin(Stdio::null()).output().unwrap();
        // 1: it was told no. 159: the kernel has ended it, as it does with calls of another kind of machine.
        let held = matches!(output.status.code(), Some(1 | 159));
        if !held || outside.snapshot() != before || outside.was_reached() {
            free.push((name, output));
        }
    }
    assert!(free.is_empty(), "{free:#?}");
}

#[test]
fn without_a_sandbox_they_do() {
    for name in REAL {
        let outside = Outside::new();
        let status = Command::new(ESCAPE).arg(name).args(outside.words()).current_dir(&outside.work).status();
        assert_eq!(status.unwrap().code(), Some(0), "{name}");
    }
}
