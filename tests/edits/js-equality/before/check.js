const assert = require("assert");
const { same, different } = require("./compare");

assert.strictEqual(same(1, "1"), false);
assert.strictEqual(same(1, 1), true);
assert.strictEqual(different(1, "1"), true);
