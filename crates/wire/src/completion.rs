//! `/v1/completions`: text to be continued, or a hole to be filled.

use crate::chat::{SignsOfLife, finish_reason, include_usage, only_one, usage};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::limits::{ID_BYTES_MAX, TOP_LOGPROBS_MAX};
use crate::request::{Raw, Request, Sampling, bias, stops, tier, tokens};
use serde_json::{Value, json};

/// Tokens of an answer where the request does not say: what OpenAI's API takes.
const TOKENS_DEFAULT: u32 = 16;

#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    pub request: Request,
    pub echo: bool, // the prompt is repeated before the answer
    pub include_usage: bool,
}

impl CompletionRequest {
    pub fn parse(json: &Value) -> Result<CompletionRequest, ApiError> {
        let mut fields = Fields::top(json)?;
        let raw = Raw {
            prompt: prompt(&mut fields)?,
            suffix: fields.text("suffix")?.filter(|suffix| !suffix.is_empty()).map(str::to_owned),
        };
        let request = Request {
            model: fields.short_text("model", ID_BYTES_MAX)?.map(str::to_owned),
            sampling: Sampling::parse(&mut fields)?,
            bias: bias(&mut fields)?,
            max_output_tokens: Some(tokens(&mut fields, "max_tokens", 1)?.unwrap_or(TOKENS_DEFAULT)),
            top_logprobs: fields.integer("logprobs", 0..=TOP_LOGPROBS_MAX)?.map(|top| top as u32),
            stop: stops(&mut fields)?,
            tier: tier(&mut fields)?,
            stream: fields.flag("stream")?.unwrap_or(false),
            store: false,
            raw: Some(raw),
            ..Request::default()
        };
        only_one(&mut fields)?;
        let echo = fields.flag("echo")?.unwrap_or(false);
        let include_usage = include_usage(&mut fields)?;
        fields.allow(&["user"]);
        let mut ignored = fields.unusual(&[("best_of", json!(1))]);
        ignored.extend(fields.unasked());
        Ok(CompletionRequest { request: Request { ignored, ..request }, echo, include_usage })
    }
}

/// A string, or an array that holds one.
fn prompt(fields: &mut Fields<'_>) -> Result<String, ApiError> {
    match fields.value("prompt") {
        None => Err(fields.missing("prompt")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(prompts)) => match prompts.as_slice() {
            [Value::String(text)] => Ok(text.clone()),
            _ => Err(fields.invalid("prompt", "must be one string: send the request once for each prompt")),
        },
        Some(_) => Err(fields.invalid("prompt", "must be a string")),
    }
}

/// A finished response as a text completion.
pub fn text_completion(response: &Value, prompt: &str) -> Value {
    let mut text = String::from(prompt);
    let mut logprobs = Vec::new();
    for part in response["output"][0]["content"].as_array().into_iter().flatten() {
        text.push_str(part["text"].as_str().unwrap_or_default());
        logprobs.extend(part["logprobs"].as_array().into_iter().flatten().cloned());
    }
    let mut choice = choice(&text, &logprobs);
    choice["finish_reason"] = finish_reason(response, false).into();
    let mut completion = head(response);
    completion["choices"] = json!([choice]);
    completion["usage"] = usage(response);
    completion["metadata"] = response["metadata"].clone();
    completion
}

fn head(response: &Value) -> Value {
    let id = response["id"].as_str().unwrap_or_default().replacen("resp_", "cmpl-", 1);
    json!({"id": id, "object": "text_completion", "created": response["created_at"], "model": response["model"]})
}

fn choice(text: &str, logprobs: &[Value]) -> Value {
    let logprobs = match logprobs.is_empty() {
        true => Value::Null,
        false => {
            let column = |key: &str| logprobs.iter().map(|entry| entry[key].clone()).collect::<Vec<_>>();
            json!({"tokens": column("token"), "token_logprobs": column("logprob"),
                "top_logprobs": logprobs.iter().map(top).collect::<Vec<_>>()})
        }
    };
    json!({"index": 0, "text": text, "logprobs": logprobs, "finish_reason": null})
}

fn top(entry: &Value) -> Value {
    let tops = entry["top_logprobs"].as_array().into_iter().flatten();
    tops.map(|top| (top["token"].as_str().unwrap_or_default().to_owned(), top["logprob"].clone())).collect()
}

/// A response's events as chunks of text.
#[derive(Debug)]
pub struct TextChunks {
    head: Value,
    echo: Option<String>, // to be said before the first text
    include_usage: bool,
    signs: SignsOfLife,
}

impl TextChunks {
    pub fn new(echo: Option<String>, include_usage: bool) -> TextChunks {
        TextChunks { head: json!({}), echo, include_usage, signs: SignsOfLife::default() }
    }

    pub fn event(&mut self, event: &Value) -> Vec<Value> {
        match event["type"].as_str().unwrap_or_default() {
            "response.created" => {
                self.head = head(&event["response"]);
                self.echo.take().map(|prompt| self.chunk(&prompt, &[])).into_iter().collect()
            }
            "response.output_text.delta" => {
                let logprobs = event["logprobs"].as_array().map(Vec::as_slice).unwrap_or_default();
                vec![self.chunk(event["delta"].as_str().unwrap_or_default(), logprobs)]
            }
            "response.completed" | "response.incomplete" | "response.cancelled" => {
                self.end(&event["response"])
            }
            "response.failed" => vec![json!({"error": event["response"]["error"]})],
            kind if self.signs.is_one(kind) => vec![self.chunk("", &[])],
            _ => Vec::new(),
        }
    }

    fn chunk(&self, text: &str, logprobs: &[Value]) -> Value {
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([choice(text, logprobs)]);
        chunk
    }

    fn end(&self, response: &Value) -> Vec<Value> {
        let mut last = self.chunk("", &[]);
        last["choices"][0]["finish_reason"] = finish_reason(response, false).into();
        let mut chunks = vec![last];
        if self.include_usage {
            let mut counts = self.head.clone();
            counts["choices"] = json!([]);
            counts["usage"] = usage(response);
            chunks.push(counts);
        }
        chunks
    }
}
