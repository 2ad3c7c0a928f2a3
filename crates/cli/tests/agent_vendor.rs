//! The agent against a stand-in of another vendor: the Responses API over SSE only, without a word of Flint's own.

mod support;

use serde_json::{Value, json};
use support::vendor::{Vendor, message};
use support::{Terminal, stderr, stdout};

#[test]
fn a_tool_is_called_and_the_answer_told() {
    let call = json!({"id": "fc_v", "type": "function_call", "call_id": "call_v", "name": "shell",
        "arguments": "{\"command\": \"echo hi there\"}", "status": "completed"});
    let vendor = Vendor::start("vendor-1-2026-02-03", vec![call, message("It says hi.")]);
    let output = vendor.exec(&["-m", "vendor-1", "say hi"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "It says hi.\n"),
        "{}",
        stderr(&output)
    );
    let (first, second) = (vendor.asked(), vendor.asked());
    assert!(first.head.to_lowercase().contains("authorization: bearer sekret"), "{}", first.head);
    assert_eq!((&first.body["model"], &first.body["stream"]), (&json!("vendor-1"), &json!(true)));
    // Nothing of Flint's own goes to others, and all that was said goes again.
    assert!(!first.body.to_string().contains("x-flint"));
    assert_eq!(second.body["previous_response_id"], Value::Null);
    let items = second.body["input"].as_array().unwrap();
    let last = items.last().unwrap();
    assert_eq!((&last["type"], &last["call_id"]), (&json!("function_call_output"), &json!("call_v")));
    assert!(last["output"].as_str().unwrap().contains("hi there"), "{last}");
    assert!(items.len() == first.body["input"].as_array().unwrap().len() + 2, "{items:?}");
}

#[test]
fn another_model_is_not_taken_for_the_one_that_was_asked() {
    let vendor = Vendor::start("vendor-1-mini", vec![message("I am another.")]);
    let output = vendor.exec(&["-m", "vendor-1", "who are you?"]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("vendor-1 was asked for, and vendor-1-mini answered"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_key_that_is_not_set_is_said() {
    let vendor = Vendor::start("vendor-1", Vec::new());
    let output = vendor.exec(&["-c", "model_providers.v.env_key=\"NOT_SET_KEY\"", "hello"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("NOT_SET_KEY is not set"), "{}", stderr(&output));
}

#[test]
fn a_model_that_is_listed_and_not_served_is_told_with_the_reason() {
    let vendor = Vendor::listing(&["vendor-1", "vendor-max"], "vendor-1", Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let mut terminal =
        Terminal::open(vendor.command(folder.path()).args(["-m", "vendor-1"]).env("TERM", "xterm-256color"));
    terminal.wait_for("Do you trust it?");
    terminal.press("y\n");
    terminal.wait_for("enter");
    terminal.press("/model\r");
    terminal.wait_for("Your plan does not have vendor-max.");
}

#[test]
fn a_role_is_what_its_file_says_and_another_model_is_not_taken_for_its() {
    let call = json!({"id": "fc_v", "type": "function_call", "call_id": "call_v", "name": "agent",
        "arguments": "{\"role\": \"deep\", \"task\": \"think hard\"}", "status": "completed"});
    let (one, two) = (message("Very well."), message("As you say."));
    // There is no list of models here: who answered is seen by the answer.
    let vendor = Vendor::start("vendor-1", vec![call, one.clone(), one, two]);
    let role = "model = 'vendor-2'\nmodel_reasoning_effort = 'high'\ndeveloper_instructions = 'Be deep.'\n";
    std::fs::create_dir(vendor.home.path().join("agents")).unwrap();
    std::fs::write(vendor.home.path().join("agents/deep.toml"), role).unwrap();
    let output = vendor.exec(&["-m", "vendor-1", "-c", "model_reasoning_effort=low", "go deep"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let asked: Vec<Value> = std::iter::repeat_with(|| vendor.asked().body).take(4).collect();
    let tools = |body: &Value| body["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "agent");
    let own = asked.iter().find(|body| body["model"] == "vendor-2").unwrap();
    assert_eq!(own["reasoning"]["effort"], "high");
    assert!(own["instructions"].as_str().unwrap().ends_with("\nBe deep.\n") && !tools(own), "{own}");
    assert!(asked[0]["reasoning"]["effort"] == "low" && tools(&asked[0]), "{}", asked[0]);
    let last = asked.last().unwrap()["input"].to_string();
    assert!(last.contains("It failed: vendor-2 was asked for, and vendor-1 answered."), "{last}");
}
