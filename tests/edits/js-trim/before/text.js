function clean(text) {
  return text.toLowerCase();
}

module.exports = { clean };
