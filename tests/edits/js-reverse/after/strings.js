function upper(text) {
  return text.toUpperCase();
}

function reverse(text) {
  return text.split("").reverse().join("");
}

module.exports = { upper, reverse };
