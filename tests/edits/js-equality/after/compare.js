function same(a, b) {
  return a === b;
}

function different(a, b) {
  return !same(a, b);
}

module.exports = { same, different };
