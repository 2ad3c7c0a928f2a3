//! `response.create`, over HTTP or a WebSocket: what a client wants.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::item::{Item, Meaning, input_items};
use crate::limits::{
    ID_BYTES_MAX, LOGIT_BIAS_MAX, METADATA_KEY_BYTES_MAX, METADATA_PAIRS_MAX, METADATA_VALUE_BYTES_MAX,
    NAME_BYTES_MAX, OUTPUT_TOKENS_MAX, RETURN_SECONDS_MAX, STOP_BYTES_MAX, STOPS_MAX, TOOLS_MAX,
    TOP_LOGPROBS_MAX,
};
use crate::response::Settings;
use crate::tool::{Choice, Tools};
use serde_json::{Map, Value, json};

/// A request that is valid in itself. Whether the model can do it is the server's to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub model: Option<String>, // none: the only one there is
    pub input: Vec<Item>,
    pub instructions: Option<String>,
    pub previous: Previous,
    pub tools: Tools,
    pub tool_choice: Choice,
    pub parallel_tool_calls: bool,
    pub effort: Option<String>,
    pub format: Format,
    pub sampling: Sampling,
    pub bias: Vec<(u32, f32)>, // (token, added to its logit)
    pub max_output_tokens: Option<u32>,
    pub top_logprobs: Option<u32>,
    pub stop: Vec<String>,
    pub prediction: Option<String>,
    pub tier: Tier,
    pub store: bool,
    pub background: bool,
    pub stream: bool,
    pub generate: bool, // false: only warm up
    pub cache_key: Option<String>,
    pub metadata: Map<String, Value>, // strings
    pub echo: Settings,               // fields that the response repeats as they were
    pub ignored: Vec<String>,         // fields that change nothing here
    pub raw: Option<Raw>,             // text to be continued, instead of a conversation
}

/// In the metadata.
const RETURN_SECONDS: &str = "flint.return_seconds";

/// Text that a model continues, or a hole in it that it fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    pub prompt: String,
    pub suffix: Option<String>, // what follows the hole
}

impl Default for Request {
    /// A request that says nothing.
    fn default() -> Request {
        Request {
            model: None,
            input: Vec::new(),
            instructions: None,
            previous: Previous::Nothing,
            tools: Tools::default(),
            tool_choice: Choice::Auto,
            parallel_tool_calls: true,
            effort: None,
            format: Format::Text,
            sampling: Sampling::default(),
            bias: Vec::new(),
            max_output_tokens: None,
            top_logprobs: None,
            stop: Vec::new(),
            prediction: None,
            tier: Tier::Default,
            store: true,
            background: false,
            stream: false,
            generate: true,
            cache_key: None,
            metadata: Map::new(),
            echo: Settings::default(),
            ignored: Vec::new(),
            raw: None,
        }
    }
}

/// What the input follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Previous {
    #[default]
    Nothing,
    Response(String),
}

/// What the answer's text must be.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Format {
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    JsonSchema {
        name: String,
        schema: Value,
    },
}

/// What was asked for; what was not is the model's default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<u32>,
    pub min_p: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub seed: Option<i64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tier {
    #[default]
    Default,
    /// Ahead of others, at twice the price.
    Priority,
    /// Behind others.
    Flex,
}

impl Tier {
    pub fn name(self) -> &'static str {
        match self {
            Tier::Default => "default",
            Tier::Priority => "priority",
            Tier::Flex => "flex",
        }
    }
}

/// Known, and without effect on what a self-hosted model writes.
const WITHOUT_EFFECT: [&str; 8] = [
    "user",
    "safety_identifier",
    "client_metadata",
    "stream_options",
    "access_programs",
    "prompt_cache_retention",
    "prompt_cache_options",
    "type",
];

/// Known, but not done here: named to the client when given.
const NOT_DONE: [&str; 4] = ["truncation", "max_tool_calls", "include", "moderation"];

const ECHOED: [&str; 8] = [
    "instructions",
    "max_tool_calls",
    "parallel_tool_calls",
    "prompt_cache_key",
    "safety_identifier",
    "tool_choice",
    "tools",
    "user",
];

impl Request {
    pub fn parse(json: &Value) -> Result<Request, ApiError> {
        let mut fields = Fields::top(json)?;
        let mut ignored = Vec::new();
        let (mut tools, input) = (Tools::default(), input_items(&mut fields)?);
        tools.extend("tools", fields.array("tools", TOOLS_MAX)?.unwrap_or_default())?;
        for item in &input {
            if let Meaning::AdditionalTools { tools: more } = &item.meaning {
                tools.join(more)?;
            }
        }
        let reasoning = fields.object("reasoning")?;
        let text = fields.object("text")?;
        let request = Request {
            model: fields.short_text("model", ID_BYTES_MAX)?.map(str::to_owned),
            input,
            instructions: instructions(&mut fields)?,
            previous: previous(&mut fields)?,
            tools,
            tool_choice: Choice::parse(&mut fields)?,
            parallel_tool_calls: fields.flag("parallel_tool_calls")?.unwrap_or(true),
            effort: reasoning.map(|reasoning| effort(reasoning, &mut ignored)).transpose()?.flatten(),
            format: text.map(|text| text_format(text, &mut ignored)).transpose()?.unwrap_or_default(),
            sampling: Sampling::parse(&mut fields)?,
            bias: bias(&mut fields)?,
            max_output_tokens: tokens(&mut fields, "max_output_tokens", 1)?,
            top_logprobs: top_logprobs(&mut fields, json)?,
            stop: stops(&mut fields)?,
            prediction: prediction(&mut fields)?,
            tier: tier(&mut fields)?,
            store: fields.flag("store")?.unwrap_or(true),
            background: fields.flag("background")?.unwrap_or(false),
            stream: fields.flag("stream")?.unwrap_or(false),
            generate: fields.flag("generate")?.unwrap_or(true),
            cache_key: fields.short_text("prompt_cache_key", ID_BYTES_MAX)?.map(str::to_owned),
            metadata: metadata(&mut fields)?,
            echo: echo(json),
            ignored: Vec::new(),
            raw: None,
        };
        fields.allow(&WITHOUT_EFFECT);
        for key in NOT_DONE {
            ignored
                .extend(fields.value(key).filter(|value| says_something(key, value)).map(|_| key.to_owned()));
        }
        ignored.extend(fields.unasked());
        request.check()?;
        Ok(Request { ignored, ..request })
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.background && !self.store {
            let problem = "`background` needs `store`: without it there is nothing to come back to";
            return Err(ApiError::invalid("background", problem));
        }
        self.return_seconds().map(drop)
    }

    /// How long a response goes on that nobody reads any more: somebody may come back to it by its id.
    pub fn return_seconds(&self) -> Result<u64, ApiError> {
        let invalid = |problem: &str| ApiError::invalid("metadata", format!("`{RETURN_SECONDS}` {problem}"));
        let Some(text) = self.metadata.get(RETURN_SECONDS).and_then(Value::as_str) else { return Ok(0) };
        if !self.store {
            return Err(invalid("needs `store`: without it there is nothing to come back to"));
        }
        let seconds = text.parse().ok().filter(|seconds| (0..=RETURN_SECONDS_MAX).contains(seconds));
        seconds.ok_or_else(|| invalid(&format!("must be a whole number from 0 to {RETURN_SECONDS_MAX}")))
    }

    /// What a response repeats of its request.
    pub fn settings(&self) -> Settings {
        let format = match &self.format {
            Format::Text => json!({"type": "text"}),
            Format::JsonObject => json!({"type": "json_object"}),
            Format::JsonSchema { name, schema } => {
                json!({"type": "json_schema", "name": name, "schema": schema, "strict": true})
            }
        };
        let set = [
            ("instructions", Value::Null),
            ("tools", json!([])),
            ("tool_choice", "auto".into()),
            ("parallel_tool_calls", true.into()),
            ("max_tool_calls", Value::Null),
            ("background", self.background.into()),
            ("max_output_tokens", self.max_output_tokens.into()),
            ("reasoning", json!({"effort": self.effort, "summary": null})),
            ("service_tier", self.tier.name().into()),
            ("store", self.store.into()),
            ("temperature", self.sampling.temperature.unwrap_or(0.0).into()),
            ("text", json!({"format": format})),
            ("top_logprobs", self.top_logprobs.unwrap_or(0).into()),
            ("top_p", self.sampling.top_p.unwrap_or(1.0).into()),
            ("truncation", "disabled".into()),
        ];
        self.echo.and(Settings::new(set.iter().map(|(key, value)| (*key, value))))
    }
}

/// How many alternatives to tell with each token; none: not even the token's own log-probability.
fn top_logprobs(fields: &mut Fields<'_>, json: &Value) -> Result<Option<u32>, ApiError> {
    let top = fields.integer("top_logprobs", 0..=TOP_LOGPROBS_MAX)?.map(|top| top as u32);
    let include = json.get("include").and_then(Value::as_array);
    let included = include.is_some_and(|what| what.iter().any(|what| what == "message.output_text.logprobs"));
    Ok(top.or(included.then_some(0)))
}

/// Whether a field that is not done asks for anything at all.
fn says_something(key: &str, value: &Value) -> bool {
    match (key, value) {
        ("truncation", Value::String(word)) => word != "disabled",
        ("include", Value::Array(wanted)) => wanted
            .iter()
            .any(|what| what != "message.output_text.logprobs" && what != "reasoning.encrypted_content"),
        _ => true,
    }
}

/// Text; some clients send it as items.
fn instructions(fields: &mut Fields<'_>) -> Result<Option<String>, ApiError> {
    Ok(fields.text("instructions")?.filter(|text| !text.is_empty()).map(str::to_owned))
}

fn previous(fields: &mut Fields<'_>) -> Result<Previous, ApiError> {
    if fields.value("conversation").is_some() {
        let problem = "is not supported: use previous_response_id";
        return Err(fields.invalid("conversation", problem));
    }
    let id = fields.short_text("previous_response_id", ID_BYTES_MAX)?;
    Ok(id.map_or(Previous::Nothing, |id| Previous::Response(id.to_owned())))
}

/// A word or a number.
fn effort(mut fields: Fields<'_>, ignored: &mut Vec<String>) -> Result<Option<String>, ApiError> {
    let effort = match fields.value("effort") {
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => fields.short_text("effort", NAME_BYTES_MAX)?.map(str::to_owned),
    };
    // Thoughts are sent as they are: nobody sums them up.
    for key in ["summary", "generate_summary"] {
        let wanted = fields.value(key).filter(|value| !value.is_null() && *value != "none");
        ignored.extend(wanted.map(|_| format!("reasoning.{key}")));
    }
    fields.allow(&["context"]);
    ignored.extend(fields.unasked());
    Ok(effort)
}

fn text_format(mut fields: Fields<'_>, ignored: &mut Vec<String>) -> Result<Format, ApiError> {
    let format = match fields.object("format")? {
        None => Format::Text,
        Some(format) => Format::parse(format)?,
    };
    ignored.extend(fields.text("verbosity")?.map(|_| "text.verbosity".to_owned()));
    ignored.extend(fields.unasked());
    Ok(format)
}

impl Format {
    /// `{"type":"json_schema","name":..,"schema":..}`; chat has the same inside `json_schema`.
    pub fn parse(mut fields: Fields<'_>) -> Result<Format, ApiError> {
        match fields.required_text("type")? {
            "text" => Ok(Format::Text),
            "json_object" => Ok(Format::JsonObject),
            "json_schema" => {
                let mut inner = fields.object("json_schema")?.unwrap_or(fields);
                let name = inner.short_text("name", NAME_BYTES_MAX)?.ok_or_else(|| inner.missing("name"))?;
                let schema = inner.value("schema").ok_or_else(|| inner.missing("schema"))?;
                match schema {
                    Value::Object(_) | Value::Bool(_) => {
                        Ok(Format::JsonSchema { name: name.to_owned(), schema: schema.clone() })
                    }
                    _ => Err(inner.invalid("schema", "must be an object: a JSON schema")),
                }
            }
            _ => Err(fields.invalid("type", "must be 'text', 'json_object' or 'json_schema'")),
        }
    }
}

impl Sampling {
    pub fn parse(fields: &mut Fields<'_>) -> Result<Sampling, ApiError> {
        Ok(Sampling {
            temperature: fields.number("temperature", 0.0..=2.0)?,
            top_p: fields.number("top_p", 0.0..=1.0)?,
            top_k: fields.integer("top_k", 0..=1_000_000)?.map(|k| k as u32),
            min_p: fields.number("min_p", 0.0..=1.0)?,
            repetition_penalty: fields.number("repetition_penalty", 0.1..=10.0)?,
            presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?,
            frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?,
            seed: fields.signed("seed")?,
        })
    }
}

/// `{"token id": bias}`.
pub(crate) fn bias(fields: &mut Fields<'_>) -> Result<Vec<(u32, f32)>, ApiError> {
    let Some(value) = fields.value("logit_bias") else { return Ok(Vec::new()) };
    let Value::Object(map) = value else { return Err(fields.invalid("logit_bias", "must be an object")) };
    if map.len() > LOGIT_BIAS_MAX {
        return Err(fields.invalid("logit_bias", format!("has more than {LOGIT_BIAS_MAX} entries")));
    }
    let entry = |(token, bias): (&String, &Value)| {
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias))?;
        Some((token.parse().ok()?, bias as f32))
    };
    let entries: Option<Vec<(u32, f32)>> = map.iter().map(entry).collect();
    entries.ok_or_else(|| fields.invalid("logit_bias", "must map ids of tokens to numbers from -100 to 100"))
}

pub(crate) fn tokens(fields: &mut Fields<'_>, key: &'static str, min: u64) -> Result<Option<u32>, ApiError> {
    Ok(fields.integer(key, min..=OUTPUT_TOKENS_MAX)?.map(|tokens| tokens as u32))
}

/// One string or several.
pub(crate) fn stops(fields: &mut Fields<'_>) -> Result<Vec<String>, ApiError> {
    let single = match fields.value("stop") {
        Some(Value::String(stop)) => Some(vec![stop.clone()]),
        _ => None,
    };
    let stops = match single {
        Some(single) => single,
        None => {
            let texts = fields.array("stop", STOPS_MAX)?.unwrap_or_default().iter();
            let texts = texts.map(|stop| stop.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
            texts.ok_or_else(|| fields.invalid("stop", "must be a string or an array of strings"))?
        }
    };
    match stops.iter().find(|stop| stop.is_empty() || stop.len() > STOP_BYTES_MAX) {
        Some(_) => Err(fields.invalid("stop", format!("must have strings of 1 to {STOP_BYTES_MAX} bytes"))),
        None => Ok(stops),
    }
}

/// `{"type":"content","content":".."}`.
pub(crate) fn prediction(fields: &mut Fields<'_>) -> Result<Option<String>, ApiError> {
    let Some(mut prediction) = fields.object("prediction")? else { return Ok(None) };
    match prediction.value("content") {
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            Ok(Some(texts.collect()))
        }
        _ => prediction.required_text("content").map(|text| Some(text.to_owned())),
    }
}

pub(crate) fn tier(fields: &mut Fields<'_>) -> Result<Tier, ApiError> {
    let tiers = [
        ("auto", Tier::Default),
        ("default", Tier::Default),
        ("priority", Tier::Priority),
        ("fast", Tier::Priority),
        ("flex", Tier::Flex),
    ];
    Ok(fields.choice("service_tier", &tiers)?.unwrap_or_default())
}

pub(crate) fn metadata(fields: &mut Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    let Some(value) = fields.value("metadata") else { return Ok(Map::new()) };
    let Value::Object(map) = value else { return Err(fields.invalid("metadata", "must be an object")) };
    if map.len() > METADATA_PAIRS_MAX {
        let problem = format!("has {} pairs, at most {METADATA_PAIRS_MAX} are allowed", map.len());
        return Err(fields.invalid("metadata", problem));
    }
    let fits = |(key, value): (&String, &Value)| {
        key.len() <= METADATA_KEY_BYTES_MAX
            && value.as_str().is_some_and(|text| text.len() <= METADATA_VALUE_BYTES_MAX)
    };
    match map.iter().all(fits) {
        true => Ok(map.clone()),
        false => Err(fields.invalid(
            "metadata",
            format!(
                "must have keys of at most {METADATA_KEY_BYTES_MAX} bytes and strings of at most \
                 {METADATA_VALUE_BYTES_MAX} bytes"
            ),
        )),
    }
}

fn echo(json: &Value) -> Settings {
    Settings::new(ECHOED.iter().filter_map(|key| Some((*key, json.get(*key)?))))
}
