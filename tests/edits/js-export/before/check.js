const assert = require("assert");
const { double, triple } = require("./tools");

assert.strictEqual(double(2), 4);
assert.strictEqual(triple(2), 6);
