//! `/v1/chat/completions`: the same request in its older form, and answers in that form.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::item::Item;
use crate::limits::{ID_BYTES_MAX, INPUT_ITEMS_MAX, TOOLS_MAX, TOP_LOGPROBS_MAX};
use crate::request::{Format, Request, Sampling, bias, metadata, prediction, stops, tier, tokens};
use crate::tool::{Choice, Tools};
use serde_json::{Map, Value, json};

/// A chat request as the one that all turns are made from, and what only its answer needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    pub request: Request,
    pub include_usage: bool, // a last chunk with the counts
}

impl ChatRequest {
    pub fn parse(json: &Value) -> Result<ChatRequest, ApiError> {
        let mut fields = Fields::top(json)?;
        let mut tools = Tools::default();
        tools.extend("tools", &flat_tools(&mut fields)?)?;
        let format = fields.object("response_format")?.map(Format::parse).transpose()?.unwrap_or_default();
        let max = tokens(&mut fields, "max_completion_tokens", 1)?;
        let request = Request {
            model: fields.short_text("model", ID_BYTES_MAX)?.map(str::to_owned),
            input: messages(&mut fields)?,
            tools,
            tool_choice: Choice::parse(&mut fields)?,
            parallel_tool_calls: fields.flag("parallel_tool_calls")?.unwrap_or(true),
            effort: fields.short_text("reasoning_effort", ID_BYTES_MAX)?.map(str::to_owned),
            format,
            sampling: Sampling::parse(&mut fields)?,
            bias: bias(&mut fields)?,
            max_output_tokens: max.or(tokens(&mut fields, "max_tokens", 1)?),
            top_logprobs: logprobs(&mut fields)?,
            stop: stops(&mut fields)?,
            prediction: prediction(&mut fields)?,
            tier: tier(&mut fields)?,
            stream: fields.flag("stream")?.unwrap_or(false),
            cache_key: fields.short_text("prompt_cache_key", ID_BYTES_MAX)?.map(str::to_owned),
            metadata: metadata(&mut fields)?,
            store: false,
            ..Request::default()
        };
        only_one(&mut fields)?;
        let include_usage = include_usage(&mut fields)?;
        fields.allow(&["user", "safety_identifier"]);
        let mut ignored = fields.unusual(&[("modalities", json!(["text"])), ("store", json!(false))]);
        ignored.extend(fields.unasked());
        Ok(ChatRequest { request: Request { ignored, ..request }, include_usage })
    }
}

/// `n` answers are `n` requests; the prompt is computed once for all of them anyway.
pub(crate) fn only_one(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    match fields.integer("n", 1..=128)? {
        None | Some(1) => Ok(()),
        Some(_) => Err(fields.invalid("n", "must be 1: send the request once for each answer")),
    }
}

pub(crate) fn include_usage(fields: &mut Fields<'_>) -> Result<bool, ApiError> {
    match fields.object("stream_options")? {
        None => Ok(false),
        Some(mut options) => Ok(options.flag("include_usage")?.unwrap_or(false)),
    }
}

fn logprobs(fields: &mut Fields<'_>) -> Result<Option<u32>, ApiError> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS_MAX)?;
    Ok(wanted.then_some(top.unwrap_or(0) as u32))
}

/// `{"type":"function","function":{..}}` as `{"type":"function",..}`.
fn flat_tools(fields: &mut Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let flat = |tool: &Value| match (tool.get("type"), tool.get("function").or(tool.get("custom"))) {
        (Some(kind), Some(Value::Object(inner))) => {
            let mut flat = inner.clone();
            flat.insert("type".into(), kind.clone());
            Value::Object(flat)
        }
        _ => tool.clone(),
    };
    Ok(fields.array("tools", TOOLS_MAX)?.unwrap_or_default().iter().map(flat).collect())
}

fn messages(fields: &mut Fields<'_>) -> Result<Vec<Item>, ApiError> {
    let messages = fields.array("messages", INPUT_ITEMS_MAX)?.ok_or_else(|| fields.missing("messages"))?;
    if messages.is_empty() {
        return Err(fields.invalid("messages", "must have at least one message"));
    }
    let mut items = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        add(&format!("messages[{index}]"), message, &mut items)?;
    }
    Ok(items)
}

/// A message as items: an assistant's calls are items of their own.
fn add(path: &str, message: &Value, items: &mut Vec<Item>) -> Result<(), ApiError> {
    let mut fields = Fields::at(path, message)?;
    let content = fields.value("content").cloned();
    match fields.required_text("role")? {
        "tool" | "function" => {
            let id =
                fields.short_text("tool_call_id", ID_BYTES_MAX)?.or(fields.text("name")?).unwrap_or_default();
            let output = content.ok_or_else(|| fields.missing("content"))?;
            let item = json!({"type": "function_call_output", "call_id": id, "output": output});
            items.push(Item::parse(path, &item)?);
        }
        "assistant" => {
            if let Some(thought) = fields.text("reasoning_content")? {
                let content = json!([{"type": "reasoning_text", "text": thought}]);
                items.push(Item::parse(path, &json!({"type": "reasoning", "content": content}))?);
            }
            let calls = fields.array("tool_calls", TOOLS_MAX)?.unwrap_or_default();
            match content {
                // Many clients say so of a message that was nothing but calls.
                Some(content) if content == "" && !calls.is_empty() => {}
                Some(content) => {
                    let item = json!({"type": "message", "role": "assistant", "content": content});
                    items.push(Item::parse(path, &item)?);
                }
                None if calls.is_empty() => return Err(fields.missing("content")),
                None => {}
            }
            for (index, call) in calls.iter().enumerate() {
                items.push(call_item(&format!("{path}.tool_calls[{index}]"), call)?);
            }
        }
        role => {
            let content = content.ok_or_else(|| fields.missing("content"))?;
            items.push(Item::parse(path, &json!({"type": "message", "role": role, "content": content}))?);
        }
    }
    Ok(())
}

fn call_item(path: &str, call: &Value) -> Result<Item, ApiError> {
    let mut fields = Fields::at(path, call)?;
    let id = fields.short_text("id", ID_BYTES_MAX)?.unwrap_or_default();
    let mut function = fields.object("function")?.ok_or_else(|| fields.missing("function"))?;
    let (name, arguments) = (function.required_text("name")?, function.required_text("arguments")?);
    Item::parse(path, &json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}))
}

/// A finished response as a chat completion.
pub fn completion(response: &Value) -> Value {
    let mut message = Message::default();
    for item in response["output"].as_array().into_iter().flatten() {
        message.add(item);
    }
    let finish = finish_reason(response, !message.calls.is_empty());
    let logprobs = match message.logprobs.is_empty() {
        true => Value::Null,
        false => json!({"content": message.logprobs}),
    };
    json!({
        "id": chat_id(response),
        "object": "chat.completion",
        "created": response["created_at"],
        "model": response["model"],
        "service_tier": response["service_tier"],
        "choices": [{"index": 0, "message": message.json(), "finish_reason": finish, "logprobs": logprobs}],
        "usage": usage(response),
        "metadata": response["metadata"],
    })
}

pub fn chat_id(response: &Value) -> String {
    response["id"].as_str().unwrap_or_default().replacen("resp_", "chatcmpl-", 1)
}

#[derive(Default)]
struct Message {
    content: Option<String>,
    reasoning: Option<String>,
    calls: Vec<Value>,
    logprobs: Vec<Value>,
}

impl Message {
    fn add(&mut self, item: &Value) {
        let parts = item["content"].as_array().into_iter().flatten();
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                for part in parts {
                    let text = part["text"].as_str().unwrap_or_default();
                    self.content.get_or_insert_default().push_str(text);
                    self.logprobs.extend(part["logprobs"].as_array().into_iter().flatten().cloned());
                }
            }
            "reasoning" => {
                for part in parts {
                    let text = part["text"].as_str().unwrap_or_default();
                    self.reasoning.get_or_insert_default().push_str(text);
                }
            }
            _ => self.calls.extend(call(item)),
        }
    }

    fn json(self) -> Value {
        let mut json = json!({"role": "assistant", "content": self.content, "refusal": null});
        if let Some(reasoning) = self.reasoning {
            json["reasoning_content"] = reasoning.into();
        }
        if !self.calls.is_empty() {
            json["tool_calls"] = self.calls.into();
        }
        json
    }
}

fn call(item: &Value) -> Option<Value> {
    let (kind, key) = match item["type"].as_str()? {
        "function_call" => ("function", "arguments"),
        "custom_tool_call" => ("custom", "input"),
        _ => return None,
    };
    let inner = json!({"name": item["name"], key: item[key]});
    Some(json!({"id": item["call_id"], "type": kind, kind: inner}))
}

pub fn finish_reason(response: &Value, called: bool) -> &'static str {
    match response["status"].as_str() {
        Some("incomplete") => "length",
        _ if called => "tool_calls",
        _ => "stop",
    }
}

pub fn usage(response: &Value) -> Value {
    let usage = &response["usage"];
    json!({
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": usage["input_tokens_details"],
        "completion_tokens_details": usage["output_tokens_details"],
    })
}

/// Events that say only that a response waits or is still being made. The first comes together with the first chunk; each
/// later one becomes a chunk without words, or a client whose answer is long in coming gives up.
#[derive(Debug, Default)]
pub(crate) struct SignsOfLife {
    seen: bool,
}

impl SignsOfLife {
    pub(crate) fn is_one(&mut self, kind: &str) -> bool {
        matches!(kind, "response.in_progress" | "response.queued") && std::mem::replace(&mut self.seen, true)
    }
}

/// A response's events as chunks, one after the other.
#[derive(Debug, Default)]
pub struct Chunks {
    head: Map<String, Value>, // what all chunks have
    calls: usize,
    include_usage: bool,
    signs: SignsOfLife,
}

impl Chunks {
    pub fn new(include_usage: bool) -> Chunks {
        Chunks { include_usage, ..Chunks::default() }
    }

    /// The chunks that an event becomes: none, one, or at the end two.
    pub fn event(&mut self, event: &Value) -> Vec<Value> {
        let delta = &event["delta"];
        match event["type"].as_str().unwrap_or_default() {
            "response.created" => {
                self.begin(&event["response"]);
                vec![self.delta(json!({"role": "assistant", "content": ""}))]
            }
            "response.output_text.delta" => {
                let mut chunk = self.delta(json!({"content": delta}));
                if event["logprobs"].as_array().is_some_and(|logprobs| !logprobs.is_empty()) {
                    chunk["choices"][0]["logprobs"] = json!({"content": event["logprobs"]});
                }
                vec![chunk]
            }
            "response.reasoning_text.delta" => vec![self.delta(json!({"reasoning_content": delta}))],
            "response.output_item.added" => self.call_begins(&event["item"]),
            "response.function_call_arguments.delta" => vec![self.arguments("function", "arguments", delta)],
            "response.custom_tool_call_input.delta" => vec![self.arguments("custom", "input", delta)],
            "response.completed" | "response.incomplete" | "response.cancelled" => {
                self.end(&event["response"])
            }
            "response.failed" => vec![json!({"error": event["response"]["error"]})],
            kind if self.signs.is_one(kind) => vec![self.delta(json!({}))],
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, response: &Value) {
        let head = json!({"id": chat_id(response), "object": "chat.completion.chunk",
            "created": response["created_at"], "model": response["model"]});
        if let Value::Object(head) = head {
            self.head = head;
        }
    }

    fn call_begins(&mut self, item: &Value) -> Vec<Value> {
        let Some(mut call) = call(item) else { return Vec::new() };
        call["index"] = self.calls.into();
        self.calls += 1;
        vec![self.delta(json!({"tool_calls": [call]}))]
    }

    fn arguments(&self, kind: &str, key: &str, delta: &Value) -> Value {
        let index = self.calls.saturating_sub(1);
        self.delta(json!({"tool_calls": [{"index": index, kind: {key: delta}}]}))
    }

    fn end(&self, response: &Value) -> Vec<Value> {
        let mut last = self.delta(json!({}));
        last["choices"][0]["finish_reason"] = finish_reason(response, self.calls > 0).into();
        last["metadata"] = response["metadata"].clone();
        let mut chunks = vec![last];
        if self.include_usage {
            let mut counts = Value::Object(self.head.clone());
            counts["choices"] = json!([]);
            counts["usage"] = usage(response);
            chunks.push(counts);
        }
        chunks
    }

    fn delta(&self, delta: Value) -> Value {
        let mut chunk = Value::Object(self.head.clone());
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The types of the items that a message comes to.
    fn kinds(message: Value) -> Vec<String> {
        let mut items = Vec::new();
        add("messages[0]", &message, &mut items).unwrap();
        items.iter().map(|item| item.json["type"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn empty_words_beside_calls_are_none() {
        let calls = json!([{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}]);
        let message =
            |content: Value| json!({"role": "assistant", "content": content, "tool_calls": calls.clone()});
        assert_eq!(kinds(message(json!(""))), ["function_call"]);
        assert_eq!(kinds(message(Value::Null)), ["function_call"]);
        assert_eq!(kinds(message(json!("I look."))), ["message", "function_call"]);
        assert_eq!(kinds(json!({"role": "assistant", "content": ""})), ["message"]);
    }
}
