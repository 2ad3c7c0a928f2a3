const assert = require("assert");
const { clean } = require("./text");

assert.strictEqual(clean("  Hello World "), "hello world");
