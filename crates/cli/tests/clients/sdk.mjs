// The OpenAI JavaScript SDK against a server: node sdk.mjs CLIENTS BASE_URL KEY MODEL.
import assert from "node:assert";
import { createRequire } from "node:module";

const [clients, baseURL, apiKey, model] = process.argv.slice(2);
const OpenAI = createRequire(`${clients}/`)("openai").OpenAI;
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });

const whole = await client.responses.create({ model, input: "Say hello.", max_output_tokens: 30 });
assert.ok(whole.output_text.length > 0);

let text = "";
const stream = await client.responses.create({ model, input: "Say hello.", max_output_tokens: 30, stream: true });
for await (const event of stream) {
  if (event.type === "response.output_text.delta") text += event.delta;
}
assert.equal(text, whole.output_text);

const schema = {
  type: "object",
  properties: { name: { type: "string", maxLength: 12 }, age: { type: "integer", minimum: 0, maximum: 120 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const format = { type: "json_schema", name: "person", schema, strict: true };
const person = JSON.parse((await client.responses.create({ model, input: "A person.", text: { format } })).output_text);
assert.deepEqual(Object.keys(person), ["name", "age"]);

const tool = { type: "function", name: "add_person", description: "", parameters: schema, strict: true };
const called = await client.responses.create({ model, input: "Add Bob.", tools: [tool], tool_choice: "required" });
assert.equal(called.output[0].name, "add_person");
JSON.parse(called.output[0].arguments);

const chat = await client.chat.completions.create({
  model,
  messages: [{ role: "user", content: "Say hello." }],
  max_tokens: 20,
});
assert.ok(chat.choices[0].message.content.length > 0);
await assert.rejects(client.responses.create({ model: "gpt-5", input: "hi" }), (error) => error.status === 404);
