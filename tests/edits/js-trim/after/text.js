function clean(text) {
  return text.toLowerCase().trim();
}

module.exports = { clean };
