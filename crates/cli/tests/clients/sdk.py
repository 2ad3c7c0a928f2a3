"""The OpenAI Python SDK against a server: sdk.py BASE_URL KEY MODEL PART. Exits 0 when all is as it must be."""

import json
import sys

import jsonschema
import openai

base_url, key, model, part = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=120)

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}


def create():
    answer = client.responses.create(model=model, input="Say hello.", max_output_tokens=40)
    assert answer.object == "response" and answer.model == model, answer
    assert answer.output_text, answer
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens, answer.usage
    assert len(answer.metadata["flint.weights_sha256"]) == 64, answer.metadata
    again = client.responses.retrieve(answer.id)
    assert again.output_text == answer.output_text
    follow = client.responses.create(
        model=model, input="Once more.", previous_response_id=answer.id, max_output_tokens=8
    )
    assert follow.usage.input_tokens_details.cached_tokens >= answer.usage.input_tokens, follow.usage
    client.responses.delete(answer.id)
    try:
        client.responses.retrieve(answer.id)
        raise SystemExit("a deleted response was found")
    except openai.NotFoundError:
        pass


def stream():
    events = list(client.responses.create(model=model, input="Say hello.", max_output_tokens=40, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == events[-1].response.output_text, (deltas, events[-1])
    with client.responses.stream(model=model, input="Name a colour.", max_output_tokens=400) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text


def tools():
    tool = {"type": "function", "name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}
    answer = client.responses.create(
        model=model, input="What is the weather in Paris?", tools=[tool], tool_choice="required"
    )
    call = answer.output[0]
    assert call.type == "function_call" and call.name == "get_weather", answer.output
    jsonschema.validate(json.loads(call.arguments), WEATHER)
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    answer = client.responses.create(
        model=model, input=[output], previous_response_id=answer.id, tools=[tool], max_output_tokens=20
    )
    assert answer.output, answer


def chat():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
    whole = client.chat.completions.create(
        model=model, messages=messages, max_tokens=20, logprobs=True, top_logprobs=2, seed=1
    )
    choice = whole.choices[0]
    assert choice.message.content and choice.finish_reason in ("stop", "length"), whole
    assert len(choice.logprobs.content[0].top_logprobs) == 2, choice.logprobs
    chunks = client.chat.completions.create(
        model=model, messages=messages, max_tokens=20, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == choice.message.content, (text, choice)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    chunks = client.chat.completions.create(
        model=model, messages=messages, max_tokens=20, logprobs=True, top_logprobs=2, seed=1, stream=True
    )
    entries = [entry for chunk in chunks if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
    assert [entry.token for entry in entries] == [entry.token for entry in choice.logprobs.content], entries
    assert all(len(entry.top_logprobs) == 2 for entry in entries), entries
    tool = {"type": "function", "function": {"name": "get_weather", "description": "", "parameters": WEATHER}}
    called = client.chat.completions.create(
        model=model, messages=messages, tools=[tool], tool_choice={"type": "function", "function": {"name": "get_weather"}}
    )
    arguments = called.choices[0].message.tool_calls[0].function.arguments
    jsonschema.validate(json.loads(arguments), WEATHER)
    assert called.choices[0].finish_reason == "tool_calls"
    text = client.completions.create(model=model, prompt="1, 2, 3, 4,", max_tokens=8)
    assert "5" in text.choices[0].text, text
    assert client.models.list().data[0].id == model


def leaf(n):
    kinds = [
        {"type": "integer", "minimum": 0, "maximum": n},
        {"enum": [f"value-{k}" for k in range(n + 1)]},
        {"type": "boolean"},
        {"type": "string", "maxLength": 8, "pattern": "^[a-z]+$"},
        {"type": "null"},
        {"const": n},
    ]
    return kinds[n % len(kinds)]


def schema(n):
    """The n-th schema: they grow in size, not in what must be written for them."""
    properties = {f"p{k}": leaf(n + k) for k in range(1 + n % 7)}
    whole = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    for _ in range(n % 4):
        whole = {"type": "object", "properties": {"in": whole}, "required": ["in"], "additionalProperties": False}
    if n % 5 == 1:
        whole = {"type": "array", "items": {"enum": list(range(n + 1))}, "minItems": 1, "maxItems": 3}
    if n % 5 == 2:
        whole = {"anyOf": [whole] + [{"const": f"other-{k}"} for k in range(n)]}
    if n % 5 == 3:
        whole["$defs"] = {f"d{k}": leaf(k) for k in range(n)}
        whole.setdefault("properties", {})["r"] = {"$ref": f"#/$defs/d{n - 1}"}
        whole["required"] = whole.get("required", []) + ["r"]
        whole["type"] = "object"
    return whole


def structured():
    for n in range(1, 201):
        form = {"type": "json_schema", "name": f"s{n}", "schema": schema(n), "strict": True}
        answer = client.responses.create(
            model=model, input=f"Make an example, number {n}.", text={"format": form}, store=False
        )
        assert answer.status == "completed", (n, answer)
        jsonschema.validate(json.loads(answer.output_text), schema(n))


def errors():
    for wrong, kind in [
        ({"model": "gpt-5", "input": "hi"}, openai.NotFoundError),
        ({"model": model, "input": "hi", "temperature": 9}, openai.BadRequestError),
        ({"model": model, "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         openai.BadRequestError),
    ]:
        try:
            client.responses.create(**wrong)
            raise SystemExit(f"{wrong} was taken")
        except kind:
            pass


{"create": create, "stream": stream, "tools": tools, "chat": chat, "structured": structured, "errors": errors}[part]()
