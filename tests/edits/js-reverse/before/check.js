const assert = require("assert");
const { reverse, upper } = require("./strings");

assert.strictEqual(reverse("abc"), "cba");
assert.strictEqual(upper("abc"), "ABC");
