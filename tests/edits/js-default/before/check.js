const assert = require("assert");
const { withTax } = require("./price");

assert.strictEqual(withTax(100), 120);
assert.strictEqual(withTax(100, 0.5), 150);
assert.strictEqual(withTax(100, 0), 100);
